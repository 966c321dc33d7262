"""``lading demo``: train on real text, crash, resume, and ask what was in it.

    train ──▶ kill -9 ──▶ resume ──▶ show, step, where, verify, mix, report

Everything shown is real: the process is killed by the operating system, and the
answers come from the commands a user would type.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from lading.cli.demo.process import TrainingProcess, Watch
from lading.cli.demo.text import WEIGHTS, collect
from lading.cli.output import Json
from lading.errors import ConfigError, missing_extra
from lading.report import open_run
from lading.report.summary import summarise
from lading.runtime.paths import local_path

MARKER = "lading-demo.json"
_CHUNKS = 6

Folder = Annotated[str, typer.Option("--run", help="Folder to leave the run in; an older demo there is replaced.")]
Steps = Annotated[int, typer.Option(help="Steps to train; fewer is quicker.", min=60)]


def demo(run: Folder = "runs/demo", steps: Steps = 600, as_json: Json = False) -> None:
    """Train on real text, crash, resume, and ask what was in it. About two minutes.

    Example: lading demo --run runs/demo
    """
    console = Console(highlight=False, quiet=as_json)
    if importlib.util.find_spec("torch") is None:
        raise missing_extra("torch", "torch", "lading demo")
    folder = _fresh_folder(local_path(run))
    began = time.monotonic()
    try:
        found = _story(console, folder, steps, as_json)
    except KeyboardInterrupt:
        console.print(f"\nStopped. `lading show {folder}` tells how far it got; `lading demo` starts over.")
        raise typer.Exit(130) from None
    found["seconds"] = round(time.monotonic() - began, 1)
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        _farewell(console, folder, found)


def _story(console: Console, folder: Path, steps: int, as_json: bool) -> dict[str, Any]:
    watch, chunk_steps = Watch(console, steps), steps // _CHUNKS
    _gather_text(console, folder)
    _title(console, "Train", "a small byte model, chunk by chunk, until the plug is pulled")
    killed = _train(watch, folder, steps, chunk_steps, kill_at=_between_checkpoints(steps * 11 // 20))
    console.print(f"[bold red]kill -9 {killed['pid']}[/]  after step {killed['step']}, in the middle of a chunk.")
    _title(console, "Resume", "a new process resumes from the last checkpoint")
    resumed = _train(watch, folder, steps, chunk_steps)
    lost = summarise(open_run(folder)).attempts[0]["rolled_back"]  # as `show` will say, a moment later
    console.print(
        f"It resumed at step {resumed['start']}: at least {lost} steps after that checkpoint were done again with the\n"
        "same batches, and what came of them the first time is marked as undone. (At least: what a killed process\n"
        "did in its last moments is on no disk.)"
    )
    answers = _ask(console, folder, resumed["start"] + lost // 2, as_json)
    moments = {"killed_at": killed["step"], "resumed_at": resumed["start"], "rolled_back": lost}
    return {"run": str(folder), "steps": steps, **moments, **answers}


def _gather_text(console: Console, folder: Path) -> None:
    _title(console, "Text", f"Python {sys.version.split()[0]}'s own library on this machine")
    with console.status("reading"):
        text = collect()
    if len(text) < 3:
        raise ConfigError(f"the standard library of this Python has only {', '.join(text)}: expected three sources.")
    for name, (train, val) in text.items():
        share = WEIGHTS[name] / sum(WEIGHTS[n] for n in text)
        console.print(f"  {name:<12}{len(train):>7} samples   {len(val):>4} held out   weight {share:.2f}")
    named = {
        f"{name}/{part}": rows for name, pair in text.items() for part, rows in zip(("train", "val"), pair, strict=True)
    }
    np.savez(folder / "text.npz", **named)  # type: ignore[arg-type]


def _train(watch: Watch, folder: Path, steps: int, chunk_steps: int, kill_at: int | None = None) -> dict[str, Any]:
    """Train in a process of its own; return where it began and how far it got."""
    with TrainingProcess(folder, steps, chunk_steps) as process, watch:
        found: dict[str, Any] = {"pid": process.pid, "start": 0, "step": -1}
        for event in process.events():
            watch.note(event)
            if event["kind"] == "ready":
                found["start"] = event["step"]
            elif event["kind"] == "step":
                found["step"] = event["step"]
                if event["step"] == kill_at:
                    process.kill()
    return found


def _between_checkpoints(step: int) -> int:
    """Return the first step at or after one that lies half way between two checkpoints."""
    every = 25
    return step + (every // 2 - step) % every


def _ask(console: Console, folder: Path, step: int, as_json: bool) -> dict[str, Any]:
    """Ask the run everything a user would ask."""
    dataset, index = _rare_sample(folder, step)
    _title(console, "Ask", "the process is gone; the run directory knows")
    answers = {
        "show": _answer(console, "What is this run, how far did it get?", ["show", str(folder)], as_json),
        "step": _answer(
            console,
            "What was in a step? This one was done twice: before the crash and after.",
            ["step", str(folder), str(step), "--decode", "lading.cli.demo.text:texts"],
            as_json,
        ),
        "where": _answer(
            console, "Was this sample ever seen, and when?", ["where", str(folder), dataset, str(index)], as_json
        ),
        "verify": _answer(console, "Was anything skipped or repeated?", ["verify", str(folder)], as_json),
        "mix": _answer(console, "What did the model really get, against the plan?", ["mix", str(folder)], as_json),
    }
    page = ["report", str(folder), "-o", str(folder / "report.html")]
    answers["report"] = _answer(console, "The whole run on one page:", page, as_json)
    return answers


def _rare_sample(folder: Path, step: int) -> tuple[str, int]:
    """Return a sample of the step, of the smallest dataset there: the one that came round most often."""
    run = open_run(folder)
    plan = run.plan
    assert plan is not None
    lengths = dict(zip(plan.names, plan.parts.samples, strict=True))
    rows = run.step(step).samples.dicts()
    row = min(rows, key=lambda r: (lengths[r["name"]], r["slot"]))
    return row["name"], row["index"]


def _answer(console: Console, question: str, arguments: list[str], as_json: bool) -> Any:
    """Show a question, the command that answers it, and its answer."""
    console.print(f"\n[bold]{question}[/]\n[cyan]$ lading {' '.join(arguments)}[/]")
    environment = {**os.environ, "COLUMNS": str(console.width)} | ({"FORCE_COLOR": "1"} if console.is_terminal else {})
    command = [sys.executable, "-m", "lading", *arguments, *(["--json"] if as_json else [])]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode == 2:
        raise ConfigError(f"`lading {' '.join(arguments)}` failed: {done.stderr.strip().removeprefix('lading: ')}")
    if as_json:
        return json.loads(done.stdout)
    sys.stdout.write(done.stdout)
    sys.stdout.flush()
    return done.returncode


def _title(console: Console, title: str, what: str) -> None:
    console.print()
    console.rule(f"[bold]{title}[/]: {what}", align="left")


def _farewell(console: Console, folder: Path, found: dict[str, Any]) -> None:
    console.print()
    console.rule(f"[bold]Done[/] in {found['seconds']:.0f} s", align="left")
    console.print(f"Look at it in a browser:  [cyan]lading ui {folder}[/]")
    console.print(f"Or open  [cyan]{folder / 'report.html'}[/], or ask on:")
    for verb in (
        f"model show {folder / 'checkpoint.pt'}",
        f"explain {folder} {found['killed_at']}",
        f"where {folder} code 42 --until 5000",
        "--help",
    ):
        console.print(f"  [cyan]lading {verb}[/]")


def _fresh_folder(folder: Path) -> Path:
    """Return an empty folder; only an older demo is ever removed."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).exists():
            raise ConfigError(
                f"{folder} holds something else than a demo: expected an empty folder or an older demo. "
                "Give another one with --run."
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text(json.dumps({"python": sys.version.split()[0]}))
    return folder
