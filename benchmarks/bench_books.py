"""What keeping books costs, in the forms people write, and what asking them costs; each beside the same without.

    loop      a batch more with a ledger: digests, losses that are floats or tensors, content
    track     a quick DataLoader that is tracked, without and with a run
    Trainer   a step more with ``account`` (a tiny GPT-2)
    opening   a run, beside a file for each that it has to sync
    verify    10^6 steps of 64 samples of 100 datasets; the command line on the same run, beside DuckDB over its parts

``ours`` of a case "more" is the median of what each round took longer than the peer beside it, ``low`` and ``high`` the
least and the most; ``ratio`` and ``spread`` compare whole batches. About five minutes on a quiet machine:
``python -m benchmarks.run books startup``.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.simulated_ledger import unsynced
from torch.utils.data import DataLoader, Dataset

from lading import Ledger, Loader, open_run, track
from lading.identity.hashing import as_signed
from lading.ledger.rows import Rows
from lading.order import Plan
from lading.report.planned import expected_digests

ROWS = 100_000
STEPS = 1_000_000
ROUNDS = 9
NEW = count()


def cases() -> Iterable[dict[str, Any]]:
    """Measure them all."""
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    try:
        yield from loop_cases(folder)
        yield from track_cases(folder)
        yield from trainer_case(folder)
        yield opening_case(folder)
        yield from long_run_cases(folder / "long")
    finally:
        shutil.rmtree(folder)


def in_turns(ways: dict[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Return what each way returned in every round, after one that is not counted."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            found[name] += [way()] if number else [way()][:0]
    return found


def middle_half(values: Iterable[float], digits: int = 2) -> list[float]:
    """Return the lowest and the highest of the middle half."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return [round(ordered[quarter], digits), round(ordered[-1 - quarter], digits)]


def more(name: str, ours: list[float], peer: list[float], unit: str, peer_name: str, digits: int = 1) -> dict[str, Any]:
    """Return how much longer ours takes; both of a round met the same machine."""
    extra = [a - b for a, b in zip(ours, peer, strict=True)]
    ratios = [b / a for a, b in zip(ours, peer, strict=True)]
    return {
        "case": name,
        "ours": round(statistics.median(extra), digits),
        "peer": round(statistics.median(peer), digits),
        "unit": unit,
        "ratio": round(statistics.median(ratios), 3),
        "peer_name": peer_name,
        "low": round(min(extra), digits),
        "high": round(max(extra), digits),
        "spread": middle_half(ratios),
    }


def whole(name: str, ours: list[float], peer: list[float], unit: str, peer_name: str) -> dict[str, Any]:
    """Return what ours takes beside the peer."""
    ratios = [b / a for a, b in zip(ours, peer, strict=True)]
    found = {"case": name, "ours": round(statistics.median(ours), 3), "peer": round(statistics.median(peer), 3)}
    return {
        **found,
        "unit": unit,
        "ratio": round(statistics.median(ratios), 3),
        "peer_name": peer_name,
        "low": round(min(ours), 3),
        "high": round(max(ours), 3),
        "spread": middle_half(ratios),
    }


def taken(batches: Iterable[Any], most: int) -> float:
    """Return the microseconds a batch, the first not counted."""
    iterator = iter(batches)
    next(iterator)
    start = time.perf_counter()
    number = sum(1 for _ in islice(iterator, most))
    return (time.perf_counter() - start) / number * 1e6


