"""A fresh process, as people start one: the first batch, and README's first script with cold and warm caches."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.bench_books import in_turns, more, whole

ROOT = Path(__file__).parent.parent
DATA = "import torch\ndata = torch.utils.data.TensorDataset(torch.arange(4096.0))\n"
SCRIPTS = {
    "ours": DATA + "from lading import Loader\nfor batch in Loader(data, 32, num_workers={w}): break",
    "peer": DATA + "from torch.utils.data import DataLoader\n"
    "for batch in DataLoader(data, 32, shuffle=True, num_workers={w}): break",
}
MODULES = (
    DATA + "import sys\nfrom lading import Loader\nnext(iter(Loader(data, 32)))\n"
    "print(sum(name.split('.')[0] == 'lading' for name in sys.modules), 'pyarrow' in sys.modules)"
)


# README's first script as one writes it without us: no names, no record, no resume.
PLAIN = """
import torch
from torch.utils.data import ConcatDataset, DataLoader, WeightedRandomSampler
sources = ConcatDataset([torch.randn(1000, 8), torch.randn(500, 8)])
sampler = WeightedRandomSampler([0.7 / 1000] * 1000 + [0.3 / 500] * 500, 1500)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(sources, 8, sampler=sampler):
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad(), loss.backward(), optimizer.step()
torch.save({"model": model.state_dict()}, "checkpoint.pt")
"""


def seconds(script: str, cwd: str, **environment: str) -> float:
    """Return the seconds of a process that must succeed."""
    start = time.perf_counter()
    env = {**os.environ, **environment}
    subprocess.run([sys.executable, "-c", script], check=True, cwd=cwd, env=env, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def cases() -> Iterable[dict[str, Any]]:
    """Measure them all."""
    folder = tempfile.mkdtemp()
    try:
        for workers in (0, 2):
            texts = {name: text.format(w=workers) for name, text in SCRIPTS.items()}
            found = in_turns({name: lambda t=text: seconds(t, folder) for name, text in texts.items()}, rounds=7)
            name = f"first batch of a fresh process, {workers} workers, more"
            yield more(name, found["ours"], found["peer"], "s", "torch's DataLoader", digits=3)
        yield from readme_cases(folder)
        done = subprocess.run([sys.executable, "-c", MODULES], check=True, capture_output=True, text=True)
        modules, has_arrow = done.stdout.split()
        unit = f"modules, {'with' if has_arrow == 'True' else 'without'} pyarrow"
        yield {"case": "our modules before the first batch", "ours": int(modules), "peer": None, "unit": unit}
    finally:
        shutil.rmtree(folder)


def readme_cases(folder: str) -> Iterable[dict[str, Any]]:
    """README's first example that trains, beside the same over a DataLoader. Cold: no bytecode, torch's neither."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    script = next(block for block in blocks if "Ledger" in block or "Loader" in block)

    def ran(text: str, *, cold: bool) -> float:
        place = tempfile.mkdtemp(dir=folder)
        cache = tempfile.mkdtemp(dir=folder) if cold else f"{folder}/bytecode"
        return seconds(text, place, PYTHONPYCACHEPREFIX=cache, PYTHONDONTWRITEBYTECODE="")

    for cold in (True, False):
        ways = {"ours": lambda c=cold: ran(script, cold=c), "peer": lambda c=cold: ran(PLAIN, cold=c)}
        found = in_turns(ways, rounds=3)
        name = f"README's script, caches {'cold' if cold else 'warm'}"
        yield whole(name, found["ours"], found["peer"], "s", "the same training over torch's DataLoader")
