"""Chunks: no cost when off, none to speak of when on; any chunk of any dataset at once; audio read by windows."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from benchmarks.measure import case, interleaved
from torch.utils.data import DataLoader, Dataset, TensorDataset

from lading import Chunks, GrowWhileImproving, LearningValue, Ledger
from lading.kits.chunked.audio.soundfile import ClipReader, probe
from lading.loader.torch.chunked import ChunkedDataLoader
from lading.loader.torch.loader import Loader
from lading.order.chunked_sampler import ChunkedSampler

SAMPLES, BATCH, CHUNK = 20_000, 64, 50
READ_SECONDS, TRAIN_SECONDS, VALIDATION_SECONDS, BORDERS = 0.1e-3, 2e-3, 30e-3, 15
WINDOWS, WINDOW, RATE = 300, 1600, 16_000


def cases() -> Iterable[dict[str, Any]]:
    """Measure loaders, the sampler and audio."""
    yield from loaders()
    yield sampler()
    yield from borders()
    yield from audio()


def loaders() -> Iterable[dict[str, Any]]:
    """A pass over the data: torch's loader, the chunked one without chunks, and with them."""
    data = TensorDataset(torch.zeros(SAMPLES, 64), torch.zeros(SAMPLES))
    plain = DataLoader(data, batch_size=BATCH, shuffle=True)
    off = ChunkedDataLoader(data, BATCH, shuffle=True)
    on = ChunkedDataLoader(data, BATCH, CHUNK)

    def whole_pass() -> None:
        for _ in range(on.total_chunks):
            drain(on)

    ways = {"plain": lambda: drain(plain), "off": lambda: drain(off), "on": whole_pass}
    times = {name: seconds / (SAMPLES / BATCH) * 1e6 for name, seconds in interleaved(ways, rounds=9).items()}
    for name, label in (("off", "chunking off"), ("on", f"chunks of {CHUNK} batches")):
        yield case(label, times[name], times["plain"], "us/batch", higher_is_better=False, floor=0.8)


class Decoded(Dataset[Any]):
    """Samples that take a moment to read."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        end = time.perf_counter() + READ_SECONDS
        while time.perf_counter() < end:
            pass
        return torch.full((64,), float(index))


def borders() -> Iterable[dict[str, Any]]:
    """Wait for the first batch of a chunk, after a validation: read ahead over the border, or by restarted workers.

    What is reported and decided at the border counts as waiting; "adaptive" chooses chunks, resizes them and keeps a
    ledger.
    """
    chunks = {"adaptive": Chunks(8, resize=GrowWhileImproving(least=8, most=16), choose=LearningValue())}
    names = ("ours", "adaptive", "peer")
    loaders = {name: Loader(Decoded(), 16, chunk_batches=chunks.get(name, 8), num_workers=2) for name in names}
    waits: dict[str, list[float]] = {name: [] for name in loaders}
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "run", loaders["adaptive"].plan) as ledger:
        loaders["adaptive"].tracker = ledger
        for number in range(BORDERS + 1):
            for name, loader in loaders.items():
                waited = border(loader, number, restarts=name == "peer")
                waits[name] += [waited] if number else []  # the first chunk starts workers anyway
    peer = statistics.median(waits["peer"]) * 1e3
    for name, what in (("ours", "2 workers"), ("adaptive", "chosen, with a ledger")):
        found, worst = statistics.median(waits[name]) * 1e3, max(waits[name]) * 1e3
        label = f"wait at a chunk's border, {what} (restarted)"
        yield case(label, found, peer, "ms", higher_is_better=False, worst=worst)


def border(loader: Loader, number: int, *, restarts: bool) -> float:
    """Report the chunk before, wait for the first batch of the next one, train on the rest; return the wait."""
    if restarts:
        loader.engine._carrier.drop()  # as it was: workers end with a chunk
    start = time.perf_counter()
    if number:
        loader.validated(1 / number, loss=1 / number)
    batches = iter(loader)
    next(batches)
    waited = time.perf_counter() - start
    for _ in batches:
        time.sleep(TRAIN_SECONDS)
    time.sleep(VALIDATION_SECONDS)
    return waited


def sampler() -> dict[str, Any]:
    """The first chunk of 2000 samples: of 10**12 with arithmetic, of 10**6 with a permutation in memory."""
    ours = ChunkedSampler(10**12, 2000)
    numbers = iter(range(1, 10**6))
    ways = {
        "ours": lambda: ours.get_chunk_indices(next(numbers) * 399),
        "peer": lambda: torch.randperm(10**6)[:2000].tolist(),
    }
    times = interleaved(ways, rounds=15)
    return case(
        "chunk of 2000 among 1e12 (torch.randperm: 1e6)", times["ours"] * 1e3, times["peer"] * 1e3, "ms",
        higher_is_better=False, floor=1.0,
    )  # fmt: skip


def audio() -> Iterable[dict[str, Any]]:
    """Random windows of a minute of audio: sought, against decoding the file for each."""
    order = np.random.default_rng(0).integers(0, 60 * RATE - WINDOW, WINDOWS)
    noise = 0.1 * np.random.default_rng(1).standard_normal(60 * RATE)
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("wav", "flac", "ogg"):
            path = str(Path(folder) / f"noise.{suffix}")
            soundfile.write(path, noise, RATE)
            clip, reader = probe(path), ClipReader()

            def windows(clip: Any = clip, reader: Any = reader) -> None:
                for start in order:
                    reader.read(clip, int(start), WINDOW)

            def decoding(path: str = path) -> None:
                for start in order[:10]:
                    soundfile.read(path)[0][start : start + WINDOW]

            times = interleaved({"ours": windows, "peer": decoding}, rounds=3)
            per_window = {"ours": times["ours"] / WINDOWS * 1e3, "peer": times["peer"] / 10 * 1e3}
            yield case(f"audio windows, {suffix}", *per_window.values(), "ms/window", higher_is_better=False, floor=3.0)


def drain(loader: Iterable[Any]) -> None:
    """Take every batch of one iteration."""
    for _ in loader:
        pass
