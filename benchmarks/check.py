"""``make bench-check``: compare the results of the last ``make bench`` with ``goals.toml``."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.table import rows


@dataclass(frozen=True)
class Goal:
    """What a case must reach.

    Attributes:
        what: The case, and what of it.
        found: What was measured last; None where it was not.
        goal: What is wanted.
        held: What is guarded: the goal, or less where it has not been reached.
        more_is_better: Whether a higher figure is better.
    """

    what: str
    found: float | None
    goal: float
    held: float
    more_is_better: bool

    def reaches(self, figure: float, margin: float) -> bool:
        """Say whether what was found reaches a figure, with a margin for noise."""
        if self.found is None:
            return False
        return self.found >= figure * (1 - margin) if self.more_is_better else self.found <= figure * (1 + margin)

    def state(self, margin: float) -> str:
        """Return what there is to say of it."""
        if self.found is None:
            return "not measured"
        if not self.reaches(self.held, margin):
            return "FALLS SHORT"
        return "holds" if self.reaches(self.goal, margin) else "below goal"


def main() -> int:
    """Print each goal with what was reached; return 1 where less is reached than before."""
    goals = tomllib.loads((Path(__file__).parent / "goals.toml").read_text())
    states = []
    for goal in compared(goals, rows()):
        states.append(goal.state(goals["margin"]))
        found, sign = "-" if goal.found is None else format(goal.found, ".4g"), ">=" if goal.more_is_better else "<="
        held = f", held {goal.held:g}" if goal.held != goal.goal else ""
        print(f"{states[-1]:13} {goal.what}: {found}, goal {sign} {goal.goal:g}{held}")
    print(
        ", ".join(f"{states.count(state)} {state}" for state in ("holds", "below goal", "FALLS SHORT", "not measured"))
    )
    return 1 if "FALLS SHORT" in states else 0


def compared(goals: dict[str, Any], results: list[dict[str, Any]]) -> Iterator[Goal]:
    """Yield what was reached beside each goal."""
    by_case = {result["case"]: result for result in results}
    for section, kind in (("ratio", "ratio"), ("ours", "ours"), ("least", "ours")):
        for case, given in goals[section].items():
            yield Goal(f"{case}, {kind}", by_case.get(case, {}).get(kind), *_both(given), section != "ours")
    for axis, given in goals["flat"].items():
        times = [result["ours"] for result in results if result.get("axis") == axis]
        yield Goal(f"growth over {axis}", max(times) / min(times) if times else None, *_both(given), False)


def _both(given: Any) -> tuple[float, float]:
    """Return what is wanted, and what is guarded."""
    return (given["goal"], given["held"]) if isinstance(given, dict) else (given, given)


if __name__ == "__main__":
    sys.exit(main())
