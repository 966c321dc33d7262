"""What every loader offers, whatever its framework: all of it is the engine's."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from lading.errors import LoaderError
from lading.identity import Bill, Deviation, World
from lading.loader.adapting import Adapting
from lading.loader.engine import Engine
from lading.loader.failure import BadSamplePolicy
from lading.loader.iteration import Batches
from lading.loader.request import Resume, check_resume, defaults, refuse_unknown
from lading.runtime.fields import html_table, shown_html
from lading.source.protocol import Sources

if TYPE_CHECKING:
    from lading.order import Event, Plan, Reweight
    from lading.order.decided import AdaptiveEvent
    from lading.order.mixture.spec import Weights

_SHOWN, _SHOWN_ROWS = 4, 30


class EngineLoader:
    """The methods of a loader. A face makes the engine and adds its framework's manners.

    Attributes:
        on_resume: What may differ between a saved run and this loader.
        sources, global_batch_size, shuffle, pad, ...: The arguments, as they were given.
    """

    engine: Engine
    on_resume: Resume
    sources: Sources
    global_batch_size: int | None
    shuffle: bool | str
    pad: bool | None
    seed: int
    window_samples: int
    weights: Weights | None
    mixture: Any
    sample_weights: Any
    chunk_batches: Any
    batch_schedule: Sequence[tuple[Any, int]] | None
    blocked: Mapping[str, Sequence[int]] | None
    masked: Mapping[str, Sequence[int]] | None
    names: Mapping[str, str] | bool | None
    on_bad_sample: str | Mapping[str, str] | BadSamplePolicy
    fingerprint: str | None
    prefetch: int | None
    workers: str

    def keep(self, options: Mapping[str, Any], kind: Any, **own: Any) -> dict[str, Any]:
        """Keep every argument under its own name, where frameworks that make a loader anew read it; return them all.

        Args:
            kind: Which options there are: ``LoaderOptions``, or one derived from it.
        """
        signature = inspect.signature(type(self).__init__)
        known = defaults(kind)
        refuse_unknown(type(self).__name__, options, known | dict(signature.parameters))
        given = {**known, **options, **own}
        vars(self).update(given, on_resume=given["on_resume"] or Resume())
        return given

    def __iter__(self) -> Iterator[Any]:
        return self.engine.iterate(with_bills=False)

    def with_bills(self) -> Batches[tuple[Any, Bill]]:
        """Iterate over (batch, bill); ``len`` is that of the loader."""
        return self.engine.iterate(with_bills=True)

    def __len__(self) -> int:
        """Return the batches of the whole epoch or chunk that the next iteration covers, also after a resume."""
        return len(self.engine.iteration_steps())

    def __repr__(self) -> str:
        engine = self.engine
        size = {name: len(reader.source) for name, reader in zip(engine.request.sources, engine.readers, strict=True)}
        shown = dict(list(size.items())[:_SHOWN])
        more = f" and {len(size) - _SHOWN} more" if len(size) > _SHOWN else ""
        return f"{type(self).__name__}({shown}{more}, {engine.request.described()}, at {_place_of(engine)})"

    def _repr_html_(self) -> str:
        """Return what is loaded and how far it got, for notebooks; nothing is planned for it."""
        engine = self.engine
        rows = [(n, len(reader.source)) for n, reader in zip(engine.request.sources, engine.readers, strict=True)]
        table = html_table(["dataset", "samples"], rows[:_SHOWN_ROWS], more=len(rows) - _SHOWN_ROWS, what="datasets")
        facts = f"{type(self).__name__}: {engine.request.described()}, at {_place_of(engine)}"
        return f"<p>{shown_html(facts)}</p>{table}"

    @property
    def plan(self) -> Plan:
        """The order of the run, events included; made at first use."""
        return self.engine.plan

    @property
    def world(self) -> World:
        """This rank among how many; looked up at first use, then frozen."""
        return self.engine.world

    @property
    def tracker(self) -> Any:
        """What is notified of every batch yielded: anything with ``update(bill)`` and ``flush()``."""
        return self.engine.tracker

    @tracker.setter
    def tracker(self, tracker: Any) -> None:
        self.engine.tracker = vars(self)["tracker"] = tracker

    @property
    def last_bill(self) -> Bill | None:
        """The bill of the batch yielded last."""
        return self.engine.notes.last_bill

    @property
    def bad_samples(self) -> list[tuple[int, Deviation]]:
        """(step, deviation) of every sample that this process could not read."""
        return self.engine.bad_samples.found

    @property
    def step(self) -> int:
        """The next step to yield."""
        return self.engine.step

    @property
    def epoch(self) -> int:
        """The epoch of the next step."""
        return self.plan.locate(self.step).epoch

    @property
    def chunk(self) -> int | None:
        """The chunk of the next step, where there are chunks."""
        return self.plan.locate(self.step).chunk

    @property
    def batches_done(self) -> int:
        """Batches of the epoch or chunk that were yielded or lie before a loaded state: ``initial=`` of a tqdm bar."""
        return self.engine.batches_done

    @property
    def policy(self) -> Any:
        """What chooses weights during the run, or None."""
        return self.engine.request.policy

    def iteration_steps(self) -> range:
        """Return the steps of the epoch or chunk that the next iteration covers."""
        return self.engine.iteration_steps()

    def share_of(self, step: int) -> Bill:
        """Return what this rank gets at a step, before anything is loaded."""
        return self.engine.share_of(step)

    def bill_at(self, batch_idx: int) -> Bill:
        """Return the bill of a batch of the current epoch or chunk, for frameworks that pass on only batches.

        Args:
            batch_idx: Number of the batch in the epoch or chunk that the last batch yielded belongs to.
        """
        plan, engine = self.plan, self.engine
        at = plan.locate(self.step if self.last_bill is None else self.last_bill.step)
        step = (plan.epoch_start(at.epoch) if at.chunk is None else plan.chunk_start(at.chunk)) + batch_idx
        return engine.bad_samples.bill(step) or engine.share_of(step)

    def set_epoch(self, epoch: int) -> None:
        """Move to the start of another epoch; the current one is left alone, chunks ignore it."""
        self.engine.set_epoch(epoch)

    def move_to(self, step: int) -> None:
        """Move to a step of the plan without loading a state: nothing that was trained on is undone."""
        self.engine.move_to(step)

    def state_dict(self, before: Bill | None = None) -> dict[str, Any]:
        """Return where the loader is: the same on every rank, JSON-able, at any time.

        Args:
            before: A bill yielded since the last resume. The state is then that before its batch: for a checkpoint
                inside a gradient accumulation, whose pending batches are to be repeated.
        """
        return self.engine.state(before)

    def load_state_dict(self, state: Mapping[str, Any], on_resume: Resume | None = None) -> None:
        """Resume where a state was taken, on any number of ranks and workers.

        Args:
            state: What ``state_dict`` returned, on any rank.
            on_resume: What may differ; None: what the loader was made with.
        """
        check_resume(on_resume)
        self.engine.load(state, self.on_resume if on_resume is None else on_resume)

    def peeking(self) -> AbstractContextManager[None]:
        """Let batches be looked at inside the block without taking them from the run or notifying the tracker."""
        return self.engine.peeking()

    def add_event(self, event: Event) -> None:
        """Change the plan from a step on that has not been yielded."""
        self.engine.add_event(event)

    def reweight(self, weights: Weights, reason: str = "") -> Reweight | None:
        """Change the weights of the mixture right after what may be prefetched; None where they are the same.

        Every rank must call it after the same step with the same weights. Nothing before the change moves.

        Args:
            weights: New weights, by name or in order, in the unit of the mixture.
            reason: Who asked for it, for the ledger.
        """
        from lading.loader.reweighting import reweight  # few runs change their weights

        return reweight(self.engine, weights, reason)

    def validated(
        self, metric: float | None = None, loss: float | None = None, on: Mapping[str, Any] | None = None
    ) -> tuple[Event, ...]:
        """Report the end of a chunk to the policies of chunks, and return what they changed.

        Call it on every rank, after the last batch of a chunk, with the same numbers: averaged over the ranks.

        Args:
            metric: What was measured in validation.
            loss: Mean training loss of the chunk.
            on: What it was measured on, for the ledger: ``last_chunk()`` of the validation loader.
        """
        return self.engine.validated(metric, loss, on)

    def last_chunk(self) -> dict[str, Any]:
        """Return the plan, chunk and steps of the batch yielded last: what a validation was made on.

        Empty before the first batch, or without chunks.
        """
        plan, bill = self.plan, self.last_bill
        if bill is None or bill.chunk is None:
            return {}
        first = plan.chunk_start(bill.chunk)
        return {"plan": plan.fingerprint, "chunk": bill.chunk, "first_step": first, "stop_step": bill.step + 1}

    def rescore(self, scores: Any, reason: str = "") -> AdaptiveEvent | None:
        """Give the samples of a curriculum other scores from the next epoch on; None where nothing changes.

        Every rank must call it after the same step. To resume a run after it, give the loader the scores again in
        ``Curriculum.later``.

        Args:
            scores: As in ``Curriculum``.
            reason: Who asked for it, for the ledger.
        """
        engine, adapting = self.engine, self.engine.request.mixture
        if not isinstance(adapting, Adapting):
            raise LoaderError("this loader has no curriculum to rescore. Pass mixture=Curriculum(scores).")
        return adapting.rescored(engine, engine.request, engine.readers, scores, reason)

    def block(self, dataset: str | int, indices: Sequence[int], reason: str = "") -> None:
        """Replace samples by substitutes, from the first step that cannot have been prefetched.

        Every rank must call it after the same step.

        Args:
            dataset: Name or number of the dataset.
            indices: The samples.
            reason: Why, for the ledger.
        """
        self.engine.block(dataset, indices, reason)


def _place_of(engine: Engine) -> str:
    """Return where a loader is, in a few words; nothing is looked up for it."""
    if engine.made_plan is None:
        return f"step {engine.step}"
    at, steps = engine.made_plan.locate(engine.step), engine.iteration_steps()
    of = f"chunk {at.chunk}" if at.chunk is not None else f"epoch {at.epoch}"
    return f"step {engine.step}, {engine.step - steps.start} of {len(steps)} in {of}"
