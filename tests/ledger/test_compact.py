"""Compaction: dead tails become Parquet, small parts are merged, every answer stays, wherever it is killed."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.crash_points import crash_points
from tests.documentation import blocks
from tests.report.runs import PLAN, record

from lading.errors import LedgerError
from lading.identity import World
from lading.ledger import Ledger, parts
from lading.ledger.begun import read_begun, write_begun
from lading.ledger.compact import compact
from lading.ledger.rank_store import warm_up
from lading.order import Block
from lading.report import open_run
from lading.report.summary import summarise

OPTIONS: dict[str, Any] = {"world_size": 3, "part_rows": {"batches": 10}}


def make(path: Path, record_kind: str = "digest") -> None:
    """Four attempts of 3 ranks: killed, killed, ended, killed; resumed at 20, 30 and 55."""
    more = {**OPTIONS, "record": record_kind}
    mark = record(path, range(35), close=False, **more)
    mark = record(path, range(20, 45), close=False, loaded={**mark, "step": 20}, **more)
    mark = record(path, range(30, 60), loaded={**mark, "step": 30}, **more)
    record(path, range(55, 70), close=False, loaded={**mark, "step": 55}, **more)


def answers(path: Path) -> dict[str, Any]:
    """What a run says, head and notes left out."""
    run = open_run(path)
    verdict = run.verify()
    return {
        "holds": verdict.holds,
        "faults": [fault.text if hasattr(fault, "text") else str(fault) for fault in verdict.faults],
        "history": run.sql("SELECT * FROM history ORDER BY attempt, step").arrow.to_pylist(),
        "batches": run.sql("SELECT * FROM batches ORDER BY ALL").arrow.to_pylist(),
        "attempts": [{k: v for k, v in a.items() if k != "time"} for a in summarise(run).to_dict()["attempts"]],
        "where": run.where("code", 5).dicts() if hasattr(run.where("code", 5), "dicts") else str(run.where("code", 5)),
    }


@pytest.fixture(scope="module", params=["digest", "names"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four attempts."""
    path = tmp_path_factory.mktemp("compact") / request.param
    make(path, request.param)
    return path


def test_every_answer_stays(run, tmp_path):
    """Tails are gone, there is one file of each table a rank, and verify, history and where say the same."""
    path = shutil.copytree(run, tmp_path / "run")
    before = answers(path)

    found = compact(path)
    again = compact(path)

    assert before["holds"] and answers(path) == before
    assert (found.ranks, found.closed, found.running, found.damaged) == (12, 9, 0, ())
    assert found.files_after < found.files_before and not list(path.rglob("tail"))
    assert len(list(path.rglob("part-*.parquet"))) == 12
    assert (again.closed, again.merged) == (0, 0) and again.files_before == again.files_after == found.files_after


def test_a_compacted_run_continues(run, tmp_path):
    """A state taken before is resumed; events and pending of closed attempts are found; compaction works again."""
    path = shutil.copytree(run, tmp_path / "run")
    kind = open_run(path).evidence.description.record
    mark = record(path, range(60, 66), loaded=_mark_of(path, 60), **{**OPTIONS, "record": kind})
    compact(path)
    record(path, range(66, 80), loaded=mark, close=False, **{**OPTIONS, "record": kind})
    before = answers(path)

    found = compact(path)

    assert found.closed == 3 and answers(path) == before
    assert [row["step"] for row in before["history"]] == list(range(80)) and before["holds"]


def _mark_of(path: Path, step: int) -> dict[str, Any]:
    launch = open_run(path).evidence.log.launches[3]
    return {"run": open_run(path).evidence.description.run, "attempt": 3, "launch": launch.sha256, "step": step}


def test_killed_before_every_disk_call(tmp_path):
    """kill -9 anywhere: every answer is there at once, and the next compaction completes it."""
    warm_up()
    whole = tmp_path / "whole"
    mark = record(whole, range(25), close=False, world_size=2, part_rows={"batches": 5}, record="names")
    record(
        whole,
        range(20, 32),
        close=True,
        world_size=2,
        part_rows={"batches": 4},
        record="names",
        loaded={**mark, "step": 20},
    )
    before = answers(whole)
    path, points = tmp_path / "run", 0
    shutil.copytree(whole, path)

    for _ in crash_points(lambda: compact(path), path, (os, "pwrite"), every=7):
        points += 1
        assert answers(path) == before
        compact(path)
        assert answers(path) == before
        assert not list(path.rglob("tail")) and not [p for p in path.rglob(".*") if p.is_file()]
        assert len(list(path.rglob("part-*.parquet"))) == 4
        shutil.rmtree(path)
        shutil.copytree(whole, path)
    assert points > 20


@pytest.mark.slow
def test_killed_before_really_every_disk_call(tmp_path):
    """The same at every single call, with half a write done."""
    warm_up()
    whole, path = tmp_path / "whole", tmp_path / "run"
    record(whole, range(23), close=False, world_size=2, part_rows={"batches": 5}, record="content")
    before = answers(whole)
    shutil.copytree(whole, path)

    for _ in crash_points(lambda: compact(path), path, (os, "pwrite"), torn=True):
        assert answers(path) == before
        compact(path)
        assert answers(path) == before
        shutil.rmtree(path)
        shutil.copytree(whole, path)


