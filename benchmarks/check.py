"""``make bench-check``: compare the results of the last ``make bench`` with ``goals.toml``."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.table import rows

Goal = tuple[str, float | None, float, bool]  # what, found, the limit, whether more is better


def main() -> int:
    """Print each goal with what was reached; return 1 where one is missed."""
    goals = tomllib.loads((Path(__file__).parent / "goals.toml").read_text())
    margin, states = goals["margin"], []
    for what, found, goal, more_is_better in compared(goals, rows()):
        limit = goal * (1 - margin) if more_is_better else goal * (1 + margin)
        is_reached = found is not None and (found >= limit if more_is_better else found <= limit)
        states.append("not measured" if found is None else "holds" if is_reached else "FALLS SHORT")
        sign = ">=" if more_is_better else "<="
        print(f"{states[-1]:13} {what}: {'-' if found is None else format(found, '.4g')}, goal {sign} {goal:g}")
    print(", ".join(f"{states.count(state)} {state}" for state in ("holds", "FALLS SHORT", "not measured")))
    return 1 if "FALLS SHORT" in states else 0


def compared(goals: dict[str, Any], results: list[dict[str, Any]]) -> Iterator[Goal]:
    """Yield what was reached beside each goal."""
    by_case = {result["case"]: result for result in results}
    for kind in ("ratio", "ours"):
        for case, goal in goals[kind].items():
            yield f"{case}, {kind}", by_case.get(case, {}).get(kind), goal, kind == "ratio"
    for axis, goal in goals["flat"].items():
        times = [result["ours"] for result in results if result.get("axis") == axis]
        yield f"growth over {axis}", max(times) / min(times) if times else None, goal, False


if __name__ == "__main__":
    sys.exit(main())
