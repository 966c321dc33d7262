"""Waybills that are hashed beside training, and put in place by the thread that trains."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import warnings
from concurrent.futures import Future
from pathlib import Path

import pytest
from tests.report.runs import PLAN

from lading.errors import LedgerError
from lading.ledger import Ledger
from lading.ledger.run_folder import RunFolder
from lading.ledger.waybill import stamping
from lading.ledger.waybill.stamping import Waybills, prepared, write_waybill
from lading.ledger.waybill.waybill import Waybill, described_by, own_path, read_waybill
from lading.report.checkpoint.family import waybills_below
from lading.runtime import files as runtime_files

RUN = RunFolder(Path("no run"))  # none of these waybills is of a run


def made():
    """Return the waybill of a checkpoint that nobody trained."""
    return Waybill("import", {})


@pytest.fixture
def folder(tmp_path):
    """A checkpoint that was saved a while ago."""
    path = tmp_path / "checkpoint-5"
    path.mkdir()
    (path / "model").write_bytes(b"weights")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return path


@pytest.fixture
def gate(monkeypatch):
    """Hashing that waits until it is let go."""
    event, real = threading.Event(), stamping.hashed
    monkeypatch.setattr(stamping, "hashed", lambda files, *rest: (event.wait(30), real(files, *rest))[1])
    return event


def test_the_folder_keeps_its_times(folder, gate):
    """Trainers delete by them; a waybill that comes late must not make a folder young."""
    stamps = Waybills(RUN)
    stamps.begin(folder, made)
    assert stamps.settle() == 0
    assert not own_path(folder).exists()

    gate.set()
    stamps.settle(wait=True)

    assert read_waybill(folder).files.keys() == {"model"}
    assert folder.stat().st_mtime == 1_000_000_000
    assert [p.name for p in folder.parent.iterdir()] == ["checkpoint-5"]


def test_a_folder_that_is_gone_gets_nothing_and_nobody_is_told(folder, gate):
    """Deleted while it was hashed."""
    stamps = Waybills(RUN)
    stamps.begin(folder, made)
    shutil.rmtree(folder)
    gate.set()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stamps.settle(wait=True) == 0

    assert list(folder.parent.iterdir()) == []


def test_a_folder_that_was_made_anew_gets_no_old_waybill(folder, gate):
    """The name alone is not the checkpoint."""
    stamps = Waybills(RUN)
    stamps.begin(folder, made)
    folder.rename(folder.with_name("elsewhere"))
    folder.mkdir()
    gate.set()

    assert stamps.settle(wait=True) == 0
    assert not own_path(folder).exists()


def test_a_checkpoint_that_is_saved_again_has_one_waybill_of_what_is_there(folder, gate):
    """The one under way is dropped, the one that was there is removed at once."""
    gate.set()
    write_waybill(folder, prepared(folder, made()))
    gate.clear()
    stamps = Waybills(RUN)
    stamps.begin(folder, made)
    assert not own_path(folder).exists()
    (folder / "model").write_bytes(b"other weights")
    stamps.begin(folder, made)
    gate.set()

    assert stamps.settle(wait=True) == 1
    assert read_waybill(folder).files["model"].size == len(b"other weights")


def test_orphans_of_single_files_are_swept_by_the_next(tmp_path):
    """And files of that name that are no waybill are left alone."""
    for name in ("old.ckpt", "new.ckpt"):
        (tmp_path / name).write_bytes(name.encode())
    stamps = Waybills(RUN)
    stamps.begin(tmp_path / "old.ckpt", made)
    stamps.settle(wait=True)
    (tmp_path / "old.ckpt.claims.jsonl").write_text("")
    (tmp_path / "mine.waybill.json").write_text("{}")
    (tmp_path / "old.ckpt").unlink()

    stamps.begin(tmp_path / "new.ckpt", made)
    stamps.settle(wait=True)

    left = ["mine.waybill.json", "new.ckpt", "new.ckpt.waybill.json"]
    assert sorted(p.name for p in tmp_path.iterdir()) == left


def test_a_file_that_is_only_called_like_a_waybill_is_no_obstacle(tmp_path):
    """``.waybill.json`` is beside no checkpoint: those around it are stamped, and found by those who look below."""
    (tmp_path / "new.ckpt").write_bytes(b"weights")
    (tmp_path / ".waybill.json").write_text("{}")

    write_waybill(tmp_path / "new.ckpt", prepared(tmp_path / "new.ckpt", made()))

    assert [path.name for path, _ in waybills_below(tmp_path)] == ["new.ckpt"]
    assert described_by(tmp_path / ".waybill.json") is None and (tmp_path / ".waybill.json").exists()


def test_a_save_under_way_is_waited_for_by_the_thread(folder):
    """The future of an asynchronous save; one that failed leaves no waybill, and one warning."""
    future: Future[None] = Future()
    stamps = Waybills(RUN)
    stamps.begin(folder, made, future)
    (folder / "late").write_bytes(b"shard")
    assert stamps.settle() == 0
    future.set_result(None)
    stamps.settle(wait=True)
    assert read_waybill(folder).files.keys() == {"late", "model"}

    failed: Future[None] = Future()
    failed.set_exception(OSError("no route to host"))
    stamps.begin(folder, made, failed)
    with pytest.warns(UserWarning, match="no route to host"):
        stamps.settle(wait=True)
    assert not own_path(folder).exists()


def test_a_save_that_has_not_begun_yet_is_waited_for(tmp_path):
    """An asynchronous save may make its folder after it has returned."""
    future: Future[None] = Future()
    with Ledger(tmp_path / "run", PLAN) as ledger:
        ledger.deliver(PLAN.bill(0))
        ledger.commit(PLAN.bill(0), update=0)
        ledger.checkpoint(tmp_path / "late", {**ledger.mark(), "step": 1}, after=future)
        (tmp_path / "late").mkdir()
        (tmp_path / "late" / "model").write_bytes(b"weights")
        future.set_result(None)

    assert read_waybill(tmp_path / "late").files.keys() == {"model"}


def test_a_full_disk_is_one_warning_and_no_half_waybill(tmp_path, monkeypatch):
    """Training goes on, every step is committed."""

    @contextlib.contextmanager
    def full(path, **options):
        with runtime_files.written_aside(path, **options) as file:
            file.write(b"{")
            raise OSError(errno.ENOSPC, "No space left on device")
            yield

    monkeypatch.setattr(stamping, "written_aside", full)
    ledger = Ledger(tmp_path / "run", PLAN)
    found = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(6):
            ledger.deliver(PLAN.bill(step))
            ledger.commit(PLAN.bill(step), update=step)
            path = tmp_path / f"checkpoint-{step}"
            path.mkdir()
            (path / "model").write_bytes(b"weights")
            ledger.checkpoint(path, {**ledger.mark(), "step": step + 1})
            found.append(path)
        ledger.close()

    assert [str(w.message) for w in said if "waybill" in str(w.message)] == [
        f"the waybill of {found[0]} was not written: No space left on device. Training goes on, and this is said once; "
        "make it later with `lading model stamp CKPT --run RUN`."
    ]
    assert [p.name for path in found for p in path.iterdir()] == ["model"] * 6
    assert not list(tmp_path.glob(".*"))


def test_a_state_of_another_run_or_of_none_is_refused(tmp_path, folder):
    """The weights would be given a past that is not theirs."""
    with Ledger(tmp_path / "a", PLAN) as one, Ledger(tmp_path / "b", PLAN) as two:
        for ledger in (one, two):
            ledger.deliver(PLAN.bill(0))
            ledger.commit(PLAN.bill(0), update=0)
        with pytest.raises(LedgerError, match=r"was taken in attempt 0 of run .*expected a state of the same"):
            one.checkpoint(folder, {**two.mark(), "step": 1})
        with pytest.raises(LedgerError, match="was taken in no run"):
            one.checkpoint(folder, {"run": "", "attempt": -1, "launch": "", "step": 1})
