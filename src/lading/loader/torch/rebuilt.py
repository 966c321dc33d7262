"""What frameworks take from a loader to build another: each part carries the plan with it.

    loader.sampler         PlanSampler        a view of the engine that frameworks leave in peace; it holds nothing
    loader.batch_sampler   PlanBatchSampler   yields PlannedIndices: row numbers that know their step
    loader.dataset         SourceView         reads only such lists, and checks that none is missing
    loader.collate_fn      PlannedCollate     makes the batch; in the training process that is its delivery

So a plain ``DataLoader`` made of the last three, with workers too, yields the same
batches with their names, and the books are kept. What would break the plan (a
second sharding, a batch that was cut or completed) is an error that says so.

Steps that another loader pulls from ours (``Pulls``) are not delivered by that:

    pull    0 1 2 3 4 ...        requests given to a loader that was built from parts of ours
    queue       │ 2 3 4          pulled, not yet seen by the training loop
    deliver   ◀─┘                the batch reached the loop: cursor, trackers and policy are notified

Without workers the collate call is the delivery. With workers a delivery is known only if it is reported
(``Loader.delivered``); until then no state can say where the run is.

Lightning re-instantiates a ``DataLoader`` from its arguments to predict (around a batch sampler that notes indices) and
to overfit (around a sequential sampler). Both are understood; any other sampler would replace the plan and is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sized
from functools import partial
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
from torch.utils.data import (
    BatchSampler,
    Dataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
    get_worker_info,
)
from torch.utils.data._utils.collate import default_collate_fn_map

from lading.errors import LadingError, LoaderError
from lading.identity import Bill
from lading.loader.bill import request_at
from lading.loader.engine import Engine
from lading.loader.failure import bad_sample_error, plain
from lading.loader.fetch import Delivery, Fetcher, FetchRequest
from lading.loader.name import RowNamer
from lading.loader.torch.collate import Collate
from lading.loader.torch.ray import refuse_in_ray_worker


class Pull(NamedTuple):
    """One request as it travels."""

    iteration: int  # over the batch sampler, from 0
    number: int  # in it, from 0
    request: FetchRequest


class Pulls:
    """What was pulled from an engine, and how much of it arrived."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue: deque[Pull] = deque()
        self._iteration = -1
        self._stop = 0
        self._has_begun = False

    def start(self) -> Iterator[Pull]:
        """Yield the requests of the coming iteration."""
        self._iteration += 1
        self._queue.clear()
        self._has_begun = False
        steps = self._engine.coming()
        self._stop = steps.stop
        names = self._engine.name_columns()
        self._engine.fetcher.parts = self._engine.plan.parts
        for number, step in enumerate(steps):
            pull = Pull(self._iteration, number, request_at(self._engine, step, names))
            self._queue.append(pull)
            yield pull

    @property
    def are_unreported(self) -> bool:
        """Whether batches were pulled of which none was reported, so that the position of the run is unknown."""
        return bool(self._queue) and not self._has_begun

    def deliver(self, pull: Pull | None = None, bill: Bill | None = None, batch: Any = None, remark: str = "") -> Bill:
        """Note that a batch reached the training loop.

        Args:
            pull: Which one; None: the first that is on its way.
            bill: Its bill, where it departs from the request.
            remark: Why its rows could not be counted.
        """
        while self._queue and pull is not None and self._queue[0] != pull:
            self._queue.popleft()  # dropped on the way: ``skip_first_batches``
        if not self._queue:
            raise LoaderError(
                "a batch was reported as delivered that was never pulled in this iteration. Report each batch of the "
                "loader built from this one once, in order."
            )
        found = self._queue.popleft()
        bill = bill or found.request.bill
        if not self._has_begun:
            if bill.step != self._engine.coming().start:
                self._engine.move_to(bill.step)
            self._engine.begin()
            self._has_begun = True
        self._engine.note(bill, self._stop, batch)
        if remark := remark or self._engine.fetcher.counter.uncounted:
            self._engine.notes.remark(bill.step, remark)
        return bill


class PlanSampler(DistributedSampler[Any]):
    """Which samples this rank gets in the coming iteration, by number in the concatenation of the sources."""

    def __init__(self, engine: Engine, dataset: Any) -> None:
        # DistributedSampler's own __init__ asks for a process group, which may not exist yet.
        self.engine, self.dataset = engine, dataset
        self.seed, self.drop_last = engine.request.seed, engine.request.drop_last
        self.shuffle = engine.request.plan_shuffle != "none"

    @property
    def rank(self) -> int:  # type: ignore[override]
        return self.engine.world.rank

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        return self.engine.world.world_size

    @property
    def epoch(self) -> int:  # type: ignore[override]
        return self.engine.plan.locate(self.engine.step).epoch

    def set_epoch(self, epoch: int) -> None:
        self.engine.set_epoch(epoch)

    def __iter__(self) -> Iterator[int]:
        for step in self.engine.iteration_steps():
            yield from _numbers(self.engine, self.engine.share_of(step))

    def __len__(self) -> int:
        steps = self.engine.iteration_steps()
        if self.engine.plan.batch_schedule:
            return sum(len(self.engine.share_of(step)) for step in steps)
        first, last = len(self.engine.share_of(steps[0])), len(self.engine.share_of(steps[-1]))
        return (len(steps) - 1) * first + last


