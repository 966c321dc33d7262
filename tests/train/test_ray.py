"""Ray Train: killed on two workers, back on one; what is done to loaders there is right and recorded, or refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lading import open_run
from lading.report.summary import summarise

pytestmark = pytest.mark.needs("ray")
SCRIPT = Path(__file__).parent / "scripts" / "ray_rows.py"
RIGHT = ("prepared", "copied", "chunked", "repeated", "with-bills")
# Beginnings of what is said where only the words about a loop would not do.
SAYS = {
    "no-loader": "found a DataLoader: expected a Loader",
    "tracked-read-ahead": "this _WrappedDataLoader gave a batch (list) that its collate_fn did not make",
}


def ran(out: Path, *options: str) -> str:
    """Run the script; return what it printed."""
    command = [sys.executable, str(SCRIPT), str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def check_rows(out: Path, workers: int) -> None:
    """Every row of every worker: each sample once and recorded, or a named error."""
    rows = [json.loads((out / f"rows-{workers}.{rank}.json").read_text()) for rank in range(workers)]
    expected = [[k, k + 1] for k in range(13 if workers == 1 else 7)]
    for name in rows[0]:
        found = [row[name] for row in rows]
        if name in (*RIGHT, "tracked", "trained"):
            assert sorted(x for row in found for x in row["seen"]) == list(range(100)), (name, workers)
            assert open_run(out / f"{name}-{workers}").verify().holds, (name, workers)
        else:
            says = SAYS.get(name, "")
            assert all(row.get("refused", "").startswith(says) and row["refused"] for row in found), (name, found)
        if name in RIGHT:  # after each batch, its own bill, and a state that the next batch follows
            assert all(row["steps"] == expected for row in found), (name, workers)
    for name in ("itself", "parts", "ray", "ray-unmoved", "ray-undistributed", "ray-chunked", "ray-parts"):
        assert all("lading.train.ray.prepare(loader)" in row[name]["refused"] for row in rows), (name, workers)
    for name in ("tracked-itself", "tracked-too-early"):
        assert all("lading.train.ray.prepare(" in row[name]["refused"] for row in rows), (name, workers)


def test_one_worker_without_a_cluster_is_right_or_refused_by_name(tmp_path):
    """Ray's local mode: a real worker, and Ray's own prepare_data_loader."""
    ran(tmp_path, "--alone")

    check_rows(tmp_path, 1)
    assert "no Ray Train worker runs here" in json.loads((tmp_path / "outside.json").read_text())["refused"]
    failed = summarise(open_run(tmp_path / "failed"))
    assert [attempt["state"] for attempt in failed.attempts] == ["failed"] and failed.facts["steps_applied"] == 3


@pytest.mark.launch
def test_killed_on_two_workers_back_on_one_and_every_row_of_the_table(tmp_path):
    """examples/ray_training.py, with what may be done to loaders in its workers before, and a Ray dataset after it."""
    printed = ran(tmp_path)

    assert "the first attempt died" in printed
    run = open_run(tmp_path / "run")
    assert run.verify().holds
    assert run.history["step"] == list(range(13))
    assert run.history["attempt"] == [0] * 6 + [1] * 7  # step 6 and 7 were trained on, and rolled back
    for workers in (1, 2):
        check_rows(tmp_path, workers)
    seen = json.loads((tmp_path / "ray-data.json").read_text())
    assert sorted(seen) == list(range(20))
    assert [row["index"] for row in open_run(tmp_path / "ray-data").step(1).samples.dicts()] == seen[8:16]
