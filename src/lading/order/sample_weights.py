"""Weights of single samples: in a pass of N positions sample i comes W_i · N / T times, rounded down or up.

    weights      0.5      2.0           0.5   1.0        sum 4, pass of 4
    ends         |--------|-------------------------|--------|-----------|      integers W_i, added up to T
    points           ^           ^           ^             ^                    k · T / N + a phase of the pass

A sample stands at place k of a pass where point k falls inside its stretch. The points are T / N apart, so it comes
floor or ceil of W_i · N / T times, and all together N times; the phase is another in every pass, and over the passes
each sample gets its share. Places are then shuffled as the samples of any pass are.

Both directions are integers of 64 bits: point k is ``(k · T + phase) // N``, and the first place of a stretch that
begins at C is ``C · N // T``, plus 1 where the phase is below ``C · N % T``. Stretches lie in a fixed shuffle of the
samples (in windows, or none, where passes are shuffled so): points at even distances would find the same classes again
and again in data that has a period.

Integers. W_i = floor(w_i · 2**s), at least 1 where w_i > 0, with one s for all that brings T between 2**60 and 2**62.
A float times a power of two is exact, so two machines agree. *The integers are the plan*; their SHA-256 stands for
them in its JSON, and a file beside it, called by the SHA-256, holds them.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import PlanError
from lading.identity.hashing import fold, key64, keys64, text64
from lading.order.permutation import permute, unpermute
from lading.runtime.arrays import finite_numbers
from lading.runtime.fields import SHA256, SIZE, Fields, FieldTable

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

SAMPLE_WEIGHTS_VERSION = 1
_LAYOUT, _PHASE = key64("sample weights", "layout"), np.uint64(text64("phase"))  # frozen with the version


@dataclass(frozen=True)
class SampleWeights:
    """The weights of the samples of one source.

    Attributes:
        total: Sum of the integer weights.
        sha256: Of the integer weights, little-endian, 64 bits each.
        window: Samples that are shuffled together in the table: 1 for none, all of them for all.
        known: Running sum of the integers, in the order of the table; None where only the SHA-256 is known.
        folder: Where the file of the integers is, for those that are not known.
    """

    total: int
    sha256: str
    samples: int = field(default=0, compare=False)
    window: int = field(default=1, compare=False)
    known: I64 | None = field(default=None, compare=False, repr=False)
    folder: Path | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, values: Any, samples: int, window: int, name: str = "data") -> SampleWeights:
        """Return the table of weights as the user gives them, or as another plan has them; refuse what are none.

        >>> SampleWeights.of([1, 1, 2], samples=3, window=1).expected(np.arange(3)).tolist()
        [0.75, 0.75, 1.5]
        """
        if isinstance(values, cls) and (values.known is None or values.window == window):
            return replace(values, samples=samples, window=window)
        integers = values.integers if isinstance(values, cls) else _integers(_checked(values, samples, name))
        return cls._made(integers, samples, window)

    @classmethod
    def _made(cls, integers: Callable[[I64], I64], samples: int, window: int) -> SampleWeights:
        """Return the table of integer weights; ``integers``: those of some rows."""
        sha256, ends, empty = hashlib.sha256(), np.empty(samples, dtype=np.int64), cls(0, "", samples, window)
        for rows in _chunks(samples):
            sha256.update(integers(rows).astype("<i8", copy=False).tobytes())
            ends[rows[0] : rows[-1] + 1] = integers(empty._moved(rows, permute))
        np.cumsum(ends, out=ends)
        return cls(int(ends[-1]), sha256.hexdigest(), samples, window, ends)

    @functools.cached_property
    def ends(self) -> I64:
        """Where each stretch ends; refused where only the SHA-256 is known, or the file holds other integers."""
        if self.known is not None:
            return self.known
        if self.folder is None:
            raise PlanError(
                f"the plan follows sample weights with SHA-256 {self.sha256[:16]}..., which are not here: its JSON "
                f"only names them. Pass Plan.from_json(text, beside=folder), with {self.file_name} in the folder."
            )
        path, problem = self.folder / self.file_name, "holds other sample weights than its plan follows"
        try:
            kept = np.memmap(path, dtype="<i8", mode="r")
            if len(kept) == self.samples and kept.min() >= 0:
                found = self._made(kept.take, self.samples, self.window)
                if found == self:
                    return found.ends
        except (OSError, ValueError) as error:
            problem = f"cannot be read ({error})"
        raise PlanError(f"{path} {problem}: expected {self.samples} integers with its name as SHA-256. Restore it.")

    def rows(self, places: I64, keys: U64) -> I64:
        """Return the row at each place of a pass; ``keys``: of the pass of each place."""
        step, rest = divmod(self.total, self.samples)
        phase, phase_rest = np.divmod(self._phases(keys), self.samples)
        points = places * step + (places * rest + phase_rest) // self.samples + phase
        order, numbers = np.argsort(points), np.empty(len(points), dtype=np.int64)
        numbers[order] = np.searchsorted(
            self.ends, points[order], side="right"
        )  # in order: neighbours are in the cache
        return self._moved(numbers, permute)

    def places(self, row: int, keys: U64) -> tuple[I64, I64]:
        """Return every place of a row in some passes: which of the keys, and the place."""
        number, phases = int(self._moved(np.array([row]), unpermute)[0]), self._phases(keys)
        borders = (int(self.ends[n]) if n >= 0 else 0 for n in (number - 1, number))
        exact = (divmod(border * self.samples, self.total) for border in borders)
        first, stop = (whole + (phases < rest) for whole, rest in exact)
        owners = np.repeat(np.arange(len(keys)), stop - first)
        before = np.cumsum(stop - first) - (stop - first)
        return owners, first[owners] + np.arange(len(owners)) - before[owners]

    def integers(self, rows: I64) -> I64:
        """Return the integer weights of some rows."""
        numbers = self._moved(rows, unpermute)
        return self.ends[numbers] - np.where(numbers > 0, self.ends[numbers - 1], 0)

    def expected(self, rows: I64) -> NDArray[np.float64]:
        """Return how often some rows come in a pass, on average."""
        return np.multiply(self.integers(rows), self.samples / self.total, dtype=np.float64)

    def reached(self, drawn: int) -> int:
        """Return how many different rows so many draws are expected to reach."""
        often = (self.expected(rows) for rows in _chunks(self.samples))
        return round(sum(float((1 - np.maximum(1 - each, 0) ** (drawn / self.samples)).sum()) for each in often))

    def undrawn(self) -> NDArray[np.bool_]:
        """Return of each row whether its weight is 0."""
        found, is_empty = np.zeros(self.samples, dtype=bool), self.ends[1:] == self.ends[:-1]
        found[self._moved(np.flatnonzero(np.append(self.ends[0] == 0, is_empty)), permute)] = True
        return found

    @property
    def file_name(self) -> str:
        """Name of the file of the integers, beside the plan that names them."""
        return f"{self.sha256}.weights"

    def content(self) -> Iterator[bytes]:
        """Yield the content of the file: the integer weights, little-endian, 64 bits each."""
        return (self.integers(rows).astype("<i8").tobytes() for rows in _chunks(self.samples))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able fields, which stand for the weights."""
        return {"version": SAMPLE_WEIGHTS_VERSION, "total": self.total, "sha256": self.sha256}

    def _moved(self, numbers: I64, way: Callable[[Any, Any, I64], I64]) -> I64:
        """Return the row of each number in the table; with ``unpermute`` the number of each row."""
        if self.window == 1:
            return numbers
        if self.window == self.samples:
            return way(self.samples, keys64(_LAYOUT, 0), numbers)
        block, inside = np.divmod(numbers, self.window)
        sizes = np.minimum(self.samples - block * self.window, self.window)
        moved: I64 = block * self.window + way(sizes, keys64(_LAYOUT, block), inside)
        return moved

    def _phases(self, keys: U64) -> I64:
        """Return the phase of each pass, below the total: the high half of hash * total."""
        passes, which = np.unique(keys, return_inverse=True)  # few of them: Python's integers are as quick
        exact = fold(passes, np.full(1, _PHASE)).astype(object) * self.total >> 64
        return exact.astype(np.int64)[which]


