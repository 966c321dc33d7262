"""``track(iterable, ids=...)``: dict batches of any iterable, named by the ids that their rows carry."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lading import BatchTracker, open_run, track
from lading.errors import LoaderError, ResumeError, SourceError


class Batches:
    """Ten rows in batches of four, in an order of each pass's own; as Ray's iterables, it can be iterated again."""

    def __init__(self, size=10, order=None):
        self.size, self.passes, self.order = size, 0, order or (lambda number: np.random.default_rng(number))

    def __iter__(self):
        ids = self.order(self.passes).permutation(self.size)
        self.passes += 1
        for start in range(0, self.size, 4):
            rows = torch.as_tensor(ids[start : start + 4])
            yield {"id": rows, "x": rows * 10.0}


def test_names_are_the_ids_and_the_batches_are_untouched(tmp_path):
    """Each batch is the iterable's own object; tracker and ledger have its ids."""
    given = list(Batches())
    loader = track(given, tmp_path / "run", BatchTracker(), ids="id", names=["points"])

    found = list(loader.with_bills())
    loader.close()

    assert all(batch is mine for (batch, _), mine in zip(found, given, strict=True))
    assert [bill.idx.tolist() for _, bill in found] == [batch["id"].tolist() for batch in given]
    assert len(loader.with_bills()) == 3
    run = open_run(tmp_path / "run")
    assert [row["name"] for row in run.step(1).samples.dicts()] == ["points"] * 4
    assert [row["index"] for row in run.step(1).samples.dicts()] == given[1]["id"].tolist()
    assert run.verify().holds
    assert sum(loader.tracker.n_samples_per_dataset.values()) == 10


def test_each_pass_is_an_epoch():
    """The iterable is asked again; steps count on."""
    loader = track(Batches(), ids="id")

    bills = [bill for _ in range(2) for _, bill in loader.with_bills()]

    assert [(bill.epoch, bill.step) for bill in bills] == [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (1, 5)]
    assert sorted(i for bill in bills[:3] for i in bill.idx.tolist()) == list(range(10))


def test_two_columns_name_dataset_and_sample(tmp_path):
    """The dataset's number beside the id in it."""
    batch = {"source": np.array([1, 0]), "row": np.array([5, 7])}
    loader = track([batch], tmp_path / "run", ids=("source", "row"), names=["code", "prose"])

    list(loader)
    loader.close()

    rows = open_run(tmp_path / "run").step(0).samples.dicts()
    assert [(row["name"], row["index"]) for row in rows] == [("prose", 5), ("code", 7)]


def test_a_resume_inside_a_pass_reads_its_head_again_and_compares(tmp_path):
    """The same order: the rest comes, and the record holds. Another order: refused."""
    first = track(Batches(), tmp_path / "run", ids="id")
    batches = iter(first)
    next(batches), next(batches)
    state = first.state_dict()
    first.ledger.close()

    again = track(Batches(), tmp_path / "run", ids="id")
    again.load_state_dict(state)
    rest = [batch["id"].tolist() for batch in again]
    again.close()

    assert rest == [batch["id"].tolist() for batch in Batches()][2:]
    assert open_run(tmp_path / "run").verify().holds
    other = track(Batches(order=lambda number: np.random.default_rng(number + 9)), ids="id")
    other.load_state_dict(state)
    with pytest.raises(ResumeError, match="gave other samples"):
        list(other)
    shorter = track(Batches(size=4), ids="id")
    shorter.load_state_dict(state)
    with pytest.raises(ResumeError, match="ended after 1 batches"):
        list(shorter)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"x": [1]}, "carries no 'id': it has x"),
        ([1, 2], "carries no 'id': it is a list"),
        ({"id": np.array([0.5])}, "float64 .* expected one whole number"),
        ({"id": np.array([[1], [2]])}, "expected one whole number"),
        ({"id": np.array([True])}, "bool"),
        ({"id": np.array(["a"])}, "expected one whole number"),
        ({"id": np.array([-1, 3])}, "holds -1 to 3"),
        ({"id": np.array([2**63], np.uint64)}, "expected numbers from 0"),
    ],
)
def test_a_batch_without_names_is_refused(batch, words):
    """By what it has, with the way out; nothing of it is recorded."""
    loader = track([batch], ids="id")

    with pytest.raises(SourceError, match=words):
        list(loader)
    assert loader.step == 0


def test_what_cannot_be_tracked_is_named():
    """An iterable needs ids; a loader with bills needs none."""
    with pytest.raises(LoaderError, match=r"ids=\.\.\."):
        track([{"id": [1]}])
    with pytest.raises(LoaderError, match="no bills yet"):
        track(track([], ids="id"), ids="id")
    with pytest.raises(LoaderError, match="found a int"):
        track(3, ids="id")
    with pytest.raises(SourceError, match="'source', the column of its datasets"):
        list(track([{"id": np.array([1])}], ids=("source", "id")))
