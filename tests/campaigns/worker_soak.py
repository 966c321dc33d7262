"""Soak of the workers: a mixture through two of them into a ledger, at full speed; workers and parents are killed.

    python -m tests.campaigns.worker_soak SECONDS [SEED]      prints the figures as one JSON line

A trainer runs in legs of some seconds. Each leg resumes where the last one stopped. Its loops end as loops do: at the
end of an epoch, broken off, or because a worker was killed with ``kill -9``. After each leg nothing may be left:
processes, threads, descriptors, mapped slots. While it runs, memory of parent and workers is measured. Beside it other
trainers are killed with ``kill -9``, and their workers must end.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from lading.errors import WorkerError
from lading.ledger import Ledger
from lading.loader.torch.loader import Loader
from lading.source.columns import Columns

BATCH, ROWS = 64, 60_000
WARM_UP = 0.25  # share of the time after which memory must be flat
PARENT_EVERY = 20.0  # seconds between two killed parents
# A busy machine does little in a second: a trainer goes on until it has done this much.
LEAST_LEGS, LEAST_BATCHES = 8, 20
ALLOCATOR = "jemalloc_bg_thd"  # a thread of Arrow's memory that begins when it likes
KINDS = ("columns", "samples")
KINDS_OF_MEMORY = ("Pss_Anon", "Pss_Shmem")  # a page that parent and workers share counts once among them
SEGMENTS = "segments with a name"  # whoever is killed leaves those behind


class Texts(Dataset[Any]):
    """Samples that travel inside the pickle stream, of sizes that differ, made with random numbers."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return a sample."""
        return {"x": torch.rand(16), "text": "é" * random.randrange(40)}


class Rows(Texts):
    """Samples of the same keys with an empty text."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return a sample."""
        return {"x": torch.full((16,), float(index)), "text": ""}


def sources(kind: int) -> dict[str, Any]:
    """Return a mixture: of columns, or of samples."""
    if kind % 2:
        return {"texts": Texts(), "rows": Rows()}
    return {name: Columns(x=np.full((ROWS, 16), k, np.float32)) for k, name in enumerate(("texts", "rows"))}


def children(process: int) -> list[int]:
    """Return the child processes of a process."""
    found = Path(f"/proc/{process}/task").glob("*/children")
    return [int(pid) for path in found for pid in path.read_text().split()]


