"""Full and read-only disks: one clear error or a warning, never a corrupt ledger."""

from __future__ import annotations

import contextlib
import os
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from lading.errors import LedgerError
from lading.ledger import Ledger
from lading.order import Plan
from lading.report import open_run

PLAN = Plan.make({"code": 100_000}, batch_size=512, seed=3)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], capture_output=True)
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


def fill(ledger: Ledger, start: int, steps: int) -> None:
    for step in range(start, start + steps):
        ledger.commit(PLAN.bill(step), loss=1.0)
    ledger.flush()


def test_a_full_disk_raises_one_clear_error_and_keeps_what_was_flushed(small_disk: Path):
    """What was flushed before is readable; once there is room again, nothing is missing."""
    ledger = Ledger(small_disk / "run", PLAN, record="names")
    fill(ledger, 0, 5)
    ballast = small_disk / "ballast"
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass

    with pytest.raises(LedgerError, match=r"cannot be written: No space left on device\. What was flushed before is"):
        fill(ledger, 5, 40)

    run = open_run(small_disk / "run")
    assert run.history["step"] == list(range(len(run.history)))
    assert len(run.history) >= 5
    assert run.verify().holds
    ballast.unlink()
    remount(small_disk, "size=8m")
    fill(ledger, 45, 5)
    ledger.close()
    assert open_run(small_disk / "run").history["step"] == list(range(50))
    assert open_run(small_disk / "run").verify().holds


def test_a_full_disk_warns_by_policy_and_training_goes_on(small_disk: Path):
    """on_error='warn': the loop never sees an exception."""
    ledger = Ledger(small_disk / "run", PLAN, record="names", on_error="warn")
    fill(ledger, 0, 5)
    with pytest.warns(UserWarning, match="No space left on device"):
        fill(ledger, 5, 100)
    with pytest.warns(UserWarning, match="No space left on device"):
        ledger.close()

    run = open_run(small_disk / "run")

    assert run.history["step"] == list(range(len(run.history)))
    assert 5 <= len(run.history) < 105
    assert run.verify().holds


def test_rows_that_no_longer_fit_the_memory_are_given_up_and_said_so(small_disk: Path):
    """A disk that stays full: memory is bounded, and the gap is no secret."""
    ledger = Ledger(small_disk / "run", PLAN, record="names", on_error="warn")
    fill(ledger, 0, 5)
    assert ledger._writer is not None
    ledger._writer.unsaved_bytes = 100_000
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for start in range(5, 105, 10):
            fill(ledger, start, 10)
        ledger.close()

    texts = [str(warning.message) for warning in heard]
    assert any("No space left on device" in text for text in texts)
    assert any("rows of the ledger" in text and "are lost" in text for text in texts)
    assert open_run(small_disk / "run").history["step"][:5] == list(range(5))


def test_a_disk_that_becomes_read_only_is_named(small_disk: Path):
    """The writer cannot make a new part; training hears of it."""
    with Ledger(small_disk / "run", PLAN) as ledger:
        fill(ledger, 0, 5)
    remount(small_disk, "ro")

    with pytest.raises(LedgerError, match="cannot be written: Read-only file system"):
        Ledger(small_disk / "run", PLAN).commit(PLAN.bill(5))
    with pytest.raises(LedgerError, match="cannot be written: Read-only file system"):
        Ledger(small_disk / "other", PLAN)
    with pytest.warns(UserWarning, match="Nothing is recorded in this attempt"):
        quiet = Ledger(small_disk / "other", PLAN, on_error="warn")
    quiet.commit(PLAN.bill(0))
    quiet.flush()
    quiet.close()

    assert open_run(small_disk / "run").verify().holds
    remount(small_disk, "rw")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere; the mounted disk above shows it")
def test_a_folder_without_permission_is_named(tmp_path: Path):
    """The same for a folder that someone else owns."""
    tmp_path.chmod(0o555)

    with pytest.raises(LedgerError, match="Permission denied"):
        Ledger(tmp_path / "run", PLAN)
