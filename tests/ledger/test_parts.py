"""Closed parts: exactly what was written, or not there at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lading.ledger import Ledger
from lading.ledger.begun import read_begun, write_begun
from lading.ledger.manifest import read_manifest
from lading.ledger.parts import sha256_of
from lading.ledger.run_folder import RunFolder
from lading.ledger.schema import SCHEMAS
from lading.order import Plan
from lading.report import open_run

PLAN = Plan.make({"code": 100}, batch_size=4, seed=3)


def folder_of(path: Path, steps: int = 25, **options):
    with Ledger(path, PLAN, part_rows={"batches": 10, "samples": 1 << 20}, **options) as ledger:
        for step in range(steps):
            ledger.commit(PLAN.bill(step))
            if step % 10 == 9:
                ledger.flush()
    return RunFolder(path).rank(0, 0)


def test_the_manifest_knows_every_part(tmp_path: Path):
    """Size, SHA-256, rows and steps of each file."""
    folder = folder_of(tmp_path)

    files = [file for part in read_manifest(folder).parts for file in part.files]

    assert [(f.file, f.rows, f.first_step, f.last_step) for f in files] == [
        ("part-000000.parquet", 10, 0, 9),
        ("part-000001.parquet", 10, 10, 19),
        ("part-000002.parquet", 5, 20, 24),
    ]
    assert all(sha256_of(folder.path / f.file) == f.sha256 for f in files)
    assert not folder.tail.exists()


def test_parts_have_the_tables_of_the_design(tmp_path: Path):
    """Any engine that reads Parquet finds the same columns."""
    folder = folder_of(tmp_path, record="names")

    assert pq.read_schema(folder.part("batches", 0)).names == SCHEMAS["batches"].names
    assert pq.read_schema(folder.part("samples", 0)).names == SCHEMAS["samples"].names


def test_a_part_whose_line_is_missing_does_not_exist(tmp_path: Path):
    """A crash between the part and its line: the rows are still in the tail, and counted once."""
    folder = folder_of(tmp_path / "whole", steps=10)
    ledger = Ledger(tmp_path / "run", PLAN)
    for step in range(10):
        ledger.commit(PLAN.bill(step))
    ledger.flush()
    other = RunFolder(tmp_path / "run").rank(0, 0)
    other.part("batches", 0).write_bytes(folder.part("batches", 0).read_bytes())

    run = open_run(tmp_path / "run")

    assert run.history["step"] == list(range(10))
    assert run.verify().holds
    assert "is in no manifest" in run.verify().findings[0].message
    ledger.close()


def test_a_tail_whose_part_is_closed_is_stale(tmp_path: Path):
    """A crash between the line and the new tail: the rows are in both, and counted once."""
    ledger = Ledger(tmp_path, PLAN)
    for step in range(10):
        ledger.commit(PLAN.bill(step))
    ledger.flush()
    folder = RunFolder(tmp_path).rank(0, 0)
    tail = folder.tail.read_bytes()
    begun = read_begun(folder.begun)
    ledger._seal = None  # the crash comes before it
    ledger.close()
    lines = folder.manifest.read_text().splitlines()
    folder.manifest.write_text(lines[0] + "\n")
    folder.tail.write_bytes(tail)
    write_begun(folder, begun)

    assert open_run(tmp_path).history["step"] == list(range(10))
    assert open_run(tmp_path).verify().holds


@pytest.mark.parametrize("record", ["digest", "names"])
def test_a_small_twin_of_the_big_run_takes_few_bytes(tmp_path: Path, record: str):
    """10^5 samples in batches of 32: at most 16 bytes a batch, or 4.5 bytes a sample with names."""
    plan = Plan.make({"data": 100_000_000}, batch_size=32, seed=0)
    with Ledger(tmp_path, plan, record=record) as ledger:
        for step in range(3125):
            ledger.commit(plan.bill(step), update=step, loss=2.0 + 0.001 * (step % 97))
    folder = RunFolder(tmp_path).rank(0, 0)

    size = sum(file.stat().st_size for file in folder.path.iterdir())

    if record == "digest":
        assert size / 3125 <= 16
    else:
        assert size / 100_000 <= 4.5


def test_lines_that_do_not_belong_in_a_manifest_are_named(tmp_path: Path):
    """Cut off in the middle is no crash, and nothing comes after the end; a last line cut off is a crash."""
    folder = folder_of(tmp_path)
    lines = folder.manifest.read_bytes().splitlines(keepends=True)

    def problems(content: bytes) -> tuple[bool, str]:
        folder.manifest.write_bytes(content)
        found = read_manifest(folder)
        return found.torn, " ".join(found.problems)

    assert problems(b"".join(lines)) == (False, "")
    assert problems(b"".join(lines[:-1]) + lines[-1][:9]) == (True, "")
    assert problems(lines[0][:9] + b"\n" + b"".join(lines[1:]))[1].startswith("line 1 was altered")
    after = problems(b"".join([lines[0], lines[1], lines[2], lines[3], lines[3]]))[1]
    assert "line 5 comes after the line that ends it" in after
