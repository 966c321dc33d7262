"""The seal: what ranks stored, chained through launches and records; who is open; what opening reads."""

from __future__ import annotations

import itertools
import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from lading.identity import World
from lading.ledger import Ledger, begun as begun_file
from lading.ledger.begun import CLOSED, DIED, Begun, read_begun, write_begun
from lading.ledger.compact import compact
from lading.ledger.description import read_description
from lading.ledger.launch import Launch, Seal
from lading.ledger.log import Log, append, read_log
from lading.ledger.run_folder import RunFolder
from lading.ledger.seal import newest_seal, next_seal, seal
from lading.order import Plan
from lading.report import open_run

PLAN = Plan.make({"code": 70, "prose": 31}, batch_size=8, seed=3)
DEAD = (999_999_999, 1)
LAUNCH = Launch(0, "root", None, 0, 1, "token", None, None, (), (), "host", DEAD, "0", 0.0)
BEGUN = Begun("ab" * 16, 0, 0, "cd" * 32, CLOSED, 0, "ef" * 32, "host", DEAD, 0.0, rows=5, rows_sha256="12" * 32)
pytestmark = pytest.mark.filterwarnings("ignore:.*second root.*")


def train(path: Path, steps: range, ranks: int = 1, loaded=None, **options) -> list[Ledger]:
    """Commit some steps on all ranks; the ledgers stay open."""
    ledgers = [Ledger(path, PLAN, rank=rank, world_size=ranks, **options) for rank in range(ranks)]
    for rank, ledger in enumerate(ledgers):
        ledger.begin(steps.start, loaded=loaded)
        for step in steps:
            ledger.commit(PLAN.bill(step, world=World(rank, ranks)), update=step, loss=1.0)
        ledger.flush()
    return ledgers


def kill(ledger: Ledger) -> None:
    """Leave a ledger as a kill would."""
    folder = ledger._writer._folder
    ledger._finalizer.detach()
    ledger._writer, ledger._closed = None, True
    write_begun(folder, replace(read_begun(folder.begun), process=DEAD))


def log_of(path: Path) -> Log:
    run = RunFolder(path)
    return read_log(run, read_description(run).sha256)


def records(path: Path) -> list[str]:
    return [json.loads(file.read_text())["type"] for file in sorted(path.glob("log/0*.json"))]


def test_an_attempt_that_ends_is_sealed_and_the_next_launch_carries_the_seal(tmp_path: Path):
    """The record follows at close; a launch names the newest, and a state commits to it by its launch."""
    train(tmp_path, range(4))[0].close()
    first = log_of(tmp_path)
    train(tmp_path, range(4), loaded=None)[0].close()
    second = log_of(tmp_path)

    assert records(tmp_path) == ["launch", "seal", "launch", "seal"]
    assert first.seals[1] == second.launches[1].seal == Seal(first.seals[1].sha256, 1)
    assert second.seals[3].sha256 != second.seals[1].sha256 and second.seals[3].stop == 2
    verdict = open_run(tmp_path).verify()
    assert verdict.holds and verdict.unsealed is None


def test_dead_ranks_are_open_until_somebody_hashes_them_as_they_lie(tmp_path: Path):
    """`lading seal` does; verify says so before and holds before and after."""
    for ledger in train(tmp_path, range(5), ranks=3):
        kill(ledger)
    before = open_run(tmp_path).verify()
    done = seal(tmp_path)
    after = open_run(tmp_path).verify()

    assert before.holds and before.unsealed == (0, 4)
    assert (done.ranks, done.running, done.damaged) == (3, 0, ())
    assert after.holds and after.unsealed is None and (after.steps, after.digest) == (before.steps, before.digest)
    assert seal(tmp_path) == replace(done, ranks=0) and records(tmp_path) == ["launch", "seal"]


def test_the_next_attempt_seals_the_dead_ranks_before_it(tmp_path: Path):
    """Its launch lists them as open; its writer hashes them, and a record follows."""
    ledgers = train(tmp_path, range(5), ranks=2)
    state = {**ledgers[0].mark(), "step": 3}
    ledgers[1].close()
    kill(ledgers[0])
    (ledger,) = train(tmp_path, range(3, 6), loaded=state)
    ledger.flush()
    deadline = time.monotonic() + 600
    while len(log_of(tmp_path).seals) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    log = log_of(tmp_path)
    ledger.close()

    assert log.launches[1].seal.open == ((0, 0, 1),) and log.launches[1].seal.stop == 1
    assert log.seals[2].open == ((1, 0, 1),), "its own rank runs"
    assert open_run(tmp_path).verify().unsealed is None and open_run(tmp_path).verify().holds


def test_a_rank_that_runs_stays_open_and_is_no_news(tmp_path: Path):
    """A seal does not wait for it, and verify has nothing to say of it."""
    train(tmp_path, range(3))[0].close()
    (ledger,) = train(tmp_path, range(3), fork=True)
    done = seal(tmp_path)

    assert (done.ranks, done.running) == (0, 1)
    assert open_run(tmp_path).verify().unsealed is None
    ledger.close()


