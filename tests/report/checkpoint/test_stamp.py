"""Waybills that are made late."""

from __future__ import annotations

import json

import pytest
import torch
from tests.report.checkpoint.models import plan_of, trained

from lading.errors import ConfigError, LedgerError
from lading.report.checkpoint.stamp import stamp

PLAN = plan_of(0)


@pytest.fixture
def saved(tmp_path):
    """A checkpoint whose waybill was lost, its state, and the waybill's SHA-256."""
    state = trained(tmp_path / "run", tmp_path / "ckpt", range(5), plan=PLAN)
    return tmp_path / "ckpt", state


def test_from_the_state_in_a_json_file_it_is_the_one_that_was_lost(saved, tmp_path):
    """Byte for byte, where the state lay in the checkpoint when it was saved."""
    path, state = saved
    (path / "waybill.json").unlink()
    (path / "trainer_state.json").write_text(json.dumps({"callbacks": [{"saved": state}]}))

    late = stamp(path, run=tmp_path / "run")

    assert (late.moment.step, late.moment.update, late.totals["corpus"].samples) == (5, 4, 20)


def test_from_the_state_in_a_file_of_torch_save(saved, tmp_path):
    """Nothing of it is run."""
    _, state = saved
    torch.save({"model": {"w": torch.zeros(3)}, "loader": state}, tmp_path / "last.pt")

    late = stamp(tmp_path / "last.pt", run=tmp_path / "run")

    assert late.moment.step == 5
    assert (tmp_path / "last.pt.waybill.json").exists()


def test_without_a_state_the_step_is_said(saved, tmp_path):
    """And must be one that the run reached."""
    path, _ = saved
    (path / "waybill.json").unlink()
    with pytest.raises(LedgerError, match=r"holds no state of a Lading loader.*--step"):
        stamp(path, run=tmp_path / "run")
    with pytest.raises(LedgerError, match=r"no attempt of .* stood at step 9"):
        stamp(path, run=tmp_path / "run", step=9)

    with pytest.raises(LedgerError, match=r"no attempt 7 of .* stood at step 3"):
        stamp(path, run=tmp_path / "run", step=3, attempt=7)

    assert stamp(path, run=tmp_path / "run", step=3).totals["corpus"].samples == 12


def test_a_run_of_one_step_stood_behind_it(tmp_path):
    """Step 0 is a step."""
    trained(tmp_path / "run", tmp_path / "ckpt", range(1), plan=PLAN)

    assert stamp(tmp_path / "ckpt", run=tmp_path / "run", step=1, replace=True).totals["corpus"].samples == 4


def test_wrong_use_is_refused(saved, tmp_path):
    """A waybill that is there, a merge without parents, a run that another one is."""
    path, state = saved
    with pytest.raises(LedgerError, match=r"has a waybill.*--replace"):
        stamp(path, run=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"what the merge was made from.*--from"):
        stamp(path, made="merge", replace=True)
    with pytest.raises(ConfigError, match=r"expected one of training, merge, conversion, import.*--run"):
        stamp(path, replace=True)
    trained(tmp_path / "other", tmp_path / "o", range(1), plan=PLAN)
    (path / "state.json").write_text(json.dumps(state))
    with pytest.raises(LedgerError, match=r"was saved in run .* is another"):
        stamp(path, run=tmp_path / "other", replace=True)