def loop_cases(folder: Path) -> Iterable[dict[str, Any]]:
    """A loop over an array that commits, beside the loop that does not."""
    array = np.random.default_rng(0).random((ROWS, 16), dtype=np.float32)
    one = torch.tensor(0.5)

    def recorded(size: int, loss: Callable[[], Any], record: str | None) -> Iterable[Any]:
        with Ledger(folder / f"loop{next(NEW)}", record=record) as ledger:
            for batch, bill in Loader(array, size, tracker=ledger).with_bills():
                ledger.commit(bill, loss=loss())
                yield batch

    def plain(size: int, loss: Callable[[], Any]) -> Iterable[Any]:
        for batch, _ in Loader(array, size).with_bills():
            loss()
            yield batch

    kinds: dict[str, Callable[[], Any]] = {"float": lambda: 0.5, "tensor": lambda: one * 1.0}
    wanted = [(size, kind, None) for size in (64, 256) for kind in kinds] + [(64, "float", "content")]
    for size, kind, record in wanted:
        most = min(1000, ROWS // size - 2)
        ways = {
            "ours": lambda s=size, k=kind, r=record, m=most: taken(recorded(s, kinds[k], r), m),
            "peer": lambda s=size, k=kind, m=most: taken(plain(s, kinds[k]), m),
        }
        found = in_turns(ways)
        name = f"ledger in the loop, {record or 'digest'}, batch {size}, {kind} loss, more"
        yield more(name, found["ours"], found["peer"], "us a batch", "the same loop without a ledger")


class Quick(Dataset[Any]):
    """An array whose batches are one gather."""

    def __init__(self) -> None:
        self._array = torch.randn(ROWS, 16)

    def __len__(self) -> int:
        return ROWS

    def __getitems__(self, indices: list[int]) -> torch.Tensor:
        return self._array[torch.tensor(indices)]


def as_it_is(batch: Any) -> Any:
    """Collate nothing."""
    return batch


def track_cases(folder: Path) -> Iterable[dict[str, Any]]:
    """A DataLoader of quick batches."""
    made = [DataLoader(Quick(), 64, shuffle=True, collate_fn=as_it_is) for _ in range(3)]
    loaders = {"peer": made[0], "without": track(made[1]), "with": track(made[2], run=folder / "tracked")}
    found = in_turns({name: lambda loader=loader: taken(loader, 1000) for name, loader in loaders.items()})
    loaders["with"].close()
    for name in ("without", "with"):
        yield more(f"track, {name} a run, more", found[name], found["peer"], "us a batch", "the DataLoader itself")


def trainer_case(folder: Path) -> Iterable[dict[str, Any]]:
    """A tiny GPT-2 under transformers' Trainer, 120 steps: the processor's time of the median step, all threads.

    The clock's time of a step of 6 ms varies by more than what is looked for.
    """
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    from lading.train.transformers import account

    class Clock(TrainerCallback):
        """Takes the time at the end of each step."""

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            self.ends.append(time.process_time())

        def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            self.ends: list[float] = []

    rows = torch.randint(0, 256, (2048, 64))
    data = [{"input_ids": row, "labels": row} for row in rows]

    def way(*, accounts: bool) -> float:
        config = GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=2)
        arguments = TrainingArguments(
            str(folder / "trainer"), max_steps=120, per_device_train_batch_size=8, report_to=[], save_strategy="no",
            logging_strategy="no", use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        clock = Clock()
        trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=data, callbacks=[clock])
        if accounts:
            account(trainer, folder / f"trainer{next(NEW)}")
        trainer.train()
        return float(np.median(np.diff(clock.ends[20:]))) * 1e6

    found = in_turns({"ours": lambda: way(accounts=True), "peer": lambda: way(accounts=False)}, rounds=7)
    yield more("Trainer with account, more", found["ours"], found["peer"], "us a step", "the Trainer itself")


def opening_case(folder: Path) -> dict[str, Any]:
    """Open a run, beside five files that are synced with their folder."""
    plan = Plan.make({"data": 10_000}, batch_size=64, seed=1)

    def ours() -> float:
        ledger = Ledger(folder / f"opened{next(NEW)}", plan)
        start = time.perf_counter()
        ledger.begin(0)
        seconds = time.perf_counter() - start
        ledger.close()
        return seconds * 1e3

    def peer() -> float:
        start = time.perf_counter()
        for _ in range(5):
            with open(folder / f"file{next(NEW)}", "wb") as file:
                file.write(bytes(1000))
                file.flush()
                os.fsync(file.fileno())
            handle = os.open(folder, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)
        return (time.perf_counter() - start) * 1e3

    found = in_turns({"ours": ours, "peer": peer})
    return whole("opening a run", found["ours"], found["peer"], "ms", "five files, each synced with its folder")


def record_long(path: Path) -> None:
    """Record 10^6 steps as a rank records them, without waiting for the disk."""
    plan = Plan.make({f"d{number}": 1_000_000 for number in range(100)}, batch_size=64, seed=1)
    with unsynced(), Ledger(path, plan) as ledger:
        ledger.begin(0)
        for first in range(0, STEPS, 50_000):
            steps = np.arange(first, first + 50_000)
            digests = expected_digests(plan, steps, {}).tolist()
            rows = [
                (s, s, 0, None, 64 * s, 64, as_signed(d), None, "applied", 2.0, 1_700_000_000_000 + s, None, None, None)
                for s, d in zip(steps.tolist(), digests, strict=True)
            ]
            ledger._writer.put(Rows.add, "batches", rows)
        ledger.flush()


def long_run_cases(path: Path) -> Iterable[dict[str, Any]]:
    """Verify, and the command line."""
    record_long(path)
    scan = f"import duckdb; duckdb.sql(\"SELECT sum(digest), max(loss) FROM '{path}/ledger/*/*/*.parquet'\").fetchall()"
    lading = [sys.executable, "-m", "lading"]
    verbs = {
        "show": [*lading, "show", str(path)],
        "step": [*lading, "step", str(path), "500000"],
        "where": [*lading, "where", str(path), "d7", "93412"],
        "mix": [*lading, "mix", str(path)],
        "peer": [sys.executable, "-c", scan],
    }

    def verified() -> float:
        start = time.perf_counter()
        assert open_run(path).verify().steps == STEPS
        return time.perf_counter() - start

    def ran(command: list[str]) -> float:
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "NO_COLOR": "1"})
        return time.perf_counter() - start

    ways = {"verify": verified, **{name: lambda c=command: ran(c) for name, command in verbs.items()}}
    found = in_turns(ways, rounds=5)
    named = "DuckDB over the same parts, in a process of its own"
    yield whole("verify, 10^6 steps of 64", found["verify"], found["peer"], "s", named)
    for name in ("show", "step", "where", "mix"):
        yield whole(f"lading {name}, 10^6 steps", found[name], found["peer"], "s", named)
