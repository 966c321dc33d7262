"""What a plan keeps of a curriculum: the level of each sample, and from where on how many levels are in.

stages   ((0, 13), (6400, 14), ..., (128000, 64))      position, levels in the pool; the last: everything
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from lading.errors import PlanError
from lading.order.adaptive.curriculum.levels import MAX_LEVELS, Levels, read_levels
from lading.runtime.fields import COUNT, SIZE, Fields, FieldTable, row_of, tuple_of

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
        """Return JSON-able fields; ``whole``: with the level of each sample, not only their SHA-256."""
        stages = [list(stage) for stage in self.stages]
        return {"curriculum_version": CURRICULUM_VERSION, "stages": stages, "levels": self.levels.to_dict(whole=whole)}

    @classmethod
    def read(cls, fields: Fields) -> CurriculumSpec:
        """Rebuild a spec from checked fields."""
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
