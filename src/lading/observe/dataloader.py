"""Questions to a DataLoader of the user's."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch.utils.data import IterableDataset, default_collate, default_convert

from lading.observe.carried import CarriedBatches
from lading.source.reader import draws_nothing


def is_iterable(dataloader: Any) -> bool:
    """Say whether the data is a stream, without indices."""
    return isinstance(dataloader.dataset, IterableDataset)


def opened_copy(dataloader: Any) -> tuple[Any, dict[str, Any]]:
    """Return a shallow copy of a DataLoader, and its parts, to be replaced where torch forbids it for good reasons.

    Accelerate's loaders keep a DataLoader inside and iterate that one: then these are the inner one's parts.
    """
    outer = copy.copy(dataloader)
    parts = outer.__dict__
    if "base_dataloader" in parts:
        parts["base_dataloader"] = copy.copy(parts["base_dataloader"])
        parts = parts["base_dataloader"].__dict__
    parts["_iterator"] = None  # persistent workers stay with the original
    return outer, parts


def order_of(dataloader: Any) -> Any:
    """Return the sampler that decides: the one with ``set_epoch`` if there is one, else the one that is asked."""
    batch_sampler = getattr(dataloader, "batch_sampler", None)
    inner = getattr(batch_sampler, "sampler", None)
    for sampler in (dataloader.sampler, batch_sampler, inner):
        if hasattr(sampler, "set_epoch"):
            return sampler
    # Beside a batch sampler of the user's own, torch still keeps a default sampler, which is unused.
    return batch_sampler if batch_sampler is not None and dataloader.batch_size is None else dataloader.sampler


def told_epoch(dataloader: Any) -> int | None:
    """Return the epoch the sampler was given, where it keeps one."""
    epoch = getattr(order_of(dataloader), "epoch", None)
    return epoch if isinstance(epoch, int) else None


def pass_length(dataloader: Any) -> int | None:
    """Return the batches of a pass, where the loader can say; an iterable's estimate is not asked for."""
    if is_iterable(dataloader):
        return None
    try:
        return len(dataloader)
    except TypeError:
        return None


def data_length(dataloader: Any) -> int | None:
    """Return the number of samples, where the dataset says it; with a sampler of its own it need not."""
    if is_iterable(dataloader) or not hasattr(dataloader.dataset, "__len__"):
        return None
    return len(dataloader.dataset)


def described(dataloader: Any) -> str:
    """Return what is read, in words."""
    if isinstance(dataloader, CarriedBatches):
        return f"batches of a {type(dataloader.dataset).__name__}"
    name, length = type(dataloader.dataset).__name__, data_length(dataloader)
    return name if length is None else f"{name} of {length} samples"


def draws_in_workers(dataloader: Any) -> bool:
    """Say whether workers may draw random numbers: there are some, and nothing is known of what they run."""
    if not dataloader.num_workers:
        return False
    collate = dataloader.collate_fn
    return not draws_nothing(dataloader.dataset) or not (
        collate in (default_collate, default_convert) or draws_nothing(collate)
    )


def rows_as_it_seems(item: Any) -> int:
    """Return the rows of an item that looks like a batch: several arrays, not all flat, of one length; else 0.

    >>> import numpy as np
    >>> rows_as_it_seems({"x": np.zeros((4, 3)), "y": np.zeros(4)}), rows_as_it_seems((np.zeros((3, 8, 8)), 7))
    (4, 0)
    """
    parts = item.values() if isinstance(item, Mapping) else item if isinstance(item, list | tuple) else ()
    shapes = [tuple(part.shape) for part in parts if getattr(part, "shape", None)]
    lengths = {shape[0] for shape in shapes}
    return lengths.pop() if len(shapes) > 1 and len(lengths) == 1 and max(map(len, shapes)) > 1 else 0
