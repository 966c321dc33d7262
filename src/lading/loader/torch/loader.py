"""The loader: where source, order and batch meet.

    sources ──┐
              ├─▶ plan ─▶ bill of a step ─▶ this rank's share ─▶ gather ─▶ batch, names beside the data
    seed, G ──┘

It is a torch ``DataLoader`` to everybody who asks. Its only state is a step
number (``Cursor``): the order is a pure function, so resuming costs
microseconds wherever it lands, on any number of ranks and workers.

Hand batches out one by one, each with its bill.

A batch counts as delivered the moment it is handed out: the loader moves on,
the tracker is told, and only then does the caller get it.

Arguments of a loader that need a second look.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import ConcatDataset, DataLoader

from lading.errors import BadSampleError, LoaderError, PlanError, WorldError
from lading.identity import Bill, Deviation, World
from lading.loader import planning, reweighting, workers
from lading.loader.bad_samples import Incidents
from lading.loader.cursor import Cursor
from lading.loader.fetch import POLICIES, Failure, Fetcher, WorkOrder
from lading.loader.names import column_keys
from lading.loader.state import loaded_mark, make_state, restored_plan
from lading.loader.torch import samplers
from lading.loader.torch.samplers import PlanSampler
from lading.loader.trackers import Trackers
from lading.loader.workers import Delivered
from lading.order import Block, Event, Plan, Reweight
from lading.order.agreement import agree_on_plan
from lading.order.mixture.spec import LOOKAHEAD_STEPS
from lading.order.mixture.weights import Weights
from lading.source.reader import Reader


def policies(on_error: str | Mapping[str, str], sources: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what to do about a bad sample, by number of the source."""
    chosen = on_error if isinstance(on_error, Mapping) else dict.fromkeys(sources, on_error)
    found = tuple(chosen.get(name, "raise") for name in sources)
    unknown = sorted({*found} - {*POLICIES}) or sorted({*chosen} - {*sources})
    if unknown:
        raise LoaderError(
            f"on_error has {', '.join(map(repr, unknown))}: expected one of {', '.join(POLICIES)}, or a dict with "
            f"names among {', '.join(sources)}."
        )
    return found


class LoaderIterator(Iterator[Any]):
    """One round of a loader.

    Args:
        loader: The loader that is moved on.
        stream: The batches of the round.
        stop: Step that ends the round.
        with_bills: Whether to give (batch, bill) or the batch alone.
    """

    def __init__(
        self, loader: Loader, stream: Generator[Delivered, None, None], stop: int, *, with_bills: bool
    ) -> None:
        self._loader, self._stream, self._stop, self._with_bills = loader, stream, stop, with_bills

    def __next__(self) -> Any:
        order, delivery = next(self._stream)
        if delivery.failure is not None:
            self._stream.close()  # ends workers and threads now, not when the traceback is forgotten
            raise bad_sample(order.bill, delivery.failure)
        bill = delivery.bill or order.bill
        self._loader.hand_out(bill, self._stop, self, delivery.batch)
        return (delivery.batch, bill) if self._with_bills else delivery.batch


def bad_sample(bill: Bill, failure: Failure) -> BadSampleError:
    """Return the error that names a sample that could not be read."""
    name = bill.names[failure.dataset]
    file = f" ({failure.file})" if failure.file else ""
    error = BadSampleError(
        f"sample {failure.index} of dataset {name!r}{file} could not be read for batch {bill.batch_id} of step "
        f"{bill.step}: {failure.error}. Mend it, or pass on_error='skip' or 'substitute'.",
        dataset=name,
        index=failure.index,
        step=bill.step,
        batch_id=bill.batch_id,
        file=failure.file,
    )
    error.add_note(failure.trace)
    return error


_SHUFFLES = {True: "full", False: "none", "block": "block", "full": "full", "none": "none"}


