"""The plan: the complete, serialisable description of a run's order.

    step ──▶ plan.bill(step)   ──▶ names of every sample in it      any step, microseconds, no table
    name ──▶ plan.where(name)  ──▶ every (epoch, step, slot)        the inverse, as fast

A plan knows datasets, seed, shuffle, mixture, batch size, chunks and the
events that changed it while it ran. It knows nothing of ranks: a rank takes
its share of a bill. Order, weights and passes count rows of sources; bills and
``where`` name samples of datasets, which are the parts of sources
(``lading.order.dataset``).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lading.identity import Bill, Deviation, Place, World, fingerprint
from lading.identity.bill import batch_id
from lading.identity.hashing import key64, text64
from lading.order import making, plan_json
from lading.order.clock import Clock, Location
from lading.order.dataset import Part, Parts, PlannedDataset, numbered
from lading.order.event import Block, Event, Mask, Rebatch, ResumeBase, Reweight
from lading.order.mixture.order import Mixed
from lading.order.mixture.spec import MixtureSpec
from lading.order.shuffle import Order
from lading.order.substitute import Blocklist, Masked, Masklist, all_blocks, all_masks, born_blocked, born_masked

if TYPE_CHECKING:
    from lading.order.adaptation import Adaptation
    from lading.order.mixture.request import Mixture
    from lading.order.sample_weights import Tables, Weighted
    from lading.order.simulation import Simulation

I64 = NDArray[np.int64]
_ALONE = World()
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
        adaptation: How the order adapts while the run goes on, or None.
        lookahead_steps: Most steps on their way; an event acts so many steps later. No part of the fingerprint.
        blocked: (dataset, indices) of samples that are never used, or a mapping: substituted from step 0 on.
        sample_weights: (source, weights of its samples), or a mapping: how often each comes in a pass.
        masked: (dataset, documents) of documents whose tokens are never used, or a mapping: padding in their rows.
    """

    datasets: tuple[PlannedDataset, ...]
    global_batch_size: int
    seed: int = 0
    shuffle: str = "full"
    window_samples: int = plan_json.WINDOW_SAMPLES
    drop_last: bool = False
    chunk_batches: int | None = None
    mixture: MixtureSpec | None = None
    events: tuple[Event, ...] = ()
    batch_schedule: tuple[tuple[int, int], ...] = ()
    lookahead_steps: int = plan_json.LOOKAHEAD_STEPS
    chunk_schedule: tuple[tuple[int, int], ...] = ()
    adaptation: Adaptation | None = None
    blocked: tuple[tuple[str, tuple[int, ...]], ...] = ()
    sample_weights: Weighted = ()
    masked: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "datasets", numbered(self.datasets))
        object.__setattr__(self, "sample_weights", making.weights_of(self) if self.sample_weights else ())
        making.check(self)
        if self.adaptation is not None:
            self.adaptation.check(self)
        object.__setattr__(self, "blocked", born_blocked(self.blocked, self.parts, self.seed) if self.blocked else ())
        object.__setattr__(self, "masked", born_masked(self.masked, self.parts) if self.masked else ())

    def __repr__(self) -> str:
        from lading.order.notebook import plan_text  # no loader needs it: so in all methods below that import

        return plan_text(self)

    def _repr_html_(self) -> str:
        from lading.order.notebook import plan_html

        return plan_html(self)

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
        return cls(**making.fields_of(lengths, batch_size, batch_schedule, mixture, fields))

    def bill(self, step: int, *, world: World | None = None, pad: bool | None = None) -> Bill:
        """Return what a step holds.

        Args:
            step: Number of the global batch in the run.
            world: Whose share; None for the whole global batch.
            pad: Whether missing rows of a short last batch become padding. None: only where there is more than one
                rank, so that every rank delivers its full share at every step.
        """
        located = self.clock.locate(step)
        size = located.size
        if not pad and (world is None or world.world_size == 1):
            return self._slots(located, 0, size, world or _ALONE)
        world = world or _ALONE
        full = size if pad is False else self.clock.batch_at(step)
        first, stop = world.share(full)
        if first < stop <= size:
            return self._slots(located, first, stop, world)
        return self._slots(located, 0, size, _ALONE).share(world, full_size=full)

    def _slots(self, located: Location, first: int, stop: int, world: World) -> Bill:
        """Return the bill of the slots ``[first, stop)`` of a step."""
        step, epoch, _, chunk, _, position, size, _ = located
        sources, rows = self.order.step_samples(position, size, first, stop)
        parts = self.parts
        datasets, indices = parts.of_rows(sources, rows)
        deviations: tuple[Deviation, ...] = ()
        if self.blocklist is not None:
            indices, rows, deviations = self.blocklist.replaced(step, datasets, indices, rows, first)
        return Bill(
            batch_id(self._id_key, epoch, step),
            step,
            epoch,
            chunk,
            position,
            np.arange(first, stop, dtype=_I64),
            datasets,
            indices,
            np.zeros(stop - first, dtype=_BOOL),
            size,
            world,
            parts.names,
            deviations,
            None if parts.is_plain else (sources, rows),
            () if self.masklist is None else self.masklist.at(step),
        )

    def share(self, whole: Bill, world: World, *, pad: bool | None = None) -> Bill:
        """Return one rank's share of the bill of a global batch; see ``bill``."""
        if world.world_size == 1 and not pad:
            return whole
        return whole.share(world, full_size=None if pad is False else self.clock.batch_at(whole.step))

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
        from lading.order.where import places

        return places(self, self.number_of(dataset), index, start, stop, world_size)

    def steps_of_row(self, source: int, row: int, start: int, stop: int) -> tuple[I64, I64]:
        """Return the steps and slots in ``[start, stop)`` at which the order has a row of a source, blocks aside."""
        from lading.order.where import steps_of_row

        return steps_of_row(self, source, row, start, stop)

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
        return self.blocklist.at(step) if self.blocklist is not None else {}

    def masked_at(self, step: int) -> Masked:
        """Return (dataset number, documents) of the documents whose tokens are padding at a step."""
        return self.masklist.at(step) if self.masklist is not None else ()

    @functools.cached_property
    def blocked_from(self) -> int | None:
        """The first step at which a sample is blocked; None where none ever is."""
        return None if self.blocklist is None else self.blocklist.change_steps[0]

    def counts(self, step: int) -> list[int]:
        """Return how many samples of each source the order holds before a step."""
        return self.order.counts(self.clock.locate(step).position)

    def number_of(self, dataset: str | int) -> int:
        """Return the number of a dataset given by name or number."""
        return self.parts.number_of(dataset)

    def simulate(self, steps: int | None = None, *, epochs: int | None = None) -> Simulation:
        """Return coverage, repeats, passes per source and tails, before anything runs. Default: one epoch."""
        from lading.order.simulation import simulate

        return simulate(self, self.clock.epoch_start(1 if epochs is None else epochs) if steps is None else steps)

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
        return Parts(self.datasets, self.weight_tables)

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
        """
        position = self.clock.locate(step).position
        if isinstance(self.order, Mixed) and self.order.weights_at(position) == integers:
            return None
        return Reweight(step, position, integers, reason)

    def undecided_from(self, step: int) -> int | None:
        """Return the first step at or after a step that is not decided yet; None where all are."""
        return None if self.adaptation is None else self.adaptation.undecided_from(self.order, step)

    def events_from(self, step: int) -> tuple[Event, ...]:
        """Return the events that resuming at a step needs: those before it become one ``ResumeBase``.

        ``plan.with_events(plan.events_from(step))`` has the same bills from ``ResumeBase.first_step`` on, and says of
        earlier steps that the ledger has them. What it takes does not grow with the number of past events.
        """
        return making.events_from(self, step)

    def with_event(self, event: Event) -> Plan:
        """Return the plan as it is after an event. Nothing before the event changes."""
        after = dataclasses.replace(self, events=(*self.events, event))
        vars(after)["parts"] = self.parts  # events change no names
        if not isinstance(event, Rebatch | ResumeBase):
            vars(after).update(fingerprint=self.fingerprint, clock=self.clock)
        if not isinstance(event, Block | ResumeBase):
            vars(after)["blocklist"] = self.blocklist  # with the substitutes worked out so far
        if not isinstance(event, Mask | ResumeBase):
            vars(after)["masklist"] = self.masklist
        if isinstance(event, Reweight) and isinstance(self.order, Mixed):
            vars(after).update(order=self.order.extended(event))  # the stages worked out so far stay
        elif isinstance(event, Block | Mask):
            vars(after).update(order=self.order)
        elif self.adaptation is not None and (order := self.adaptation.extended(self.order, event)) is not None:
            vars(after).update(order=order)
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
    def from_json(cls, text: str | Mapping[str, Any], *, beside: Path | None = None) -> Plan:
        """Rebuild a plan of its text, or of the object in it; ``beside``: folder with files of sample weights."""
        return cls(**plan_json.fields_from_json(text, beside))

    @functools.cached_property
    def clock(self) -> Clock:
        """Steps, epochs, chunks and positions of the run."""
        return making.clock_of(self)

    @functools.cached_property
    def lengths(self) -> tuple[int, ...]:
        """Samples of each source, copies included."""
        return tuple([d.length for d in self.datasets])

    @functools.cached_property
    def weight_tables(self) -> Tables:
        """The weights of the samples of a source, by its number."""
        return {self.source_names.index(name): weights for name, weights in self.sample_weights}

    @functools.cached_property
    def _id_key(self) -> int:
        return key64(text64(self.fingerprint))

    @functools.cached_property
    def order(self) -> Order:
        """The order behind the plan: positions to samples and back, batches and events left out."""
        return making.order_of(self)

    @functools.cached_property
    def base(self) -> ResumeBase | None:
        """What is known of the run before its first step, where it was resumed without its past."""
        return next((e for e in self.events if isinstance(e, ResumeBase)), None)

    @functools.cached_property
    def blocklist(self) -> Blocklist | None:
        """The blocked samples, where there are any."""
        blocks = all_blocks(self.blocked, self.events, self.parts)
        return Blocklist(blocks, self.parts, self.seed) if blocks else None

    @functools.cached_property
    def masklist(self) -> Masklist | None:
        """The masked documents, where there are any."""
        masks = all_masks(self.masked, self.events, self.parts)
        return Masklist(masks) if masks else None
