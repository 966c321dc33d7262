"""``lading demo``: train on real text with a fault in it, crash, resume, find the fault, block it, resume before it.

    train ──▶ kill -9 ──▶ resume ──▶ spike ──▶ show --spikes, explain, block ──▶ resume ──▶ step, where, verify, mix

Everything shown is real: the process is killed by the operating system, the samples are found by what the run
recorded, and the answers come from the commands a user would type.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from lading.cli.output import Json
from lading.errors import ConfigError, missing_extra
from lading.kits.demo.process import TrainingProcess, Watch
from lading.kits.demo.text import WEIGHTS, collect, samples_of, write_text
from lading.report import open_run
from lading.report.summary import summarise
from lading.runtime.paths import local_path

MARKER = "lading-demo.json"
_CHUNKS = 6

Folder = Annotated[str, typer.Option("--run", help="Folder to leave the run in; an older demo there is replaced.")]
Steps = Annotated[int, typer.Option(help="Steps to train; fewer is quicker.", min=120)]


def demo(run: Folder = "runs/demo", steps: Steps = 480, as_json: Json = False) -> None:
    """Train on real text, crash, resume; a spike comes, is found, explained and blocked. At most two minutes.

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
    fault = chunk_steps * 3 + chunk_steps // 2
    planted = _gather_text(console, folder, fault)

    _title(console, "Train", "a small byte model, chunk by chunk, until the plug is pulled")
    pid = _train(watch, folder, steps, chunk_steps, until=_between_checkpoints(chunk_steps * 3 // 2))["pid"]
    killed = _attempts(folder)[-1]
    console.print(f"[bold red]kill -9 {pid}[/]  in step {killed['last']}, in the middle of a chunk.")

    _title(console, "Resume", "a new process begins at the last checkpoint")
    _train(watch, folder, steps, chunk_steps, until=fault + chunk_steps // 3, by=signal.SIGINT)
    resumed, lost = _attempts(folder)[-1], _attempts(folder)[0]["rolled_back"]
    console.print(
        f"It began at step {resumed['start']}: at least {lost} steps that were finished before were done again, with "
        f"the same batches. Then the loss jumped, and it was stopped (Ctrl+C) in step {resumed['last']}."
    )

    answers = _hunt(console, folder, as_json)
    found = _suspects(folder, answers["spike"])
    names = [f"{name}:{index}" for name, index in found]
    console.print(f"{len(found)} samples stand out by their own loss; planted were {len(planted)}: ", end="")
    console.print("the same ones." if {*found} == {*planted} else "not the same ones.")
    blocked = ["block", str(folder), *names, "--reason", "random bytes"]
    answers["block"] = _answer(console, "Never again:", blocked, as_json)

    _title(console, "Resume before the spike", f"from the checkpoint of chunk 2, at step {chunk_steps * 3}")
    _train(watch, folder, steps, chunk_steps, "chunk-2.pt")
    answers |= _ask(console, folder, answers["spike"], found[0], as_json)
    moments = {"killed_at": killed["last"], "resumed_at": resumed["start"], "rolled_back": lost}
    return {"run": str(folder), "steps": steps, **moments, "planted": planted, "found": found, **answers}


def _gather_text(console: Console, folder: Path, fault: int) -> list[tuple[str, int]]:
    """Write the text, with a fault in the samples of a step; return these samples."""
    _title(console, "Text", f"Python {sys.version.split()[0]}'s own library on this machine")
    with console.status("reading"):
        text = collect()
    if len(text) < 3:
        raise ConfigError(f"the standard library of this Python has only {', '.join(text)}: expected three sources.")
    for name, (train, val) in text.items():
        share = WEIGHTS[name] / sum(WEIGHTS[n] for n in text)
        console.print(f"  {name:<12}{len(train):>7} samples   {len(val):>4} held out   weight {share:.2f}")
    planted = samples_of(text, fault)
    write_text(folder, text, planted)
    console.print(f"A fault is planted: {len(planted)} samples of {planted[0][0]} hold random bytes now.")
    return planted


def _train(
    watch: Watch,
    folder: Path,
    steps: int,
    chunk_steps: int,
    *resume_from: str,
    until: int | None = None,
    by: signal.Signals = signal.SIGKILL,
) -> dict[str, Any]:
    """Train in a process of its own, which is ended after a step, if one is given; return which process it was."""
    with TrainingProcess(folder, steps, chunk_steps, *resume_from) as process, watch:
        for event in process.events():
            watch.note(event)
            if event["kind"] == "step" and event["step"] == until:
                process.kill(by)
    return {"pid": process.pid}


def _attempts(folder: Path) -> list[dict[str, Any]]:
    """Return the attempts as `show` will say them a moment later: what is on disk, not what a process said last."""
    return summarise(open_run(folder)).attempts


def _between_checkpoints(step: int) -> int:
    """Return the first step at or after one that lies half way between two checkpoints."""
    every = 25
    return step + (every // 2 - step) % every


def _hunt(console: Console, folder: Path, as_json: bool) -> dict[str, Any]:
    """Find the spike, and everything that is known of it."""
    _title(console, "Hunt", "the process is gone; the run directory knows")
    spikes = _answer(console, "When did the loss jump?", ["show", str(folder), "--spikes"], as_json)
    worst = open_run(folder).spikes().dicts()
    if not worst:
        raise ConfigError("no spike was found: expected the planted one. Train longer: lading demo --steps 480.")
    step = worst[0]["step"]
    explained = ["explain", str(folder), str(step), "--around", "2", "--decode", str(folder / "texts.py:texts")]
    return {"spikes": spikes, "spike": step, "explain": _answer(console, "What was in it?", explained, as_json)}


def _suspects(folder: Path, step: int) -> list[tuple[str, int]]:
    """Return the samples of a step whose own loss stands out."""
    rows = open_run(folder).explain(step).ranked
    usual = float(np.median([row["loss"] for row in rows]))
    return [(row["dataset"], row["index"]) for row in rows if row["loss"] > 2 * usual]


def _ask(console: Console, folder: Path, step: int, sample: tuple[str, int], as_json: bool) -> dict[str, Any]:
    """Ask the run what a user would ask of it."""
    _title(console, "Ask", "what the model was really trained on")
    dataset, index = sample
    answers = {
        "show": _answer(console, "What is this run, how far did it get?", ["show", str(folder)], as_json),
        "step": _answer(console, "What did the step hold in the end?", ["step", str(folder), str(step)], as_json),
        "where": _answer(console, "And a faulty sample?", ["where", str(folder), dataset, str(index)], as_json),
        "verify": _answer(console, "Was anything skipped or repeated?", ["verify", str(folder)], as_json),
        "mix": _answer(console, "What did the model get of each dataset?", ["mix", str(folder)], as_json),
    }
    page = ["report", str(folder), "-o", str(folder / "report.html")]
    answers["report"] = _answer(console, "The whole run on one page:", page, as_json)
    return answers


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
    console.print("Ask on:")
    for verb in (f"model show {folder / 'checkpoint.pt'}", f"where {folder} code 42 --until 5000", "--help"):
        console.print(f"  [cyan]lading {verb}[/]")
    console.print("Look at it in a browser, with the texts:")
    console.print(f"  [cyan]lading ui {folder} --decode {folder / 'texts.py'}:texts --open[/]", soft_wrap=True)


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
