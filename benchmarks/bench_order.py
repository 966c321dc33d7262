"""The order: nanoseconds an index, compiled and plain, beside torch's and NumPy's permutations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from benchmarks.measure import case, interleaved

from lading.order import Plan
from lading.order.permutation import Permutation
from lading.runtime import compiled

BLOCK = 1024
REPEATS = 200


def plain(call: Any) -> Any:
    """Return a call that runs without compiled kernels."""

    def run() -> None:
        real = compiled.enabled
        compiled.enabled = lambda: False  # type: ignore[assignment]
        try:
            call()
        finally:
            compiled.enabled = real

    return run


def cases() -> Iterable[dict[str, Any]]:
    """Measure permutations of several sizes, and bills."""
    for n in (10**6, 10**8, 10**12):
        permutation = Permutation(n, (1, 2))
        positions = np.arange(BLOCK) + n // 2

        def blocks(call: Any = permutation, x: Any = positions, repeats: int = REPEATS) -> None:
            for _ in range(repeats):
                call(x)

        ways = {
            "compiled": blocks,
            "inverse": lambda p=permutation, x=positions: blocks(p.inverse, x),
            "plain": plain(lambda p=permutation, x=positions: blocks(p, x, REPEATS // 10)),
        }
        if n <= 10**6:
            ways["torch"] = lambda n=n: torch.randperm(n)
        times = interleaved(ways, rounds=5)
        per_index = {k: v / (REPEATS * BLOCK) * 1e9 for k, v in times.items()}
        per_index["plain"] *= 10
        peer = times["torch"] / n * 1e9 if "torch" in times else None
        for way, limit in (("compiled", 60), ("inverse", 60), ("plain", 600)):
            yield case(
                f"permutation of {n:.0e}, {way}", per_index[way], peer, "ns/index", higher_is_better=False,
                at_most=limit, holds=per_index[way] <= limit,
            )  # fmt: skip
    plan = Plan.make({"a": 4 * 10**11, "b": 6 * 10**11}, BLOCK)
    times = interleaved({"bill": lambda: [plan.bill(9 * 10**8 + i) for i in range(50)]})
    yield case(
        "plan.bill of 1 024 in 1e12", times["bill"] / 50 * 1e6, None, "us", higher_is_better=False, at_most=1000,
        holds=times["bill"] / 50 < 1e-3,
    )  # fmt: skip
