"""Document 001, batch ids: its three methods with only class names, the generator and ``batch_size=None`` replaced."""

from __future__ import annotations

import pytest
import torch
from tests.documents.contract import check_arguments, promised
from torch.utils.data import DataLoader, TensorDataset

from lading import Loader, TaggedDataset, TaggedIterableDataset
from lading.errors import LadingError

# A plain DataLoader forks whatever is loaded; a framework with threads, loaded by another test, warns of it.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

NAMES = {
    "TaggedDataset": ("source", "dataset, dataset_idx=0, ids=None"),
    "TaggedIterableDataset": ("source", "source, batch_size=None, items='samples'"),
    "Loader": ("loader", "sources, batch_size=None"),
}


@pytest.mark.parametrize("workers", [0, 2])
def test_method_1_a_dataset_that_carries_ids(workers):
    """Under shuffling and workers every id is that of its sample; a transform is applied to the sample alone."""
    data = [torch.full((10,), float(i)) for i in range(100)]
    dataset = TaggedDataset(data, transform=lambda sample: sample * 2)
    dataloader = DataLoader(dataset, batch_size=10, shuffle=True, num_workers=workers)

    seen = []
    for batch in dataloader:
        batch_data, batch_ids = batch
        assert (batch_data[:, 0] / 2).tolist() == batch_ids.tolist()
        seen += batch_ids.tolist()
    assert sorted(seen) == list(range(100)) and seen != sorted(seen)


@pytest.mark.parametrize("drop_last", [True, False])
def test_method_2_ids_known_before_the_run(drop_last):
    """For shuffled data, with and without drop_last, a short end, over two epochs."""
    data_tensor = torch.arange(95.0)[:, None]
    loader = Loader(TensorDataset(data_tensor), batch_size=10, drop_last=drop_last, seed=3)
    steps = 2 * len(loader)
    batch_ids = [loader.plan.bill(step).batch_id for step in range(steps)]
    contents = [loader.plan.bill(step).idx.tolist() for step in range(steps)]

    found = [(bill.batch_id, batch[0][:, 0].tolist()) for _ in range(2) for batch, bill in loader.with_bills()]

    assert [name for name, _ in found] == batch_ids and len(set(batch_ids)) == steps
    assert [rows[: len(c)] for (_, rows), c in zip(found, contents, strict=True)] == contents


@pytest.mark.parametrize("workers", [0, 2])
def test_method_3_a_stream_with_ids(workers):
    """Batches, sample ids and batch ids of a stream; the same with workers, and again in the second epoch."""

    def data_generator():
        for i in range(100):
            yield i, torch.full((10,), float(i))

    dataset = TaggedIterableDataset(data_generator, batch_size=10, items="pairs")
    dataloader = DataLoader(dataset, batch_size=None, num_workers=workers)

    for _ in range(2):
        seen = {}
        for batch in dataloader:
            batch_data, sample_ids, batch_id = batch
            assert batch_data[:, 0].tolist() == [float(i) for i in sample_ids]
            seen[int(batch_id)] = [int(i) for i in sample_ids]
        assert seen == {b: list(range(10 * b, 10 * b + 10)) for b in range(10)}


def test_a_bare_generator_is_refused_with_the_reason():
    """It would be empty in the second epoch."""
    with pytest.raises(LadingError, match="epoch"):
        TaggedIterableDataset((i for i in range(3)), batch_size=2)


@pytest.mark.parametrize("name", NAMES)
def test_names_and_arguments_are_those_of_the_contract(name):
    """From ``lading`` and from the stage, arguments by place, with the defaults that are promised."""
    stage, written = NAMES[name]

    check_arguments(promised(name, stage), written)