def test_rank_0_waits_two_seconds_for_the_others_and_seals_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """All ended in time: one record. One did not: none, and verify says what to do."""
    monkeypatch.setattr("lading.ledger.seal._is_here", lambda begun: False)
    monkeypatch.setattr("lading.ledger.seal._PEERS_SECONDS", 60.0)
    first, second = train(tmp_path / "a", range(3), ranks=2)
    closing = threading.Thread(target=first.close)
    closing.start()
    second.close()
    closing.join()
    assert records(tmp_path / "a") == ["launch", "seal"]

    monkeypatch.setattr("lading.ledger.seal._PEERS_SECONDS", 0.2)
    first, second = train(tmp_path / "b", range(3), ranks=2)
    first.close()
    second.close()
    assert records(tmp_path / "b") == ["launch"]
    assert open_run(tmp_path / "b").verify().unsealed == (0, 2)
    assert seal(tmp_path / "b").ranks == 2


def test_compaction_keeps_the_hash_and_refuses_another(tmp_path: Path):
    """Parts and tails may be merged as one likes; rows that differ from the seal are left as they are."""
    options = {"part_rows": {"batches": 3}}
    ledgers = train(tmp_path, range(5), ranks=2, **options)
    kill(ledgers[0])
    ledgers[1].close()
    seal(tmp_path)
    before = [read_begun(RunFolder(tmp_path).rank(0, rank).begun) for rank in range(2)]

    found = compact(tmp_path)
    after = [read_begun(RunFolder(tmp_path).rank(0, rank).begun) for rank in range(2)]

    assert not found.damaged and after[0].state == DIED
    assert [b.rows_sha256 for b in before] == [b.rows_sha256 for b in after] and {b.rows for b in after} == {5}
    assert open_run(tmp_path).verify().holds

    other = tmp_path / "other"
    (ledger,) = train(other, range(5), **options)
    for step in range(5, 8):
        ledger.commit(PLAN.bill(step))
        ledger.flush()
    kill(ledger)
    seal(other)
    folder = RunFolder(other).rank(0, 0)
    write_begun(folder, replace(read_begun(folder.begun), rows_sha256="0" * 64))
    assert "one of them was altered" in compact(other).damaged[0]
    assert f"that {folder.begun} knows by their SHA-256" in open_run(other).verify().faults[0].message


def test_opening_reads_only_what_came_after_the_newest_seal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """However many attempts a run has, those that are sealed are not looked at again."""
    for _ in range(8):
        train(tmp_path, range(1))[0].close()
    read: list[str] = []
    real = begun_file.read_begun
    monkeypatch.setattr("lading.ledger.seal.read_begun", lambda path: read.append(str(path)) or real(path))
    monkeypatch.setattr("lading.ledger.begun.read_begun", lambda path: read.append(str(path)) or real(path))
    (ledger,) = train(tmp_path, range(1))
    opened = list(read)
    ledger.close()

    assert {int(path.split("attempt=")[1][:4]) for path in opened} <= {7, 8}


def test_a_seal_that_names_ranks_that_are_gone_is_a_fault(tmp_path: Path):
    """A begun file that was sealed cannot be lost with its folder."""
    train(tmp_path, range(2))[0].close()
    folder = RunFolder(tmp_path).rank(0, 0)
    folder.begun.unlink()
    for path in folder.path.iterdir():
        path.unlink()
    folder.path.rmdir()
    (folder.begun.parent / "claim-00.json").write_text("{}")

    faults = open_run(tmp_path).verify().faults

    assert any("is not what" in fault.message and "sealed" in fault.message for fault in faults)


def test_a_seal_that_adds_nobody_and_is_another_is_a_fault(tmp_path: Path):
    """Verify says so, and does not stumble over ranks that are not there."""
    train(tmp_path, range(2))[0].close()
    fields = {"time": 0.0, "seal": vars(Seal("f" * 64, 1))}
    append(RunFolder(tmp_path), log_of(tmp_path), "seal", fields)

    (fault,) = open_run(tmp_path).verify().faults

    assert "what the ranks of no attempt recorded is not what" in fault.message


@given(st.lists(st.sets(st.tuples(st.integers(0, 1), st.integers(0, 11))), min_size=1, max_size=5))
def test_every_seal_adds_exactly_those_that_ended_since(ends):
    """Whoever ends when: no rank is added twice, and who is in none stays open."""
    launches = {n: replace(LAUNCH, attempt=n, world_size=12) for n in range(2)}
    log, sealed = Log(launches=launches), set()
    for number, ended in enumerate(ends):
        fresh = ended - sealed
        begun = {key: replace(BEGUN, attempt=key[0], rank=key[1]) for key in fresh}
        before = newest_seal(log)
        found = next_seal(before, launches, begun)
        sealed |= fresh
        if fresh:
            assert found.sha256 != before.sha256 and found.stop == 2
            assert all(found.holds(*key) == (key in sealed) for key in itertools.product(range(2), range(12)))
            assert next_seal(before, launches, dict(list(begun.items())[:-1])) != found
            log.seals[number] = found
        else:
            assert found == before
