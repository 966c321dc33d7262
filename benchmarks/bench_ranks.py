"""Eight rows a rank of four datasets: the global batch grows with the ranks, a rank's batch must not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from benchmarks.bench_batches import taking
from benchmarks.bench_books import more
from benchmarks.measure import alone, beside

from lading import Loader, World

ROWS_A_RANK, RANKS = 8, (1, 64, 1024, 125_000)  # the last: a global batch of a million


def cases() -> Iterable[dict[str, Any]]:
    """Measure one rank's batches, drawn by weight and shuffled together."""
    sources = {
        f"d{k}": np.zeros((20_000_000 + k, 4), dtype=np.float32) for k in range(4)
    }  # pages that are never written
    for kind, weights in (("drawn by weight", [4.0, 3.0, 2.0, 1.0]), ("shuffled together", None)):

        def one(ranks: int, weights: Any = weights) -> Loader:
            return Loader(sources, ROWS_A_RANK, weights=weights, world=World(ranks // 2, ranks))

        us = beside({str(n): taking(lambda n=n: one(n), 70) for n in RANKS}, 7)
        for ranks in RANKS:
            found, first = us[str(ranks)], us["1"]
            sizes = {"low": round(found.low, 1), "high": round(found.high, 1), "growth": found.median / first.median}
            name = f"{ROWS_A_RANK} rows a rank, four datasets {kind}"
            yield alone(f"{name}, {ranks} ranks", round(found.median, 1), "us a batch", **sizes)
            if ranks >= 1024:
                both = list(found.rounds), list(first.rounds)
                yield more(f"{name}, from 1 to {ranks} ranks, more", *both, "us a batch", "the same of one rank, ours")
