"""What a source may offer besides ``__len__`` and ``__getitem__``.

    take(indices)                        a batch of columns in one gather
    take_keyed(indices, epoch=, keys=)   the same for a source that wants randomness
    item_keyed(index, epoch=, key=)      one such sample
    fingerprint()                        what identifies its content
    file_of(index)                       the file a sample lies in, for error messages
    stored_at()                          the directory it lies in, for records
    name(index)                          what a sample is called where it comes from: a url, a file and its line
    describe(index), preview(index)      what a sample looks like, for those who look at a run (``lading.source.looks``)
    without(documents)                   the same rows, with padding where some documents were
    spec()                               keys, shapes, dtypes and ranges of its batches (``BatchSpec``)
    parts                                the datasets its rows belong to (``lading.order.Part``), where it is several
                                         or has a number of its own; their names are appended to the source's
    random_free                          True if reading draws from no global random generator (``source.random_free``)
    provides_names                       True if its dict samples carry ``idx`` and ``dataset_idx`` themselves

A key is a 64-bit hash of (seed, epoch, dataset, index): the same whichever
process reads the sample, and after every resume.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lading.order.dataset import Part


def notify_epoch(source: Any, epoch: int) -> None:
    """Tell a source the epoch, where it wants to know."""
    notify = getattr(source, "set_epoch", None)
    if notify is not None:
        notify(epoch)


Columns = Any
"""Columns of a batch: a dict, a tuple or list, or one array; each with a row per sample."""


class Indexed(Protocol):
    """What loaders are given, to type checkers: torch's ``Dataset`` is typed without ``__len__``, and asked for it."""

    def __getitem__(self, index: int, /) -> Any: ...


Sources = Indexed | Mapping[str, Any]  # a dict of different kinds is one of objects to type checkers
"""One dataset, or several by name."""


@runtime_checkable
class Source(Protocol):
    """Where samples live."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


@runtime_checkable
class TakesBatches(Source, Protocol):
    """A source that gathers a batch of columns at once."""

    def take(self, indices: NDArray[np.int64], /) -> Columns: ...


@runtime_checkable
class TakesKeyedBatches(Source, Protocol):
    """A source whose samples depend on a key, gathered at once."""

    def take_keyed(self, indices: NDArray[np.int64], *, epoch: int, keys: NDArray[np.uint64]) -> Columns: ...


@runtime_checkable
class KeyedItems(Source, Protocol):
    """A source whose samples depend on a key, one by one."""

    def item_keyed(self, index: int, *, epoch: int, key: int) -> Any: ...


@runtime_checkable
class ManyItems(Source, Protocol):
    """A dataset that reads several samples at once, as torch knows it."""

    def __getitems__(self, indices: list[int], /) -> list[Any]: ...


@runtime_checkable
class InFiles(Protocol):
    """A source that knows which file a sample lies in."""

    def file_of(self, index: int, /) -> str: ...


@runtime_checkable
class InParts(Protocol):
    """A source whose rows belong to several datasets, or to one that has a number."""

    @property
    def parts(self) -> Sequence[Part]: ...


@runtime_checkable
class Located(Protocol):
    """A source that knows where it lies."""

    def stored_at(self) -> str | None: ...


@runtime_checkable
class Named(Protocol):
    """A source that knows what its samples are called where they come from; empty: not known."""

    def name(self, index: int, /) -> str: ...


@runtime_checkable
class HoldsDocuments(Protocol):
    """A source whose rows hold documents, and that can leave some of them out."""

    def without(self, documents: Sequence[int], /) -> Any: ...


@dataclass(frozen=True)
class Reader:
    """How one source is read.

    Attributes:
        columns: Gathers columns of (indices, epoch, keys), or None where samples must be collated.
        samples: Reads a list of samples of (indices, epoch, keys).
        keyed: Whether keys are used.
        arrays: The arrays whose rows the samples are, as they are, in the containers of a batch; None where reading
            does more than take rows.
        layout: Names and types of the columns of every batch, where they are known before; None: they are not. Sources
            that differ in it are read as samples.
    """

    source: Any
    columns: Callable[[NDArray[np.int64], int, NDArray[np.uint64] | None], Columns] | None
    samples: Callable[[NDArray[np.int64], int, NDArray[np.uint64] | None], list[Any]]
    keyed: bool = False
    arrays: Any = None
    layout: Any = None

    def file_of(self, index: int) -> str:
        """Return the file a sample lies in, or an empty text."""
        return self.source.file_of(index) if isinstance(self.source, InFiles) else ""
