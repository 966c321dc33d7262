"""One way to read any source, and what is known of its rows: which datasets they are of, whether reading draws numbers.

    dict of arrays, TensorDataset, take(...)   ─▶  columns    one gather per column, no collate
    a Hugging Face dataset of numbers, texts   ─▶  columns    the same, from its Arrow buffers
    anything else with __getitem__             ─▶  samples    a list, collated as torch does

Parts, where a source has several datasets or a number of its own:

    TaggedDataset(dataset_idx=3)     one part, number 3
    WeightedConcatDataset            a part for each dataset, numbered as they come
    torch's ConcatDataset            a part for each dataset, called [0], [1] ...; the plan numbers those without one
    anything else                    one part: the source itself

Sources and functions that draw no random numbers (``draws_nothing``): their batches need none, a thread may read ahead.

    its own word                                    ``random_free``, True or False; a subclass with code of its own may
                                                    do more, so it says it again
    arrays, tensors, lists, tuples, ranges          nothing runs but a look-up
    TensorDataset, Subset, ConcatDataset            of sources that draw nothing; not their subclasses
    a Hugging Face dataset                          unless it has a transform

Anything else may draw from the global generators. Nothing is imported: a framework that is not loaded has no datasets.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.order.dataset import Part
from lading.runtime.arrays import read_rows_ahead
from lading.runtime.imports import is_a
from lading.source.columns import Columns as ArrayColumns
from lading.source.protocol import (
    Columns,
    InParts,
    KeyedItems,
    ManyItems,
    Reader,
    Source,
    TakesBatches,
    TakesKeyedBatches,
)


def draws_nothing(source: Any) -> bool:
    """Say whether reading a source, or calling a function, draws from no global random generator.

    >>> draws_nothing([1, 2]), draws_nothing(print)
    (True, False)
    """
    word = _own_word(source)
    if word is not None:
        return word
    return isinstance(source, np.ndarray) or type(source) in (list, tuple, range) or _is_known(source)


def _own_word(source: Any) -> bool | None:
    """Return what a source says of itself; not what a wrapper passes on from the source inside it."""
    if "random_free" in getattr(source, "__dict__", ()):
        return bool(source.random_free)
    for kind in type(source).__mro__:
        if "random_free" in vars(kind):
            return bool(source.random_free)
        if any(callable(value) and name != "__init__" for name, value in vars(kind).items()):
            return None  # code of its own: what the classes it builds on say is not said of it
    return None


def _is_known(source: Any) -> bool:
    kind = type(source)
    torch: Any = sys.modules.get("torch.utils.data")
    if torch is not None:
        if isinstance(source, sys.modules["torch"].Tensor) or kind is torch.TensorDataset:
            return True
        if kind is torch.Subset:
            return draws_nothing(source.dataset)
        if kind is torch.ConcatDataset:
            return all(map(draws_nothing, source.datasets))
    hugging_face: Any = sys.modules.get("datasets")
    return kind is getattr(hugging_face, "Dataset", None) and source.format["type"] != "custom"


def parts_of(source: Any) -> tuple[Part, ...]:
    """Return the parts a source offers; empty: it is one dataset, without a number of its own."""
    offered = source.parts if isinstance(source, InParts) else ()
    if isinstance(offered, list | tuple) and offered and all(isinstance(part, Part) for part in offered):
        return tuple(offered)
    if "torch" not in sys.modules:
        return ()
    from lading.source import torch as torch_sources  # only where torch is loaded can a source be one of its types

    return torch_sources.parts_of(source, parts_of)


def parts_called(source: Any, name: str) -> tuple[Part, ...]:
    """Return the parts of a source under their full names: ``[0]`` of ``data`` is ``data[0]``."""
    return tuple(replace(part, name=f"{name}{part.name}") for part in parts_of(source))


def provides_names(source: Any) -> bool:
    """Say whether dict samples of a source already carry ``idx`` and ``dataset_idx``."""
    if bool(getattr(source, "provides_names", False)):
        return True
    # Concatenated datasets carry names where each of them does: then each has a number.
    parts = parts_of(source)
    return bool(parts) and all(part.number is not None for part in parts)


__all__ = ["Reader", "reader_of", "split_by_source"]

_NO_KEYS = np.empty(0, dtype=np.uint64)

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]


def reader_of(source: Any, name: str) -> Reader:
    """Find the best way to read a source: anything with ``__len__`` and ``__getitem__``; errors name it."""
    if not isinstance(source, Source):
        raise SourceError(
            f"dataset {name!r} is a {type(source).__name__} without __len__ or __getitem__: expected both. "
            "Streams have no random access; use lading.TaggedIterableDataset, or lading.track on their DataLoader."
        )
    if isinstance(source, TakesKeyedBatches):
        return Reader(source, _take_keyed(source), _items_of(source), _wants_keys(source))
    if isinstance(source, np.ndarray):
        rows = source if type(source) in (np.ndarray, np.memmap) else None  # a subclass may do more
        return Reader(source, _rows_of(source), _items(source), False, rows)
    known = _torch_reader(source, name)
    if known is not None:
        return known
    if is_a(source, "datasets:Dataset"):  # its take(n) means the first n
        return _hugging_face_reader(source)
    if isinstance(source, TakesBatches):
        columns = lambda indices, epoch, keys: source.take(indices)  # noqa: E731
        arrays = source.columns if type(source) is ArrayColumns else None
        return Reader(source, columns, _items_of(source), False, arrays)
    keyed = isinstance(source, KeyedItems) and _wants_keys(source)
    return Reader(source, None, _items_of(source), keyed)


def _rows_of(array: NDArray[Any]) -> Callable[[I64, int, U64 | None], Columns]:
    def columns(indices: I64, epoch: int, keys: U64 | None) -> Columns:
        read_rows_ahead(array, indices)
        return array[indices]

    return columns


def _torch_reader(source: Any, name: str) -> Reader | None:
    if "torch" not in sys.modules:
        return None
    from lading.source import torch as torch_sources  # only where torch is loaded can a source be one of its types

    return torch_sources.reader_of(source, name, reader_of)


def _hugging_face_reader(source: Any) -> Reader:
    from lading.source import arrow  # only where such datasets are, Arrow is loaded already

    # A subclass may do more than read rows.
    rows = arrow.opened(source) if type(source) is sys.modules["datasets"].Dataset else None
    if rows is None:
        return Reader(source, None, _items_of(source))
    return Reader(source, lambda indices, epoch, keys: rows.take(indices), _items_of(source), layout=rows.layout)


def _take_keyed(source: TakesKeyedBatches) -> Callable[[I64, int, U64 | None], Columns]:
    given = _given if _wants_keys(source) else lambda keys: _NO_KEYS
    return lambda indices, epoch, keys: source.take_keyed(indices, epoch=epoch, keys=given(keys))


def _items_of(source: Any) -> Callable[[I64, int, U64 | None], list[Any]]:
    if isinstance(source, KeyedItems) and not _wants_keys(source):
        return lambda indices, epoch, keys: [source.item_keyed(i, epoch=epoch, key=0) for i in indices.tolist()]
    if isinstance(source, KeyedItems):
        return lambda indices, epoch, keys: [
            source.item_keyed(i, epoch=epoch, key=k)
            for i, k in zip(indices.tolist(), _given(keys).tolist(), strict=True)
        ]
    if isinstance(source, ManyItems):
        return lambda indices, epoch, keys: source.__getitems__(indices.tolist())
    return _items(source)


def _items(source: Any) -> Callable[[I64, int, U64 | None], list[Any]]:
    return lambda indices, epoch, keys: [source[i] for i in indices.tolist()]


def _wants_keys(source: Any) -> bool:
    """Say whether a source that takes the epoch wants keys as well; ``wants_keys = False``: the epoch is enough."""
    return bool(getattr(source, "wants_keys", True))


def _given(keys: U64 | None) -> U64:
    assert keys is not None, "a keyed source was read without keys"
    return keys


def split_by_source(dataset_idx: NDArray[Any], count: int) -> Sequence[tuple[int, I64]]:
    """Return (dataset number, rows) for each dataset present in a batch."""
    if count == 1:
        return [(0, np.arange(len(dataset_idx)))]
    order = np.argsort(dataset_idx, kind="stable")
    numbers, starts = np.unique(dataset_idx[order], return_index=True)
    return list(zip(numbers.tolist(), np.split(order, starts[1:]), strict=True))
