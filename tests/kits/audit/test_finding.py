"""Every finding in its words: what the audit says of many loaders, byte for byte."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.kits.audit.test_command import FAULTY, SOUND, Fixed, Overlapping, Sharded, Stream, distributed, numbers
from torch.utils.data import DataLoader, IterableDataset, WeightedRandomSampler, get_worker_info

from lading.kits import audit as auditing
from lading.kits.audit.command import audit

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

GOLDEN = Path(__file__).parent / "golden" / "findings.json"


class Shuffled(IterableDataset):
    """A stream of numbers in the same random order in every epoch."""

    def __init__(self, size: int = 40) -> None:
        self.size = size

    def __iter__(self):
        return iter(np.random.default_rng(0).permutation(self.size).tolist())


class TellsEpoch(Shuffled):
    """A stream that wants to be told the epoch."""

    def set_epoch(self, epoch):
        """Change nothing."""


class TooShort(Stream):
    """A stream that gives less than its length."""

    def __len__(self):
        return self.size + 8


class FilledUpRank(IterableDataset):
    """One of two ranks whose shares are filled up with the first samples."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __iter__(self):
        return iter([i % 41 for i in range(self.rank, 42, 2)])


class LosesTheEnd(IterableDataset):
    """Three workers whose shards overlap, and whose last samples belong to none."""

    def __iter__(self):
        info = get_worker_info()
        return iter(range(40)) if info.num_workers == 1 else iter(range(10 * info.id, 10 * info.id + 14))


# Loader, and the arguments of audit.
MORE = {
    "overlapping workers": (lambda: DataLoader(Overlapping(), 4, num_workers=2), {}),
    "overlapping ranks": (lambda: [DataLoader(Overlapping(rank=r), 4) for r in range(2)], {}),
    "overlapping and lost": (lambda: DataLoader(LosesTheEnd(), 4, num_workers=3), {}),
    "overlapping shares": (
        lambda: [DataLoader(numbers(), 5, sampler=list(range(15 * r, 15 * r + 25))) for r in range(2)],
        {},
    ),
    "filled up ranks": (lambda: [DataLoader(FilledUpRank(rank), 4) for rank in range(2)], {}),
    "stream shuffled once": (lambda: DataLoader(Shuffled(), 4), {}),
    "stream not told": (lambda: DataLoader(TellsEpoch(), 4), {"epochs": 3}),
    "stream too short": (lambda: DataLoader(TooShort(), 4), {}),
    "stream cut": (lambda: DataLoader(Stream(), 4), {"limit_batches": 3}),
    "stream of known length cut": (lambda: DataLoader(TooShort(), 4), {"limit_batches": 3}),
    "stream cut by two workers": (lambda: DataLoader(Sharded(), 4, num_workers=2), {"limit_batches": 3}),
    "in order, cut": (lambda: DataLoader(numbers(), 4), {"limit_batches": 3}),
    "told, cut": (lambda: distributed(39, shuffle=True), {"limit_batches": 2, "set_epoch": True}),
    "drawn again": (lambda: DataLoader(numbers(), 4, sampler=WeightedRandomSampler([1.0] * 39 + [200.0], 40)), {}),
    "seeded, three epochs": (lambda: DataLoader(numbers(), 4, sampler=Fixed(40, 30)), {"epochs": 3}),
    "one epoch of a bad range": (lambda: DataLoader(numbers(), 4, sampler=range(30)), {"epochs": 1}),
}
CASES = {**{name: (make, {}) for name, (_, make) in FAULTY.items()}, **{k: (m, {}) for k, m in SOUND.items()}, **MORE}


def said(name: str) -> list[dict[str, str]]:
    """Return what the audit says of a loader."""
    make, arguments = CASES[name]
    torch.manual_seed(3)
    return [finding.to_dict() for finding in audit(make(), **arguments)]


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_of_a_loader_is_what_was_always_said(name):
    """Faults, sentences, evidence and fixes, and their order."""
    assert said(name) == json.loads(GOLDEN.read_text())[name]


def sentences() -> list[list[str]]:
    """Return the fixed words of the message of every finding that the sources make."""
    trees = [ast.parse(path.read_text()) for path in Path(inspect.getfile(auditing)).parent.glob("*.py")]
    calls = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Call)]
    messages = [c.args[1] for c in calls if isinstance(c.func, ast.Name) and c.func.id == "Finding"]
    return [[str(n.value) for n in getattr(m, "values", [m]) if isinstance(n, ast.Constant)] for m in messages]


def test_every_finding_is_among_them():
    """The message of each finding in the sources was said of some loader; what is not there could change unseen."""
    said_once = [f["message"] for found in json.loads(GOLDEN.read_text()).values() for f in found]

    assert len(sentences()) > 10
    assert not [words for words in sentences() if not any(all(w in m for w in words) for m in said_once)]


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({name: said(name) for name in CASES}, indent=1) + "\n")
