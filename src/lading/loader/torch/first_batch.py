"""Look at the first batch of any loader without touching the run.

Lading loader      peeks: position, tracker and last bill are put back
torch DataLoader   every generator an iteration draws from is put back, so the epoch that follows is the same
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, Subset

from lading.errors import LoaderError
from lading.identity import Bill
from lading.loader.torch.loader import Loader
from lading.runtime.random_state import untouched

NameRow = Callable[[int], str]
Looked = tuple[Any, NameRow]


@contextmanager
def first_batch(loader: Any) -> Iterator[Looked]:
    """Give the first batch and a function that names its rows; afterwards everything is as before."""
    if isinstance(loader, Loader):
        with loader.peeking():
            batch, bill = _first(loader.with_bills(), loader)
            yield batch, lambda row: _name_in_bill(loader, bill, row)
    else:
        with untouched(loader) as rewind:
            batch = _first(iter(loader), loader)
            yield batch, lambda row: _name_in_torch(loader, batch, row, rewind)


def _first(batches: Iterator[Any], loader: Any) -> Any:
    for batch in batches:
        return batch
    raise LoaderError(
        f"this {type(loader).__name__} has no batch to look at: expected at least one. A split smaller than batch_size "
        "with drop_last=True is empty; lower batch_size or pass drop_last=False."
    )


def _name_in_bill(loader: Loader, bill: Bill, row: int) -> str:
    name, index = bill.name_of(row), int(bill.idx[row])
    source = loader.sources[name] if isinstance(loader.sources, dict) else loader.sources
    return _described(source, index)


def _name_in_torch(loader: Any, batch: Any, row: int, rewind: Callable[[], None]) -> str:
    """Name a row of a plain DataLoader's batch by drawing its indices again; only a name that fits is used."""
    unknown = f"row {row} of the batch"
    if not isinstance(loader, DataLoader) or loader.batch_sampler is None:
        return unknown
    rewind()
    torch.empty((), dtype=torch.int64).random_(generator=loader.generator)  # torch draws a seed for workers first
    index = list(next(iter(loader.batch_sampler)))[row]
    sample = loader.dataset[index]
    return _described(loader.dataset, index) if _fits(sample, batch, row) else unknown


def _fits(sample: Any, batch: Any, row: int) -> bool:
    if not isinstance(sample, dict) or not isinstance(batch, dict) or sample.keys() != batch.keys():
        return False
    pairs = [(torch.as_tensor(sample[key]), batch[key][row]) for key in sample]
    return all(torch.equal(torch.nan_to_num(one), torch.nan_to_num(two)) for one, two in pairs)


def _described(source: Any, index: int) -> str:
    while type(source) is Subset:
        source, index = source.dataset, source.indices[index]
    describe = getattr(source, "describe", None)  # sources that know a better name than a number
    return describe(index) if callable(describe) else f"sample {index}"
