"""A Lading loader with a ledger as its tracker: resumes, other batch sizes, reweightings, content."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from lading.ledger import Ledger
from lading.loader import Loader
from lading.loader.request import Resume
from lading.report import open_run

DATA = {
    "code": [{"x": torch.tensor([float(i)])} for i in range(90)],
    "prose": [{"x": torch.tensor([-float(i)])} for i in range(60)],
}


def train(path: Path, steps: int, *, state=None, batch_size: int = 8, record=None, change=None, **options):
    """Yield and commit some steps; return the state after them."""
    ledger = Ledger(path, record=record)
    loader = Loader(DATA, batch_size, seed=5, tracker=ledger, **options)
    if state is not None:
        loader.load_state_dict(json.loads(json.dumps(state)), Resume(rebatch=True))
    done = 0
    while done < steps:
        for _, bill in loader.with_bills():
            ledger.commit(bill, update=bill.step, loss=1.0)
            done += 1
            if change is not None and done == change[0]:
                loader.reweight(change[1])
            if done == steps:
                break
    state = loader.state_dict()
    ledger.close()
    return state, loader.plan


def test_a_resumed_loader_goes_on_in_the_ledger(tmp_path: Path):
    """Over the end of an epoch, from an earlier checkpoint, with another start of the process."""
    state, plan = train(tmp_path, 15)
    train(tmp_path, 10, state=state)
    train(tmp_path, 30, state=state)

    run = open_run(tmp_path)

    assert run.history["step"] == list(range(45))
    assert run.history["digest"] == [plan.bill(s).digest for s in range(45)]
    assert run.verify().holds


def test_another_batch_size_after_a_resume_is_an_event(tmp_path: Path):
    """Steps before it keep their size, steps after it have the new one; where, mix and verify stay exact."""
    state, _ = train(tmp_path, 10)
    _, plan = train(tmp_path, 20, state=state, batch_size=12)

    run = open_run(tmp_path)

    assert run.verify().holds
    assert run.history["samples"][8:12] == [8, 8, 12, 12]
    assert [e.kind for e in run.plan.events] == ["rebatch"]
    assert sum(r["samples"] for r in run.mix()) == sum(plan.bill(s).num_samples for s in range(30))
    sample = plan.bill(15).samples[3]
    assert 15 in run.where(sample.dataset, sample.index)["step"]


def test_a_reweighting_is_recorded_and_undone(tmp_path: Path):
    """The loader tells its ledger; a resume from before it takes it back."""
    options = {"weights": {"code": 0.5, "prose": 0.5}, "batch_size": 64}
    state, _ = train(tmp_path, 20, **options)
    _, changed = train(tmp_path, 120, state=state, change=(3, {"code": 0.9, "prose": 0.1}), **options)
    assert [e.kind for e in changed.events] == ["reweight"]
    assert open_run(tmp_path).plan == changed
    assert open_run(tmp_path).decisions()["decided"] == ["code 90 %, prose 10 %"]
    assert open_run(tmp_path).verify().holds

    _, plain = train(tmp_path, 30, state=state, **options)

    run = open_run(tmp_path)
    assert run.plan == plain
    assert not plain.events
    assert run.verify().holds


def test_content_is_recorded_by_the_loader_itself(tmp_path: Path):
    """The ledger asks for the batch; one changed byte is found."""
    _, plan = train(tmp_path / "a", 10, record="content")
    index = next(sample.index for sample in plan.bill(6).samples if sample.dataset == 0)
    DATA["code"][index]["x"] += 1
    train(tmp_path / "b", 10, record="content")
    DATA["code"][index]["x"] -= 1

    found = open_run(tmp_path / "a").compare(tmp_path / "b")

    (place,) = list(open_run(tmp_path / "a").where("code", index))
    assert (found.kind, found.first_difference) == ("content", place["step"])
    assert [row["slot"] for row in found.samples] == [place["slot"]]


def test_an_iteration_broken_off_and_begun_again_undoes_nothing(tmp_path: Path):
    """Breaking off and iterating again restarts the epoch, as torch does: the model got both, and history has both."""
    with Ledger(tmp_path) as ledger:
        loader = Loader(DATA, 10, seed=1, tracker=ledger)
        for turn in range(2):
            for _, bill in loader.with_bills():
                ledger.commit(bill)
                if turn == 0 and bill.step == 6:
                    break

    run = open_run(tmp_path)

    assert run.history["step"] == [*range(7), *range(15)]
    assert run.history["attempt"] == [0] * 7 + [1] * 15
    assert sum(row["samples"] for row in run.mix()) == 7 * 10 + 150
    assert run.step(3).attempt == 1
    assert [row["fate"] for row in run.step(3).earlier] == ["applied"]
    assert run.verify().holds


def test_two_children_of_one_parent_are_two_lines(tmp_path: Path):
    """Back, and back again: history follows the states, not the order of the attempts."""
    with Ledger(tmp_path) as ledger:
        loader = Loader(DATA, 10, seed=1, tracker=ledger)
        states = {}
        for _, bill in loader.with_bills():
            ledger.commit(bill)
            states[bill.step + 1] = loader.state_dict()
    for start, stop in ((3, 5), (8, 12)):
        with Ledger(tmp_path) as ledger:
            loader = Loader(DATA, 10, seed=1, tracker=ledger)
            loader.load_state_dict(states[start])
            for _, bill in loader.with_bills():
                ledger.commit(bill)
                if bill.step + 1 == stop:
                    break

    run, other = open_run(tmp_path), open_run(tmp_path, attempt=1)

    assert run.history["attempt"] == [0] * 8 + [2] * 4
    assert other.history["attempt"] == [0] * 3 + [1] * 2
    assert run.verify().holds
    assert other.verify().holds
