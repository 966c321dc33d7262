"""Milliseconds to the first batch at batch 0 and at batch 100 000, beside others; checked to be the right batch."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from accelerate import skip_first_batches
from benchmarks.measure import case
from torch.utils.data import DataLoader, Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

from lading import Loader

BATCH, LATER = 64, 100_000
ROUNDS, FEW = 9, 2
ELSEWHERE = Path(__file__).parents[1] / ".venv-mds" / "bin" / "python"


class Numbers(Dataset[Any]):
    """A cheap dataset, long enough for 100 000 batches."""

    def __init__(self, batch: int = BATCH) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return self.batch * (LATER + 1)

    def __getitem__(self, index: int) -> int:
        return int(index)


def ms(first_batch: Callable[[], Any], rounds: int) -> float:
    """Return the milliseconds of a call, the median of some."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        first_batch()
        times.append((time.perf_counter() - start) * 1e3)
    return median(times[1:])


def ours(step: int, workers: int = 0, batch: int = BATCH) -> float:
    """Return our time; the batch must be the plan's."""
    known = Loader(Numbers(batch), batch)
    known.plan  # noqa: B018  # made at first use
    known.move_to(step)
    state, expected = known.state_dict(), known.plan.bill(step).idx.tolist()

    def first_batch() -> None:
        loader = Loader(Numbers(batch), batch, num_workers=workers)
        loader.load_state_dict(state)
        assert next(iter(loader)).tolist() == expected

    return ms(first_batch, FEW if workers else ROUNDS)


def of_accelerate(step: int) -> float:
    """Return the time of Accelerate, which draws the order again and skips."""
    return ms(lambda: next(iter(skip_first_batches(DataLoader(Numbers(), BATCH, shuffle=True), step))), FEW)


def of_torchdata(step: int, workers: int = 0) -> float:
    """Return the time of StatefulDataLoader: its state after two batches, moved to a step."""

    def loader() -> Any:
        return StatefulDataLoader(Numbers(), batch_size=BATCH, shuffle=True, num_workers=workers)

    begun = loader()
    iterator = iter(begun)
    for _ in islice(iterator, 2):
        pass
    state = moved(begun.state_dict(), step)
    del iterator

    def first_batch() -> None:
        resumed = loader()
        resumed.load_state_dict(state)
        next(iter(resumed))

    return ms(first_batch, FEW)


def moved(state: Any, step: int) -> Any:
    """Return a state of torchdata's at another step: taking it there would mean to load all batches before."""
    places = {"_num_yielded": step, "_snapshot_step": step, "_sampler_iter_yielded": step}
    places |= {"samples_yielded": step * BATCH, "yielded": step * BATCH}
    if not isinstance(state, dict):
        return state
    return {name: places[name] if name in places else moved(value, step) for name, value in state.items()}


def cases() -> Iterable[dict[str, Any]]:
    """Measure every library at both places."""
    torch.set_num_threads(1)
    peers: dict[str, Callable[[int], float]] = {
        "Accelerate": of_accelerate, "StatefulDataLoader": of_torchdata,
    }  # fmt: skip
    for step in (0, LATER):
        mine = ours(step)
        for name, peer in peers.items():
            yield case(named(step, f"beside {name}"), mine, peer(step), "ms", higher_is_better=False)
        two = ours(step, 2), of_torchdata(step, 2)
        yield case(named(step, "2 workers, beside StatefulDataLoader"), *two, "ms", higher_is_better=False)
    for name, times in elsewhere().items():
        for step, theirs in zip((0, LATER), times, strict=True):
            mine = ours(step, batch=1)
            yield case(named(step, f"batches of 1, beside {name}"), mine, theirs, "ms", higher_is_better=False)


def elsewhere() -> dict[str, list[float]]:
    """Return the times of libraries that have an environment of their own, at batch 0 and at the later one.

    Batches of 1, because these libraries read files of their own that take long to write.
    """
    if not ELSEWHERE.exists():
        print("no .venv-mds: make .venv-mds/.made to measure mosaicml-streaming and litdata", file=sys.stderr)
        return {}
    with tempfile.TemporaryDirectory() as folder:
        command = [str(ELSEWHERE), str(Path(__file__).with_name("peers_resume.py")), folder, "1", str(LATER)]
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    found: dict[str, list[float] | str] = json.loads(run.stdout)
    for name, why in found.items():
        if isinstance(why, str):
            print(f"{name} could not be measured: {why}", file=sys.stderr)
    return {name: times for name, times in found.items() if not isinstance(times, str)}


def named(step: int, how: str) -> str:
    """Return the name of a case."""
    return f"first batch at batch {step:_}, {how}".replace("_", " ")
