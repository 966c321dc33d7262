"""JASPER batches beside a per-sample DataLoader and bare gathers; a mapped pass; the builder.

per sample   DataLoader over the same dataset, __getitem__ and default collate
lean         the same with rows as views, no draws, no checks             as little as a sample can cost
limit        index_select into ready buffers, one thread                what the machine can do
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.measure import case, interleaved
from torch.utils.data import DataLoader, Dataset

from lading.kits.jasper import create_loader
from lading.kits.jasper.build.builder import build_jasper_dataset
from lading.kits.jasper.build.write import write_directory
from lading.kits.jasper.dataset import JASPERSteeringDataset
from lading.kits.jasper.inspect import faults

PAIRS, QUESTIONS, SOURCES, KEYWORDS, CLUSTERS = 200_000, 60_000, 100_000, 1_000, 64
DIMENSIONS, NEGATIVES, BATCH, SMALL = 384, 8, 256, 32
ROUNDS, BATCHES, PEER_BATCHES = 11, 150, 12  # many short rounds: other work on the machine hits all alike
BUILD_PAIRS, BUILD_TEXTS = 100_000, 40_000


class Lean(Dataset[dict[str, Any]]):
    """One row at a time, as lean as Python allows: views, one variant, no checks, no draws."""

    def __init__(self, tables: JASPERSteeringDataset) -> None:
        self.tables, self.pairs = tables, tables.pair_numbers.tolist()
        self.index = tables.pair_index.tolist()

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> dict[str, Any]:
        tables, pair = self.tables, self.pairs[index]
        question, source = self.index[pair]
        return {
            "question_emb": tables.question_embs[question],
            "target_source_emb": tables.source_embs[source],
            "steering": tables.steering_centroid[pair],
            "negative_embs": tables.source_embs[tables.hard_negatives[pair]],
            "cluster_id": tables.pair_cluster_id[pair],
            "relevance": tables.pair_relevance[pair],
            "centroid_distance": tables.centroid_distances[pair],
            "steering_variant": 1,
            "negative_tiers": tables.negative_tiers[pair],
        }


class BareGather:
    """The same bytes by ``index_select`` into buffers that are ready: no allocation, no names, no draws."""

    def __init__(self, tables: JASPERSteeringDataset) -> None:
        self.tables = tables
        self.rows = [torch.empty(BATCH, DIMENSIONS) for _ in range(3)]
        self.negatives = torch.empty(BATCH * NEGATIVES, DIMENSIONS)
        self.ids = torch.empty(BATCH, NEGATIVES, dtype=torch.int64)
        self.questions = tables.pair_index[:, 0].contiguous()
        self.sources = tables.pair_index[:, 1].contiguous()

    def __call__(self, pairs: torch.Tensor) -> None:
        tables = self.tables
        torch.index_select(tables.question_embs, 0, self.questions[pairs], out=self.rows[0])
        torch.index_select(tables.source_embs, 0, self.sources[pairs], out=self.rows[1])
        torch.index_select(tables.steering_centroid, 0, pairs, out=self.rows[2])
        torch.index_select(tables.hard_negatives, 0, pairs, out=self.ids)
        torch.index_select(tables.source_embs, 0, self.ids.view(-1), out=self.negatives)


def cases() -> Iterator[dict[str, Any]]:
    """Yield every case."""
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as directory:
        path = _directory(Path(directory) / "large")
        torch.set_num_threads(1)
        try:
            yield from _batches(path)
            yield _small(path)
        finally:
            torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as directory:
        yield _build(Path(directory) / "built")


def _batches(path: Path) -> Iterator[dict[str, Any]]:
    ahead, loader = create_loader(path, "train", BATCH), create_loader(path, "train", BATCH)
    loader.prefetch = 0  # like the limit, in one thread
    tables = loader.dataset_obj
    peer = DataLoader(tables, batch_size=BATCH, shuffle=True)
    lean = DataLoader(Lean(tables), batch_size=BATCH, shuffle=True)
    bare = BareGather(tables)
    orders = [torch.from_numpy(np.random.default_rng(i).integers(0, PAIRS, BATCH)) for i in range(BATCHES)]
    numbers = [order.numpy() for order in orders]
    rates: dict[str, list[float]] = {"ours": [], "ahead": [], "take": [], "per sample": [], "lean": [], "limit": []}
    for _ in range(ROUNDS):
        rates["ahead"].append(_rate(lambda: _exhaust(ahead, BATCHES), BATCHES))
        rates["ours"].append(_rate(lambda: _exhaust(loader, BATCHES), BATCHES))
        rates["take"].append(_rate(lambda: _each(tables.take, numbers), BATCHES))
        rates["per sample"].append(_rate(lambda: _exhaust(peer, PEER_BATCHES), PEER_BATCHES))
        rates["lean"].append(_rate(lambda: _exhaust(lean, PEER_BATCHES), PEER_BATCHES))
        rates["limit"].append(_rate(lambda: _each(bare, orders), BATCHES))
    sizes = f"{PAIRS} pairs, {DIMENSIONS} dimensions, {NEGATIVES} negatives, batches of {BATCH}"
    yield _case(f"jasper loader / per sample: {sizes}", rates["ours"], rates["per sample"], 6.0)
    yield _case(f"jasper loader / bare index_select: {sizes}", rates["ours"], rates["limit"], 0.6)
    yield _case(f"jasper loader / lean samples: {sizes}", rates["ours"], rates["lean"], None)
    yield _case(f"jasper loader, ahead in a thread / per sample: {sizes}", rates["ahead"], rates["per sample"], 6.0)
    yield _case(f"jasper take / bare index_select: {sizes}", rates["take"], rates["limit"], 0.6)


def _small(path: Path) -> dict[str, Any]:
    """A batch of 32 in under 5 ms is what the founding document asks for."""
    loader = create_loader(path, "train", SMALL)
    peer = DataLoader(loader.dataset_obj, batch_size=SMALL, shuffle=True)
    seconds = interleaved(
        {"ours": lambda: _exhaust(loader, PEER_BATCHES), "peer": lambda: _exhaust(peer, PEER_BATCHES)}
    )
    ours, theirs = (round(1e3 * seconds[way] / PEER_BATCHES, 3) for way in ("ours", "peer"))
    return case(f"jasper loader, a batch of {SMALL}", ours, theirs, "ms/batch", higher_is_better=False)


def _build(path: Path) -> dict[str, Any]:
    random = np.random.default_rng(0)
    centers = random.normal(size=(CLUSTERS, DIMENSIONS))

    def vectors(count: int) -> np.ndarray:
        return (centers[random.integers(0, CLUSTERS, count)] + random.normal(size=(count, DIMENSIONS))).astype(
            np.float32
        )

    pairs = [
        (int(q), int(s), 0.5, [int(s) % KEYWORDS, int(q) % KEYWORDS])
        for q, s in zip(
            random.integers(0, BUILD_TEXTS, BUILD_PAIRS), random.integers(0, BUILD_TEXTS, BUILD_PAIRS), strict=True
        )
    ]
    given = vectors(BUILD_TEXTS), vectors(BUILD_TEXTS), vectors(KEYWORDS)
    start = time.perf_counter()
    build_jasper_dataset(path, pairs, *given, n_neg=NEGATIVES, n_clusters=CLUSTERS)
    seconds = time.perf_counter() - start
    assert faults(path) == []
    case = f"jasper build {BUILD_PAIRS} pairs of {BUILD_TEXTS} questions and sources / limit"
    return {
        "case": case,
        "ours": round(seconds, 1),
        "peer": None,
        "unit": "s",
    }


def _case(name: str, ours: list[float], peer: list[float], floor: float | None) -> dict[str, Any]:
    """Return medians, and the median of the rounds' ratios."""
    return {
        "case": name,
        "ours": round(statistics.median(ours)),
        "peer": round(statistics.median(peer)),
        "unit": "samples/s",
        "ratio": round(statistics.median(a / b for a, b in zip(ours, peer, strict=True)), 2),
        "floor": floor,
    }


