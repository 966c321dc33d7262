"""A Loader under an ordinary Lightning Trainer: nothing replaced, dropped or repeated."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "lightning_plain.py"


def seen_by(rank: int, folder: Path) -> dict[str, Any]:
    """Return what a rank saw."""
    return json.loads((folder / f"seen-{rank}.json").read_text())


@pytest.mark.launch
def test_two_ddp_processes_see_every_sample_once(tmp_path):
    """fit (2 epochs, mid-epoch resume), validate, test and predict on 2 gloo processes."""
    command = [sys.executable, str(SCRIPT), str(tmp_path), "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    ranks = [seen_by(rank, tmp_path) for rank in range(2)]
    for stage in ("fit-0", "fit-1", "validate", "test", "predict"):
        together = sorted(index for rank in ranks for index in rank[stage])
        assert together == list(range(21)), stage
    assert ranks[0]["fit-0"] != ranks[0]["fit-1"], "the second epoch is shuffled differently"
    assert ranks[0]["resumed"] == ranks[0]["straight"]
    assert all(rank["sampler"] == "PlanSampler" for rank in ranks)


@pytest.mark.filterwarnings("ignore")  # Lightning's, about a quiet trainer
def test_one_process_and_overfit_batches(tmp_path):
    """The same on one device, with Lightning's rebuilt loaders for predict and overfit_batches."""
    runpy.run_path(str(SCRIPT))["main"](tmp_path, 1)

    seen = seen_by(0, tmp_path)
    assert all(sorted(seen[stage]) == list(range(21)) for stage in ("fit-0", "validate", "test", "predict"))
    assert seen["overfit"] == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
    assert seen["resumed"] == seen["straight"]
