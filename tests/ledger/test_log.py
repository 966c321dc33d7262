"""The run's log: one record a number, each knows the one before."""

from __future__ import annotations

import threading
from pathlib import Path

from lading.ledger.description import describe, new_description
from lading.ledger.log import append, begin_log, read_log, repeat_until_first
from lading.ledger.run_folder import RunFolder


def begun(path: Path) -> tuple[RunFolder, str]:
    run = RunFolder(path)
    description = describe(run, new_description("0", "names", ("code",)))
    begin_log(run, description.sha256)
    return run, description.sha256


def block(run: RunFolder, sha256: str, index: int) -> None:
    fields = {"samples": [[0, index]], "reason": ""}
    repeat_until_first(run, lambda: read_log(run, sha256), "block", fields)


def test_of_two_that_claim_a_number_one_takes_the_next(tmp_path: Path):
    """No record is lost, whoever writes at the same time."""
    run, sha256 = begun(tmp_path)
    stale = read_log(run, sha256)
    block(run, sha256, 1)

    assert append(run, stale, "block", {"samples": [], "reason": "", "time": 0}) is None
    writers = [threading.Thread(target=block, args=(run, sha256, index)) for index in range(2, 8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    log = read_log(run, sha256)
    assert sorted(sample.index for request in log.blocks for sample in request.samples) == list(range(1, 8))
    assert not log.problems
    assert log.head == (6, log.newest)


def test_a_log_that_grows_while_it_is_read_has_no_problem(tmp_path: Path):
    """The head is read before the records: it is never ahead of them."""
    run, sha256 = begun(tmp_path)
    writer = threading.Thread(target=lambda: [block(run, sha256, index) for index in range(25)])
    writer.start()
    problems = []
    while writer.is_alive():
        problems += read_log(run, sha256).problems
    writer.join()

    assert not problems
    assert read_log(run, sha256).next_number == 25


def problems_after(tmp_path: Path, change) -> str:
    """Return what a log of three records says after a change to its folder."""
    run, sha256 = begun(tmp_path)
    for index in range(3):
        block(run, sha256, index)
    change(run)
    return " ".join(f"{problem.file.name} {problem.text}" for problem in read_log(run, sha256).problems)


def test_a_record_that_was_altered_is_named_by_the_next(tmp_path: Path):
    """Each knows the SHA-256 of the one before."""

    def alter(run: RunFolder) -> None:
        path = run.record(1)
        path.write_text(path.read_text().replace('"reason": ""', '"reason": "x"'))

    found = problems_after(tmp_path, alter)

    assert f"{RunFolder(tmp_path).record(1).name} was altered" in found and "knows another SHA-256" in found


def test_the_newest_record_is_known_by_the_head(tmp_path: Path):
    """Altered or taken away, it is named: no record comes after it that would know it."""

    def alter(run: RunFolder) -> None:
        path = run.record(2)
        path.write_text(path.read_text().replace('"reason": ""', '"reason": "x"'))

    altered = problems_after(tmp_path / "altered", alter)
    gone = problems_after(tmp_path / "gone", lambda run: run.record(2).unlink())

    assert "was altered, or" in altered and "do not agree on its SHA-256" in altered
    assert "is missing:" in gone and "knows it" in gone
