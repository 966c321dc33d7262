"""``run.json``: what cannot be read again is never written."""

from __future__ import annotations

from pathlib import Path

import pytest

from lading.errors import ConfigError
from lading.ledger import Ledger
from lading.order import Plan
from lading.report import open_run

PLAN = Plan.make({"code": 97}, batch_size=8, seed=3)


@pytest.mark.parametrize(
    "options",
    [
        {"names": ["x" * 5000]},
        {"names": ["half \ud83d"]},
        {"names": ["code", "code"]},
        {"names": ["code"], "lengths": [-1]},
    ],
)
def test_names_that_no_reader_takes_are_refused_before_anything_is_written(tmp_path: Path, options):
    """The folder stays free for the run with better names."""
    with pytest.raises(ConfigError, match="names"):
        Ledger(tmp_path, **options).commit(PLAN.bill(0))
    assert not (tmp_path / "run.json").exists()

    with Ledger(tmp_path, names=["code"]) as ledger:
        ledger.commit(PLAN.bill(0))

    assert open_run(tmp_path).verify().holds


def test_a_plan_with_names_that_no_reader_takes_is_refused_before_anything_is_written(tmp_path: Path):
    """A planned run's names are the plan's."""
    long = Plan.make({"x" * 5000: 97}, batch_size=8, seed=3)

    with pytest.raises(ConfigError, match="4096 characters"):
        Ledger(tmp_path, long).commit(long.bill(0))

    assert not (tmp_path / "run.json").exists()
