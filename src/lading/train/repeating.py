"""A loader that never ends.

    loader        0 1 2 | 0 1 2 | 0 1 2 ...
    set_epoch           1       2            when the first batch of the next pass is asked for

For training loops that count steps instead of epochs. Every batch can go to a
tracker on its way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lading.errors import LoaderError
from lading.identity import Bill
from lading.ledger.tracker.tracker import BatchTracker
from lading.loader.note import Trackers


class RepeatingLoader(Iterator[Any]):
    """Yield a loader's batches for ever.

    >>> batches = RepeatingLoader([{"idx": [0], "dataset_idx": [0]}], use_batch_tracker=True)
    >>> for _ in range(3):
    ...     batch = next(batches)
    >>> batches.batch_tracker.n_samples_per_dataset
    {0: 3}

    A torch sampler with ``set_epoch`` and a truthy ``shuffle`` is given each new epoch; a Lading loader moves to its
    next epoch by itself.

    Args:
        loader: Any loader, or anything that can be iterated again.
        use_batch_tracker: True for a new ``BatchTracker``, or the one to use: ``batch_tracker``, never reset here.
    """

    def __init__(self, loader: Iterable[Any], use_batch_tracker: bool | Any = False) -> None:
        self.loader = loader
        if isinstance(use_batch_tracker, bool):
            self.batch_tracker = BatchTracker() if use_batch_tracker else None
        else:
            self.batch_tracker = use_batch_tracker
        self._data_iter: Iterator[Any] | None = None

    @property
    def data_iter(self) -> Iterator[Any]:
        """The current pass. Begun at first use, so that a state can be loaded after the loader was wrapped."""
        if self._data_iter is None:
            self._data_iter = iter(self.loader)
        return self._data_iter

    def __next__(self) -> Any:
        try:
            batch = next(self.data_iter)
        except StopIteration:
            batch = self._begin_again()
        self._track(batch)
        return batch

    def _begin_again(self) -> Any:
        if not (hasattr(self.loader, "with_bills") and hasattr(self.loader, "plan")):  # Lading's keep their epochs
            for sampler in _samplers(self.loader):
                if getattr(sampler, "shuffle", False) and hasattr(sampler, "set_epoch"):
                    sampler.set_epoch(sampler.epoch + 1)
                    break
        self._data_iter = None
        try:
            return next(self.data_iter)
        except StopIteration:
            raise LoaderError(_why_empty(self.loader)) from None

    def _track(self, batch: Any) -> None:
        if self.batch_tracker is None or self._is_tracked_inside():
            return
        # A bill has the names even where the batch has none, or has them under other keys.
        bill = getattr(self.loader, "last_bill", None)
        Trackers(self.batch_tracker).update(bill if isinstance(bill, Bill) else batch, batch)

    def _is_tracked_inside(self) -> bool:
        inside = getattr(self.loader, "tracker", None)
        return any(
            tracker is self.batch_tracker for tracker in (inside if isinstance(inside, list | tuple) else [inside])
        )


def _samplers(loader: Any) -> list[Any]:
    batch_sampler = getattr(loader, "batch_sampler", None)
    found = [getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)]
    return [sampler for sampler in found if sampler is not None]


def _why_empty(loader: Any) -> str:
    if isinstance(loader, Iterator):
        why = f"a {type(loader).__name__} can be read only once, and it is used up. Pass the loader, not an iterator."
    elif getattr(loader, "drop_last", False):
        why = "drop_last drops the only, incomplete batch. Lower the batch size, or pass drop_last=False."
    else:
        why = (
            "the dataset is empty, drop_last drops its only batch, or it reads from a generator that is used up. "
            "Check len(loader), and pass something that can be iterated again."
        )
    return f"the {type(loader).__name__} gave no batch, so it cannot be repeated: {why}"
