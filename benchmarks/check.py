"""``make bench-check``: compare the results of the last ``make bench`` with ``goals.toml``."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from benchmarks.table import rows


def main() -> int:
    """Print each goal with what was reached."""
    goals = tomllib.loads((Path(__file__).parent / "goals.toml").read_text())
    results = {result["case"]: result for result in rows()}
    short = 0
    for kind, sign in (("ratio", 1), ("ours", -1)):
        for case, goal in goals[kind].items():
            found = results.get(case, {}).get(kind)
            limit = goal * (1 - sign * goals["margin"])
            state = "not measured" if found is None else "holds" if sign * (found - limit) >= 0 else "FALLS SHORT"
            short += state == "FALLS SHORT"
            print(f"{state:13} {case}: {kind} {found}, goal {goal}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
