"""The demo's training process, seen from outside: start it, watch it, kill it.

parent  ──start──▶  child trains, one JSON line an event
   ◀──── events ───────┘
   ──kill -9──▶  gone: no handler, no farewell

Events become a bar for the steps and a line for every chunk.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from lading.errors import LadingError


class DemoError(LadingError, RuntimeError):
    """The demo's training process ended by itself, and badly."""


class TrainingProcess:
    """A training process and what it tells; leaving the block ends it, whatever happened."""

    def __init__(self, run: Path, steps: int, chunk_steps: int, *resume_from: str) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed on leaving the block)
        command = [sys.executable, "-m", "lading.kits.demo.torch", str(run), str(steps), str(chunk_steps), *resume_from]
        # A session of its own: Ctrl-C is for the parent, which then decides what becomes of the child.
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._errors, text=True, start_new_session=True
        )

    @property
    def pid(self) -> int:
        """The process's number, as ``kill`` wants it."""
        return self._process.pid

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield what the process tells, until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("}\n"):  # the last line of a killed process may be torn
                yield json.loads(line)
        if self._process.wait() not in (0, -signal.SIGKILL, -signal.SIGINT):
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["no message"])[-1]
            raise DemoError(f"the training process ended with code {self._process.returncode}: {last}")

    def kill(self, by: signal.Signals = signal.SIGKILL) -> None:
        """``kill -9``: the process gets no chance to do anything; or Ctrl+C."""
        os.kill(self.pid, by)

    def __enter__(self) -> TrainingProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


class Watch:
    """Shows the events of a training process on a console; a block, once for every attempt."""

    def __init__(self, console: Console, steps: int) -> None:
        self._console, self._steps = console, steps
        self._is_first = True

    def __enter__(self) -> Watch:
        columns = (BarColumn(30), TextColumn("{task.description}"), TimeRemainingColumn())
        self._progress = Progress(*columns, console=self._console, transient=True)
        self._progress.start()
        self._task = self._progress.add_task("starting torch", total=self._steps)
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def note(self, event: dict[str, Any]) -> None:
        if event["kind"] == "ready":
            self._console.print(f"  starts at step {event['step']}; {event['parameters']:,} parameters")
            self._is_first = True
        elif event["kind"] == "step":
            text = f"step {event['step']:>4} of {self._steps}  loss {event['loss']:.2f}"
            self._progress.update(self._task, completed=event["step"] + 1, description=text)
        elif event["kind"] == "validated":
            self._console.print(self._chunk_lines(event))

    def _chunk_lines(self, event: dict[str, Any]) -> str:
        losses = "".join(f"{loss:>12.2f}" for loss in event["losses"].values())
        line = f"  chunk {event['chunk']}, to step {event['step']:>4}{losses}"
        if not self._is_first:
            return line
        self._is_first = False
        names = "".join(f"{name:>12}" for name in event["losses"])
        return f"  [dim]validation, bits/byte{names}[/]\n{line}"
