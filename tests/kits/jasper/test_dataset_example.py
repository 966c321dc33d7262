"""The JASPER example runs as its first lines say: alone, and under torchrun with two processes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lading.kits.jasper.inspect import faults

EXAMPLE = Path(__file__).parents[3] / "examples" / "jasper.py"


def accuracies(*command):
    """Run the example; return (before, after) of each rank."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr[-8000:]
    return [tuple(map(float, found)) for found in re.findall(r"accuracy ([\d.]+) -> ([\d.]+)", done.stdout)]


@pytest.mark.launch
def test_the_example_learns_and_two_processes_learn_the_same(tmp_path):
    """Real text, a valid dataset, and the same numbers on one process and on two."""
    dataset = tmp_path / "data"
    alone = accuracies(str(EXAMPLE), str(dataset))
    torchrun = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
    ]
    together = accuracies(*torchrun, str(EXAMPLE), str(dataset))

    assert len(EXAMPLE.read_text().splitlines()) < 80
    assert faults(dataset) == []
    assert len(together) == 2
    assert together[0] == together[1]
    before, after = alone[0]
    assert after > before + 0.1
    assert together[0] == pytest.approx(alone[0], abs=0.05)
