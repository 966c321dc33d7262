"""verify: nothing wrong passes, nothing right fails."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.report.runs import PLAN, record

from lading.errors import LedgerError
from lading.ledger import Ledger
from lading.ledger.begun import read_begun, write_begun
from lading.ledger.manifest import read_manifest
from lading.ledger.parts import sha256_of
from lading.ledger.run_folder import RankFolder, RunFolder
from lading.ledger.schema import write_table
from lading.report import open_run
from lading.report.verify.history import _gaps
from lading.runtime.files import Journal


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """200 steps on two ranks in parts of 50, then a tail of 30 steps that a crash left."""
    mark = record(tmp_path, range(200), world_size=2, part_rows={"batches": 50}, flush_every=50)
    record(tmp_path, range(200, 230), world_size=2, close=False, loaded=mark)
    return tmp_path


def folder(path: Path, attempt: int = 0, rank: int = 1) -> RankFolder:
    return RunFolder(path).rank(attempt, rank)


def part_with(path: Path, step: int) -> Path:
    files = [f for part in read_manifest(folder(path)).parts for f in part.files if f.first_step <= step <= f.last_step]
    return folder(path).path / files[0].file


def rewrite_manifest(home: RankFolder, part: Path) -> None:
    """Make manifest and begun fit an altered part, as someone would who rewrites them all."""
    values = Journal(home.manifest).values()
    home.manifest.unlink()
    for value in values:
        for file in value.get("files", ()):
            if file["file"] == part.name:
                file.update(size=part.stat().st_size, sha256=sha256_of(part))
        Journal(home.manifest).append(value)
    begun = read_begun(home.begun)
    write_begun(home, replace(begun, manifest=read_manifest(home).sha256(begun.lines)))


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x20
    path.write_bytes(bytes(content))


def faults(path: Path):
    verdict = open_run(path).verify()
    assert not verdict.holds
    return verdict.faults


def test_an_intact_run_holds(run_dir: Path):
    """Also with a tail that no part was made of."""
    verdict = open_run(run_dir).verify()

    assert verdict.holds, verdict.faults
    assert verdict.steps == 230


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_flipped_byte_names_the_file_and_a_step_in_it(run_dir: Path, share: float):
    """The rest stays readable."""
    part = part_with(run_dir, 120)
    flip(part, int(part.stat().st_size * share))

    found = faults(run_dir)[0]

    assert found.file == str(part)
    assert "was altered: its SHA-256 is not the manifest's" in found.message
    assert found.step in range(PLAN.epoch_steps(0) * 4)
    run = open_run(run_dir)
    assert run.step(10).fate == "applied"
    assert run.step(220).fate == "applied"


def test_a_deleted_part_names_the_file_and_its_first_step(run_dir: Path):
    """History continues around the hole."""
    part = part_with(run_dir, 120)
    parts = read_manifest(folder(run_dir)).parts
    first = next(f.first_step for p in parts for f in p.files if f.file == part.name)
    part.unlink()

    (found,) = faults(run_dir)

    assert (found.file, found.step) == (str(part), first)
    assert found.message.endswith("is missing")
    run = open_run(run_dir)
    assert 0 in run.history["step"]
    assert 229 in run.history["step"]
    assert first not in run.history["step"]


@pytest.mark.parametrize("cut", [1, 500, 3000])
def test_a_cut_tail_names_the_first_step_it_lost(run_dir: Path, cut: int):
    """The header knows how long the tail was."""
    tail = folder(run_dir, attempt=1).tail
    content = tail.read_bytes()
    tail.write_bytes(content[: max(64, len(content) - cut)])

    found = faults(run_dir)[0]

    assert found.file == str(tail)
    assert "was cut" in found.message
    assert found.step in range(200, 231)
    assert open_run(run_dir).history["step"][:200] == list(range(200))


def test_an_altered_byte_in_a_tail_is_named(run_dir: Path):
    """Records carry a CRC."""
    tail = folder(run_dir, attempt=1).tail
    flip(tail, tail.stat().st_size // 2)

    found = faults(run_dir)[0]

    assert found.file == str(tail)
    assert "was altered at byte" in found.message


def alter_row(path: Path, step: int, *, cover_up: bool) -> Path:
    """Rewrite a part with another digest for one step; with ``cover_up`` also the manifest."""
    part = part_with(path, step)
    table = pq.ParquetFile(part).read()
    row = table["step"].to_pylist().index(step)
    digests = table["digest"].to_pylist()
    digests[row] ^= 1
    write_table(table.set_column(table.column_names.index("digest"), "digest", pa.array(digests)), "batches", str(part))
    if cover_up:
        rewrite_manifest(folder(path), part)
    return part


@pytest.mark.parametrize("cover_up", [False, True])
def test_an_altered_row_names_its_file_or_exactly_its_step(run_dir: Path, cover_up: bool):
    """Even where size and hash were made to fit: the plan knows better."""
    part = alter_row(run_dir, 123, cover_up=cover_up)
    first = next(f.first_step for p in read_manifest(folder(run_dir)).parts for f in p.files if f.file == part.name)

    found = faults(run_dir)[0]

    assert (found.file, found.step) == (str(part), 123 if cover_up else first)


def test_a_deleted_rank_is_named(run_dir: Path):
    """Steps that one rank did not record cannot be called applied."""
    shutil.rmtree(folder(run_dir).path)

    found = faults(run_dir)[0]

    assert found.step == 0
    assert found.message.endswith("rank=00001 is missing: the rank began")


def test_a_deleted_attempt_is_named(run_dir: Path):
    """The log launched it."""
    shutil.rmtree(RunFolder(run_dir).attempt(0))

    assert faults(run_dir)[0].message.endswith("attempt=0000 is missing: the log launched it")


def test_an_altered_plan_is_named(run_dir: Path):
    """The launch knows the SHA-256 of its plan."""
    (path,) = (run_dir / "plans").iterdir()
    path.write_text(path.read_text().replace('"seed": 3', '"seed": 4'))

    found = faults(run_dir)[0]

    assert found.file == str(path)
    assert "it was altered" in found.message


def test_a_lost_manifest_line_is_named(run_dir: Path):
    """Lines are numbered, and begun knows how many there were."""
    manifest = folder(run_dir).manifest
    lines = manifest.read_text().splitlines()
    for kept in (lines[:1] + lines[2:], lines[:-1], lines[:2] + lines[1:], lines[::-1]):
        manifest.write_text("\n".join(kept) + "\n")

        assert faults(run_dir)[0].file == str(manifest)


@pytest.mark.parametrize(
    "name",
    [
        "run.json",
        "log/000000.json",
        "log/000001.json",
        "log/head.json",
        "ledger/attempt=0000/begun/00001.json",
        "ledger/attempt=0001/begun/00000.json",
        "ledger/attempt=0000/rank=00001/manifest.jsonl",
        "ledger/attempt=0001/rank=00001/tail",
    ],
)
def test_a_deleted_file_is_named(run_dir: Path, name: str):
    """Every file is known by another one."""
    (run_dir / name).unlink()

    try:
        named = [f"{f.file} {f.message}" for f in faults(run_dir)]
    except LedgerError as error:  # without run.json there is no run to open
        named = [str(error)]
    assert any(name in text for text in named)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("run.json", '"prose"', '"prosa"'),
        ("log/000001.json", '"start_step": 200', '"start_step": 201'),
        ("log/000000.json", '"world_size": 2', '"world_size": 1'),
        ("log/head.json", '"number": 1', '"number": 0'),
        ("ledger/attempt=0000/begun/00001.json", '"closed"', '"interrupted"'),
        ("ledger/attempt=0001/begun/00001.json", '"running"', '"closed"'),
    ],
)
def test_an_edit_with_valid_json_is_named(run_dir: Path, name: str, old: str, new: str):
    """What was written is known by its SHA-256."""
    path = run_dir / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))

    assert any(name in f"{f.file} {f.message}" for f in faults(run_dir))


def test_names_that_do_not_hash_to_the_digest_are_named(tmp_path: Path):
    """An observed run has no plan to compare with; its names and digests must agree."""
    from lading.ledger import Ledger

    with Ledger(tmp_path, names=PLAN.names, part_rows={"batches": 20}) as ledger:
        for step in range(60):
            ledger.commit(PLAN.bill(step))
            if step % 20 == 19:
                ledger.flush()
    assert open_run(tmp_path).verify().holds
    home = folder(tmp_path, rank=0)
    part = home.part("samples", 1)
    table = pq.ParquetFile(part).read()
    indices = table["index"].to_pylist()
    indices[100] += 1
    write_table(table.set_column(3, "index", pa.array(indices)), "samples", str(part))
    rewrite_manifest(home, part)

    found = faults(tmp_path)[0]

    assert found.step == table["step"][100].as_py()
    assert "do not hash to the digest" in found.message


def test_a_step_with_fewer_samples_than_planned_is_a_fault(tmp_path: Path):
    """The record is whole and its checksums are right; it does not hold what the plan says."""
    with Ledger(tmp_path, PLAN) as ledger:
        for step in range(5):
            bill = PLAN.bill(step)
            ledger.commit(bill.select(np.arange(len(bill) - 1)) if step == 3 else bill)

    found = [(fault.step, fault.message) for fault in open_run(tmp_path).verify().faults]

    assert len(found) == 1 and found[0][0] == 3 and "do not hold what the plan says" in found[0][1]


def test_gaps_are_found_wherever_they_are():
    """At the beginning, in the middle, at the end, and where nothing is left."""
    assert _gaps(np.array([1, 2, 4]), 0, 6) == [(0, 1), (3, 4), (5, 6)]
    assert _gaps(np.array([], dtype=np.int64), 2, 4) == [(2, 4)]
    assert _gaps(np.arange(3, 6), 3, 6) == []
