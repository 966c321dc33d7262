"""CPU seconds of the command line on a run of 600 steps, and of ``import lading``."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from lading import Ledger, NumpyLoader

ROUNDS = 7
VERBS = {
    "show": ["show", "RUN"],
    "step": ["step", "RUN", "300"],
    "where": ["where", "RUN", "code", "93"],
    "mix": ["mix", "RUN"],
    "verify": ["verify", "RUN"],
}


def cpu_seconds(arguments: list[str]) -> float:
    """Return the CPU time of a process that must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "NO_COLOR": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def record(folder: str) -> None:
    """Record a run of 600 steps."""
    data = {"code": np.zeros(5_000), "prose": np.zeros(15_000)}
    with Ledger(folder) as ledger:
        loader = NumpyLoader(data, 32, weights={"code": 1, "prose": 2}, tracker=ledger)
        for (_, bill), _ in zip(loader.with_bills(), range(600), strict=False):
            ledger.commit(bill, loss=1.0)


def cases() -> Iterable[dict[str, Any]]:
    """Measure each verb, ``--help`` and the import."""
    folder = tempfile.mkdtemp()
    record(folder)
    lading = str(Path(sys.executable).parent / "lading")
    for name, arguments in VERBS.items():
        command = [lading, *(folder if a == "RUN" else a for a in arguments)]
        yield _case(f"lading {name}", [cpu_seconds(command) for _ in range(ROUNDS)])
    yield _case("lading --help", [cpu_seconds([lading, "--help"]) for _ in range(ROUNDS)])
    both = [
        [cpu_seconds([sys.executable, "-c", code]) for code in ("import numpy", "import lading, numpy")]
        for _ in range(ROUNDS)
    ]
    yield _case("import lading over import numpy", [ours - base for base, ours in both])
    shutil.rmtree(folder)


def _case(name: str, seconds: list[float]) -> dict[str, Any]:
    found = {"case": name, "ours": round(median(seconds), 3), "peer": None, "unit": "CPU seconds"}
    return {**found, "low": round(min(seconds), 3), "high": round(max(seconds), 3)}
