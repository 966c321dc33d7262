"""The engine: one plan for a run, one way for a batch."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from lading import Ledger, NumpyLoader
from lading.order.plan import Plan

SOURCES = {"code": np.arange(60), "prose": np.arange(30)}


def calls_of(function: Any, action: Any) -> int:
    """Return how often a function is called while something is done."""
    found = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal found
        found += event == "call" and frame.f_code is function.__code__

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


def test_starting_an_iteration_with_a_ledger_makes_one_plan(tmp_path: Path) -> None:
    """Engine, ledger and agreement follow the same object; the file just written is not read back."""
    with Ledger(tmp_path / "run") as ledger:
        loader = NumpyLoader(SOURCES, 4, weights={"code": 2, "prose": 1}, tracker=ledger)

        made = calls_of(Plan.__post_init__, lambda: iter(loader))

        assert made == 1
        assert ledger.plan is loader.plan
