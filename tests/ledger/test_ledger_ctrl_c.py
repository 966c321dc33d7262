"""Ctrl-C at every place where Python notices it: what the ledger says afterwards is true."""

from __future__ import annotations

import contextlib
import sys
import threading

import pytest
from tests.ctrl_c import pressed

from lading.errors import LedgerError
from lading.ledger import Ledger
from lading.order import Plan
from lading.report import open_run

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 13), reason="its tracer does not see every place on 3.13")

PLAN = Plan.make(4096, batch_size=4, seed=3)
FIELDS = {
    "one": (1, {"loss": 1.5, "lr": 0.1}),
    "several": (2, {"loss": 1.5}),
    "losses of rows": (1, {"row_losses": [[1.0, 2.0, 3.0, 4.0]]}),
}


@pytest.fixture
def ledger(tmp_path):
    """A ledger that keeps names."""
    return Ledger(tmp_path / "run", PLAN, record="names")


def deliver(ledger, count):
    """Deliver the next batches and return their bills."""
    bills = [PLAN.bill(ledger.launched["step"] + i if ledger.launched else i) for i in range(count)]
    for bill in bills:
        ledger.deliver(bill)
    return bills


def applied(ledger):
    """Close a ledger and return the steps that it calls applied, its run checked and each sample named once."""
    ledger.close()
    run = open_run(ledger.run_dir)
    assert run.verify().holds, run.verify().faults
    steps = ledger.launched["step"]
    names = run.evidence.rows(range(steps), "samples").to_pylist()
    assert len({(row["step"], row["slot"]) for row in names}) == len(names) == 4 * steps
    return set(run.steps.applied["step"].tolist())


@pytest.mark.parametrize(("count", "fields"), FIELDS.values(), ids=FIELDS)
def test_a_commit_that_ctrl_c_breaks_off_is_recorded_whole_or_not_at_all(ledger, count, fields):
    """No batch is named twice, and of several accumulated ones none is applied without the others."""
    tried = list(pressed(lambda: deliver(ledger, count), lambda bills: ledger.commit(bills, **fields)))

    found = applied(ledger)

    whole = [sum(bill.step in found for bill in bills) for bills in tried]
    assert len(tried) > 20 and set(whole) == {0, count}


@pytest.mark.parametrize(("count", "fields"), FIELDS.values(), ids=FIELDS)
def test_a_batch_whose_commit_was_broken_off_can_be_committed_again(ledger, count, fields):
    """What is not recorded still waits; what is recorded is refused."""
    for bills in pressed(lambda: deliver(ledger, count), lambda bills: ledger.commit(bills, **fields)):
        with contextlib.suppress(LedgerError):
            ledger.commit(bills)
            ledger.flush()

    assert applied(ledger) == set(range(ledger.launched["step"]))


def test_a_delivery_that_was_broken_off_can_be_made_again(ledger):
    """Nothing of it is left, or all of it."""
    deliver(ledger, 1)
    for bill in pressed(lambda: PLAN.bill(ledger.launched["step"]), ledger.deliver):
        ledger.deliver(bill)
        ledger.commit(bill)

    assert applied(ledger) == set(range(1, ledger.launched["step"] - 1))


@pytest.mark.parametrize("act", [Ledger.flush, Ledger.close], ids=["flush", "close"])
def test_a_wait_for_the_disk_that_ctrl_c_breaks_off_leaves_no_lock_behind(ledger, act):
    """The books can be closed afterwards, and are."""
    ledger.deliver(PLAN.bill(0))
    for _ in pressed(lambda: ledger, act):
        closing = threading.Thread(target=ledger.flush, daemon=True)
        closing.start()
        closing.join(30)
        assert not closing.is_alive()
    closing = threading.Thread(target=ledger.close, daemon=True)
    closing.start()
    closing.join(30)

    assert not closing.is_alive()
    assert [rank.begun.state for rank in open_run(ledger.run_dir).evidence.ranks] == ["closed"]
