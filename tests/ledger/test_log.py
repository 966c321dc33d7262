"""The run's log: one record a number, each knows the one before."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lading.errors import LedgerError
from lading.identity import SampleId
from lading.ledger.description import describe, new_description
from lading.ledger.launch import Seal
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


def test_of_a_log_that_was_read_only_what_is_new_is_read(tmp_path: Path):
    """Every waybill asks for it: a thousand of them read a thousand records, not half a million."""
    run, sha256 = begun(tmp_path)
    block(run, sha256, 1)
    known = read_log(run, sha256)
    block(run, sha256, 2)
    whole, content = read_log(run, sha256), run.record(0).read_bytes()
    run.record(0).write_bytes(b"nobody looks at it again")

    on = read_log(run, sha256, known)

    assert on is known and on == whole and not on.problems
    run.record(1).write_bytes(content)
    assert read_log(run, sha256).problems
    run.record(1).unlink()
    assert read_log(run, sha256, on).problems, "a record that is gone is looked for from the beginning"


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


HASH = "ab" * 32
RECORDS = {
    "seal": {"seal": {"sha256": HASH, "stop": 2, "open": [[1, 0, 3]]}},
    "forget": {"samples": [[0, 3]], "documents": [[1, 7]], "reason": "asked to", "step": None},
    "checkpoint": {"where": "ckpt/40", "waybill": HASH, "attempt": 0, "step": 40, "update": 10},
}


def test_seals_checkpoints_and_what_is_to_be_forgotten_are_records(tmp_path: Path):
    """Written by the one function that appends, read back field by field."""
    run, sha256 = begun(tmp_path)
    for kind, fields in RECORDS.items():
        repeat_until_first(run, lambda: read_log(run, sha256), kind, fields)

    log = read_log(run, sha256)

    assert not log.problems
    assert log.seals == {0: Seal(HASH, 2, ((1, 0, 3),))}
    assert [(r.samples, r.documents, r.reason, r.step) for r in log.forgets] == [
        ((SampleId(0, 3),), (SampleId(1, 7),), "asked to", None)
    ]
    assert [(r.where, r.waybill, r.attempt, r.step, r.update) for r in log.checkpoints] == [
        ("ckpt/40", HASH, 0, 40, 10)
    ]


@pytest.mark.parametrize(
    ("kind", "fields", "place"),
    [
        ("seal", {"seal": {"sha256": HASH, "stop": 2, "open": [[1, 3, 3]]}}, "seal"),
        ("seal", {"seal": {"sha256": HASH[:60], "stop": 2, "open": []}}, r"seal\.sha256"),
        ("seal", {"seal": {"sha256": HASH, "stop": 2, "open": [], "also": 1}}, r"seal\.also"),
        ("forget", {**RECORDS["forget"], "step": -1}, "step"),
        ("forget", {**RECORDS["forget"], "documents": [[1]]}, "documents"),
        ("checkpoint", {**RECORDS["checkpoint"], "update": "3"}, "update"),
        ("checkpoint", {**RECORDS["checkpoint"], "size": 3}, "size"),
        ("block", {"samples": [], "reason": "", "by": "me"}, "by"),
    ],
)
def test_a_record_that_no_reader_takes_is_not_written(tmp_path: Path, kind: str, fields: dict, place: str):
    """The place is named, and the log stays as it was."""
    run, sha256 = begun(tmp_path)

    with pytest.raises(LedgerError, match=f"this {kind} cannot be recorded, and nothing is: .*{place}"):
        repeat_until_first(run, lambda: read_log(run, sha256), kind, fields)

    assert read_log(run, sha256).next_number == 0
