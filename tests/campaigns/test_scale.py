"""A ledger of many simulated ranks: every question is answered, before and after compaction."""

from __future__ import annotations

import pytest
from benchmarks.bench_scale import cases
from benchmarks.simulated_ledger import simulate, simulated_plan

from lading.ledger.compact import compact
from lading.report import open_run


def test_sixty_ranks_answer_as_ten_thousand_would(tmp_path):
    """The simulated files are a run like any other: it verifies, and each answer is the plan's."""
    simulate(tmp_path / "run", 60, 25)
    plan = simulated_plan(60, 25)
    before = open_run(tmp_path / "run")
    assert before.verify().holds and len(before.history) == 25

    done = compact(tmp_path / "run")

    after = open_run(tmp_path / "run")
    assert (done.closed, done.files_after) == (60, 60) and after.verify().holds
    assert after.history["digest"] == before.history["digest"] == [plan.bill(step).digest for step in range(25)]
    index = int(plan.bill(3).idx[17])
    dataset = plan.names[int(plan.bill(3).dataset_idx[17])]
    assert 3 in [row["step"] for row in after.where(dataset, index).dicts()]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_times_the_ranks_cost_ten_times_as_much(tmp_path):
    """Nothing is worse than linear; twice the time is allowed to a busy machine."""
    for case in cases((300, 3000), 200):
        if case["unit"] != "s" or case["ours"] > 0.5:
            assert case["ratio"] > 0.4, case
