"""Ray Train: killed on two workers, back on one; what Ray does to loaders is right and recorded, or refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lading import open_run

pytest.importorskip("ray", reason="ray is not installed")
SCRIPT = Path(__file__).parent / "scripts" / "ray_rows.py"


def rows_of(out: Path, workers: int) -> list[dict]:
    """Return what each worker wrote down."""
    return [json.loads((out / f"rows-{workers}.{rank}.json").read_text()) for rank in range(workers)]


@pytest.mark.launch
def test_killed_on_two_workers_back_on_one_and_every_row_of_the_table(tmp_path):
    """examples/ray_training.py, with prepare_data_loader's rows in its workers before, and a Ray dataset after it."""
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "the first attempt died" in done.stdout
    run = open_run(tmp_path / "run")
    assert run.verify().holds
    assert run.history["step"] == list(range(13))
    assert run.history["attempt"] == [0] * 6 + [1] * 7  # step 6 and 7 were trained on, and rolled back
    for workers in (1, 2):
        rows = rows_of(tmp_path, workers)
        for name in ("ray", "ray-undistributed", "ray-unmoved"):
            assert sorted(x for row in rows for x in row[name]["seen"]) == list(range(100)), (name, workers)
            # After each batch, its own bill, and a state that the next batch follows.
            expected = [[k, k + 1] for k in range(13 if workers == 1 else 7)]
            assert all(row[name]["steps"] == expected for row in rows), (name, workers)
            assert open_run(tmp_path / f"{name}-{workers}").verify().holds
        assert sorted(x for row in rows for x in row["tracked"]["seen"]) == list(range(100))
        assert open_run(tmp_path / f"tracked-{workers}").verify().holds
        assert all("Prepare first, then track" in row["tracked-too-early"]["refused"] for row in rows)
    seen = json.loads((tmp_path / "ray-data.json").read_text())
    assert sorted(seen) == list(range(20))
    assert [row["index"] for row in open_run(tmp_path / "ray-data").step(1).samples.dicts()] == seen[8:16]
