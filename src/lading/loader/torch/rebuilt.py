"""What frameworks take from a loader to build another: each part carries the plan with it.

    loader.batch_sampler   PlanBatchSampler   yields PlannedIndices: row numbers that know their step
    loader.dataset         SourceView         reads only such lists, and checks that none is missing
    loader.collate_fn      PlannedCollate     makes the batch; in the training process that is its delivery

So a plain ``DataLoader`` made of the three, with workers too, yields the same
batches with their names, and the books are kept. What would break the plan (a
second sharding, a batch that was cut or completed) is an error that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np
from torch.utils.data import BatchSampler, Dataset, get_worker_info
from torch.utils.data._utils.collate import default_collate_fn_map

from lading.errors import LadingError, LoaderError
from lading.loader.bad_samples import bad_sample_error
from lading.loader.fetch import Delivery, Fetcher
from lading.loader.name import RowNamer
from lading.loader.pulls import Pull, Pulls
from lading.loader.torch.collate import Collate
from lading.loader.torch.ray import refuse_in_ray_worker
from lading.loader.torch.samplers import PlanSampler
from lading.loader.workers.failure import plain

_WAY_OUT = (
    "Iterate over the Lading loader itself, which gives every rank its share; with Accelerate, pass it to prepare() as "
    "it is."
)


class PlannedIndices(list[int]):
    """Row numbers of a batch that know which step they are.

    Attributes:
        pull: The request they stand for.
    """

    pull: Pull


class Fetched:
    """A batch on its way from the dataset to the collate function: ours, or torch's default, which knows this type.

    Args:
        pull: The request.
        delivery: What was read.
        collate: Makes the batch of it.
    """

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
    """The sources of a loader as one dataset: length, items and attributes are the user's.

    Args:
        fetcher: Reads batches.
        rank: This rank.
    """

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
        return {**kept, "_last": None, "_rank": _Rank(self._rank())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

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


class _Rank(NamedTuple):
    """A rank that is known."""

    number: int

    def __call__(self) -> int:
        return self.number


class PlanBatchSampler(BatchSampler):
    """This rank's batches in plan order.

    Args:
        sampler: The plan as a sampler; frameworks look at it.
        batch_size: Samples of a batch on this rank.
        drop_last: Whether an incomplete global batch is dropped.
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
        starts = np.concatenate([[0], np.cumsum(self._engine.plan.lengths)])
        for pull in self._pulls.start():
            bill = pull.request.bill
            rows = PlannedIndices((starts[bill.source_idx] + bill.rows).tolist())
            rows.pull = pull
            yield rows

    def __len__(self) -> int:
        return len(self._engine.iteration_steps())


class PlannedCollate:
    """Make the batch of what ``SourceView`` read; other lists are collated as the user asked.

    Args:
        given: The user's collate function, or None.
        pulls: What is notified in the training process.
    """

    def __init__(self, given: Callable[[list[Any]], Any] | None, pulls: Pulls | None) -> None:
        self.given, self._pulls = given, pulls

    def __getstate__(self) -> dict[str, Any]:
        return {"given": self.given, "_pulls": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)

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
