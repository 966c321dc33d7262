"""The engine: one plan for a run, one way for a batch."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from lading import Ledger, NumpyLoader
from lading.order.plan import Plan
from lading.source.columns import Columns

STAGES = ("bill.py", "fetch.py", "name.py", "place.py", "note.py")
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


def test_a_batch_goes_from_bill_to_note_without_a_question_back() -> None:
    """The five files of the drawing are entered in its order, each once."""
    loader = NumpyLoader(Columns(x=np.arange(40)), 4)
    batches = iter(loader)
    next(batches)
    entered: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        folder, _, file = frame.f_code.co_filename.rpartition("/")
        if event == "call" and folder.endswith("lading/loader") and file in STAGES and entered[-1:] != [file]:
            entered.append(file)

    sys.setprofile(note)
    try:
        next(batches)
    finally:
        sys.setprofile(None)

    assert entered == ["bill.py", "fetch.py", "name.py", "note.py"], "place.py has nothing to do for NumPy"


def test_a_loader_without_policies_has_no_observers() -> None:
    """Nobody is asked after a batch, unless weights or chunks may change."""
    plain, chunked = NumpyLoader(SOURCES, 4), NumpyLoader(SOURCES, 4, chunk_batches=3)

    assert (len(plain.engine.notes.observers), len(chunked.engine.notes.observers)) == (0, 1)
