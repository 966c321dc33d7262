"""``lading demo``: a short one for real, and what its parts promise."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from lading.cli import main
from lading.errors import ConfigError
from lading.kits.demo.process import DemoError, TrainingProcess
from lading.kits.demo.text import WEIGHTS, WINDOW, Texts, collect, samples_of, write_text
from lading.kits.demo.verbs import MARKER, _between_checkpoints
from lading.report import open_run
from lading.runtime.imports import imported

pytestmark = pytest.mark.needs("torch")

FORBIDDEN = ("lightning", "jax", "sklearn", "pandas", "deepspeed", "polars")


@pytest.mark.launch
@pytest.mark.timeout(3600)  # forty seconds of CPU, far more by the clock on a busy machine
def test_the_demo_finds_its_planted_fault_and_holds(tmp_path):
    """The whole story at its shortest: kill -9, a resume, a spike, its samples found and blocked, a resume before."""
    command = [sys.executable, "-m", "lading", "demo", "--steps", "120", "--json", "--run", str(tmp_path / "demo")]

    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, cwd=tmp_path)

    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    run = open_run(tmp_path / "demo")
    assert said["resumed_at"] <= said["killed_at"] < said["steps"] == 120
    assert said["verify"]["holds"] and run.verify().holds and run.num_steps == 120
    assert [attempt["start"] for attempt in said["show"]["attempts"]] == [0, said["resumed_at"], 60]
    assert said["show"]["attempts"][0]["rolled_back"] == said["rolled_back"] > 0
    assert said["spike"] == 70 and sorted(said["found"]) == sorted(said["planted"])
    assert said["block"]["blocked"] == [f"{name}:{index}" for name, index in said["found"]]
    assert said["step"]["loss"] < said["step"]["earlier"][0]["loss"] - 1
    assert [row["fate"] for row in said["where"]] == ["rolled back", "blocked"]
    assert len(said["mix"]) >= 3 and all(abs(row["share"] - row["planned"]) < 0.01 for row in said["mix"])
    assert (tmp_path / "demo" / "report.html").stat().st_size == said["report"]["bytes"]


def test_the_demo_ends_with_the_command_that_opens_pages_with_texts(tmp_path, capsys):
    """The last line can be copied as it is."""
    from rich.console import Console

    from lading.kits.demo.verbs import _farewell

    _farewell(Console(width=80), tmp_path / "demo", {"seconds": 1.0})

    last = capsys.readouterr().out.splitlines()[-1].split()
    assert last == [
        "lading",
        "ui",
        str(tmp_path / "demo"),
        "--decode",
        f"{tmp_path / 'demo' / 'texts.py'}:texts",
        "--open",
    ]


def test_the_fault_is_in_the_samples_of_one_step_and_is_shown(tmp_path):
    """The plan says beforehand which samples a step will hold; what was trained on is what is shown."""
    text = collect()
    planted = samples_of(text, 40)
    before = {(name, index): text[name][0][index].copy() for name, index in planted}

    write_text(tmp_path, text, planted)

    shown = imported(f"{tmp_path}/texts.py:texts", "--decode", from_here=True)()
    assert len(planted) >= 4 and len({name for name, _ in planted}) == 1
    assert all(not np.array_equal(text[name][0][index], before[name, index]) for name, index in planted)
    assert all("\ufffd" in shown[name][index] for name, index in planted)
    with pytest.raises(ConfigError, match="is no file"):
        imported(f"{tmp_path}/nowhere.py:texts", "--decode", from_here=True)


def test_text_is_real_and_the_same_every_time():
    """Three sources or more, from this machine, in windows that follow each other; nothing held out is trained on."""
    first, again = collect(), collect()

    assert len(first) >= 3 and set(first) <= set(WEIGHTS)
    for name, (train, val) in first.items():
        assert train.shape[1] == val.shape[1] == WINDOW + 1 and len(train) > 150 and len(val)
        assert np.array_equal(train, again[name][0])
        assert train[0, -1] == train[1, 0]
    readable = Texts(first["code"][0])
    assert "def " in "".join(readable[i] for i in range(100))


def test_a_folder_that_is_no_demo_is_left_alone(tmp_path, capsys):
    """Re-running replaces an older demo and nothing else."""
    (tmp_path / "thesis.txt").write_text("years of work")

    with pytest.raises(SystemExit) as stopped:
        main(["demo", "--run", str(tmp_path)])

    assert stopped.value.code == 2
    assert "holds something else than a demo" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_an_older_demo_is_replaced(tmp_path, monkeypatch):
    """What a stopped demo left behind does not stand in the way."""
    from lading.kits.demo import verbs as module

    (tmp_path / MARKER).write_text("{}")
    (tmp_path / "checkpoint.pt").write_text("of yesterday")

    folder = module._fresh_folder(tmp_path)

    assert sorted(path.name for path in folder.iterdir()) == [MARKER]


def test_without_torch_one_line_says_what_to_install(tmp_path, monkeypatch, capsys):
    """The demo is for someone who just installed the package."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(SystemExit) as stopped:
        main(["demo", "--run", str(tmp_path / "demo")])

    assert stopped.value.code == 2
    assert "pip install 'lading[torch]'" in capsys.readouterr().err


@pytest.mark.parametrize("step", [33, 37, 330, 396])
def test_the_kill_falls_between_checkpoints(step):
    """Some steps are lost and have to be done again: otherwise there is nothing to see."""
    assert _between_checkpoints(step) >= step
    assert 10 <= (_between_checkpoints(step) + 1) % 25 <= 15


def test_a_training_process_that_fails_is_told(tmp_path):
    """Its last words reach the user instead of a hang."""
    with TrainingProcess(tmp_path, 60, 10) as process:
        with pytest.raises(DemoError, match="ended with code 1: FileNotFoundError"):
            list(process.events())


@pytest.mark.slow
def test_ctrl_c_ends_everything(tmp_path):
    """The child goes with its parent, and the run directory can be asked all the same."""
    command = [sys.executable, "-m", "lading", "demo", "--run", str(tmp_path / "demo")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    checkpoint = tmp_path / "demo" / "checkpoint.pt"
    end = time.monotonic() + 600
    while not checkpoint.exists() and time.monotonic() < end:
        time.sleep(0.1)

    os.kill(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=600)

    assert process.returncode == 130
    assert "Stopped." in said
    time.sleep(1)
    size = checkpoint.stat().st_mtime
    time.sleep(3)
    assert checkpoint.stat().st_mtime == size
    assert open_run(tmp_path / "demo").num_steps > 0


def test_the_demo_needs_little():
    """Its modules load no framework but torch."""
    code = (
        "import sys, lading.kits.demo.verbs, lading.kits.demo.torch; "
        f"print(sorted({{m.split('.')[0] for m in sys.modules}} & {set(FORBIDDEN)!r}))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)

    assert done.stdout.strip() == "[]"
