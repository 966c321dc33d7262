"""The engine: one plan for a run, one way for a batch."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from lading import Ledger, NumpyLoader, open_run
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
    """Engine, ledger and agreement follow the one that the constructor tried; the file just written is not read."""
    with Ledger(tmp_path / "run") as ledger:
        loaders: list[NumpyLoader] = []

        def start() -> None:
            loaders.append(NumpyLoader(SOURCES, 4, weights={"code": 2, "prose": 1}, tracker=ledger))
            iter(loaders[0])

        assert calls_of(Plan.__post_init__, start) == 1
        assert ledger.plan is loaders[0].plan


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


def _commit_some(loader: NumpyLoader, run: Path, stop: int) -> None:
    """Record a loader in a ledger of its own, up to a step."""
    with Ledger(run) as ledger:
        loader.tracker = ledger
        for _, bill in loader.with_bills():
            ledger.commit(bill)
            if bill.step + 1 == stop:
                break


def test_a_loader_that_is_recorded_again_in_the_same_process_goes_on(tmp_path):
    """Broken off and begun anew without a state: the model had both, and history has both."""
    loader = NumpyLoader(np.arange(40), 4)

    _commit_some(loader, tmp_path, 5)
    _commit_some(loader, tmp_path, 7)
    loader.tracker = None

    opened = open_run(tmp_path)
    assert opened.history["step"] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6]
    assert opened.evidence.launches[1].kind == "replay"
    assert "attempt 1 went back to step 0" in opened.verify().findings[0].message


def test_a_loader_whose_next_epoch_has_another_ledger_is_one_history(tmp_path):
    """A ledger an epoch: nothing was done again, so nothing is said."""
    loader = NumpyLoader(np.arange(16), 4)

    for stop in (4, 8):
        _commit_some(loader, tmp_path, stop)

    opened = open_run(tmp_path)
    assert opened.history["step"] == list(range(8))
    assert opened.evidence.launches[1].kind == "resume"
    assert opened.verify().findings == []


def test_another_folder_continues_nothing(tmp_path):
    """What the loader did before is in another run."""
    loader = NumpyLoader(np.arange(16), 4)

    _commit_some(loader, tmp_path / "a", 2)
    _commit_some(loader, tmp_path / "b", 4)

    assert open_run(tmp_path / "b").evidence.launches[0].kind == "root"
