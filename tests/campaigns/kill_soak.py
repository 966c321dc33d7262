"""Kill training again and again, in random trees of resumes and loops that break off.

    python -m tests.campaigns.kill_soak SEED SECONDS [FIRST]      prints the figures as one JSON line (see ``running``)

A unit is a tree of 13 attempts, 12 of them killed (``tests/ledger/kill_driver.py``): 1 to 4 ranks, 0 to 2 workers, each
attempt resumed from any checkpoint that any attempt took. After every kill history is compared with what the model was
trained on, and what the ranks got with a run that nothing interrupted. Two trees grow at once.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.campaigns.running import Found, main

DRIVER = Path(__file__).parent.parent / "ledger" / "kill_driver.py"
LAST_STEP = 259


def survive(path: Path, kills: int, seed: int) -> list[dict[str, Any]]:
    """Grow a tree of attempts; return what was seen after every kill."""
    command = [sys.executable, str(DRIVER), str(path), str(kills), str(seed)]
    environment = {**os.environ, "LADING_COMPILED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(seen: list[dict[str, Any]]) -> int:
    """Check what was seen after every kill; return how many processes were killed."""
    for life in seen:
        if "holds" in life:
            assert life["holds"], life["faults"]
            assert not life["wrong"], f"history is not what the model was trained on: {life['wrong']}"
    assert set(seen[-1]["codes"]) == {0}
    assert seen[-1]["last"] == LAST_STEP
    return sum(life["codes"].count(-signal.SIGKILL) for life in seen)


def one_tree(home: Path, seed: int, number: int) -> Found:
    """Grow the n-th tree of a seed."""
    path = home / str(number)
    seen = survive(path, 12, seed=1000 * seed + number)
    found = Found()
    found.figures["kills of processes"] = check(seen)
    found.figures["kills of attempts"] = sum(-signal.SIGKILL in life["codes"] for life in seen)
    found.figures["trees"] = 1
    found.figures["attempts"] = len(seen)
    found.raise_most("seconds a tree", round(sum(life["seconds"] for life in seen), 1))
    shutil.rmtree(path)
    return found


if __name__ == "__main__":
    from tests.campaigns import kill_soak

    main(kill_soak.one_tree)