class Loader(DataLoader[Any]):
    """Load batches that can be accounted for.

    Args:
        sources: One dataset, or several by name. Anything with ``__len__`` and ``__getitem__``.
        batch_size: Samples of a batch on each rank.
        global_batch_size: Samples of a step, all ranks together; instead of ``batch_size``.
        seed: Same seed, same order, on every machine.
        shuffle: True, False, or ``"block"`` (blocks of ``block_samples`` neighbours, for locality on disk).
        weights: Shares of the datasets, by name or in order; an epoch is then ``epoch_samples`` (the sum of lengths).
        schedule: Weights that change as planned: ``[(0, {...}), ("2000ba", {...})]``, or see
            ``lading.order.mixture.schedule``.
        temperature: Flattens weights (or lengths) to the power 1/T.
        stopping: When an epoch of a mixture ends: ``restart``, ``first_exhausted`` or ``all_exhausted``.
        weight_unit: ``samples`` or ``tokens``: what weights are shares of; ``mean_tokens`` by name, or the sources'.
        lookahead_steps: Most batches on their way; ``reweight`` acts after that many.
        policy: Chooses weights while the run goes on, such as ``lading.train.FollowLosses``.
        mixture: A ready ``MixtureSpec`` or a ``MixtureRequest``; instead of all these.
        chunk_batches: Batches of a chunk. Each iteration then hands out one chunk.
        drop_last: Whether an incomplete global batch at the end of an epoch is dropped.
        pad: Whether the last, incomplete batch is filled up with marked rows. None: only with several ranks.
        names: Keys of the name columns in dict batches (``{"idx": "sample_idx"}``), or False for none.
        collate_fn: Makes a batch of a list of samples.
        tracker: Anything with ``update(bill)`` and ``flush()``: a BatchTracker, a Ledger, or several of them.
        on_error: What to do about a sample that cannot be read: ``raise``, ``skip`` or ``substitute``; or by name.
        max_bad: Bad samples after which a run stops all the same.
        fingerprint: Content to look at for the plan: None, ``"sample"`` or ``"full"``.
        rank, world_size: Who this process is; default: the process group, else the environment.
        prefetch: Batches to gather ahead in a thread, without workers; None: where batches are large and used slowly.
        allow_rebatch: Whether a state with another global batch size may be loaded.
        num_workers, pin_memory, timeout, worker_init_fn, multiprocessing_context, prefetch_factor,
            persistent_workers, generator: As in torch.

    Example:
        >>> import numpy as np
        >>> loader = Loader({"numbers": np.arange(10)}, batch_size=4, shuffle=False)
        >>> [batch.tolist() for batch in loader]
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        >>> loader.plan.bill(2).samples
        [SampleId(dataset=0, index=8), SampleId(dataset=0, index=9)]
    """

    def __init__(
        self,
        sources: Any,
        batch_size: int | None = None,
        *,
        global_batch_size: int | None = None,
        seed: int = 0,
        shuffle: bool | str = True,
        block_samples: int = 4096,
        weights: Weights | None = None,
        schedule: Any = None,
        temperature: float | None = None,
        stopping: str = "restart",
        epoch_samples: int | None = None,
        weight_unit: str = "samples",
        mean_tokens: Mapping[str, float] | None = None,
        lookahead_steps: int = LOOKAHEAD_STEPS,
        policy: reweighting.Policy | None = None,
        mixture: Any = None,
        chunk_batches: int | None = None,
        drop_last: bool = False,
        pad: bool | None = None,
        names: Mapping[str, str] | bool | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        tracker: Any = None,
        on_error: str | Mapping[str, str] = "raise",
        max_bad: int = 100,
        fingerprint: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        prefetch: int | None = None,
        allow_rebatch: bool = False,
        num_workers: int = 0,
        pin_memory: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        generator: torch.Generator | None = None,
        dataset: Any = None,
        sampler: Any = None,
        batch_sampler: Any = None,
    ) -> None:
        if sampler is not None or batch_sampler is not None:
            asked = (batch_size, shuffle, drop_last)
            batch_size, shuffle, drop_last = samplers.meaning(sampler, batch_sampler, asked)
        if batch_size is None and global_batch_size is None:
            raise PlanError("no batch size: expected batch_size= (a rank's) or global_batch_size= (all ranks').")
        if shuffle not in _SHUFFLES:
            raise PlanError(f"shuffle is {shuffle!r}: expected True, False or 'block'.")
        self.sources, self.global_batch_size, self.seed = sources, global_batch_size, seed
        self.shuffle, self.block_samples = shuffle, block_samples
        self.weights, self.mixture, self.chunk_batches, self.pad = weights, mixture, chunk_batches, pad
        self.schedule, self.temperature, self.stopping = schedule, temperature, stopping
        self.epoch_samples, self.weight_unit, self.mean_tokens = epoch_samples, weight_unit, mean_tokens
        self.lookahead_steps = lookahead_steps
        self.policy, self._policy = policy, reweighting.PolicyRunner.of(policy)
        self.names, self.tracker, self.on_error, self.max_bad = names, tracker, on_error, max_bad
        self.fingerprint, self.rank, self.world_size = fingerprint, rank, world_size
        self.prefetch, self.allow_rebatch = prefetch, allow_rebatch
        self._named = dict(sources) if isinstance(sources, Mapping) else {"data": sources}
        self._fetcher = Fetcher(self._named, seed, collate_fn, {}, policies(on_error, self._named))
        readers = self._fetcher.readers
        view = readers[0].source if len(readers) == 1 else ConcatDataset([r.source for r in readers])
        self.drop_last, self.dataset = drop_last, view  # PlanSampler reads them before torch sets them
        self._cursor = Cursor()
        self._loaded: dict[str, Any] | None = None  # the state loaded last, until its first batch is yielded
        self._plan: Plan | None = None
        self._world: World | None = None
        self._has_agreed = False  # with the other ranks, on the plan
        self._workers: workers.Workers | None = None
        self._newest: weakref.ref[LoaderIterator] | None = None  # weak: whoever drops the iterator ends its workers
        self._incidents = Incidents(max_bad)
        self.last_bill: Bill | None = None
        self.rank_batch_size = batch_size
        super().__init__(
            view,
            batch_size=batch_size or global_batch_size,
            sampler=PlanSampler(self),
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            drop_last=drop_last,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            generator=generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
        )
        if batch_sampler is not None:
            object.__setattr__(self, "batch_sampler", batch_sampler)  # torch allows no change after __init__

    @property
    def plan_shuffle(self) -> str:
        """The plan's word for ``shuffle``."""
        return _SHUFFLES[self.shuffle]

    @property
    def world(self) -> World:
        """This rank among how many; looked up at first use, then frozen."""
        if self._world is None:
            self._world = World.current(self.rank, self.world_size)
        return self._world

    @property
    def plan(self) -> Plan:
        """The order of the run, events included; made at first use."""
        if self._plan is None:
            self._plan = planning.make_plan(self)
        return self._plan

    def named_readers(self) -> Iterator[tuple[str, Reader]]:
        """Yield the sources by name, as they are read."""
        return zip(self._named, self._fetcher.readers, strict=True)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return self._start(with_bills=False)

    def with_bills(self) -> Iterator[tuple[Any, Bill]]:
        """Iterate over (batch, bill)."""
        return self._start(with_bills=True)

    def _start(self, *, with_bills: bool) -> LoaderIterator:
        self._check_world()
        steps = self._cursor.begin(self.plan)
        if not self._has_agreed:
            agree_on_plan(self.world, self.plan, steps.start)
            self._has_agreed = True
        self._plan = Trackers(self.tracker).begin(steps.start, self.plan, self.world, self._loaded)
        self._fetcher.names = column_keys(self.names, self._named.values(), may_pad=self._may_pad())
        self._fetcher.parts = self.plan.parts
        stream = self._deliveries(_orders(weakref.ref(self), steps))
        iterator = LoaderIterator(self, stream, steps.stop, with_bills=with_bills)
        self._newest = weakref.ref(iterator)
        return iterator

    def __len__(self) -> int:
        """Return the batches of the whole epoch or chunk that the next iteration is about, also after a resume."""
        return len(self.round_steps())

    def round_steps(self) -> range:
        """Return the steps of the epoch or chunk that the next iteration is about."""
        return range(*self._cursor.bounds(self.plan))

    def share_of(self, step: int) -> Bill:
        """Return what this rank gets at a step, before anything is loaded."""
        return self.plan.bill(step, world=self.world, pad=self.pad)

    def bill_at(self, batch_idx: int) -> Bill:
        """Return the bill of a batch of the current round, for frameworks that hand out only batches.

        Args:
            batch_idx: Number of the batch in the round that the last batch handed out belongs to.
        """
        last = self.last_bill.step if self.last_bill is not None else self._cursor.next_step
        at = self.plan.locate(last)
        first = self.plan.epoch_start(at.epoch) if at.chunk is None else self.plan.chunk_start(at.chunk)
        step = first + batch_idx
        return self._incidents.bill(step) or self.share_of(step)

    def _order(self, step: int) -> WorkOrder:
        blocked = {d: frozenset(table) for d, table in self.plan.blocked_at(step).items()}
        return WorkOrder(self.share_of(step), blocked)

    def _deliveries(self, orders: Iterator[WorkOrder]) -> Generator[workers.Delivered, None, None]:
        if self.num_workers == 0:
            prefetch = reweighting.capped_prefetch(self.plan, 0, None, self.prefetch)[1]
            return workers.in_this_process(self._fetcher, orders, prefetch, self._pins())
        if self._workers is None or not self.persistent_workers:
            self._workers = workers.Workers(self._fetcher, self.seed, self._worker_settings())
        return self._workers.run(orders)

    def _may_pad(self) -> bool:
        short = not self.drop_last and self.plan.epoch_samples % self.plan.clock.batch > 0
        several = self.world.world_size > 1 and self.pad is not False
        return "skip" in self._fetcher.policies or (short and (several or bool(self.pad)))

    def _worker_settings(self) -> dict[str, Any]:
        kept = ("num_workers", "timeout", "worker_init_fn", "persistent_workers", "generator")
        return {
            **{name: getattr(self, name) for name in kept},
            "prefetch_factor": reweighting.capped_prefetch(self.plan, self.num_workers, self.prefetch_factor, None)[0],
            "multiprocessing_context": self.multiprocessing_context,
            "pin_memory": self._pins(),
        }

    def _pins(self) -> bool:
        return bool(self.pin_memory) and torch.accelerator.is_available()

    @property
    def bad_samples(self) -> list[tuple[int, Deviation]]:
        """(step, deviation) of every sample that this process could not read."""
        return self._incidents.bad_samples

    @property
    def step(self) -> int:
        """The next step to hand out."""
        return self._cursor.next_step

    @property
    def epoch(self) -> int:
        """The epoch of the next step."""
        return self.plan.locate(self.step).epoch

    @property
    def chunk(self) -> int | None:
        """The chunk of the next step, where there are chunks."""
        return self.plan.locate(self.step).chunk

    def set_epoch(self, epoch: int) -> None:
        """Move to the start of another epoch; the current one is left alone, chunks ignore it."""
        if self.chunk_batches is None and epoch != self.epoch:
            self._cursor.move_to(self.plan.epoch_start(epoch))

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader stands: the same on every rank, JSON-able, at any time."""
        trackers = Trackers(self.tracker)
        trackers.flush()
        return make_state(self.plan, self.step, self._policy.state(), trackers.mark(self.step) or self._loaded)

    def load_state_dict(
        self, state: Mapping[str, Any], *, allow_rebatch: bool | None = None, allow_changed_plan: bool = False
    ) -> None:
        """Go on where a state was taken, on any number of ranks and workers.

        Args:
            state: What ``state_dict`` returned, on any rank.
            allow_rebatch: Go on with another global batch size from there.
            allow_changed_plan: Go on although seed, data or weights differ.
        """
        rebatch = self.allow_rebatch if allow_rebatch is None else allow_rebatch
        fresh = planning.make_plan(self, planning.first_batch(state))
        plan, step = restored_plan(state, fresh, allow_rebatch=rebatch, allow_changed_plan=allow_changed_plan)
        self._policy.load(state.get("policy", ""))
        self._plan, self._has_agreed = plan, False
        self._cursor.move_to(step)
        self._loaded = loaded_mark(state)
        self._incidents.clear()
        self.last_bill = None

    def move_to(self, step: int) -> None:
        """Move to a step of the plan without loading a state: nothing that was trained on is undone."""
        self._cursor.move_to(step)
        self._incidents.clear()
        self.last_bill = None

    @contextlib.contextmanager
    def peeking(self) -> Iterator[None]:
        """Let batches be looked at inside the block without taking them from the run or telling the tracker."""
        kept = self._cursor.snapshot(), self.tracker, self.last_bill, self._loaded, self._has_agreed
        self.tracker, self._policy.is_paused, self._has_agreed = None, True, True  # one rank may peek alone
        try:
            yield
        finally:
            self._newest, self._policy.is_paused = None, False
            snapshot, self.tracker, self.last_bill, self._loaded, self._has_agreed = kept
            self._cursor.restore(snapshot)

    def add_event(self, event: Event) -> None:
        """Change the plan from a step on that has not been handed out."""
        if event.step < self.step:
            raise LoaderError(
                f"a {event.kind} at step {event.step} would change steps already handed out; the loader stands at step "
                f"{self.step}. Events act from the next step on."
            )
        self._plan = self.plan.with_event(event)
        Trackers(self.tracker).event(event)

    def reweight(self, weights: Weights, reason: str = "") -> Reweight:
        """Change the weights of the mixture from the first block boundary after what may be prefetched.

        Every rank must call it after the same step with the same weights. Nothing before the change moves.

        Args:
            weights: New weights, by name or in order, in ``weight_unit``.
            reason: Who asked for it, for the ledger.
        """
        event = reweighting.reweighted(self.plan, self.step, weights, self.world, reason)
        self.add_event(event)
        return event

    def block(self, dataset: str | int, indices: Sequence[int], reason: str = "") -> None:
        """Replace samples by substitutes from the next iteration's first step on."""
        number = self.plan.number_of(dataset)
        self.add_event(Block(self.step, number, tuple(map(int, indices)), reason))

    def hand_out(self, bill: Bill, stop: int, iterator: LoaderIterator, batch: Any = None) -> None:
        """Note that a batch leaves the loader. Only the newest iterator moves it."""
        is_newest = self._newest is not None and iterator is self._newest()
        if is_newest:
            self._cursor.hand_out(bill.step, stop)
            self.last_bill = bill
            samplers.note_indices(self, bill)
        self._loaded = None
        if bill.deviations:
            self._incidents.note(bill)
        Trackers(self.tracker).update(bill, batch)
        if is_newest and self._policy.wants(self.step):
            chosen = self._policy.choose(self.plan, self.step)
            if chosen is not None:
                self.reweight(chosen, type(self.policy).__name__)

    def _check_world(self) -> None:
        now = World.current(self.rank, self.world_size)
        if now != self.world:
            raise WorldError(
                f"this loader began as rank {self.world.rank} of {self.world.world_size} and is now rank {now.rank} of "
                f"{now.world_size}. Make the loader after the process group, or pass rank= and world_size=."
            )


def _orders(reference: weakref.ref[Loader], steps: range) -> Iterator[WorkOrder]:
    """Yield the work orders of some steps without keeping the loader alive: persistent workers keep this."""
    for step in steps:
        order = None if reference() is None else reference()._order(step)  # type: ignore[union-attr]
        if order is None:
            return
        yield order
