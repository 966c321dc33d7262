"""Method 2 of document 001: batch ids known before the run, for shuffled data too; and method 1 through our loader."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

from lading.identity import World
from lading.ledger.tracker.tracker import BatchTracker
from lading.loader.torch.loader import Loader
from lading.order import Plan
from lading.source.tagged import TaggedDataset
from lading.source.weighted_concat import WeightedConcatDataset

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

SIZE, BATCH = 23, 5


def loader(**arguments):
    """Return a loader of numbers that shuffles."""
    return Loader({"numbers": TensorDataset(torch.arange(SIZE))}, batch_size=BATCH, seed=4, **arguments)


def test_document_code_runs():
    """The document's example: ids first, then the batches, each with the id that was promised."""
    data = [torch.randn(10) for _ in range(100)]
    dataset = TensorDataset(torch.stack(data))
    batch_size = 10
    dataloader = Loader(dataset, batch_size=batch_size, shuffle=True)

    batch_ids = [dataloader.plan.bill(step).batch_id for step in range(len(data) // batch_size)]

    for i, (batch, bill) in enumerate(dataloader.with_bills()):
        batch_data = batch[0]
        assert bill.batch_id == batch_ids[i]
        assert torch.equal(batch_data, torch.stack([data[s.index] for s in bill.samples]))
    assert i == 9


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
def test_ids_and_names_are_known_before_the_run(num_workers, drop_last):
    """Three epochs, a short or dropped last batch, any number of workers: what was promised comes."""
    ours = loader(num_workers=num_workers, drop_last=drop_last)
    plan = Plan.from_json(ours.plan.to_json())
    promised = [plan.bill(step) for step in range(plan.epoch_start(3))]

    seen = [(bill.batch_id, batch[0].tolist()) for _ in range(3) for batch, bill in ours.with_bills()]

    assert seen == [(bill.batch_id, bill.idx.tolist()) for bill in promised]
    assert len(promised) == 3 * (4 if drop_last else 5)
    assert len({batch_id for batch_id, _ in seen}) == len(seen)


@pytest.mark.parametrize("stop", [1, 5, 7])
def test_ids_survive_a_restart(stop):
    """A resumed loader, with other workers, continues with the ids that were promised before the run."""
    first = loader()
    promised = [first.plan.bill(step).batch_id for step in range(15)]
    taken = []
    while len(taken) < stop:
        for _, bill in first.with_bills():
            taken.append(bill.batch_id)
            if len(taken) == stop:
                state = first.state_dict()
                break

    second = loader(num_workers=2)
    second.load_state_dict(state)
    while len(taken) < 15:
        taken += [bill.batch_id for _, bill in second.with_bills()]

    assert taken[:15] == promised


def test_two_ranks_share_ids_and_divide_the_samples():
    """The same id on both ranks, the halves of one global batch in them, every sample once an epoch."""
    ranks = [[bill for _, bill in loader(world=World(rank, 2)).with_bills()] for rank in range(2)]
    plan = loader(world=World(0, 2)).plan

    for step, (first, second) in enumerate(zip(*ranks, strict=True)):
        assert first.batch_id == second.batch_id == plan.bill(step).batch_id
        assert first.samples + second.samples == plan.bill(step, world=World()).samples
    assert sorted(s.index for bills in ranks for bill in bills for s in bill.samples) == list(range(SIZE))


@pytest.mark.parametrize(
    "dataset",
    [
        TaggedDataset([{"x": i} for i in range(SIZE)], dataset_idx=2, ids=[f"doc-{i}" for i in range(SIZE)]),
        WeightedConcatDataset([[{"x": i} for i in range(8)], [{"x": i} for i in range(10)]], [0.5, 2]),
    ],
)
def test_datasets_that_carry_names_go_through_our_loader(dataset):
    """Method 1 and our loader together: the names in the samples are the dataset's own."""
    tracker = BatchTracker()

    for batch in Loader(dataset, batch_size=BATCH):
        assert torch.equal(batch["x"], batch["idx"])
        tracker.update(batch)

    assert len(tracker) == len(dataset)
    assert set(tracker.n_samples_per_dataset) == {dataset[i]["dataset_idx"] for i in range(len(dataset))}