class _Planned:
    """The numbers of a ``PlanSampler``, for those who ask of which kind a sampler is."""

    def __init__(self, planned: PlanSampler) -> None:
        super().__init__(cast(Sized, planned.dataset))  # type: ignore[call-arg]
        self.planned = planned

    def __iter__(self) -> Iterator[int]:
        return iter(self.planned)

    def __len__(self) -> int:
        return len(self.planned)


class PlannedRandomSampler(_Planned, RandomSampler):
    """Samples in the plan's shuffled order."""


class PlannedSequentialSampler(_Planned, SequentialSampler):
    """Samples from the first to the last."""


def undistributed(planned: Any) -> Any:
    """Return the sampler torch would have made for one process."""
    return PlannedRandomSampler(planned) if planned.shuffle else PlannedSequentialSampler(planned)


Sizes = tuple[int | None, bool | str, bool]


def meaning(sampler: Any, batch_sampler: Any, asked: Sizes) -> Sizes:
    """Return (batch_size, shuffle, drop_last) as meant by an injected sampler."""
    inner = getattr(batch_sampler, "sampler", None)
    inner = getattr(inner, "planned", inner)  # create_loader dresses the plan as a Random- or SequentialSampler
    sampler = getattr(sampler, "planned", sampler)
    if isinstance(inner, PlanSampler):
        original = inner.engine.request
        return original.batch_size, original.shuffle, bool(batch_sampler.drop_last)
    if isinstance(inner, SequentialSampler):
        return batch_sampler.batch_size, False, bool(batch_sampler.drop_last)
    if isinstance(sampler, SequentialSampler) and batch_sampler is None:
        return asked[0], False, asked[2]
    if isinstance(sampler, PlanSampler) and batch_sampler is None:
        return asked
    found = type(sampler if sampler is not None else batch_sampler).__name__
    if isinstance(sampler, WeightedRandomSampler):
        raise LoaderError(f"a {found} was given: expected sample_weights=weights, which plans what it would draw.")
    raise LoaderError(
        f"a {found} was injected into a Lading loader, whose order is its plan's. Pass use_distributed_sampler=False "
        "to the Trainer, or give it lading.train.lightning.plain(loader), which frameworks leave alone."
    )


def index_log(batch_sampler: Any, engine: Engine) -> Callable[[Bill], None] | None:
    """Return what notes the samples of each batch where Lightning predicts: around a wrapper that is no batch sampler.

    The wrapper would note them while it is iterated over; a plan is not pulled from it.
    """
    if batch_sampler is None or isinstance(batch_sampler, BatchSampler):
        return None
    batch_sampler.seen_batch_indices = []
    # Looked up at each batch: Lightning replaces the list.
    return lambda bill: batch_sampler.seen_batch_indices.append(_numbers(engine, bill))


def _numbers(engine: Engine, bill: Bill) -> list[int]:
    """Return the samples of a bill by number in the concatenation of the sources."""
    starts = np.concatenate([[0], np.cumsum(engine.plan.lengths)])
    return cast(list[int], (starts[bill.source_idx] + bill.rows).tolist())


_WAY_OUT = (
    "Iterate over the Lading loader itself, which gives every rank its share; with Accelerate, pass it to prepare() as "
    "it is."
)


class PlannedIndices(list[int]):
    """Row numbers of a batch that know which step they are."""

    pull: Pull


class Fetched:
    """A batch on its way from the dataset to the collate function: ours, or torch's default, which knows this type."""

    def __init__(self, pull: Pull, delivery: Delivery, collate: PlannedCollate) -> None:
        self.pull, self.delivery, self.collate = pull, delivery, collate

    def __len__(self) -> int:
        return len(self.pull.request.bill)

    def __getitem__(self, row: int) -> Fetched:
        return self if row == 0 else self.__iter__()

    def __iter__(self) -> NoReturn:
        raise LoaderError(
            "a collate function of another loader was given a batch of the plan, which is put together already. Pass "
            "collate_fn=loader.collate_fn, and your own to the Lading loader: Loader(..., collate_fn=...)."
        )


