"""Plans without weights are frozen: JSON, fingerprint, batch ids, bills, places and states of ORDER_VERSION 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lading.loader.state import make_state
from lading.order.plan import Plan

CASES = json.loads((Path(__file__).parent / "golden" / "unweighted.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[str(k) for k in range(len(CASES))])
def test_a_plan_without_weights_is_what_it_was(case):
    """All shuffles, tails, chunks, blocked samples and rebatches; written when ORDER_VERSION became 2."""
    plan = Plan.from_json(case["json"])

    assert plan.to_json() == case["json"] and plan.fingerprint == case["fingerprint"]
    for step, *expected in case["steps"]:
        bill = plan.bill(step)
        found = [bill.batch_id, bill.epoch, bill.chunk, bill.position, bill.global_size, str(bill.digest)]
        assert [*found, [list(s) for s in bill.samples[:3]]] == expected
    for dataset, index, places in case["where"]:
        assert [list(place[:3]) for place in plan.where(dataset, index, 0, 120)] == places


@pytest.mark.parametrize("case", [c for c in CASES if '"events": []' in c["json"]])
def test_the_state_of_a_plan_without_weights_keeps_its_keys(case):
    """Every key has the same value; later ones may stand beside them."""
    state = make_state(Plan.from_json(case["json"]), case["state"]["step"])

    assert {key: state[key] for key in case["state"]} == case["state"]
