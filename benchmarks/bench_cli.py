"""CPU seconds of the command line on two runs of 600 steps, and of ``import lading``.

The second run is made like the demo's: 4 datasets, chunks, an attempt that ends at step 337 and one that resumes at
325. The environment is taken as it is: where it sets ``PYTHONDONTWRITEBYTECODE``, a hundred files of a work tree are
compiled in every call. An installed package has its bytecode; one case measures ``show`` with it, whatever is set.
"""

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

ROUNDS = 5
VERBS = {
    "show": ["show", "RUN"],
    "step": ["step", "RUN", "300"],
    "where": ["where", "RUN", "code", "93"],
    "mix": ["mix", "RUN"],
    "verify": ["verify", "RUN"],
}


def cpu_seconds(arguments: list[str], bytecode: str | None = None) -> float:
    """Return the CPU time of a process that must answer: with yes, or with no.

    Args:
        arguments: The command.
        bytecode: Folder where compiled files are kept; None: wherever the environment says, or nowhere.
    """
    environment = {**os.environ, "NO_COLOR": "1"}
    if bytecode is not None:
        environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": bytecode}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(arguments, stdout=subprocess.DEVNULL, env=environment)
    if done.returncode > 1:  # 1 is an answer: `where` of a sample that no step used
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def record(folder: str) -> None:
    """Record a run of 600 steps."""
    data = {"code": np.zeros(5_000), "prose": np.zeros(15_000)}
    with Ledger(folder) as ledger:
        loader = NumpyLoader(data, 32, weights={"code": 1, "prose": 2}, tracker=ledger)
        for (_, bill), _ in zip(loader.with_bills(), range(600), strict=False):
            ledger.commit(bill, loss=1.0)


def record_like_the_demo(folder: str) -> None:
    """Record 600 steps of 4 datasets in chunks of 100, in two attempts: 12 steps are rolled back."""
    data = {"code": np.zeros(11_874), "prose": np.zeros(4_340), "notes": np.zeros(2_708), "manual": np.zeros(949)}
    weights = {"code": 0.4, "prose": 0.25, "notes": 0.1, "manual": 0.25}
    state = None
    for stop in (337, 600):
        with Ledger(folder) as ledger:
            loader = NumpyLoader(data, 16, weights=weights, chunk_batches=100, seed=7, tracker=ledger)
            if state is not None:
                loader.load_state_dict(state)
            state = _trained(loader, ledger, stop)


def _trained(loader: NumpyLoader[Any], ledger: Ledger, stop: int) -> dict[str, Any] | None:
    """Train until a step; return the state before step 325."""
    state, step = None, -1
    while step + 1 < stop:
        for _, bill in loader.with_bills():
            step = bill.step
            ledger.commit(bill, update=step, loss=6.0 - step / 200, lr=1e-3)
            if step + 1 == 325:
                state = loader.state_dict()
            if step + 1 == stop:
                break
    return state


def cases() -> Iterable[dict[str, Any]]:
    """Measure each verb, ``--help`` and the import."""
    folder = tempfile.mkdtemp()
    runs = {"": f"{folder}/run", ", a run like the demo's": f"{folder}/demo"}
    record(f"{folder}/run")
    record_like_the_demo(f"{folder}/demo")
    lading = str(Path(sys.executable).parent / "lading")
    for of_what, run in runs.items():
        for name, arguments in VERBS.items():
            command = [lading, *(run if a == "RUN" else a for a in arguments)]
            yield _measured(f"lading {name}{of_what}", command)
    yield _measured("lading show, with bytecode", [lading, "show", runs[""]], f"{folder}/bytecode")
    yield _measured("lading --help", [lading, "--help"])
    both = [
        [cpu_seconds([sys.executable, "-c", code]) for code in ("import numpy", "import lading, numpy")]
        for _ in range(ROUNDS)
    ]
    yield _case("import lading over import numpy", [ours - base for base, ours in both])
    shutil.rmtree(folder)


def _measured(name: str, command: list[str], bytecode: str | None = None) -> dict[str, Any]:
    cpu_seconds(command, bytecode)  # the first call leaves bytecode behind, where it may
    return _case(name, [cpu_seconds(command, bytecode) for _ in range(ROUNDS)])


def _case(name: str, seconds: list[float]) -> dict[str, Any]:
    found = {"case": name, "ours": round(median(seconds), 3), "peer": None, "unit": "CPU seconds"}
    return {**found, "low": round(min(seconds), 3), "high": round(max(seconds), 3)}