class SourceView(Dataset[Any]):
    """The sources of a loader as one dataset: length, items and attributes are the user's."""

    def __init__(self, fetcher: Fetcher, rank: Callable[[], int]) -> None:
        self._fetcher, self._rank = fetcher, rank
        self._collate = PlannedCollate(None, None)
        self._last: Pull | None = None
        sources = list(fetcher.sources.values())
        self._starts = np.concatenate([[0], np.cumsum([len(source) for source in sources])])

    def collated_by(self, collate: PlannedCollate) -> None:
        """Say what makes batches of what is read here, for loaders that were not given it."""
        self._collate = collate

    @property
    def source(self) -> Any:
        """The dataset itself; several: a dict by name."""
        sources = self._fetcher.sources
        return next(iter(sources.values())) if len(sources) == 1 else dict(sources)

    def __getstate__(self) -> dict[str, Any]:
        kept = {"_fetcher": self._fetcher, "_starts": self._starts, "_collate": PlannedCollate(None, None)}
        return {**kept, "_last": None, "_rank": partial(int, self._rank())}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or len(self._fetcher.sources) > 1:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.source, name)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} out of range [0, {len(self)})")
        index += len(self) * (index < 0)
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        return list(self._fetcher.sources.values())[number][index - int(self._starts[number])]

    def __getitems__(self, indices: Any) -> Fetched:
        """Read a batch; only for lists that ``loader.batch_sampler`` yielded."""
        if not isinstance(indices, PlannedIndices):
            raise LoaderError(
                f"a batch of {len(indices)} row numbers was asked for that is no batch of the plan: it was cut, "
                "completed with repeats, or made by another sampler. " + _WAY_OUT + " For a DataLoader of your own "
                "use loader.dataset.source."
            )
        self._check(indices.pull)
        try:
            _, delivery = self._namer(self._fetcher.here(indices.pull.request))
            if delivery.remark and get_worker_info() is not None and not self._fetcher.counter.uncounted:
                raise LoaderError(
                    f"{delivery.remark}, and a worker of a loader that was built from this one cannot have that noted. "
                    "Say it of the collate function, collate_fn.rows = 'any', or use the Lading loader itself."
                )
        except LadingError as error:
            if get_worker_info() is None:
                raise
            raise plain(error) from error
        return Fetched(indices.pull, delivery, self._collate)

    @property
    def _namer(self) -> RowNamer:
        return RowNamer(self._fetcher.arrays, own=self._fetcher.own_names)

    def _check(self, pull: Pull) -> None:
        """Refuse batches of another rank, and every second one of ours."""
        rank = pull.request.bill.world.rank
        if rank != self._rank():
            raise LoaderError(f"rank {self._rank()} was given a batch of rank {rank}: something shards it. {_WAY_OUT}")
        worker = get_worker_info()
        stride = 1 if worker is None else worker.num_workers
        last, self._last = self._last, pull
        if last is None or last.iteration != pull.iteration or pull.number == last.number + stride:
            return
        raise LoaderError(
            f"batch {pull.number} of the plan followed batch {last.number}: expected batch {last.number + stride}. "
            f"Something shards this rank's batches a second time. {_WAY_OUT}"
        )


class PlanBatchSampler(BatchSampler):
    """This rank's batches in plan order.

    Args:
        sampler: The plan as a sampler; frameworks look at it.
        pulls: Where requests come from, and what is noted; None where a framework makes one anew, as Lightning does.
    """

    def __init__(self, sampler: Any, batch_size: int | None, drop_last: bool, pulls: Pulls | None = None) -> None:
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size or 1, drop_last
        if not isinstance(sampler, PlanSampler):  # a framework's own: its loader reads from it what was meant
            return
        self._engine = sampler.engine
        self._pulls = pulls or Pulls(sampler.engine)

    def __iter__(self) -> Iterator[list[int]]:
        refuse_in_ray_worker()
        for pull in self._pulls.start():
            rows = PlannedIndices(_numbers(self._engine, pull.request.bill))
            rows.pull = pull
            yield rows

    def __len__(self) -> int:
        return len(self._engine.iteration_steps())


class PlannedCollate:
    """Make the batch of what ``SourceView`` read; other lists are collated as the user asked."""

    def __init__(self, given: Callable[[list[Any]], Any] | None, pulls: Pulls | None) -> None:
        self.given, self._pulls = given, pulls

    def __getstate__(self) -> dict[str, Any]:
        return {"given": self.given, "_pulls": None}

    def reports_to(self, pulls: Pulls) -> None:
        """Say who is notified in the training process."""
        self._pulls = pulls

    def __call__(self, samples: Any) -> Any:
        if not isinstance(samples, Fetched):
            return (self.given or Collate())(samples)
        pull, delivery = samples.pull, samples.delivery
        if delivery.failure is not None:
            error = bad_sample_error(pull.request.bill, delivery.failure)
            raise error if get_worker_info() is None else plain(error)
        if get_worker_info() is None and self._pulls is not None:
            self._pulls.deliver(pull, delivery.bill, delivery.batch, delivery.remark)
        elif delivery.bill is not None:
            raise LoaderError(
                f"a sample was replaced or left out in step {pull.request.bill.step}, in a worker of a loader that was "
                "built from this one: the books would not know. Use the Lading loader itself, or on_bad_sample='raise' "
                "and a collate_fn that keeps every sample."
            )
        return delivery.batch


def _planned(fetched: Fetched, *, collate_fn_map: Any = None) -> Any:
    return fetched.collate(fetched)


default_collate_fn_map[Fetched] = _planned  # torch's way to teach its default_collate a type
