"""A new kind of curriculum is what a user gives, what a plan asks, and a line in a table.

Plan, clock, event, state and engine stay as they are: none of them names a kind.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from lading import NumpyLoader, Plan
from lading.errors import LoaderError
from lading.loader import engine, state
from lading.loader.adapting import Adapting
from lading.order import clock, event, plan
from lading.order.adaptation import Adaptation, PlanView
from lading.order.decided import KINDS
from lading.order.shuffle import Order, Shuffled
from lading.runtime.fields import Fields


@dataclass(frozen=True)
class EasyHalf(Adaptation):
    """A curriculum of two levels: epochs before ``until`` go through the first half twice, later ones through all."""

    until: int
    key: ClassVar[str] = "easy_half"
    words: ClassVar[str] = "end of the easy half"

    def order(self, plan: PlanView) -> Order:
        """Return an order whose early epochs fold the second half onto the first."""
        whole = Shuffled(plan.lengths, plan.seed, plan.shuffle, plan.window_samples, {})
        return Folded(whole, sum(plan.lengths) // 2, self.until * sum(plan.lengths))

    def to_dict(self, *, whole: bool = False) -> int:
        """Return the epoch at which everything is in."""
        return self.until

    @classmethod
    def read(cls, fields: Fields) -> EasyHalf:
        """Rebuild it from a plan's fields."""
        return cls(fields.integer(cls.key, low=0))


@dataclass
class Folded:
    """Samples of the second half stand for those of the first, up to a position."""

    whole: Shuffled
    half: int
    until: int

    def __post_init__(self) -> None:
        self.epoch_samples = self.whole.epoch_samples

    def samples(self, start: int, stop: int) -> Any:
        """Return sources and rows at some positions of an epoch."""
        sources, rows = self.whole.samples(start, stop)
        return sources, rows if start >= self.until else rows % self.half

    def step_samples(self, start: int, size: int, first: int = 0, stop: int | None = None) -> Any:
        """Return sources and rows of some slots of a step."""
        return self.samples(start + first, start + (size if stop is None else stop))

    def positions(self, dataset: int, index: int, start: int, stop: int) -> Any:
        """Return the positions of a row."""
        twins = [index, index + self.half] if index < self.half and start < self.until else []
        early = [self.whole.positions(dataset, row, start, min(stop, self.until)) for row in twins]
        late = [self.whole.positions(dataset, index, max(start, self.until), stop)] if stop > self.until else []
        return np.sort(np.concatenate([np.empty(0, np.int64), *early, *late]))

    def counts(self, position: int) -> list[int]:
        """Return the samples before a position."""
        return self.whole.counts(position)


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, EasyHalf.key, f"{EasyHalf.__module__}:EasyHalf")


def planned() -> Plan:
    """Return a plan of 40 samples whose first two epochs are easy."""
    return Plan.make({"data": 40}, 4, adaptation=EasyHalf(2))


def test_a_new_kind_orders_a_plan_both_ways() -> None:
    """Bills follow it, and ``where`` inverts them."""
    made_plan = planned()
    seen = [made_plan.bill(step).idx for step in range(30)]

    assert max(int(idx.max()) for idx in seen[:20]) < 20
    assert sorted(np.concatenate(seen[20:]).tolist()) == list(range(40))
    for index in (3, 33):
        found = [step for step, idx in enumerate(seen) for _ in np.flatnonzero(idx == index)]
        assert sorted(place.step for place in made_plan.where("data", index, 0, 30)) == found


def test_a_new_kind_is_written_and_read() -> None:
    """It has a key in the plan's JSON, a part of the fingerprint, and a word where plans differ."""
    one, other = planned(), dataclasses.replace(planned(), adaptation=EasyHalf(3))

    assert Plan.from_json(one.to_json()) == one
    assert '"easy_half": 2' in one.to_json()
    assert one.fingerprint != other.fingerprint
    assert one.differences(other) == ["end of the easy half 2 -> 3"]


def test_a_loader_follows_a_new_kind_and_resumes_in_it() -> None:
    """Stopped in the middle and resumed it yields what it would have yielded; blocks are events as ever."""
    first, after = made(), made()
    batches = iter(first)
    before = [next(batches).tolist() for _ in range(7)]
    after.load_state_dict(first.state_dict())
    after.block("data", [5])

    rest = [batch.tolist() for _ in range(3) for batch in after]

    assert first.plan.adaptation == EasyHalf(2)
    assert before == [first.plan.bill(step).idx.tolist() for step in range(7)]
    assert rest == [after.plan.bill(step).idx.tolist() for step in range(7, 30)]
    assert not any(5 in batch for batch in rest)
    with pytest.raises(LoaderError, match="a EasyFirst has no scores that could change"):
        after.rescore([1.0])


@pytest.mark.parametrize("module", [plan, clock, event, state, engine])
def test_the_heart_names_no_kind(module: ModuleType) -> None:
    """What a kind is called, or where it is, stands in none of the five files."""
    text = Path(module.__file__ or "").read_text()

    words = [f'"{name}"' for name in KINDS]
    assert not [word for word in (*words, "Curriculum", "Graded", "Chosen", "Rescore") if word in text]


class EasyFirst(Adapting):
    """What a user gives as ``mixture=``."""

    def adaptation(self, request: Any, readers: Any, batch: int) -> EasyHalf:
        """Return the kind for the plan of a loader."""
        return EasyHalf(2)


def made() -> NumpyLoader:
    """Return a loader that follows the plan."""
    return NumpyLoader({"data": np.arange(40)}, 4, mixture=EasyFirst())
