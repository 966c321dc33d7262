"""verify: what is said of files, each sentence by a test of its own."""

from __future__ import annotations

from pathlib import Path

from tests.report.runs import PLAN, leave, record

from lading.identity import World
from lading.ledger import Ledger
from lading.ledger.run_folder import RankFolder, RunFolder
from lading.ledger.tail import HEADER_BYTES
from lading.report import open_run
from lading.report.verify.verdict import Verdict


def killed(path: Path, steps: int = 8, *, part: int = 100) -> RankFolder:
    """Leave a run that was killed after its last flush; return the folder of its rank."""
    record(path, range(steps), close=False, part_rows={"batches": part})
    return RunFolder(path).rank(0, 0)


def verified(path: Path) -> Verdict:
    return open_run(path).verify()


def test_a_manifest_line_that_a_crash_cut_off_is_noted(tmp_path: Path):
    """Its rows are in the tail: no fault, and no silence."""
    folder = killed(tmp_path)
    with folder.manifest.open("ab") as file:
        file.write(b'{"part": 0, "fi')

    verdict = verified(tmp_path)

    assert verdict.holds
    assert any("the last line was cut off by a crash" in f.message and f.level == "note" for f in verdict.findings)


def test_a_part_that_no_manifest_knows_is_noted(tmp_path: Path):
    """A crash came between the part and its line."""
    folder = killed(tmp_path)
    (folder.path / "batches-000007.parquet").write_bytes(b"PAR1")

    verdict = verified(tmp_path)

    assert verdict.holds
    assert ["is in no manifest" in f.message for f in verdict.findings] == [True]


def test_a_length_that_a_crash_cut_off_is_noted(tmp_path: Path):
    """One of the two places of a tail's length; the other one says what is there."""
    folder = killed(tmp_path)
    for place in (64, 96):
        content = bytearray(folder.tail.read_bytes())
        content[place + 28] ^= 0xFF  # beyond the number: nothing is hidden
        folder.tail.write_bytes(bytes(content))
        if verified(tmp_path).findings:
            break

    assert verified(tmp_path).holds
    assert ["one of the two places of its length" in f.message for f in verified(tmp_path).findings] == [True]


def test_a_tail_that_was_emptied_names_the_step_after_the_last_that_is_left(tmp_path: Path):
    """The part holds steps 0 to 3, the tail held 4 and 5."""
    folder = killed(tmp_path, 6, part=4)
    folder.tail.write_bytes(folder.tail.read_bytes()[:HEADER_BYTES])

    (fault,) = verified(tmp_path).faults

    assert fault.step == 4
    assert "bytes that were written are gone" in fault.message


def test_what_was_synced_and_counts_is_missed_where_it_is_cut(tmp_path: Path):
    """By a single byte: nothing rolled it back."""
    folder = killed(tmp_path)
    content = folder.tail.read_bytes()
    folder.tail.write_bytes(content[:-1])

    verdict = verified(tmp_path)

    assert not verdict.holds and str(folder.tail) in verdict.faults[0].message


def two_ranks(path: Path, *, end: str) -> None:
    """Record on rank 0 of two; rank 1 begins and leaves nothing. Both close, or both are killed."""
    ledgers = [Ledger(path, PLAN, rank=rank, world_size=2) for rank in range(2)]
    for ledger in ledgers:
        ledger.begin(0)
    for step in range(4):
        ledgers[0].commit(PLAN.bill(step, world=World(0, 2)))
    for ledger in ledgers:
        ledger.flush()
        leave(ledger) if end == "killed" else ledger.close()


def test_a_rank_without_a_record_is_a_fault_where_the_others_ended(tmp_path: Path):
    """No step of the attempt can be called applied, and it is said whose rows there are none of."""
    two_ranks(tmp_path, end="closed")

    found = [f for f in verified(tmp_path).faults if "rank 1 of attempt 0 left no record" in f.message]

    assert len(found) == 1 and found[0].step == 0


def test_a_rank_without_a_record_is_noted_where_all_were_killed(tmp_path: Path):
    """It may have had no time for one."""
    two_ranks(tmp_path, end="killed")

    levels = [f.level for f in verified(tmp_path).findings if "rank 1 of attempt 0 left no record" in f.message]

    assert levels == ["note"]