FIELDS: FieldTable = {
    "version": functools.partial(Fields.integer, low=SAMPLE_WEIGHTS_VERSION, high=SAMPLE_WEIGHTS_VERSION),
    "total": SIZE,
    "sha256": SHA256,
}
Weighted = tuple[tuple[str, SampleWeights], ...]  # of a plan, by source
Tables = Mapping[int, SampleWeights]  # by the number of the source


def weighted_rows(tables: Tables, sources: NDArray[np.int32], places: I64, keys: U64) -> I64:
    """Return the row at each place of a pass; in sources without weights the place itself."""
    found = places.copy()
    for source, table in tables.items():
        mine = np.flatnonzero(sources == source)
        found[mine] = table.rows(places[mine], keys[mine])
    return found


def weighted_places(tables: Tables, source: int, row: int, keys: U64) -> tuple[I64, I64]:
    """Return every place of a row in some passes over its source: which of the keys, and the place."""
    if source in tables:
        return tables[source].places(row, keys)
    return np.arange(len(keys)), np.full(len(keys), row, dtype=np.int64)


def planned_weights(given: Any, plan: Any) -> Weighted:
    """Return the weights of a plan's samples, in the order of its sources; tables lie as passes are shuffled."""
    by_name, found = dict(given), []
    for data in plan.datasets if by_name else ():
        if data.name in by_name:
            window = {"none": 1, "full": data.length}.get(plan.shuffle, min(plan.window_samples, data.length))
            found.append((data.name, SampleWeights.of(by_name.pop(data.name), data.length, window, data.name)))
    if by_name:
        names = ", ".join(repr(data.name) for data in plan.datasets)
        raise PlanError(f"sample_weights name {next(iter(by_name))!r}, but the sources are {names}. Correct the name.")
    return tuple(found)


