"""A Loader under an ordinary Lightning Trainer: nothing replaced, dropped or repeated."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "lightning_plain.py"


def run(folder: Path, devices: int) -> list[dict]:
    """Run fit, validate, test and predict; return what each rank saw."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), str(devices)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(devices)]


@pytest.mark.launch
def test_two_ddp_processes_see_every_sample_once(tmp_path):
    """fit (2 epochs, mid-epoch resume), validate, test and predict on 2 gloo processes."""
    ranks = run(tmp_path, 2)

    for stage in ("fit-0", "fit-1", "validate", "test", "predict"):
        together = sorted(index for rank in ranks for index in rank[stage])
        assert together == list(range(21)), stage
    assert ranks[0]["fit-0"] != ranks[0]["fit-1"], "the second epoch is shuffled differently"
    assert ranks[0]["resumed"] == ranks[0]["straight"]
    assert all(rank["sampler"] == "PlanSampler" for rank in ranks)


@pytest.mark.launch
def test_one_process_and_overfit_batches(tmp_path):
    """The same on one device, with Lightning's rebuilt loaders for predict and overfit_batches."""
    (seen,) = run(tmp_path, 1)

    assert all(sorted(seen[stage]) == list(range(21)) for stage in ("fit-0", "validate", "test", "predict"))
    assert seen["overfit"] == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
    assert seen["resumed"] == seen["straight"]
