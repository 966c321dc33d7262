"""Assembling batches and resuming, beside torch's DataLoader and torchdata's StatefulDataLoader."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch
from benchmarks.measure import case, interleaved
from torch.utils.data import DataLoader, Dataset

from lading.loader.torch.loader import Loader
from lading.source.columns import Columns

ROWS, WIDTH, NEGATIVES = 100_000, 384, 8
SAMPLES = 60_000  # taken by each way in each round


class PerSample(Dataset):
    """The dataset people write: a dict of rows."""

    def __init__(self, columns: dict[str, torch.Tensor]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


class Batched(PerSample):
    """The same with a hand-written ``__getitems__``: the best a DataLoader can do."""

    def __getitems__(self, indices: list[int]) -> dict[str, torch.Tensor]:
        rows = torch.tensor(indices)
        return {name: column.index_select(0, rows) for name, column in self.columns.items()}


def columns() -> dict[str, torch.Tensor]:
    """Return rows of about the size of a JASPER sample."""
    wide = {name: torch.randn(ROWS, WIDTH) for name in ("question", "target", "steering")}
    scalars = {name: torch.randn(ROWS) for name in ("relevance", "distance", "a", "b")}
    return {**wide, "negatives": torch.randn(ROWS, NEGATIVES // 2, WIDTH), **scalars}


def consume(loader: Any, batches: int) -> None:
    """Take some batches."""
    for _ in islice(loader, batches):
        pass


def as_it_is(batch: Any) -> Any:
    """Collate nothing."""
    return batch


def cases() -> Iterable[dict[str, Any]]:
    """Measure throughput at three batch sizes, then resume."""
    data = columns()
    for size in (64, 256, 1024):
        batches = SAMPLES // size
        rows = torch.randint(0, ROWS, (batches, size))
        out = {name: torch.empty((size, *c.shape[1:])) for name, c in data.items()}

        def limit(rows: Any = rows, out: Any = out, batches: int = batches) -> None:
            for k in range(batches):
                for name, column in data.items():
                    torch.index_select(column, 0, rows[k], out=out[name])

        ways = {
            "lading": lambda n=batches, s=size: consume(Loader(Columns(**data), s), n),
            "per sample": lambda n=batches, s=size: consume(DataLoader(PerSample(data), s, shuffle=True), n),
            "__getitems__": lambda n=batches, s=size: consume(
                DataLoader(Batched(data), s, shuffle=True, collate_fn=as_it_is), n
            ),
            "limit": limit,
        }
        rates = {name: batches * size / seconds for name, seconds in interleaved(ways, rounds=5).items()}
        floors = {"per sample": 6 if size == 256 else None}
        for peer in ("per sample", "__getitems__", "limit"):
            label = {"limit": "bare index_select"}.get(peer, f"DataLoader {peer}")
            yield case(
                f"columns, batch {size}, beside {label}", rates["lading"], rates[peer], "samples/s",
                higher_is_better=True, floor=floors.get(peer),
            )  # fmt: skip
    yield from resume_cases()


class Numbers(Dataset):
    """A cheap map-style dataset, long enough for 100 000 batches."""

    def __len__(self) -> int:
        return 6_400_000

    def __getitem__(self, index: int) -> int:
        return index


def first_batch(loader: Any, state: Any) -> float:
    """Return the milliseconds from a fresh loader to its first batch after loading a state."""
    start = time.perf_counter()
    loader.load_state_dict(state)
    next(iter(loader))
    return (time.perf_counter() - start) * 1e3


def resume_cases() -> Iterable[dict[str, Any]]:
    """Measure the first batch at batch 0 and after batch 100 000."""
    states = []
    for step in (0, 100_000):
        loader = Loader(Numbers(), 64)
        loader.plan  # noqa: B018
        loader.move_to(step)
        states.append(loader.state_dict())
    times: list[list[float]] = [[], []]
    for _ in range(15):
        for k, state in enumerate(states):
            times[k].append(first_batch(Loader(Numbers(), 64), state))
    start, later = (sorted(t)[len(t) // 2] for t in times)
    peer = stateful_later()
    yield case(
        "first batch resumed at batch 100 000", later, peer, "ms", higher_is_better=False, at_0=start,
        holds=later - start < 2,
    )  # fmt: skip


def stateful_later() -> float | None:
    """Return the same for torchdata's StatefulDataLoader, where it is installed."""
    try:
        from torchdata.stateful_dataloader import StatefulDataLoader
    except ImportError:
        return None
    steps = 2_000  # its cost grows with the step: measured at 2 000 and scaled
    loader = StatefulDataLoader(Numbers(), batch_size=64, shuffle=True)
    for _ in islice(loader, steps):
        pass
    state = loader.state_dict()
    at_0 = first_batch(
        StatefulDataLoader(Numbers(), batch_size=64, shuffle=True),
        StatefulDataLoader(Numbers(), batch_size=64, shuffle=True).state_dict(),
    )
    at_steps = first_batch(StatefulDataLoader(Numbers(), batch_size=64, shuffle=True), state)
    return at_0 + (at_steps - at_0) * 100_000 / steps
