"""Losses of rows: what was committed for each row is found again by step and slot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from tests.cli.calling import call

from lading.errors import LedgerError
from lading.identity import World
from lading.kits.web.pages.step import step_page
from lading.ledger import Ledger
from lading.order import Plan
from lading.report import open_run
from lading.report.row_losses import row_losses

PLAN = Plan.make({"code": 20, "prose": 10}, batch_size=8, seed=3)  # the last step of a pass has six samples


def test_the_losses_of_rows_are_kept_by_step_and_slot(tmp_path: Path):
    """Two ranks; arrays, lists and tensors; a tail and a closed part; NaN where one is unknown."""
    ledgers = [Ledger(tmp_path, PLAN, rank=rank, world_size=2, part_rows={"row_losses": 20}) for rank in range(2)]
    for step in range(6):
        for rank, ledger in enumerate(ledgers):
            bill = PLAN.bill(step, world=World(rank, 2))
            losses = [10.0 * step + slot for slot in bill.slots.tolist()]
            losses[1] = float("nan")
            kinds = (losses, np.array(losses), torch.tensor(losses, requires_grad=True, dtype=torch.bfloat16))
            ledger.commit(bill, loss=1.0, row_losses=kinds[step % 3])
    for ledger in ledgers:
        ledger.flush()
    live = [row_losses(open_run(tmp_path).evidence, step) for step in range(6)]
    for ledger in ledgers:
        ledger.close()

    evidence = open_run(tmp_path).evidence
    assert open_run(tmp_path).verify().holds
    for step, before in enumerate(live):
        slots, losses = row_losses(evidence, step)
        unknown = [1, 1 + len(PLAN.bill(step, world=World(0, 2)))]
        expected = [float("nan") if slot in unknown else 10.0 * step + slot for slot in slots.tolist()]
        np.testing.assert_array_equal(slots, np.arange(len(PLAN.bill(step))))
        np.testing.assert_array_equal(losses, np.array(expected, np.float32))
        np.testing.assert_array_equal(losses, before[1])


def test_accumulated_bills_have_a_list_of_losses_each_and_padding_none(tmp_path: Path):
    """A loss for each row of the batch or for each that is no padding; None for a bill that has none."""
    bills = [PLAN.bill(step, world=World(1, 5)) for step in (2, 3)]
    padded = bills[1].padded(2) if hasattr(bills[1], "padded") else bills[1]
    with Ledger(tmp_path, PLAN, rank=1, world_size=5) as ledger:
        ledger.commit([bills[0], padded], row_losses=[None, list(range(len(padded)))])

    evidence = open_run(tmp_path).evidence
    assert not len(row_losses(evidence, 2)[0])
    slots, losses = row_losses(evidence, 3)
    assert slots.tolist() == padded.slots[padded.is_real].tolist()
    assert losses.tolist() == np.arange(len(padded))[padded.is_real].tolist()


def test_a_resume_has_its_own_losses(tmp_path: Path):
    """What was rolled back is found by its attempt."""
    with Ledger(tmp_path, PLAN) as ledger:
        for step in range(4):
            ledger.commit(PLAN.bill(step), row_losses=np.full(len(PLAN.bill(step)), 1.0))
        state = {**ledger.mark(), "step": 2}
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.begin(2, loaded=state)
        ledger.commit(PLAN.bill(2), row_losses=np.full(8, 2.0))

    evidence = open_run(tmp_path).evidence
    assert set(row_losses(evidence, 2)[1].tolist()) == {2.0}
    assert set(row_losses(evidence, 2, attempt=0)[1].tolist()) == {1.0}
    assert not len(row_losses(evidence, 99)[0])


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        ([1.0] * 7, r"row_losses of step 0 have the shape \[7\]: expected 8 numbers, one for each row"),
        (torch.zeros(8, 2), r"have the shape \[8, 2\]: expected 8 numbers"),
        (1.0, r"have the shape \[\]"),
        (["high"] * 8, "cannot be read as numbers"),
    ],
)
def test_losses_that_do_not_fit_the_batch_are_refused_where_they_are_given(tmp_path: Path, losses, message: str):
    """And nothing of the commit is recorded."""
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.deliver(PLAN.bill(0))
        with pytest.raises(LedgerError, match=message):
            ledger.commit(PLAN.bill(0), row_losses=losses)
        with pytest.raises(LedgerError, match="row_losses of 2 bills are 3: expected a list"):
            ledger.commit([PLAN.bill(0), PLAN.bill(1)], row_losses=[None] * 3)
        assert ledger.is_open(PLAN.bill(0))
        ledger.commit(PLAN.bill(0))


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("world_size", [1, 2])
def test_every_answer_says_which_rows_carried_a_loss(tmp_path: Path, capsys, planned: bool, world_size: int):
    """`step`, `explain`, `sql` and `export`: the loss beside its sample where one was committed, else nothing."""
    given = [PLAN] if planned else []
    ledgers = [
        Ledger(tmp_path / "run", *given, names=PLAN.names, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    for rank, ledger in enumerate(ledgers):
        for step in range(3):
            bill = PLAN.bill(step, world=World(rank, world_size))
            losses = [np.nan if slot == 1 else 10.0 * step + slot for slot in bill.slots.tolist()]
            ledger.commit(bill, **({"row_losses": losses} if step else {}))
    for ledger in ledgers:
        ledger.close()
    expected = [[None] * 8, *([None if slot == 1 else 10.0 * step + slot for slot in range(8)] for step in (1, 2))]
    flat = [loss for losses in expected for loss in losses]
    run = open_run(tmp_path / "run")

    assert [run.step(step).samples["loss"] for step in range(3)] == expected
    assert [run.explain(step).exposures["loss"] for step in range(3)] == expected
    assert run.explain(2).ranked[0]["slot"] == 7, "the highest loss of its own stands out most"
    assert run.sql("SELECT loss FROM samples ORDER BY step, slot")["loss"] == [
        loss for step in expected for loss in step
    ]
    call(capsys, "export", tmp_path / "run", "--table", "samples", "--to", tmp_path / "samples.parquet")
    rows = sorted(pq.read_table(tmp_path / "samples.parquet").to_pylist(), key=lambda row: (row["step"], row["slot"]))
    assert [row["loss"] for row in rows] == flat
    assert "8 samples, 7 with a loss of their own" in call(capsys, "step", tmp_path / "run", 2)[1]
    assert "loss of their own" not in call(capsys, "step", tmp_path / "run", 0)[1]


def test_the_page_prints_what_was_committed_for_the_row(tmp_path: Path):
    """And its share of the step's; a row without a loss has none, whatever its dataset's mean is."""
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.commit(PLAN.bill(0), row_losses=[1.0, 3.0, *[np.nan] * 6], **{"loss/code": 2.0, "loss/prose": 9.0})

    found = step_page(open_run(tmp_path), 0)

    assert [row["loss"] for row in found["samples"]] == [1.0, 3.0, *[None] * 6]
    assert [row["loss_share"] for row in found["samples"]] == [0.25, 0.75, *[None] * 6]
