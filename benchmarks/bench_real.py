"""Real work: an epoch of JPEG files through two workers, and nanoGPT's batches."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.bench_batches import taking
from benchmarks.measure import beside, spread_case
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from lading import Loader, Windows

PICTURES, SIZE, BLOCK = 500, 256, 1_024


class Pictures(Dataset[Any]):
    """JPEG files, decoded, cut to 224 and turned into tensors."""

    random_free = True

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.files[index]) as image:
            pixels = np.asarray(image.convert("RGB").resize((224, 224)))
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy()), index % 10


def cases() -> Iterable[dict[str, Any]]:
    """Measure whole epochs, workers started anew as a script does, and batches of tokens."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        yield from jpeg_epoch(Path(folder))
        yield from nanogpt(Path(folder))


def jpeg_epoch(folder: Path) -> Iterable[dict[str, Any]]:
    """Yield the milliseconds of an epoch."""
    draw = np.random.default_rng(0)
    smooth = draw.integers(0, 255, (PICTURES, 16, 16, 3), dtype=np.uint8)
    files = [folder / f"{number}.jpg" for number in range(PICTURES)]
    for file, pixels in zip(files, smooth, strict=True):
        Image.fromarray(pixels).resize((SIZE, SIZE)).save(file, quality=90)
    pictures = Pictures(files)

    def epoch(make: Callable[[], Any]) -> Callable[[], float]:
        def way() -> float:
            start = time.perf_counter()
            seen = sum(len(labels) for _, labels in make())
            assert seen == PICTURES
            return (time.perf_counter() - start) * 1e3

        return way

    ways = {
        "ours": epoch(lambda: Loader(pictures, 64, num_workers=2)),
        "peer": epoch(lambda: DataLoader(pictures, 64, shuffle=True, num_workers=2)),
    }
    yield spread_case("JPEG epoch, two workers", beside(ways, 7), "ms an epoch")


def nanogpt(folder: Path) -> Iterable[dict[str, Any]]:
    """Yield batches of random windows, as nanoGPT's ``get_batch`` makes them."""
    path = folder / "train.bin"
    np.random.default_rng(0).integers(0, 50_257, 20_000_000, dtype=np.uint16).tofile(path)

    def get_batch(size: int) -> Iterable[Any]:
        while True:
            data = np.memmap(path, dtype=np.uint16, mode="r")  # made anew each time, as nanoGPT does
            places = torch.randint(len(data) - BLOCK, (size,))
            x = torch.stack([torch.from_numpy(data[i : i + BLOCK].astype(np.int64)) for i in places])
            y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + BLOCK].astype(np.int64)) for i in places])
            yield x, y

    for size in (1, 12, 64):
        us = beside(
            {
                "ours": taking(lambda s=size: Loader(Windows(path, BLOCK, at="random"), s), 250),
                "peer": taking(lambda s=size: get_batch(s), 250),
            },
            7,
        )
        yield spread_case(f"nanoGPT, batch {size}, beside get_batch", us, "us a batch")
