"""The background writer: nothing that fails stops what comes after it."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.cli.calling import ask

from lading.errors import LedgerError
from lading.identity import World
from lading.ledger import Ledger, writer
from lading.order import Plan
from lading.report import open_run

# Step 12 has one sample: rank 1 has only padding there.
PLAN = Plan.make({"code": 97}, batch_size=8, seed=3)


def test_a_share_of_padding_only_is_recorded_like_any_other(tmp_path: Path):
    """Its table of names is empty, and the rows after it are there."""
    for_ranks = [Ledger(tmp_path, PLAN, record="names", rank=rank, world_size=2) for rank in range(2)]
    for rank, ledger in enumerate(for_ranks):
        for step in range(10, 16):
            ledger.commit(PLAN.bill(step, world=World(rank, 2)))
            ledger.flush()
    for ledger in for_ranks:
        ledger.close()

    code, out = ask("verify", tmp_path, "--json")

    assert (code, json.loads(out)["steps"]) == (0, 6)


def test_a_batch_of_bad_rows_only_is_recorded_like_any_other(tmp_path: Path):
    """Nothing of it counted, and its row says so."""
    with Ledger(tmp_path, PLAN, record="names") as ledger:
        for step in range(3):
            bill = PLAN.bill(step)
            ledger.commit(bill.replace(is_padding=np.ones(8, dtype=bool)) if step == 1 else bill)
            ledger.flush()

    assert open_run(tmp_path).history["samples"] == [8, 0, 8]


@pytest.mark.parametrize("on_error", ["raise", "warn"])
def test_a_row_that_no_reader_takes_never_blocks_the_next(tmp_path: Path, on_error: str):
    """It is named once, left out, and everything after it is on disk."""
    ledger = Ledger(tmp_path, names=["code"], on_error=on_error)
    ledger.commit(PLAN.bill(0))
    wrong = PLAN.bill(1)
    ledger.commit(wrong.replace(idx=wrong.idx - 1000))

    if on_error == "raise":
        with pytest.raises(LedgerError, match=r"step 1 .*left out"):
            ledger.flush()
    else:
        with pytest.warns(UserWarning, match=r"step 1 .*left out"):
            ledger.flush()
    for step in range(2, 5):
        ledger.commit(PLAN.bill(step))
        ledger.flush()
    ledger.close()

    code, out = ask("verify", tmp_path, "--json")
    verdict = json.loads(out)
    assert open_run(tmp_path).history["step"] == [0, 1, 2, 3, 4]
    assert (code, verdict["findings"][0]["step"]) == (1, 1)
    assert "kept no names of step 1" in verdict["findings"][0]["message"]


def test_a_refusal_that_cannot_be_read_ends_the_attempt_and_loses_nothing(tmp_path: Path, monkeypatch):
    """The ranks that began hear of it, and what they recorded is on disk."""
    monkeypatch.setattr(writer, "_LOOK_SECONDS", -1.0)  # at every turn
    ledger = Ledger(tmp_path, PLAN, rank=0, world_size=2)
    ledger.commit(PLAN.bill(0, world=World(0, 2)))
    (tmp_path / "ledger/attempt=0000/begun/refused.json").write_bytes(b"\xff")

    with pytest.raises(LedgerError, match=r"refused\.json"):
        ledger.flush()
    ledger.close()

    assert open_run(tmp_path).batches["step"] == [0]


def test_rows_that_do_not_fit_the_memory_are_given_up_oldest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """While nothing can be written: as many as no longer fit, counted, and the last lost step is named."""
    ledger = Ledger(tmp_path, PLAN, on_error="warn")
    ledger.commit(PLAN.bill(0))
    ledger.flush()
    thread = ledger._writer

    def refuse(tables):
        raise OSError(28, "No space left on device")

    def train(full: pytest.MonkeyPatch) -> None:
        full.setattr(thread._store, "add", refuse)
        for step in range(1, 9):
            ledger.commit(PLAN.bill(step))
            ledger.flush()
            if step == 1:
                thread.unsaved_bytes = 3 * writer._bytes_of(thread._unsaved[0])

    with monkeypatch.context() as full, warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        train(full)
    with contextlib.suppress(LedgerError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ledger.close()

    lost = thread.lost_rows
    assert 3 <= lost <= 6, "at least two of the last three fit"
    assert open_run(tmp_path).history["step"] == [0, *range(1 + lost, 9)]
    assert any(
        f"{lost} rows of the ledger" in str(w.message) and f"last lost: step {lost}" in str(w.message) for w in heard
    )


def test_a_fork_that_ends_leaves_everything_to_its_parent(tmp_path: Path):
    """It would wait for threads that are not its own, and put empty waybills in place."""
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.deliver(PLAN.bill(0))
        child = os.fork()
        if not child:
            writer.close_forgotten(ledger._writer, lambda: os._exit(1), lambda: os._exit(2))
            os._exit(0)

        assert os.waitpid(child, 0)[1] == 0
