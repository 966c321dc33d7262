"""The plan: the complete, serialisable description of a run's order.

    step ──▶ plan.bill(step)   ──▶ names of every sample in it      any step, microseconds, no table
    name ──▶ plan.where(name)  ──▶ every (epoch, step, slot)        the inverse, as fast

A plan knows datasets, seed, shuffle, mixture, batch size, chunks and the
events that changed it while it ran. It knows nothing of ranks: a rank takes
its share of a bill.
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
from lading.identity.hashing import key64, text64
from lading.order import plan_json
from lading.order.clock import Clock, Location
from lading.order.dataset import PlannedDataset
from lading.order.event import Block, Event, Rebatch, Reweight
from lading.order.mixture.order import Mixed
from lading.order.mixture.spec import MixtureSpec
from lading.order.permutation import MAX_SAMPLES
from lading.order.shuffle import SHUFFLES, Order, Shuffled
from lading.order.simulation import Simulation, simulate
from lading.order.substitute import Blocklist

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """The complete, serialisable description of a run's order.

    Attributes:
        datasets: What is read, by number.
        global_batch_size: Samples of a step, all ranks together.
        seed: Same seed, same order, on every machine.
        shuffle: ``full``, ``block`` (blocks of ``block_samples`` neighbours) or ``none``.
        block_samples: Samples of a block, for ``shuffle="block"``.
        drop_last: Whether an incomplete global batch at the end of an epoch is dropped.
        chunk_batches: Batches of a chunk, or None.
        mixture: Weights and schedule, or None: every sample once an epoch.
        events: What changed the plan while it ran.
    """

    datasets: tuple[PlannedDataset, ...]
    global_batch_size: int
    seed: int = 0
    shuffle: str = "full"
    block_samples: int = 4096
    drop_last: bool = False
    chunk_batches: int | None = None
    mixture: MixtureSpec | None = None
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def make(cls, lengths: Mapping[str, int] | int, batch_size: int, **fields: Any) -> Plan:
        """Make a plan from lengths alone.

        >>> plan = Plan.make({"code": 6, "prose": 4}, batch_size=4, seed=7)
        >>> plan.bill(0).num_samples, plan.epoch_steps(0)
        (4, 3)
        """
        named = {"data": lengths} if isinstance(lengths, int) else lengths
        return cls(tuple(PlannedDataset(name, n) for name, n in named.items()), batch_size, **fields)

    def bill(self, step: int, *, world: World | None = None, pad: bool | None = None) -> Bill:
        """Return what a step holds.

        Args:
            step: Number of the global batch in the run.
            world: Whose share; None for the whole global batch.
            pad: Whether missing rows of a short last batch become padding. None: only where there is more than one
                rank, so that every rank delivers its full share at every step.
        """
        location = self.clock.locate(step)
        datasets, indices = self.order.samples(location.position, location.position + location.size)
        deviations: tuple[Deviation, ...] = ()
        if self._blocklist is not None:
            indices = indices.copy()
            deviations = tuple(
                Deviation(slot, "substituted", int(datasets[slot]), index, instead, "blocked")
                for slot, index, instead in self._blocklist.apply(step, datasets, indices)
            )
        whole = Bill(
            batch_id=self.batch_id(location.epoch, step),
            step=step,
            epoch=location.epoch,
            chunk=location.chunk,
            position=location.position,
            slots=np.arange(location.size, dtype=np.int64),
            dataset_idx=datasets,
            idx=indices,
            is_padding=np.zeros(location.size, dtype=bool),
            global_size=location.size,
            names=self.names,
            deviations=deviations,
        )
        world = world or World()
        if world.world_size == 1 and not pad:
            return whole
        return whole.share(world, full_size=None if pad is False else self.clock.batch_at(step))

    def batch_id(self, epoch: int, step: int) -> str:
        """Return the id of a step's batch: the same on every rank and in every attempt."""
        return f"e{epoch}-s{step}-{key64(self._id_key, step) >> 32:08x}"

    def where(
        self, dataset: str | int, index: int, start: int = 0, stop: int | None = None, *, world_size: int | None = None
    ) -> list[Place]:
        """Return every place that holds a sample, past or future.

        Args:
            dataset: Name or number of the dataset.
            index: Index of the sample in it.
            start: First step to look at.
            stop: Step to stop before. None: the end of the epoch of ``start``.
            world_size: Number of ranks, to be told the rank as well.
        """
        number = self.number_of(dataset)
        length = self.lengths[number]
        if not 0 <= index < length:
            raise PlanError(f"dataset {self.names[number]!r} has no sample {index}: expected 0 to {length - 1}.")
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

    def counts(self, step: int) -> list[int]:
        """Return how many samples of each dataset the order holds before a step."""
        return self.order.counts(self.clock.locate(step).position)

    def number_of(self, dataset: str | int) -> int:
        """Return the number of a dataset given by name or number."""
        if isinstance(dataset, str):
            if dataset not in self.names:
                raise PlanError(f"no dataset {dataset!r} in the plan: it has {', '.join(map(repr, self.names))}.")
            return self.names.index(dataset)
        if not 0 <= dataset < len(self.datasets):
            raise PlanError(f"no dataset number {dataset} in the plan: it has 0 to {len(self.datasets) - 1}.")
        return int(dataset)

    def simulate(self, steps: int | None = None, *, epochs: int | None = None) -> Simulation:
        """Return coverage, repeats, passes per source and tails, before anything runs. Default: one epoch."""
        if steps is None:
            steps = self.clock.epoch_start(1 if epochs is None else epochs)
        return simulate(self, steps)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the datasets, by number."""
        return self._names

    @property
    def epoch_samples(self) -> int:
        """Samples of an epoch."""
        return self.order.epoch_samples

    @functools.cached_property
    def fingerprint(self) -> str:
        """Stands for everything but the events: the same before and after a reweighting or rebatching."""
        return fingerprint(plan_json.description(self))

    def with_event(self, event: Event) -> Plan:
        """Return the plan as it is after an event. Nothing before the event changes."""
        after = dataclasses.replace(self, events=(*self.events, event))
        if isinstance(event, Reweight) and isinstance(self.order, Mixed):
            # Neither the clock nor the name of the plan changes, and the stages worked out so far stay.
            vars(after).update(fingerprint=self.fingerprint, clock=self.clock, order=self.order.extended(event))
        return after

    def with_events(self, events: Sequence[Event]) -> Plan:
        """Return the plan with these events and no others."""
        return dataclasses.replace(self, events=tuple(events))

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
        rebatches = [e for e in self.events if isinstance(e, Rebatch)]
        return Clock(self.epoch_samples, self.global_batch_size, self.drop_last, self.chunk_batches, rebatches)

    @functools.cached_property
    def lengths(self) -> tuple[int, ...]:
        """Samples of each dataset."""
        return tuple(d.length for d in self.datasets)

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(d.name for d in self.datasets)

    @functools.cached_property
    def _id_key(self) -> int:
        return text64(self.fingerprint)

    @functools.cached_property
    def order(self) -> Order:
        """The order behind the plan: positions to samples and back, batches and events left out."""
        if self.mixture is None:
            return Shuffled(self.lengths, self.seed, self.shuffle, self.block_samples)
        reweights = [e for e in self.events if isinstance(e, Reweight)]
        given = self.lengths, self.seed, self.mixture, reweights
        return Mixed(*given, shuffle=self.shuffle, block_samples=self.block_samples)

    @functools.cached_property
    def _blocklist(self) -> Blocklist | None:
        blocks = [e for e in self.events if isinstance(e, Block)]
        return Blocklist(blocks, self.lengths, self.seed) if blocks else None

    def _steps_holding(self, number: int, index: int, start: int, stop: int) -> tuple[I64, I64]:
        """Return steps and slots that hold a sample, substitutions taken into account."""
        if self._blocklist is None:
            return self._natural(number, index, start, stop)
        cuts = [start, *(s for s in self._blocklist.change_steps if start < s < stop), stop]
        found = [self._natural(number, index, start, start)]
        for low, high in itertools.pairwise(cuts):
            table = self._blocklist.at(low).get(number, {})
            originals = [i for i, instead in table.items() if instead == index]
            if index not in table:
                originals.append(index)
            found += [self._natural(number, i, low, high) for i in originals]
        steps = np.concatenate([part[0] for part in found])
        slots = np.concatenate([part[1] for part in found])
        rank = np.lexsort((slots, steps))
        return steps[rank], slots[rank]

    def _natural(self, number: int, index: int, start: int, stop: int) -> tuple[I64, I64]:
        if stop <= start:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        last = self.clock.locate(stop - 1)
        low, high = self.clock.locate(start).position, last.position + last.size
        steps, slots = self.clock.steps_of(self.order.positions(number, index, low, high))
        kept = (steps >= start) & (steps < stop)
        return steps[kept], slots[kept]

    def _place(self, step: int, slot: int, world_size: int | None) -> Place:
        epoch = self.clock.locate(step).epoch
        if world_size is None:
            return Place(epoch, step, slot)
        return Place(epoch, step, slot, rank_of(slot, self.clock.batch_at(step), world_size))


def _check(plan: Plan) -> None:
    lengths = [d.length for d in plan.datasets]
    if not lengths or any(n < 0 for n in lengths) or sum(lengths) == 0:
        found = ", ".join(f"{d.name!r} {d.length}" for d in plan.datasets) or "no dataset"
        raise PlanError(f"a plan needs at least one sample: found {found}. Check the sources.")
    if len(set(plan.names)) != len(lengths):
        raise PlanError(f"datasets need different names: found {', '.join(map(repr, plan.names))}.")
    if sum(lengths) > MAX_SAMPLES:
        raise PlanError(f"{sum(lengths)} samples are more than an order can hold: expected at most 2**63.")
    for field, least in (("global_batch_size", 1), ("chunk_batches", 1), ("block_samples", 1)):
        value = getattr(plan, field)
        if value is None and field == "chunk_batches":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise PlanError(f"{field} is {value!r}: expected a whole number of at least {least}.")
    if plan.shuffle not in SHUFFLES:
        raise PlanError(f"shuffle is {plan.shuffle!r}: expected one of {', '.join(map(repr, SHUFFLES))}.")
    if not isinstance(plan.seed, int) or isinstance(plan.seed, bool):
        raise PlanError(f"seed is {plan.seed!r}: expected a whole number.")
