"""The plan: the complete, serialisable description of a run's order.

    step ──▶ plan.bill(step)   ──▶ names of every sample in it      any step, microseconds, no table
    name ──▶ plan.where(name)  ──▶ every (epoch, step, slot)        the inverse, as fast

A plan knows datasets, seed, shuffle, mixture, batch size, chunks and the
events that changed it while it ran. It knows nothing of ranks: a rank takes
its share of a bill. Order, weights and passes count rows of sources; bills and
``where`` name samples of datasets, which are the parts of sources
(``lading.order.parts``).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import PlanError
from lading.identity import Bill, Deviation, Place, World, fingerprint, rank_of
from lading.identity.bill import batch_id
from lading.identity.hashing import key64, text64
from lading.order import plan_json
from lading.order.batch_schedule import planned_sizes
from lading.order.chosen import Chosen
from lading.order.clock import MAX_POSITION, Batching, Clock, Location
from lading.order.consistency import check
from lading.order.curriculum.levels import Levels
from lading.order.curriculum.order import Graded
from lading.order.curriculum.spec import CurriculumSpec
from lading.order.dataset import Part, PlannedDataset, datasets_of, numbered
from lading.order.event import Block, Choose, Event, Rebatch, Rescore, ResumeBase, Reweight
from lading.order.mixture import weights
from lading.order.mixture.order import Mixed, timeline
from lading.order.mixture.passes import Passes
from lading.order.mixture.request import Mixture
from lading.order.mixture.spec import MixtureSpec
from lading.order.notebook import plan_html
from lading.order.parts import Parts
from lading.order.resuming import events_from
from lading.order.shuffle import Order, Shuffled
from lading.order.simulation import Simulation, simulate
from lading.order.substitute import Blocklist, all_blocks, born_blocked

I64 = NDArray[np.int64]
_SHOWN = 4
_I64, _BOOL = np.dtype(np.int64), np.dtype(bool)  # made once: a small bill is mostly such calls


@dataclass(frozen=True)
class Plan:
    """The complete, serialisable description of a run's order.

    Attributes:
        datasets: The sources, in order, and the datasets that are their parts.
        global_batch_size: Samples of a step, all ranks together.
        seed: Same seed, same order, on every machine.
        shuffle: ``full``, ``window`` (windows of ``window_samples`` neighbours) or ``none``.
        window_samples: Samples of a window, for ``shuffle="window"``.
        drop_last: Whether an incomplete global batch at the end of an epoch is dropped.
        chunk_batches: Batches of a chunk, or None.
        mixture: Weights and schedule, or None: every sample once an epoch.
        events: What changed the plan while it ran.
        batch_schedule: (first step, global batch size) of a planned ramp-up, the first at step 0; or nothing.
        chunk_schedule: (first chunk, batches of a chunk) of chunk sizes that change as planned; or nothing.
        chosen_chunks: Whether the chunks of a pass come as they are chosen (``Choose``), not in order.
        curriculum: Difficulty of samples and the pace at which they come in, or None.
        lookahead_steps: Most steps on their way; an event acts so many steps later. No part of the fingerprint.
        blocked: (dataset, indices) of samples that are never used, or a mapping: substituted from step 0 on.
    """

    datasets: tuple[PlannedDataset, ...]
    global_batch_size: int
    seed: int = 0
    shuffle: str = "full"
    window_samples: int = 4096
    drop_last: bool = False
    chunk_batches: int | None = None
    mixture: MixtureSpec | None = None
    events: tuple[Event, ...] = ()
    batch_schedule: tuple[tuple[int, int], ...] = ()
    lookahead_steps: int = plan_json.LOOKAHEAD_STEPS
    chunk_schedule: tuple[tuple[int, int], ...] = ()
    chosen_chunks: bool = False
    curriculum: CurriculumSpec | None = None
    blocked: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "datasets", numbered(self.datasets))
        check(self)
        object.__setattr__(self, "blocked", born_blocked(self.blocked, self.parts, self.seed) if self.blocked else ())

    def __repr__(self) -> str:
        sizes = {d.name: d.length for d in self.datasets[:_SHOWN]}
        more = f" and {len(self.datasets) - _SHOWN} more" if len(self.datasets) > _SHOWN else ""
        kinds = [f"{len(self.events)} event{'s' * (len(self.events) > 1)}"] if self.events else []
        kinds += ["mixed"] if self.mixture is not None else []
        kinds += ["with a curriculum"] if self.curriculum is not None else []
        how = ", chosen" if self.chosen_chunks else ", then others" if self.chunk_schedule else ""
        kinds += [f"chunks of {self.chunk_batches}{how}"] if self.chunk_batches is not None else []
        rest = "".join(f", {kind}" for kind in kinds)
        return (
            f"Plan({sizes}{more}, global_batch_size={self.global_batch_size}, seed={self.seed}, "
            f"shuffle={self.shuffle!r}{rest}, {self.fingerprint})"
        )

    _repr_html_ = plan_html  # for notebooks

    @classmethod
    def make(
        cls,
        lengths: Mapping[str, int | Sequence[Part]] | int | Sequence[PlannedDataset],
        batch_size: int | None = None,
        *,
        batch_schedule: Sequence[Any] | None = None,
        mixture: Mixture | MixtureSpec | None = None,
        **fields: Any,
    ) -> Plan:
        """Make a plan from what the user gives.

        Args:
            lengths: Samples (or parts) of each source by name, of the only source, or the sources as a plan knows them.
            batch_size: Samples of a step, all ranks together.
            batch_schedule: Global batch sizes that change as planned, ``[(0, 32), ("1000ba", 64)]``; instead of
                ``batch_size``.
            mixture: Weights and schedule, as given or as a plan stores them.
            fields: Other fields of the plan.

        >>> plan = Plan.make({"code": 6, "prose": 4}, batch_size=4, seed=7)
        >>> plan.bill(0).num_samples, plan.epoch_steps(0)
        (4, 3)
        >>> twice = Plan.make({"data": [Part(None, "[0]", 6, 3), Part(None, "[1]", 2, 2)]}, batch_size=4)
        >>> twice.names, len(twice.where("data[0]", 1))
        (('data[0]', 'data[1]'), 2)
        """
        datasets = datasets_of(lengths)
        if (batch_size is None) == (batch_schedule is None):
            raise PlanError(
                f"batch_size={batch_size!r} and batch_schedule={batch_schedule!r}: expected one of them, "
                "such as batch_schedule=[(0, 32), ('1000ba', 64)]."
            )
        drop_last = fields.get("drop_last", False)
        sizes: tuple[tuple[int, int], ...] = () if batch_size is None else ((0, batch_size),)
        if batch_schedule is not None:
            epoch = sum(d.length for d in datasets) if mixture is None else _epoch(mixture, datasets)
            gapless = mixture is not None and mixture.stopping == "restart"
            sizes = planned_sizes(batch_schedule, epoch, drop_last=drop_last, gapless=gapless)
            fields["batch_schedule"] = sizes if len(sizes) > 1 else ()
        if isinstance(mixture, Mixture):
            mixture = mixture.planned(datasets, sizes, drop_last)
        return cls(datasets, sizes[0][1], mixture=mixture, **fields)

    def bill(self, step: int, *, world: World | None = None, pad: bool | None = None) -> Bill:
        """Return what a step holds.

        Args:
            step: Number of the global batch in the run.
            world: Whose share; None for the whole global batch.
            pad: Whether missing rows of a short last batch become padding. None: only where there is more than one
                rank, so that every rank delivers its full share at every step.
        """
        _, epoch, _, chunk, _, position, size, _ = self.clock.locate(step)
        sources, rows = self.order.step_samples(position, size)
        parts = self.parts
        datasets, indices = parts.of_rows(sources, rows)
        deviations: tuple[Deviation, ...] = ()
        if self._blocklist is not None:
            indices, rows, deviations = self._unblocked(step, datasets, indices, rows)
        whole = object.__new__(Bill)
        fields: dict[str, Any] = {
            "_id_key": self._id_key,
            "step": step,
            "epoch": epoch,
            "chunk": chunk,
            "position": position,
            "slots": np.arange(size, dtype=_I64),
            "dataset_idx": datasets,
            "idx": indices,
            "is_padding": np.zeros(size, dtype=_BOOL),
            "global_size": size,
            "num_samples": size,
            "names": parts.names,
        }
        if deviations:
            fields["deviations"] = deviations
        if not parts.is_plain:
            fields["source_rows"] = sources, rows
        # A frozen class sets its fields one by one, which takes as long as all the rest.
        object.__setattr__(whole, "__dict__", fields)
        if not pad and (world is None or world.world_size == 1):
            return whole
        return self.share(whole, world or World(), pad=pad)

    def share(self, whole: Bill, world: World, *, pad: bool | None = None) -> Bill:
        """Return one rank's share of the bill of a global batch; see ``bill``."""
        if world.world_size == 1 and not pad:
            return whole
        return whole.share(world, full_size=None if pad is False else self.clock.batch_at(whole.step))

    def _unblocked(
        self, step: int, datasets: NDArray[np.int32], indices: I64, rows: I64
    ) -> tuple[I64, I64, tuple[Deviation, ...]]:
        """Return indices and rows with blocked samples replaced, and what was replaced."""
        assert self._blocklist is not None
        indices, rows = indices.copy(), rows.copy()
        deviations = []
        for slot, index, instead in self._blocklist.apply(step, datasets, indices):
            number = int(datasets[slot])
            rows[slot] = self.parts.row_near(number, instead, int(rows[slot]))
            deviations.append(Deviation(slot, "substituted", number, index, instead, "blocked"))
        return indices, rows, tuple(deviations)

    def samples(self, start: int, stop: int) -> tuple[NDArray[np.int32], I64]:
        """Return dataset numbers and indices at the absolute positions ``[start, stop)`` of one epoch, blocks aside."""
        return self.parts.of_rows(*self.order.samples(start, stop))

    def batch_id(self, epoch: int, step: int) -> str:
        """Return the id of a step's batch: the same on every rank and in every attempt."""
        return batch_id(self._id_key, epoch, step)

    def where(
        self, dataset: str | int, index: int, start: int = 0, stop: int | None = None, *, world_size: int | None = None
    ) -> list[Place]:
        """Return every place that holds a sample or a copy of it, past or future.

        Args:
            dataset: Name or number of the dataset.
            index: Index of the sample in it.
            start: First step to look at.
            stop: Step to stop before. None: the end of the epoch of ``start``.
            world_size: Number of ranks, to get the rank as well.
        """
        number = self.number_of(dataset)
        self.parts.check_index(number, index)
        if stop is None:
            stop = self.clock.epoch_start(self.clock.locate(start).epoch + 1)
        steps, slots = self._steps_holding(number, index, start, stop)
        return [self._place(step, slot, world_size) for step, slot in zip(steps.tolist(), slots.tolist(), strict=True)]

    def locate(self, step: int) -> Location:
        """Return the epoch, chunk, position and size of a step."""
        return self.clock.locate(step)

    def epoch_start(self, epoch: int) -> int:
        """Return the first step of an epoch."""
        return self.clock.epoch_start(epoch)

    def epoch_steps(self, epoch: int) -> int:
        """Return the number of steps of an epoch."""
        return self.clock.epoch_steps(epoch)

    def chunk_start(self, chunk: int) -> int:
        """Return the first step of a chunk."""
        return self.clock.chunk_start(chunk)

    def chunk_steps(self, chunk: int) -> int:
        """Return the number of steps of a chunk."""
        return self.clock.chunk_steps(chunk)

    def blocked_at(self, step: int) -> Mapping[int, Mapping[int, int]]:
        """Return, by dataset number, the substitute of each index that is blocked at a step."""
        return self._blocklist.at(step) if self._blocklist is not None else {}

    @functools.cached_property
    def blocked_from(self) -> int | None:
        """The first step at which a sample is blocked; None where none ever is."""
        return None if self._blocklist is None else self._blocklist.change_steps[0]

    def counts(self, step: int) -> list[int]:
        """Return how many samples of each source the order holds before a step."""
        return self.order.counts(self.clock.locate(step).position)

    def number_of(self, dataset: str | int) -> int:
        """Return the number of a dataset given by name or number."""
        return self.parts.number_of(dataset)

    def simulate(self, steps: int | None = None, *, epochs: int | None = None) -> Simulation:
        """Return coverage, repeats, passes per source and tails, before anything runs. Default: one epoch."""
        if steps is None:
            steps = self.clock.epoch_start(1 if epochs is None else epochs)
        return simulate(self, steps)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the datasets, by number; empty where a number is unused."""
        return self.parts.names

    @functools.cached_property
    def source_names(self) -> tuple[str, ...]:
        """Names of the sources, in order: what weights and passes are about."""
        return tuple(d.name for d in self.datasets)

    @functools.cached_property
    def parts(self) -> Parts:
        """The datasets behind the sources: names of rows, both ways."""
        return Parts(self.datasets)

    @property
    def epoch_samples(self) -> int:
        """Samples of an epoch."""
        return self.clock.epoch_samples

    @functools.cached_property
    def fingerprint(self) -> str:
        """Stands for everything but the events: the same before and after a reweighting or rebatching."""
        return fingerprint(plan_json.description(self))

    @property
    def first_step(self) -> int:
        """The first step this plan answers for: 0, or where it was resumed without its past."""
        return self.clock.first_step

    def reweighting(self, step: int, integers: tuple[int, ...], reason: str = "") -> Reweight | None:
        """Return the event that gives the mixture other weights from a step on; None where it has them already.

        Args:
            step: First step of the new weights; ``lookahead_steps`` after the next step to be yielded.
            integers: The weights, as integers that sum to 2**31.
            reason: Who requested it.
        """
        position = self.clock.locate(step).position
        if isinstance(self.order, Mixed) and self.order.weights_at(position) == integers:
            return None
        return Reweight(step, position, integers, reason)

    def undecided_from(self, step: int) -> int | None:
        """Return the first step at or after a step whose chunk is not chosen yet; None where none is to be chosen."""
        return self.order.undecided_from(step) if isinstance(self.order, Chosen) else None

    def resizing(self, step: int, chunk_batches: int, reason: str = "") -> Rebatch | None:
        """Return the event that gives chunks another size from a step on; None where they have it already.

        Where chunks are chosen, sizes change between passes: a step inside a pass is refused.
        """
        at, pace = self.clock.locate(step), self.clock.pace_at(step)
        if self.chosen_chunks and at.offset:
            raise PlanError(f"chunks are chosen, and step {step} lies inside a pass: sizes change between passes.")
        if pace.chunk_batches == chunk_batches:
            return None
        return Rebatch(step, at.epoch, at.offset, pace.batch, chunk_batches, pace.later, reason)

    def rescoring(self, step: int, levels: Levels, reason: str = "") -> Rescore | None:
        """Return the event that gives samples other difficulties from a step on, the first of an epoch.

        None where they have them already.
        """
        if self.curriculum is None:
            raise PlanError("this plan has no curriculum whose scores could change. Pass mixture=Curriculum(scores).")
        at = self.clock.locate(step)
        if at.epoch_step:
            raise PlanError(f"step {step} is inside epoch {at.epoch}: scores change where an epoch begins.")
        in_force = self._rescored[-1].levels if self._rescored else self.curriculum.levels
        return None if in_force == levels else Rescore(step, at.position, levels, reason)

    def events_from(self, step: int) -> tuple[Event, ...]:
        """Return the events that resuming at a step needs: those before it become one ``ResumeBase``.

        ``plan.with_events(plan.events_from(step))`` has the same bills from ``ResumeBase.first_step`` on, and says of
        earlier steps that the ledger has them. What it takes does not grow with the number of past events.
        """
        return events_from(self.events, self.clock, self.order, step)

    def with_event(self, event: Event) -> Plan:
        """Return the plan as it is after an event. Nothing before the event changes."""
        after = dataclasses.replace(self, events=(*self.events, event))
        vars(after)["parts"] = self.parts  # events change no names
        if isinstance(event, Reweight | Block | Rescore | Choose):
            vars(after).update(fingerprint=self.fingerprint, clock=self.clock)
        if isinstance(event, Reweight) and isinstance(self.order, Mixed):
            vars(after).update(order=self.order.extended(event))  # the stages worked out so far stay
        elif isinstance(event, Block):
            vars(after).update(order=self.order)
        elif isinstance(event, Choose) and isinstance(self.order, Chosen):
            vars(after).update(order=self.order.extended(event))
        return after

    def with_events(self, events: Sequence[Event]) -> Plan:
        """Return the plan with these events and no others."""
        events = tuple(events)
        return self if events == self.events else dataclasses.replace(self, events=events)

    def differences(self, other: Plan) -> list[str]:
        """Name every difference to another plan, events left out."""
        return [text for _, text in plan_json.differences(plan_json.summary(self), plan_json.summary(other))]

    def to_json(self) -> str:
        """Return the plan, events included, as JSON."""
        return plan_json.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Rebuild a plan; undoes ``to_json``."""
        return cls(**plan_json.fields_from_json(text))

    @functools.cached_property
    def clock(self) -> Clock:
        """Steps, epochs, chunks and positions of the run."""
        sizes = self.batch_schedule or ((0, self.global_batch_size),)
        drawn = self.mixture is not None or self.curriculum is not None
        return Clock(
            sum(self.lengths) if self.mixture is None else self.mixture.epoch_samples,
            Batching(sizes, self.drop_last, self.chunk_batches, self.chunk_schedule[1:]),
            [e for e in self.events if isinstance(e, Rebatch)],
            gapless=drawn and not (self.mixture is not None and self.mixture.is_finite),
            limit=weights.MAX_POSITION if drawn else MAX_POSITION,
            base=self._base,
        )

    @functools.cached_property
    def lengths(self) -> tuple[int, ...]:
        """Samples of each source, copies included."""
        return tuple(d.length for d in self.datasets)

    @functools.cached_property
    def _id_key(self) -> int:
        return key64(text64(self.fingerprint))

    @functools.cached_property
    def order(self) -> Order:
        """The order behind the plan: positions to samples and back, batches and events left out."""
        if self.curriculum is not None:
            return self._graded(self.curriculum)
        if self.chosen_chunks:
            choices = [e for e in self.events if isinstance(e, Choose)]
            known = None if self._base is None else self._base.chosen
            return Chosen(self.lengths, self.seed, self.shuffle != "none", self.clock, choices, known)
        if self.mixture is None:
            return Shuffled(self.lengths, self.seed, self.shuffle, self.window_samples)
        passes = Passes(self.lengths, self.seed, self.shuffle, self.window_samples)
        stage = None if self._base is None else self._base.stage
        after = -1 if stage is None or self._base is None else self._base.position
        changes = timeline(self.mixture, [e for e in self.events if isinstance(e, Reweight)], after)
        return Mixed(passes, self.mixture, self.clock, changes, stage)

    def _graded(self, curriculum: CurriculumSpec) -> Graded:
        batch, passes = (self.global_batch_size, self.drop_last), (self.shuffle, self.window_samples)
        rescored = [(e.position, e.levels) for e in self._rescored]
        return Graded(self.lengths, curriculum, self.seed, batch, passes, rescored)

    @property
    def _rescored(self) -> list[Rescore]:
        """New scores since the plan was made, as far as they are known."""
        base = [] if self._base is None or self._base.scores is None else [self._base.scores]
        return [*base, *(e for e in self.events if isinstance(e, Rescore))]

    @functools.cached_property
    def _base(self) -> ResumeBase | None:
        return next((e for e in self.events if isinstance(e, ResumeBase)), None)

    @functools.cached_property
    def _blocklist(self) -> Blocklist | None:
        blocks = all_blocks(self.blocked, self.events, self.parts)
        return Blocklist(blocks, self.parts, self.seed) if blocks else None

    def _steps_holding(self, number: int, index: int, start: int, stop: int) -> tuple[I64, I64]:
        """Return steps and slots that hold a sample, substitutions taken into account."""
        if self._blocklist is None:
            return self._copies(number, [index], start, stop)
        cuts = [start, *(s for s in self._blocklist.change_steps if start < s < stop), stop]
        found = [self._copies(number, [], start, start)]
        for low, high in itertools.pairwise(cuts):
            table = self._blocklist.at(low).get(number, {})
            originals = [i for i, instead in table.items() if instead == index]
            if index not in table:
                originals.append(index)
            found.append(self._copies(number, originals, low, high))
        return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])

    def _copies(self, number: int, indices: Sequence[int], start: int, stop: int) -> tuple[I64, I64]:
        """Return steps and slots whose rows are copies of some samples, in order."""
        found = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))]
        for index in indices:
            source, rows = self.parts.rows_of(number, index)
            found += [self.steps_of_row(source, row, start, stop) for row in rows.tolist()]
        if len(found) == 2:
            return found[1]
        steps, slots = (np.concatenate([part[side] for part in found]) for side in (0, 1))
        rank = np.lexsort((slots, steps))
        return steps[rank], slots[rank]

    def steps_of_row(self, source: int, row: int, start: int, stop: int) -> tuple[I64, I64]:
        """Return the steps and slots in ``[start, stop)`` at which the order has a row of a source, blocks aside."""
        if stop <= start:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        last = self.clock.locate(stop - 1)
        low, high = self.clock.locate(start).position, last.position + last.size
        steps, slots = self.clock.steps_of(self.order.positions(source, row, low, high))
        kept = (steps >= start) & (steps < stop)
        return steps[kept], slots[kept]

    def _place(self, step: int, slot: int, world_size: int | None) -> Place:
        epoch = self.clock.locate(step).epoch
        if world_size is None:
            return Place(epoch, step, slot)
        return Place(epoch, step, slot, rank_of(slot, self.clock.batch_at(step), world_size))


def _epoch(mixture: Mixture | MixtureSpec, datasets: Sequence[PlannedDataset]) -> int:
    return mixture.epoch_samples if isinstance(mixture, MixtureSpec) else mixture.epoch(datasets)
