"""However batches are fetched, training is the same: with any number of workers, of any kind, killed and resumed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from lading.loader.torch.loader import Loader
from lading.source.columns import Columns
from lading.testing.contracts import same

SCRIPT = Path(__file__).parent / "scripts" / "drawing.py"
WAYS = [
    {"num_workers": 1},
    {"num_workers": 2, "prefetch_factor": 3},
    *(
        {"num_workers": 2, "multiprocessing_context": method, "persistent_workers": True}
        for method in ("fork", "forkserver", "spawn")
    ),
]
THREADS = [{"num_workers": count, "workers": "threads"} for count in (1, 2)]


class Drawing(Dataset):
    """Samples that draw from the three global generators."""

    def __len__(self):
        return 21

    def __getitem__(self, index):
        drawn = [random.random(), np.random.rand(), float(torch.rand(()))]  # noqa: NPY002
        return {"x": torch.tensor([float(index), *drawn], dtype=torch.float64), "text": str(index)}


def epochs(sources, **options):
    """Return two epochs of a mixture."""
    loader = Loader(sources, 4, seed=5, weights=[2, 1], **options)
    return [batch for _ in range(2) for batch in loader]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_samples_that_draw_are_the_same(way):
    """Without workers, with one and two, for every start method."""
    sources = {"a": Drawing(), "b": Drawing()}

    assert same(epochs(sources, **way), epochs(sources))


@pytest.mark.parametrize("way", [*WAYS, *THREADS], ids=str)
def test_columns_are_the_same(way):
    """For threads, too: gathering draws nothing."""
    sources = {"a": Columns(x=torch.arange(40.0)), "b": Columns(x=torch.arange(100.0, 115.0))}

    assert same(epochs(sources, **way), epochs(sources))


class Seldom(Dataset):
    """Two thousand samples, two of which draw from the global generators."""

    def __len__(self):
        return 2000

    def __getitem__(self, index):
        if index % 1000 != 617:
            return float(index)
        return random.random() + np.random.rand() + float(torch.rand(()))  # noqa: NPY002


def trained_on(workers):
    """Return every batch of two samples, and what the training loop drew itself beside each."""
    torch.manual_seed(3), np.random.seed(3), random.seed(3)  # noqa: NPY002
    seen = []
    for batch in Loader(Seldom(), 2, num_workers=workers):
        own = (random.random(), np.random.rand(), float(torch.rand(()))) if len(seen) % 100 == 0 else ()  # noqa: NPY002
        seen.append((batch.tolist(), own))
    return seen


def test_a_source_that_draws_once_in_a_thousand_batches():
    """Neither its rare numbers nor those of the training loop depend on how many workers there are."""
    none, one, two = (trained_on(workers) for workers in (0, 1, 2))

    assert len(none) == 1000
    assert none == one == two
    assert sum(value % 1 > 0 for batch, _ in none for value in batch) == 2


@pytest.mark.launch
def test_training_is_bit_identical_when_killed_and_resumed(tmp_path):
    """A model, its optimizer, dropout and a dataset that draws: killed with 0, 1 and 2 workers, resumed with others."""
    done = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert found["kills"] == [-9] * 6
    assert len(found["weights"]) == 6 and len(set(found["weights"])) == 1, found["weights"]
