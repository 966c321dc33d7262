"""What a run reports: records of every update, log lines, a progress bar.

batch_tracker_rank_00.jsonl, _01 ...   each process: one line an update (from 1), which datasets its samples came from
log.jsonl                              rank 0: one line every logging_steps, over all processes; evaluations
progress bar                           rank 0, where there is a terminal

The tracker's file agrees with the run's history:

update     0 1 2 3 4 5 | 6 7 x           killed after a checkpoint at 6
on disk    0 1 2 3 4 5 | 6 7             written at intervals, and always before a checkpoint
resumed    0 1 2 3 4 5 | 6 7 8 ...       what the restart undid is removed; the ledger keeps it
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lading.identity import World
from lading.kits.deepspeed.callback import Update
from lading.kits.deepspeed.update import ALL
from lading.ledger.tracker.tracker import BatchTracker
from lading.runtime.files import write_aside
from lading.runtime.json import plain

STEP = "train/step"
FIRST_RECORD = 1  # the tracker's file counts steps from 1, as phyagi's does; everything else counts from 0


class Records:
    """Collect records and append them to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting: list[Mapping[str, Any]] = []

    def add(self, record: Mapping[str, Any]) -> None:
        """Take a record. Tensors are read when it is written, so that no call waits for a device now."""
        self._waiting.append(record)

    def flush(self) -> None:
        """Append everything that waits."""
        if not self._waiting:
            return
        lines = "".join(json.dumps(plain(record), allow_nan=False) + "\n" for record in self._waiting)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(lines)
        self._waiting.clear()


def roll_back(path: Path, update: int, first: int = 0) -> None:
    """Remove the records of an update and of those after it, and what a crash left half written.

    Args:
        update: The first update to remove, counted from 0.
        first: The number that the file gives the first update.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    kept = [line for line in lines if 0 <= _update_of(line) - first < update]
    if len(kept) < len(lines):
        write_aside(path, "".join(line + "\n" for line in kept).encode())


def _update_of(line: str) -> int:
    try:
        return int(json.loads(line)[STEP])
    except (ValueError, KeyError, TypeError):
        return -1


LOG = "log.jsonl"


def record_path(run_dir: Path, rank: int) -> Path:
    """Return the file of a process's records."""
    return run_dir / f"batch_tracker_rank_{rank:02d}.jsonl"


def roll_back_logs(run_dir: Path, update: int, log_dir: Path | None = None) -> None:
    """Remove what logs and records of all processes say about an update and later ones."""
    log = (log_dir or run_dir) / LOG
    if log.exists():
        roll_back(log, update)
    for path in run_dir.glob("batch_tracker_rank_*.jsonl"):
        roll_back(path, update, FIRST_RECORD)


class TrainingLog:
    """Everything a run tells.

    Args:
        world: Who tells; rank 0 writes the log.
        progress: Whether to draw a bar; None: where there is a terminal, else a line is printed for each of the log.
        log_dir: Folder of the log; None: that of the run.
    """

    def __init__(
        self, run_dir: Path, world: World, total: int, progress: bool | None, log_dir: Path | None = None
    ) -> None:
        self._world, self._total = world, total
        self._records = Records(record_path(run_dir, world.rank))
        self._lines = Records((log_dir or run_dir) / LOG)
        self._console = Console(stderr=True)
        self._draws = world.rank == 0 and (self._console.is_terminal if progress is None else progress)
        self._prints = world.rank == 0 and progress is None and not self._draws
        self._bar: Progress | None = None
        self._since, self._samples, self._skipped = time.perf_counter(), 0, 0

    @contextlib.contextmanager
    def running(self, first: int, samples: int) -> Iterator[None]:
        """Draw the bar inside the block, and write everything down at its end."""
        self._since, self._samples = time.perf_counter(), samples
        try:
            if not self._draws:
                yield
                return
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            with Progress(*columns, console=self._console) as self._bar:
                self._task = self._bar.add_task("training", total=self._total, completed=first)
                yield
        finally:
            self.flush()

    def update(self, update: Update, tracker: BatchTracker | None) -> None:
        """Record an update; the tracker starts anew for the next one."""
        self._skipped += not update.is_applied
        if self._bar is not None:
            self._bar.update(self._task, completed=update.number + 1)
        if tracker is None:
            return
        counts = tracker.n_samples_per_dataset
        names = update.bills[-1].names if update.bills else ()
        self._records.add(
            {
                "train/global_rank": self._world.rank,
                STEP: update.number + FIRST_RECORD,
                "train/step_runtime": update.seconds,
                "train/loss": update.loss,
                "train/n_samples_per_dataset": counts,
                "train/dataset_names": {number: names[number] for number in counts if number < len(names)},
            }
        )
        tracker.reset()

    def line(self, update: Update, means: Mapping[str, float], samples: int) -> dict[str, Any]:
        """Write a log line about the updates since the last one."""
        now = time.perf_counter()
        speed = (samples - self._samples) / max(now - self._since, 1e-9)
        self._since, self._samples = now, samples
        values = {
            STEP: update.number,
            "train/loss": means.get(ALL),
            **{f"train/loss/{name}": mean for name, mean in means.items() if name != ALL},
            "train/learning_rate": update.learning_rate,
            "train/epoch": update.bills[-1].epoch,
            "train/samples": samples,
            "train/samples_per_second": speed,
            "train/skipped": self._skipped,
        }
        self._skipped = 0
        self.note(values)
        if self._bar is not None:
            self._bar.update(self._task, description=f"training · loss {means.get(ALL, float('nan')):.4g}")
        if self._prints:  # a file or a pipe: no bar, but the losses
            loss, rate = means.get(ALL, float("nan")), update.learning_rate
            text = f"update {update.number + 1}/{self._total}  loss {loss:.4g}  lr {rate:.3g}  {speed:.4g} samples/s"
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        return values

    def note(self, values: Mapping[str, Any]) -> None:
        """Write a line of any content to the log."""
        if self._world.rank == 0:
            self._lines.add(values)
            self._lines.flush()

    def flush(self) -> None:
        """Write down what waits."""
        self._records.flush()
        self._lines.flush()