def memory(process: int) -> int:
    """Return the bytes of a process that are not of a file: its own, and shared."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.split(":")[0] in KINDS_OF_MEMORY)


def segments(process: int) -> int:
    """Return how many shared segments with a name a process has mapped."""
    try:
        return Path(f"/proc/{process}/maps").read_text().count("/dev/shm/")
    except OSError:
        return 0


def left() -> dict[str, int]:
    """Return what a process holds: children, threads, descriptors, mapped slots."""
    gc.collect()
    here = Path("/proc/self")
    return {
        "processes": len(children(os.getpid())),
        "threads": sum(name.read_text().strip() != ALLOCATOR for name in here.glob("task/*/comm")),
        "descriptors": len(list((here / "fd").iterdir())),
        "slots": (here / "maps").read_text().count("lading-slot"),
    }


def is_running(process: int) -> bool:
    """Say whether a process runs."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Trainer:
    """Train in legs until the time is over.

    Args:
        folder: For the runs: one of columns, one of samples.
        seed: Of the dice.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.ledgers = [Ledger(folder / f"run{kind}") for kind in range(2)]
        self.states: list[Any] = [None, None]
        self.figures: Counter[str] = Counter()

    def leg(self, number: int, seconds: float) -> int:
        """Train for some seconds; return the most memory seen."""
        kind, persistent = number % 2, number // 2 % 2 == 1
        loader = Loader(
            sources(kind), BATCH, weights=[2, 1], num_workers=2, persistent_workers=persistent,
            tracker=self.ledgers[kind], prefetch_factor=self.dice.randint(1, 4),
        )  # fmt: skip
        if self.states[kind] is not None:
            loader.load_state_dict(self.states[kind])
        ends, most = time.monotonic() + seconds, 0
        while time.monotonic() < ends:
            try:
                most = max(most, self.epoch(loader, kind, ends))
            except WorkerError as error:
                if "was killed by SIGKILL" not in str(error):
                    raise
                self.figures["killed workers"] += 1
        self.states[kind] = loader.state_dict()
        return most

    def epoch(self, loader: Loader, kind: int, ends: float) -> int:
        """Train for an epoch or a part of it; return the most memory seen."""
        stop, kills = self.dice.choice([1 << 40, 1 << 40, self.dice.randrange(1, 900)]), self.dice.random() < 0.2
        most = 0
        for number, (batch, bill) in enumerate(loader.with_bills()):
            assert batch["x"].shape == (len(bill), 16)
            self.ledgers[kind].commit(bill, loss=float(number))
            self.figures["batches"] += 1
            if number % 200 == 0:
                workers = children(os.getpid())
                most = max(most, sum(map(memory, [os.getpid(), *workers])))
                self.figures[SEGMENTS] += sum(map(segments, [os.getpid(), *workers]))
                if kills and number and workers:
                    os.kill(self.dice.choice(workers), signal.SIGKILL)
                    kills = False
            if number == stop or (time.monotonic() > ends and number >= LEAST_BATCHES):
                self.figures["broken off"] += 1
                break
        else:
            self.figures["epochs"] += 1
        return most


def train(folder: Path, seconds: float, seed: int) -> dict[str, Any]:
    """Run a trainer; return memory and leftovers of every leg."""
    torch.set_num_threads(1)
    trainer, ends, legs = Trainer(folder, seed), time.monotonic() + seconds, []
    length = min(5.0, seconds / 8)
    while time.monotonic() < ends or len(legs) < LEAST_LEGS:
        most = trainer.leg(len(legs), length)
        legs.append({"memory": most, **left()})
    for ledger in trainer.ledgers:
        ledger.close()
    return {"legs": legs, "figures": trainer.figures}


def start(folder: Path, seconds: float, seed: int) -> subprocess.Popen[str]:
    """Start a trainer in a process of its own."""
    command = [sys.executable, "-m", "tests.campaigns.worker_soak", "--train", str(folder), str(seconds), str(seed)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def kill_parent(folder: Path, seed: int) -> bool:
    """Start a trainer, kill it once it has workers; say whether they ended soon."""
    trainer = start(folder, 60.0, seed)
    while len(workers := children(trainer.pid)) < 2:
        assert trainer.poll() is None
        time.sleep(0.05)
    time.sleep(random.Random(seed).random())
    workers = children(trainer.pid) or workers
    trainer.kill()
    trainer.communicate()
    ends = time.monotonic() + 120
    while any(map(is_running, workers)) and time.monotonic() < ends:
        time.sleep(0.05)
    return not any(map(is_running, workers))


def soak(home: Path, seconds: float, seed: int) -> dict[str, Any]:
    """Run the soak; return its figures: memory in bytes, least and most of what was left after a leg."""
    trainer, ends, parents = start(home / "long", seconds, seed), time.monotonic() + seconds, []
    while not parents or (time.monotonic() + PARENT_EVERY < ends and trainer.poll() is None):
        parents.append(kill_parent(home / f"killed{len(parents)}", seed + len(parents)))
        time.sleep(max(0.0, min(PARENT_EVERY, ends - time.monotonic())))
    found = json.loads(trainer.communicate()[0].splitlines()[-1])
    assert trainer.returncode == 0
    legs = found["legs"]
    warm = int(len(legs) * WARM_UP) // 2 * 2
    kept = {name: [leg[name] for leg in legs[1:]] for name in ("processes", "threads", "descriptors", "slots")}
    return {
        **found["figures"],
        "legs": len(legs),
        "killed parents": len(parents),
        "parents whose workers stayed": parents.count(False),
        "memory": {name: _range([leg["memory"] for leg in legs[warm + k :: 2]]) for k, name in enumerate(KINDS)},
        "left": {name: [min(values), max(values)] for name, values in kept.items()},
    }


def _range(values: list[int]) -> dict[str, int]:
    return {"first": values[0], "last": values[-1], "lowest": min(values), "highest": max(values)}


def faults(found: dict[str, Any], growth: int = 50_000_000) -> list[str]:
    """Return what must not be: memory that grows, and anything that is left behind."""
    wrong = [f"{name}: {found.get(name)}" for name in ("parents whose workers stayed", SEGMENTS) if found.get(name)]
    wrong += [f"memory of {k}: {m}" for k, m in found["memory"].items() if m["highest"] - m["lowest"] > growth]
    wrong += [f"{name} between {low} and {high}" for name, (low, high) in found["left"].items() if high > low]
    wrong += [f"{name}: {found['left'][name]}" for name in ("processes", "slots") if found["left"][name][1]]
    return wrong


def main() -> None:
    """Run a soak, or be one of its trainers."""
    if sys.argv[1] == "--train":
        print(json.dumps(train(Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))), flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="lading-soak-") as home:
        found = soak(Path(home), float(sys.argv[1]), int((*sys.argv[2:], "1")[0]))
    print(json.dumps({**found, "faults": faults(found)}), flush=True)
    sys.exit(bool(faults(found)))


if __name__ == "__main__":
    main()
