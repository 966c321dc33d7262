"""Count the rows of what was read and of what a collate function made of it: as many as the bill says, or an error.

    samples ─▶ check_samples ─▶ collate ─▶ batch ─▶ RowCounter ─▶ right · refused · not counted · some left out
    take()  ─▶ check_columns

A collate function says with its attribute ``rows`` what it makes of its samples:

    "same"      a row of each (the default)
    2           so many rows of each
    "any"       nothing that could be counted
    a function  of the batch: the places of the samples that it kept, in the order of the rows

A *leaf* is an array with an axis, in mappings, tuples, named tuples and dataclasses. A list of as many items as there
are samples is a leaf of that length, and so is one without arrays inside. A batch is right where some leaf has the
rows; refused where none has; not counted where there is no leaf.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.errors import LoaderError, SourceError
from lading.identity import Bill, Deviation
from lading.identity.bill import LEFT_OUT
from lading.runtime.fields import is_whole
from lading.runtime.imports import is_a

SAME, ANY = "same", "any"
_NONE = type(None)
_NO_LEAVES = frozenset({int, float, bool, str, bytes, _NONE})
_MOST_NAMED = 4
_NOT_COUNTED = "the rows of batches are not counted"
# What is known of others' collate functions. They are looked for where they are loaded, nothing is imported.
_FLATTENS = "transformers.data.data_collator:DataCollatorWithFlattening"
_PAIRS = (
    "trl.trainer.dpo_trainer:DataCollatorForPreference",
    "trl.trainer.dpo_trainer:DataCollatorForVisionPreference",
    "trl.trainer.reward_trainer:DataCollatorForPreference",
)
_MAY_BE_PADDING_FREE = "trl.trainer.sft_trainer:DataCollatorForLanguageModeling"


class Counted(NamedTuple):
    """What was found of a batch that was not refused.

    Attributes:
        kept: Places of the samples that are in it, in the order of its rows; None: all, as they were.
        remark: Why it could not be counted, for the record; empty where it was.
    """

    kept: NDArray[np.int64] | None = None
    remark: str = ""


_RIGHT = Counted()


class RowCounter:
    """Compares the batches of a collate function with the samples they are made of.

    Args:
        collate: The collate function; what wraps the user's own passes that here.
    """

    def __init__(self, collate: Any) -> None:
        self._rule = rule_of(collate)
        self._name = _name_of(collate)

    @property
    def leaves_out(self) -> bool:
        """Whether the collate function says itself which samples it keeps."""
        return callable(self._rule)

    @property
    def uncounted(self) -> str:
        """Why no batch can be counted, where the collate function says so; an empty text where it does not."""
        return f"{_NOT_COUNTED}: {self._name} makes what cannot be (rows='any')" if self._rule == ANY else ""

    def __call__(self, batch: Any, rows: int, bill: Bill | None = None) -> Counted:
        """Return what is known of a batch of some samples.

        Args:
            rows: Samples it was given.
            bill: Their bill, for the error.

        Raises:
            SourceError: Nothing in the batch has the rows that it should have.
        """
        rule = self._rule
        if rule == 1:
            is_right = has_rows(batch, rows)
            return _RIGHT if is_right else self._wrong(batch, rows, rows, is_right, bill)
        if rule == ANY:
            return Counted(None, self.uncounted)
        if not callable(rule):
            is_right = has_rows(batch, rows * rule)
            return _RIGHT if is_right else self._wrong(batch, rows, rows * rule, is_right, bill)
        kept = _places(rule(batch), rows, self._name)
        is_right = has_rows(batch, len(kept))
        remark = "" if is_right else self._wrong(batch, rows, len(kept), is_right, bill).remark
        return Counted(None if np.array_equal(kept, np.arange(rows)) else kept, remark)

    def remark(self, batch: Any, rows: int) -> str:
        """Return why a batch that was counted elsewhere could not be; an empty text where it was."""
        if callable(self._rule):
            return ""
        return "" if self._rule != ANY and has_rows(batch, rows * self._rule) is not None else self(batch, rows).remark

    def _wrong(self, batch: Any, rows: int, wanted: int, found: bool | None, bill: Bill | None) -> Counted:
        if found is None:
            kind = type(batch).__name__
            return Counted(None, f"{_NOT_COUNTED}: a {kind} of {self._name} holds no arrays")
        what = "a batch" if bill is None else f"batch {bill.batch_id} of step {bill.step}"
        each = "" if wanted == rows else f", {wanted} rows expected"
        raise SourceError(
            f"{what} was made of {rows} samples{each}, and nothing in it has so many rows: {_described(batch)}. The "
            f"books would name samples that the model never gets. Let {self._name} return a row for each sample (bad "
            "samples: raise in the dataset, and pass on_bad_sample='skip' or 'substitute' to the loader), or say what "
            "it does: collate_fn.rows = 'any', a number of rows per sample, or a function of the batch that returns "
            "the places of the samples it kept."
        )


def rule_of(collate: Any) -> Any:
    """Return how many rows a collate function makes of a sample, ``"any"``, or what tells the samples it kept."""
    while isinstance(collate, functools.partial) and not hasattr(collate, "rows"):
        collate = collate.func
    asked = getattr(collate, "rows", None)
    if asked is None:
        return _known_rule(collate)
    if isinstance(asked, str) and asked in (SAME, ANY):
        return 1 if asked == SAME else ANY
    if callable(asked) or is_whole(asked, 1):
        return asked
    raise LoaderError(
        f"rows of the collate function {_name_of(collate)} is {asked!r}: expected 'same', 'any', a number of rows per "
        "sample, or a function of the batch that returns the places of the samples it kept."
    )


def _known_rule(collate: Any) -> Any:
    if is_a(collate, _FLATTENS) or (is_a(collate, _MAY_BE_PADDING_FREE) and collate.padding_free):
        return ANY
    return 2 if is_a(collate, *_PAIRS) else 1


def has_rows(batch: Any, rows: int) -> bool | None:
    """Say whether some leaf of a batch has so many rows; None where it has no leaves.

    >>> import numpy as np
    >>> has_rows({"x": np.zeros((4, 2)), "y": [1, 2, 3, 4]}, 4), has_rows((np.zeros((7, 3)), "a"), 4), has_rows("ab", 2)
    (True, False, None)
    """
    found = _has_rows(batch, rows)
    return _on_second_axis(batch, rows) if found is False else found


def _has_rows(part: Any, rows: int) -> bool | None:
    kind = type(part)
    if kind in _NO_LEAVES:
        return None
    if kind is dict:
        return _some(part.values(), rows)
    if kind is list:
        return _list_has_rows(part, rows)
    if kind is tuple:
        return True if len(part) == rows else _some(part, rows)
    try:
        shape = getattr(part, "shape", None)
    except RuntimeError:
        shape = _shape(part)
    if isinstance(shape, tuple):
        return shape[0] == rows if shape else None
    if isinstance(part, list):
        return _list_has_rows(part, rows)
    inside = _inside(part)
    return None if inside is None else _some(inside, rows)


def _list_has_rows(items: list[Any], rows: int) -> bool:
    """Say it of a list: a leaf of its length; or columns side by side, as torch collates tuples."""
    if len(items) == rows:
        return True
    right = sum([_has_rows(item, rows) is True for item in items])
    if 0 < right < len(items):  # of containers each must be right: they may be samples, which are too few
        return any(_shape(item) is not None for item in items)
    return right > 0


def _some(parts: Iterable[Any], rows: int) -> bool | None:
    is_counted = None
    for part in parts:
        found = _has_rows(part, rows)
        if found:
            return True
        is_counted = found if is_counted is None else is_counted
    return is_counted


def _on_second_axis(batch: Any, rows: int) -> bool:
    """Say whether a batch is one array, or a tuple of arrays, with time before the rows."""
    arrays = batch if isinstance(batch, tuple) else (batch,)
    shapes = [_shape(array) for array in arrays]
    return None not in shapes and any(len(shape) > 1 and shape[1] == rows for shape in shapes if shape)


def _shape(part: Any) -> tuple[int, ...] | None:
    try:
        shape = getattr(part, "shape", None)
    except RuntimeError:  # of torch's nested tensors, which know how many they are
        return (int(part.size(0)),)
    return shape if isinstance(shape, tuple) else None


def _inside(part: Any) -> Iterable[Any] | None:
    """Return the parts of a mapping, a named tuple or a dataclass; None of anything else."""
    if isinstance(part, Mapping):
        return part.values()
    if isinstance(part, tuple):
        return part
    fields = getattr(type(part), "__dataclass_fields__", None)
    return None if fields is None else [getattr(part, name) for name in fields]


def check_samples(samples: Any, indices: Sequence[int] | NDArray[np.int64], source: str) -> None:
    """Refuse samples that are not as many as were asked for, or some of which are None.

    Args:
        samples: What the source gave: a list, or columns where its ``__getitems__`` gives those.
    """
    if not isinstance(samples, list | tuple):
        check_columns(samples, len(indices), source, "__getitems__")
    elif len(samples) != len(indices):
        raise SourceError(
            f"a {source} gave {len(samples)} samples where {len(indices)} were asked for (__getitems__): expected one "
            f"for each index, in their order. {_BAD_SAMPLES}"
        )
    elif _NONE in set(map(type, samples)):
        place = next(place for place, sample in enumerate(samples) if sample is None)
        raise SourceError(f"a {source} gave None for sample {int(indices[place])}. {_BAD_SAMPLES}")


_BAD_SAMPLES = (
    "Where a sample cannot be read, let the dataset raise an error, and pass on_bad_sample='skip' or 'substitute' to "
    "the loader."
)


def check_columns(columns: Any, rows: int, source: str, how: str = "take") -> None:
    """Refuse columns of a batch of which some has not as many rows as were asked for.

    Args:
        how: The method that gave them.
    """
    if type(columns) is dict and all(type(c) is np.ndarray and c.ndim and len(c) == rows for c in columns.values()):
        return  # the quick question first: asked of every batch
    wrong = _wrong_column(columns, rows, "")
    if wrong is not None:
        name, found = wrong
        raise SourceError(
            f"a {source} gave {found} rows{name and f' of {name!r}'} where {rows} were asked for ({how}): expected "
            f"one for each index, in their order. {_BAD_SAMPLES}"
        )


def _wrong_column(columns: Any, rows: int, name: str) -> tuple[str, int] | None:
    shape = None if type(columns) is dict else _shape(columns)
    if shape is not None:
        return (name, shape[0]) if shape and shape[0] != rows else None
    if isinstance(columns, Mapping):
        named: Iterable[tuple[Any, Any]] = columns.items()
    elif isinstance(columns, (list, tuple)) and any(
        isinstance(part, list) or _shape(part) is not None or _inside(part) is not None for part in columns
    ):
        named = () if name and len(columns) == rows else enumerate(columns)
    else:
        is_text = isinstance(columns, (str, bytes)) or not hasattr(columns, "__len__")
        return None if is_text or len(columns) == rows else (name, len(columns))
    for key, part in named:
        wrong = _wrong_column(part, rows, f"{name}.{key}" if name else str(key))
        if wrong is not None:
            return wrong
    return None


def kept_rows(bill: Bill, kept: NDArray[np.int64]) -> Bill:
    """Return the bill of a batch whose collate function kept some samples; the others are booked as skipped.

    Args:
        kept: Places of those that are in the batch, in the order of its rows.
    """
    left = np.setdiff1d(np.flatnonzero(bill.is_real), kept).tolist()
    slots, datasets, indices = bill.slots.tolist(), bill.dataset_idx.tolist(), bill.idx.tolist()
    skipped = [Deviation(slots[r], "skipped", datasets[r], indices[r], None, LEFT_OUT) for r in left]
    return bill.select(kept, deviations=(*bill.deviations, *skipped))


def _places(given: Any, rows: int, name: str) -> NDArray[np.int64]:
    found = np.asarray(given)
    places = found.astype(np.int64) if found.dtype.kind in "iu" or not found.size else np.full(1, -1)
    is_right = places.ndim == 1 and len(np.unique(places)) == len(places)
    if not is_right or (len(places) and not 0 <= places.min() <= places.max() < rows):
        raise SourceError(
            f"rows of the collate function {name} returned {given!r} for a batch of {rows} samples: expected the "
            f"places of the samples it kept, each once, from 0 to {rows - 1}."
        )
    return places


def _described(batch: Any) -> str:
    """Return the parts of a batch and their rows, in a few words."""
    if isinstance(batch, Mapping):
        named: Sequence[tuple[Any, Any]] = list(batch.items())
    elif (inside := _inside(batch)) is not None and not isinstance(batch, tuple):
        named = list(zip(type(batch).__dataclass_fields__, inside, strict=True))
    elif isinstance(batch, tuple):
        named = list(enumerate(batch))
    else:
        named = [(f"the {type(batch).__name__}", batch)]
    texts = [f"{name} has {_extent(part)}" for name, part in named[:_MOST_NAMED]]
    return ", ".join(texts) + (", ..." if len(named) > _MOST_NAMED else "")


def _extent(part: Any) -> str:
    shape = _shape(part)
    if shape is not None:
        return f"shape {tuple(shape)}"
    return f"{len(part)} items" if isinstance(part, list | tuple) else f"no rows ({type(part).__name__})"


def _name_of(collate: Callable[..., Any] | Any) -> str:
    collate = collate.func if isinstance(collate, functools.partial) else collate
    return getattr(collate, "__qualname__", None) or type(collate).__name__