def test_a_new_attempt_that_tidies_up_takes_nothing_away(tmp_path, monkeypatch):
    """An attempt that opens while parts are merged removes what dead ranks left, not what a compaction just wrote."""
    path = tmp_path / "run"
    mark = record(path, range(25), close=False, part_rows={"batches": 10})
    write = parts.write_part

    def open_in_between(folder, number, tables):
        part = write(folder, number, tables)
        record(path, range(25, 28), loaded=mark)
        return part

    monkeypatch.setattr("lading.ledger.compact.write_part", open_in_between)
    compact(path)

    assert open_run(path).verify().holds and len(open_run(path).history) == 28


def test_ranks_that_run_are_left_alone(tmp_path):
    """Only what is dead or ended is touched."""
    ledger = Ledger(tmp_path / "run", PLAN)
    ledger.begin(0)
    bill = PLAN.bill(0, world=World())
    ledger.deliver(bill)
    ledger.commit(bill, update=0)
    ledger.flush()

    found = compact(tmp_path / "run")

    assert (found.running, found.closed, found.merged) == (1, 0, 0)
    ledger.close()
    assert open_run(tmp_path / "run").verify().holds


def test_what_is_damaged_stays_for_verify_to_name(run, tmp_path):
    """A part or tail that was altered: its rank is left as it is and said, the others are compacted."""
    path = shutil.copytree(run, tmp_path / "run")
    part = next((path / "ledger" / "attempt=0000" / "rank=00001").glob("part-000000.parquet"))
    part.write_bytes(part.read_bytes()[:-20] + b"x" * 20)
    tail = path / "ledger" / "attempt=0001" / "rank=00002" / "tail"
    tail.write_bytes(tail.read_bytes()[:-9])
    before = open_run(path).verify()

    found = compact(path)

    assert len(found.damaged) == 2 and "part-000000.parquet" in found.damaged[0] and "tail" in found.damaged[1]
    after = open_run(path).verify()
    assert not after.holds and len(after.faults) == len(before.faults)


def test_events_of_a_sealed_attempt_count(tmp_path):
    """What changed the plan in an attempt that died is read from its parts as it was from its tail."""
    path = tmp_path / "run"
    ledger = Ledger(path, PLAN)
    plan = ledger.begin(0) or PLAN
    event = Block(3, 1, (2,), "bad")
    plan = plan.with_event(event)
    ledger.event(event)
    for step in range(6):
        ledger.commit(plan.bill(step, world=World()), update=step)
    ledger.flush()
    ledger._finalizer.detach()
    folder = ledger._writer._folder
    ledger._writer, ledger._closed = None, True
    write_begun(folder, replace(read_begun(folder.begun), process=(999_999_999, 1)))
    before = answers(path)

    compact(path)

    assert before["holds"] and answers(path) == before and open_run(path).evidence.plan(0).events == plan.events


def test_one_compaction_at_a_time(run, tmp_path):
    """A second one is refused while the first holds its lock."""
    import fcntl

    path = shutil.copytree(run, tmp_path / "run")
    handle = os.open(path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(LedgerError, match="another process compacts"):
        compact(path)
    os.close(handle)


@pytest.mark.parametrize("work", ["compact", "open the next attempt"])
def test_a_folder_of_all_ranks_is_not_listed_for_each_of_them(work, tmp_path, monkeypatch):
    """As often with 6 ranks as with 2: at 10 000 ranks it would be 10^8 names."""
    listed: list[Path] = []
    for way in (os.scandir, os.listdir):
        monkeypatch.setattr(os, way.__name__, lambda folder, way=way: (listed.append(Path(folder)), way(folder))[1])

    def times(ranks: int) -> int:
        path = tmp_path / str(ranks)
        mark = record(path, range(5), close=False, world_size=ranks)
        listed.clear()
        if work == "compact":
            compact(path)
        else:
            record(path, range(5, 6), loaded={**mark, "step": 5})
        return listed.count(path / "ledger" / "attempt=0000" / "begun")

    assert times(6) == times(2) > 0


def documented(path: Path) -> dict[str, Any]:
    """Run the code of docs/ledger-format.md that reads history without Lading; return its names."""
    page = Path(__file__).parents[2] / "docs" / "ledger-format.md"
    block = next(block.text for block in blocks(page) if "def lines_of" in block.text)
    names: dict[str, Any] = {"duckdb": duckdb}
    exec(compile(block.rpartition("\nassert")[0], str(page), "exec"), names)
    return names


def test_polars_and_duckdb_read_history_without_us(run, tmp_path):
    """3 ranks, 4 attempts, compacted: the documented views give the history that we give."""
    pl = pytest.importorskip("polars")
    path = shutil.copytree(run, tmp_path / "run")
    compact(path)
    ours = (
        open_run(path).sql("SELECT step, attempt, samples, digest, fate FROM history ORDER BY step").arrow.to_pylist()
    )
    names = documented(path)

    by_duckdb = names["history_duckdb"](path).sort_by("step").to_pylist()
    by_polars = names["history_polars"](path).sort("step").to_dicts()

    columns = ("step", "attempt", "samples", "digest", "fate")
    assert [{c: row[c] for c in columns} for row in by_duckdb] == ours
    assert [{c: row[c] for c in columns} for row in by_polars] == ours
    assert len(ours) == 70 and pl is not None and json.dumps(ours)
