"""verify: what is said of history, each sentence by a test of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.report.runs import PLAN, leave, record
from tests.report.verify.test_checking import rewrite_manifest

from lading.identity import World
from lading.ledger import Ledger
from lading.ledger.run_folder import RunFolder
from lading.ledger.schema import write_table
from lading.report import open_run
from lading.report.verify.verdict import Verdict


def verified(path: Path) -> Verdict:
    return open_run(path).verify()


def notes(path: Path) -> str:
    verdict = verified(path)
    assert verdict.holds
    return "\n".join(f.message for f in verdict.findings if f.level == "note")


def test_steps_that_waited_at_a_checkpoint_are_listed_as_unused(tmp_path: Path):
    """Delivered before it, used by the run that died, by no update of the one that resumed."""
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.commit([PLAN.bill(0), PLAN.bill(1)], update=0)
        for step in (2, 3):
            ledger.deliver(PLAN.bill(step))
        ledger.flush()
        state = {**ledger.mark(4), "step": 4}
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.begin(4, loaded=state)
        ledger.commit(PLAN.bill(4), update=1)

    assert verified(tmp_path).unused == [2, 3]


def test_an_inferred_parent_is_noted(tmp_path: Path):
    """A state that names no run."""
    record(tmp_path, range(5))
    record(tmp_path, range(5, 8))

    assert "taken for a child of attempt 0 at step 5" in notes(tmp_path)


def test_an_unknown_parent_is_a_fault(tmp_path: Path):
    """What was trained on before is in no file of this folder."""
    mark = record(tmp_path, range(5))
    strange = {**mark, "launch": "ab" * 32, "step": 5}
    record(tmp_path, range(5, 8), loaded=strange, allow_unknown_parent=True)

    (fault,) = verified(tmp_path).faults

    assert "steps before 5 are unknown" in fault.message and fault.step == 0


def test_a_replay_is_noted(tmp_path: Path):
    """The loop went back without loading a state."""
    with Ledger(tmp_path, PLAN) as ledger:
        for steps in (range(3), range(1, 4)):
            ledger.begin(steps.start)
            for step in steps:
                ledger.commit(PLAN.bill(step))

    assert "went back to step 1 without loading a state" in notes(tmp_path)


def test_a_run_that_continues_another_says_which(tmp_path: Path):
    """The steps before are in its books."""
    mark = record(tmp_path / "a", range(5))
    record(tmp_path / "b", range(5, 8), loaded=mark)

    assert f"steps before 5 are in run {mark['run']}, attempt 0" in notes(tmp_path / "b")


def test_a_record_that_begins_later_says_so(tmp_path: Path):
    """No ledger was kept before."""
    record(tmp_path, range(5, 8))

    assert "the record begins at step 5" in notes(tmp_path)


def test_a_note_of_an_attempt_is_repeated(tmp_path: Path):
    """What training had to say of its own books."""
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.commit(PLAN.bill(0))
        ledger.note(0, "rows were not counted")

    assert "attempt 0: rows were not counted" in notes(tmp_path)


def test_a_step_that_was_delivered_and_never_used_is_noted(tmp_path: Path):
    """By its number."""
    with Ledger(tmp_path, PLAN) as ledger:
        for step in range(4):
            ledger.deliver(PLAN.bill(step))
            if step != 2:
                ledger.commit(PLAN.bill(step))

    assert "step 2 was delivered and never used" in notes(tmp_path)


def test_a_jump_explains_what_it_passed_over_and_no_more(tmp_path: Path):
    """Steps 2 to 9 were left out on purpose; step 12 was lost."""
    with Ledger(tmp_path, PLAN) as ledger:
        for step in (0, 1, 10, 11, 12, 13):
            ledger.commit(PLAN.bill(step))
    home = RunFolder(tmp_path).rank(0, 0)
    part = home.part("batches", 0)
    table = pq.ParquetFile(part).read()
    write_table(table.filter(pa.array([step != 12 for step in table["step"].to_pylist()])), "batches", str(part))
    rewrite_manifest(home, part)

    messages = [f.message for f in verified(tmp_path).findings]

    assert any("steps 2 to 9 were passed over" in message for message in messages)
    assert any("1 step is missing from attempt 0, the first is 12" in message for message in messages)


def wrong(step: int, rank: int, world_size: int):
    """Return a bill of a rank that is not what the plan says."""
    bill = PLAN.bill(step, world=World(rank, world_size))
    index = bill.idx.copy()
    index[0] = (index[0] + 1) % 300
    return bill.replace(idx=index)


def test_the_rank_and_the_part_that_hold_another_sample_are_named(tmp_path: Path):
    """Of two ranks with two parts each: rank 1, step 25, the second part."""
    ledgers = [Ledger(tmp_path, PLAN, rank=rank, world_size=2, part_rows={"batches": 20}) for rank in range(2)]
    for rank, ledger in enumerate(ledgers):
        for step in range(40):
            planned = PLAN.bill(step, world=World(rank, 2))
            ledger.commit(wrong(25, 1, 2) if (rank, step) == (1, 25) else planned)
            if step == 19:
                ledger.flush()
    for ledger in ledgers:
        ledger.close()

    (fault,) = verified(tmp_path).faults

    assert fault.step == 25 and fault.file == str(RunFolder(tmp_path).rank(0, 1).part("batches", 1))


def test_a_digest_is_of_all_attempts(tmp_path: Path):
    """The sum over history, whoever trained it."""
    mark = record(tmp_path, range(5))
    record(tmp_path, range(5, 9), loaded=mark)

    verdict = verified(tmp_path)

    assert (verdict.steps, verdict.digest) == (9, sum(PLAN.bill(step).digest for step in range(9)) % (1 << 64))


def observed(path: Path, record_: str = "names") -> None:
    """Record a few steps with their names, and close."""
    with Ledger(path, PLAN, record=record_) as ledger:
        for step in range(4):
            bill = PLAN.bill(step)
            ledger.deliver(bill, {"x": np.arange(len(bill))})
            ledger.commit(bill)


def rewritten(path: Path, change) -> None:
    """Change the names that a run kept, and make its checksums fit."""
    home = RunFolder(path).rank(0, 0)
    part = home.part("samples", 0)
    write_table(change(pq.ParquetFile(part).read()), "samples", str(part))
    rewrite_manifest(home, part)


def test_hashes_of_content_are_compared(tmp_path: Path):
    """The names are right, the bytes of one sample are said to be others."""
    observed(tmp_path, "content")
    assert verified(tmp_path).holds

    def change(table: pa.Table) -> pa.Table:
        content = table["content"].to_pylist()
        content[40] += 1
        return table.set_column(4, "content", pa.array(content, pa.int64()))

    rewritten(tmp_path, change)

    assert [(f.step, "do not hash" in f.message) for f in verified(tmp_path).faults if f.step is not None][:1] == [
        (2, True)
    ]


def test_a_step_without_names_is_named(tmp_path: Path):
    """Where all others have them."""
    observed(tmp_path)
    rewritten(tmp_path, lambda table: table.filter(pa.array([step != 2 for step in table["step"].to_pylist()])))

    assert any("kept no names of step 2" in f.message for f in verified(tmp_path).faults)


def test_names_of_a_step_that_nobody_recorded_are_named(tmp_path: Path):
    """They belong to no batch."""
    observed(tmp_path)

    def change(table: pa.Table) -> pa.Table:
        steps = table["step"].to_pylist()
        return table.set_column(0, "step", pa.array([99 if step == 3 else step for step in steps], pa.int64()))

    rewritten(tmp_path, change)

    assert any("digest of step 99" in f.message for f in verified(tmp_path).faults)


@pytest.mark.parametrize("record_", ["names", "content"])
def test_what_is_delivered_and_open_needs_no_names_yet(tmp_path: Path, record_: str):
    """A run that was killed between delivery and commit holds."""
    ledger = Ledger(tmp_path, PLAN, record=record_)
    for step in range(3):
        ledger.deliver(PLAN.bill(step), {"x": np.arange(16)})
        if step < 2:
            ledger.commit(PLAN.bill(step))
    ledger.flush()
    leave(ledger)

    assert verified(tmp_path).holds