def _checked(values: Any, samples: int, name: str) -> NDArray[np.float64]:
    """Return weights as floats; refuse those that are not one finite number from 0 up for each sample."""
    what = f"sample_weights of {name!r}"
    weights = finite_numbers(values, samples, what)
    if not 0 < samples <= 1 << 31:  # so that the product of two places fits 64 bits
        raise PlanError(f"{what}: expected 1 to 2**31 samples, found {samples}.")
    if weights.min() < 0:
        bad = int(np.argmax(weights < 0))
        raise PlanError(f"{what}: that of sample {bad} is {weights[bad]}, expected 0 or more (0 leaves a sample out).")
    if not weights.any():
        raise PlanError(f"{what}: all are 0: nothing would ever be drawn. Give a sample a weight above 0.")
    return weights


def _integers(weights: NDArray[np.float64]) -> Callable[[I64], I64]:
    """Return what gives the integers of rows: floor(w * 2**s), at least 1 where w is above 0; about 2**61 together."""

    def scaled(shift: int, rows: I64) -> I64:
        return np.maximum(np.ldexp(weights[rows], shift).astype(np.int64), weights[rows] > 0)

    coarse = 62 - len(weights).bit_length() - math.frexp(float(weights.max()))[1]
    total = sum(int(scaled(coarse, rows).sum()) for rows in _chunks(len(weights)))
    return functools.partial(scaled, coarse + 61 - total.bit_length())


def _chunks(samples: int, size: int = 1 << 20) -> Iterator[I64]:
    return (np.arange(start, min(start + size, samples)) for start in range(0, samples, size))
