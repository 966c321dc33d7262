"""A tracked run resumed in another process continues as the uninterrupted one: order, noise and training's numbers."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

from lading.errors import InexactResumeWarning, ResumeError
from lading.observe.tracking import track
from lading.report import open_run

SCRIPT = Path(__file__).parent / "scripts" / "track_resumed.py"
CASES = runpy.run_path(str(SCRIPT))["CASES"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return what the model received in one process, and in another that resumed from its states."""
    out = tmp_path_factory.mktemp("resumed")
    for mode in ("whole", "resumed"):
        subprocess.run([sys.executable, str(SCRIPT), mode, str(out)], check=True, timeout=550)
    return [json.loads((out / f"{mode}.json").read_text()) for mode in ("whole", "resumed")]


@pytest.mark.parametrize("name", CASES)
def test_a_run_resumed_in_another_process_equals_the_uninterrupted(runs, name):
    """From four places, to the end of the third epoch; only what workers draw in the epoch entered may differ."""
    whole, resumed = (run[name] for run in runs)
    assert set(resumed) == {"2", "5", "7", "10"}

    for stop, rest in resumed.items():
        expected = whole["steps"][int(stop) :]
        assert [step["rows"] for step in rest] == [step["rows"] for step in expected]
        assert [step["training"] for step in rest] == [step["training"] for step in expected]
        exact = 0 if "0 workers" in name else -int(stop) % 5
        assert [step["noise"] for step in rest[exact:]] == [step["noise"] for step in expected[exact:]]


class Noisy(Dataset):
    """Samples that draw."""

    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.rand(1) + index


def stopped(data, tmp_path, **options):
    """Return the state of a tracked run after two batches, and a fresh one with that state loaded."""
    first = track(DataLoader(data, 4, **options), run=tmp_path / "run")
    batches = iter(first)
    next(batches), next(batches)
    state = first.state_dict()
    first.close()
    second = track(DataLoader(data, 4, **options), run=tmp_path / "run")
    second.load_state_dict(state)
    return second


def test_draws_inside_workers_after_a_resume_are_warned_of_and_noted(tmp_path):
    """Workers begin the epoch's random numbers anew: one warning, and a note that ``verify`` shows."""
    second = stopped(Noisy(), tmp_path, num_workers=2)
    with pytest.warns(InexactResumeWarning, match="workers of this DataLoader draw"):
        list(second)
    second.close()

    verdict = open_run(tmp_path / "run").verify()
    assert verdict.holds
    assert any("workers of this DataLoader draw" in finding.message for finding in verdict.findings)


def test_data_that_draw_nothing_resume_without_a_word(tmp_path):
    """Nothing is warned of where nothing is drawn, or where no workers draw."""
    list(stopped(TensorDataset(torch.arange(16)), tmp_path / "quiet", num_workers=2))
    list(stopped(Noisy(), tmp_path / "alone"))


def test_random_numbers_are_kept_where_that_is_asked_for():
    """``random="keep"``: the global generators stay with the training loop; the order is the state's all the same."""
    torch.manual_seed(1)
    first = track(DataLoader(TensorDataset(torch.arange(16)), 4, shuffle=True))
    batches = iter(first)
    next(batches)
    state, rest = first.state_dict(), [batch[0].tolist() for batch in batches]
    torch.manual_seed(8)
    expected = torch.rand(1).item()
    torch.manual_seed(8)
    second = track(DataLoader(TensorDataset(torch.arange(16)), 4, shuffle=True), random="keep")
    second.load_state_dict(state)

    assert [batch[0].tolist() for batch in second] == rest
    assert torch.rand(1).item() == expected
    with pytest.raises(ValueError, match="random is 'kept': expected 'restore' or 'keep'"):
        track(DataLoader(TensorDataset(torch.arange(16)), 4), random="kept")


def test_a_state_of_another_rank_is_refused_where_a_global_generator_decided(monkeypatch):
    """Rank 0's random numbers are not rank 1's: its order would be used twice."""
    data = TensorDataset(torch.arange(16))

    def at(rank, **options):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        return track(DataLoader(data, 4, **options))

    drawn, dealt = at(0, shuffle=True), at(0, sampler=DistributedSampler(data, 2, 0))
    next(iter(drawn))
    list(dealt)
    at_end = dealt.state_dict()
    next(iter(dealt))

    with pytest.raises(ResumeError, match=r"state of rank 0, loaded on rank 1.*order was drawn from torch's global"):
        at(1, shuffle=True).load_state_dict(drawn.state_dict())
    other = at(1, sampler=DistributedSampler(data, 2, 1))
    other.load_state_dict(dealt.state_dict())
    with pytest.raises(ResumeError, match="state of rank 0"):
        next(iter(other))
    other = at(1, sampler=DistributedSampler(data, 2, 1))
    torch.rand(3)
    place = torch.random.get_rng_state()
    other.load_state_dict(at_end)
    assert torch.equal(torch.random.get_rng_state(), place)  # rank 0's random numbers are rank 0's
    assert len(list(other)) == 2


class Dice:
    """A sampler that draws every index from torch's global generator, when it is asked for it."""

    def __iter__(self):
        return (int(torch.randint(1000, (1,))) for _ in range(8))

    def __len__(self):
        return 8


def test_generators_are_put_back_once_where_a_pass_is_entered_in_its_middle():
    """What a sampler draws after it has caught up goes on from where training stands, and is not drawn again."""

    def loader():
        return track(DataLoader(TensorDataset(torch.arange(1000)), 1, sampler=Dice()), random="keep")

    torch.manual_seed(3)
    stopped = loader()
    batches = iter(stopped)
    for _ in range(3):
        next(batches)
    again = loader()
    again.load_state_dict(stopped.state_dict())
    torch.manual_seed(5)
    drawn = [int(torch.randint(1000, (1,))) for _ in range(5)]

    torch.manual_seed(5)
    rest = [int(batch[0]) for batch in again]

    assert rest == drawn