def _rate(work: Callable[[], None], batches: int) -> float:
    start = time.perf_counter()
    work()
    return batches * BATCH / (time.perf_counter() - start)


def _each(work: Callable[[Any], Any], orders: list[Any]) -> None:
    for order in orders:
        work(order)


def _exhaust(loader: Any, batches: int) -> None:
    for _ in itertools.islice(loader, batches):
        pass


def _directory(path: Path) -> Path:
    """Write random tables; what they mean does not matter here."""
    random = torch.Generator().manual_seed(0)

    def floats(rows: int) -> torch.Tensor:
        return torch.randn(rows, DIMENSIONS, generator=random)

    def ints(high: int, *shape: int, low: int = 0) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=random)

    tables = {
        "question_embs": floats(QUESTIONS),
        "source_embs": floats(SOURCES),
        "keyword_embs": floats(KEYWORDS),
        "centroid_embs": floats(CLUSTERS),
        "pair_index": torch.stack([ints(QUESTIONS, PAIRS), ints(SOURCES, PAIRS)], dim=1),
        "pair_cluster_id": ints(CLUSTERS, PAIRS),
        "pair_relevance": torch.rand(PAIRS, generator=random),
        "hard_negatives": ints(SOURCES, PAIRS, NEGATIVES),
        "negative_tiers": ints(5, PAIRS, NEGATIVES, low=1),
        "steering_centroid": floats(PAIRS),
        "steering_keyword_weighted": floats(PAIRS),
        "steering_residual": floats(PAIRS),
        "centroid_distances": torch.rand(PAIRS, generator=random) * 2,
        "train_idx": torch.arange(PAIRS),
        "val_idx": torch.arange(10),
        "test_idx": torch.arange(10),
    }
    config = {"embedding_dim": DIMENSIONS, "n_neg": NEGATIVES}
    write_directory(path, config, tables, [[] for _ in range(PAIRS)])
    return path


if __name__ == "__main__":
    for case in cases():
        print(case)
