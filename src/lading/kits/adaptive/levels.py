"""What a plan keeps of a curriculum: the level of each sample, and when which levels come in.

The difficulty of a sample becomes one of at most 64 levels, and that is all that an order needs of scores:

    scores   0.1 0.9 0.2 0.7 0.3     ─▶   levels   0 2 0 1 1      (sizes 2, 2, 1)
    stages   ((0, 13), (6400, 14), ..., (128000, 64))             position, levels in the pool; the last: everything

One byte a sample, compressed in a plan's JSON; the SHA-256 stands for it in fingerprints and states. Where only the
SHA-256 is known the order waits for the scores, see ``Levels.known``.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import itertools
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import PlanError
from lading.runtime.arrays import finite_numbers
from lading.runtime.fields import COUNT, SHA256, SIZE, Fields, FieldTable, given, row_of, tuple_of

I64 = NDArray[np.int64]
MAX_LEVELS = 64
_LONGEST = 1 << 26


class Levels:
    """The level of each sample of all sources together, 0 the easiest.

    Args:
        numbers: The level of each sample; None where only their SHA-256 is known.
        sha256: Their SHA-256, where they are not known.
    """

    def __init__(self, numbers: NDArray[np.uint8] | None, sha256: str = "") -> None:
        self.numbers = numbers
        self.sha256 = sha256 if numbers is None else hashlib.sha256(numbers.tobytes()).hexdigest()

    @classmethod
    def of(cls, scores: Any, sizes: Sequence[int]) -> Levels:
        """Put samples into levels of given sizes, the lowest scores first; equal scores in the order of the data.

        >>> Levels.of([0.1, 0.9, 0.2, 0.7, 0.3], [2, 2, 1]).numbers.tolist()
        [0, 2, 0, 1, 1]
        """
        values = finite_numbers(scores, sum(sizes), "scores")
        numbers = np.empty(len(values), dtype=np.uint8)
        numbers[np.argsort(values, kind="stable")] = np.repeat(np.arange(len(sizes), dtype=np.uint8), sizes)
        return cls(numbers)

    def known(self, given: Iterable[Levels]) -> Levels:
        """Return the levels themselves where one of those given has their SHA-256; else these."""
        return next((levels for levels in given if levels == self), self) if self.numbers is None else self

    @property
    def found(self) -> NDArray[np.uint8]:
        """The level of each sample; refused where only the SHA-256 is known."""
        if self.numbers is None:
            raise PlanError(
                f"the plan follows scores with SHA-256 {self.sha256[:16]}..., which are not here: a state keeps only "
                "their name. Give them to the loader again: Curriculum(scores, later=[new_scores])."
            )
        return self.numbers

    @functools.cached_property
    def sizes(self) -> I64:
        return np.bincount(self.found)

    @functools.cached_property
    def members(self) -> I64:
        """The samples of level 0, then those of level 1 ..., in the order of the data."""
        return np.argsort(self.found, kind="stable")

    @functools.cached_property
    def starts(self) -> I64:
        """Where each level begins among the members."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    @functools.cached_property
    def places(self) -> I64:
        """Where each sample is among the members."""
        places = np.empty_like(self.members)
        places[self.members] = np.arange(len(places))
        return places

    def to_dict(self, *, whole: bool) -> dict[str, Any]:
        data = {} if not whole or self.numbers is None else {"zlib": _packed(self.numbers)}
        return {"sha256": self.sha256, **data}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Levels) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        return f"Levels({self.sha256[:16]}{'' if self.numbers is not None else ', not here'})"


def _is_whole(levels: Levels) -> bool:
    return len(levels.found) > 0 and len(levels.sizes) <= MAX_LEVELS and bool(levels.sizes.all())


def _packed(numbers: NDArray[np.uint8]) -> str:
    return base64.b64encode(zlib.compress(numbers.tobytes(), 6)).decode()


def _unpacked(text: str) -> bytes:
    unpacker = zlib.decompressobj()
    found = unpacker.decompress(base64.b64decode(text, validate=True), _LONGEST)
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise ValueError("more than a plan may hold, or cut off")
    return found


_LEVELS: FieldTable = {"sha256": SHA256, "zlib": given(Fields.text, longest=_LONGEST)}


def read_levels(plan: Fields, name: str) -> Levels:
    """Return the levels that a field of a plan holds, or names."""
    fields = plan.record(name)
    digest, packed = fields.each(_LEVELS).values()
    levels = Levels(None, digest)
    if packed is not None:
        try:
            levels = Levels(np.frombuffer(_unpacked(packed), dtype=np.uint8))
        except (ValueError, zlib.error, binascii.Error):
            fields.refuse("zlib", "compressed levels in base64")
    if levels.sha256 != digest or (levels.numbers is not None and not _is_whole(levels)):
        fields.refuse("zlib", f"levels with SHA-256 {digest[:16]}...")
    return levels


CURRICULUM_VERSION = 1


@dataclass(frozen=True)
class CurriculumSpec:
    """The pool of samples that grows.

    Attributes:
        levels: The level of each sample.
        stages: (position, levels in the pool from there on), ascending, the first at 0.
    """

    levels: Levels
    stages: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        starts, pools = ([stage[side] for stage in self.stages] for side in (0, 1))
        rising = all(a < b for column in (starts, pools) for a, b in itertools.pairwise(column))
        if not self.stages or starts[0] != 0 or pools[0] < 1 or pools[-1] > MAX_LEVELS or not rising:
            raise PlanError(
                f"curriculum stages are {self.stages[:4]}: expected (position, levels), both rising, the first at 0. "
                "Make them with lading.Curriculum."
            )

    def to_dict(self, *, whole: bool = False) -> dict[str, Any]:
        stages = [list(stage) for stage in self.stages]
        return {"curriculum_version": CURRICULUM_VERSION, "stages": stages, "levels": self.levels.to_dict(whole=whole)}

    @classmethod
    def read(cls, fields: Fields) -> CurriculumSpec:
        if fields.integer("curriculum_version") != CURRICULUM_VERSION:
            raise PlanError(
                f"the plan's curriculum has version {fields.value('curriculum_version')}, this Lading computes "
                f"{CURRICULUM_VERSION}. Use the Lading that wrote it."
            )
        return cls(**fields.each(_FIELDS, "curriculum_version"))


_FIELDS: FieldTable = {
    "stages": tuple_of(row_of(COUNT, SIZE), least=1, most=MAX_LEVELS),
    "levels": read_levels,
}
