"""Real ranks: killed and resumed on another number, evaluated, checkpointed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.launching import read_jsonl, torchrun

from lading.identity import World
from lading.loader.torch.loader import Loader

pytestmark = pytest.mark.launch
SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture(scope="module")
def lived_twice(tmp_path_factory):
    """Return the folder of two loaders that went half an epoch on 2 ranks, were killed with -9, and went on on 3."""
    folder = tmp_path_factory.mktemp("elastic")
    killed = torchrun(SCRIPTS / "elastic.py", 2, folder, 4, "begins", check=False)
    assert killed.returncode != 0
    torchrun(SCRIPTS / "elastic.py", 3, folder, 999, "resumes")
    return folder


@pytest.mark.parametrize("weights", ["plain", "weighted"])
def test_two_ranks_killed_and_three_finish(lived_twice, weights):
    """Half an epoch on 2 ranks, kill -9, the rest on 3: batches equal to one process's; unweighted each sample once."""
    states = [(lived_twice / f"state-{weights}-{rank}.json").read_text() for rank in range(2)]

    assert states[0] == states[1] and len(states[0]) < 2000
    step = json.loads(states[0])["step"]
    steps: dict[int, list[int]] = {}
    ids: dict[int, set[str]] = {}
    for ranks in (2, 3):
        for rank in range(ranks):
            for number, batch_id, indices in read_jsonl(lived_twice / f"{weights}-{ranks}-{rank}.jsonl"):
                if ranks == 2 and number >= step:
                    continue  # delivered after the state was taken: rolled back
                steps.setdefault(number, []).extend(indices)
                ids.setdefault(number, set()).add(batch_id)
    often = {"squares": np.arange(101)} if weights == "weighted" else None
    loader = Loader({"squares": Squares()}, 12, seed=9, world=World(0, 1), sample_weights=often)
    alone = {bill.step: (bill.batch_id, [s.index for s in bill.samples]) for _, bill in loader.with_bills()}
    assert {k: ({v}, steps[k]) for k, (v, _) in alone.items()} == {k: (ids[k], alone[k][1]) for k in alone}
    counts = np.bincount([i for indices in steps.values() for i in indices], minlength=101)
    assert (np.abs(counts - (np.ones(101) if often is None else np.arange(101) / 50)) < (1 if often else 0.5)).all()


class Squares:
    """The dataset of elastic.py."""

    def __len__(self):
        return 101

    def __getitem__(self, index):
        return index * index


def test_evaluation_counts_21_samples(tmp_path):
    """Exactly 21 counted, no hang; DCP restores the state with its events; Accelerate gathers each row once."""
    torchrun(SCRIPTS / "evaluate.py", 2, tmp_path)  # the last batch of the second rank is padding only

    result = json.loads((tmp_path / "result.json").read_text())
    assert result["counted"] == 21 and result["total"] == sum(range(21))
    assert sorted(result["accelerate"]) == np.arange(21).tolist()
