"""Which rank had which sample, on world sizes that do not divide the batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.calling import call
from tests.report.runs import PLAN, record

from lading.errors import ConfigError
from lading.identity import World
from lading.report import open_run

LAST = PLAN.epoch_steps(0) - 1  # incomplete: 1001 samples in batches of 16


@pytest.mark.parametrize("world_size", [3, 5, 7])
def test_every_answer_gives_a_sample_to_the_rank_that_had_it(tmp_path: Path, world_size: int):
    """``step``, ``sql`` and ``where`` say the rank whose share the plan's bill has it in; shares are unequal."""
    record(tmp_path, range(LAST - 1, LAST + 1), world_size=world_size)
    run = open_run(tmp_path)

    for step in (LAST - 1, LAST):
        shares = [PLAN.bill(step, world=World(rank, world_size)) for rank in range(world_size)]
        expected = sorted(
            (rank, int(d), int(i))
            for rank, share in enumerate(shares)
            for d, i, real in zip(share.dataset_idx, share.idx, share.is_real, strict=True)
            if real
        )
        in_step = sorted((row["rank"], row["dataset"], row["index"]) for row in run.step(step).samples)
        in_sql = run.sql("SELECT rank, dataset, index FROM samples ORDER BY ALL", steps=(step, step + 1)).dicts()

        assert in_step == [tuple(row.values()) for row in in_sql] == expected
        for rank, dataset, index in expected[:3]:
            places = PLAN.where(dataset, index, step, step + 1, world_size=world_size)
            assert [place.rank for place in places] == [rank]


def test_a_step_is_found_by_the_id_of_its_batch(tmp_path: Path, capsys):
    """In Python and on the command line; an id of another run is refused, with what this one has there."""
    record(tmp_path, range(5))
    ours, theirs = PLAN.bill(3).batch_id, PLAN.bill(3).batch_id[:-8] + "00c0ffee"

    code, out, _ = call(capsys, "step", tmp_path, ours)
    wrong, _, why = call(capsys, "step", tmp_path, theirs)

    assert open_run(tmp_path).step(ours).step == 3
    assert code == 0 and out == call(capsys, "step", tmp_path, 3)[1] and ours in out
    assert call(capsys, "explain", tmp_path, ours)[0] == 0
    assert wrong == 2 and f"its step 3 is {ours}" in why and "another run" in why
    with pytest.raises(ConfigError, match="expected an id as a bill has it"):
        open_run(tmp_path).step("3")
