"""Method 1 of document 001: a dataset whose samples carry their ids."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from lading.errors import SourceError
from lading.identity.content import content_hash
from lading.ledger.tracker.tracker import BatchTracker
from lading.loader.torch.distributed_sampler import StatefulDistributedSampler
from lading.order import Part
from lading.source.reader import provides_names
from lading.source.tagged import TaggedDataset


class Documents:
    """Dict samples whose value is a function of their index."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {"x": torch.tensor(index * 10)}


class Several(Documents):
    """Documents that are read many at a time."""

    def __getitems__(self, indices):
        self.asked = list(indices)
        return [{"x": torch.tensor(i * 10)} for i in indices]


def test_document_code_runs():
    """The document's example, class name replaced, gives data with the ids of its samples."""
    data = [torch.randn(10) for _ in range(100)]
    dataset = TaggedDataset(data)
    dataloader = DataLoader(dataset, batch_size=10, shuffle=True)

    seen = []
    for batch in dataloader:
        batch_data, batch_ids = batch
        assert torch.equal(batch_data, torch.stack([data[i] for i in batch_ids]))
        seen += batch_ids.tolist()

    assert sorted(seen) == list(range(100))


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_names_stay_right_under_shuffle_workers_short_batches_and_epochs(num_workers):
    """Names belong to their samples, whoever loads them, in 3 epochs with a short last batch."""
    loader = DataLoader(
        TaggedDataset(Documents(23), dataset_idx=4), batch_size=5, shuffle=True, num_workers=num_workers
    )

    for _ in range(3):
        tracker = BatchTracker()
        for batch in loader:
            assert torch.equal(batch["x"], batch["idx"] * 10)
            tracker.update(batch)
        assert {d: sorted(i) for d, i in tracker.samples_idx_per_dataset.items()} == {4: list(range(23))}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_names_stay_right_on_two_ranks_and_after_a_resume(num_workers):
    """Two ranks deal each of 3 epochs between them; one that starts in the middle continues with what is left."""
    data = TaggedDataset(Documents(22))

    def epochs(consumed, first):
        seen = {epoch: [] for epoch in range(first, 3)}
        for rank in range(2):
            sampler = StatefulDistributedSampler(data, 2, rank, epoch=first, total_consumed_samples=consumed)
            loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=num_workers)
            for epoch in seen:
                sampler.set_epoch(epoch)
                for batch in loader:
                    assert torch.equal(batch["x"], batch["idx"] * 10)
                    seen[epoch] += batch["idx"].tolist()
        return seen

    whole, resumed = epochs(0, 0), epochs(16, 1)

    assert all(sorted(indices) == list(range(22)) for indices in whole.values())
    assert len(resumed[1]) == 6
    assert set(resumed[1]) <= set(whole[1])
    assert resumed[2] == whole[2]


def test_dict_samples_gain_names_and_the_dataset_keeps_its_own():
    """Names are added to a copy: the user's sample stays as it was."""
    mine = [{"text": "a"}, {"text": "b"}]

    sample = TaggedDataset(mine, dataset_idx=3)[1]

    assert sample == {"text": "b", "idx": 1, "dataset_idx": 3}
    assert mine == [{"text": "a"}, {"text": "b"}]


def test_tuple_and_bare_samples_become_pairs():
    """As in the document: the sample, then its id."""
    assert TaggedDataset([(1, "one")])[0] == ((1, "one"), 0)
    assert TaggedDataset([5, 6], ids=["five", "six"])[-1] == (6, "six")


def test_ids_of_the_user_go_into_their_own_column():
    """Texts and numbers are kept beside the index."""
    assert TaggedDataset([{"x": 1}], ids=["doc-1"])[0] == {"x": 1, "idx": 0, "dataset_idx": 0, "id": "doc-1"}
    assert TaggedDataset([{"x": 1}], ids=[77])[0]["id"] == 77


def test_transform_is_applied_and_does_not_change_the_hash():
    """A hash id is of what the dataset holds, so a random transform leaves it alone."""
    data = [np.arange(3), np.arange(4)]
    plain = TaggedDataset(data, ids="hash")
    noisy = TaggedDataset(data, ids="hash", transform=lambda x: x + np.random.default_rng().random(x.shape))

    assert noisy[1][1] == plain[1][1] == noisy[1][1]
    assert plain[0][1] != plain[1][1]
    assert TaggedDataset([1, 2], transform=lambda x: x * 10)[1] == (20, 1)


def test_hash_is_the_same_in_another_process():
    """Ids survive restarts: no hash seed, no address goes in."""
    sample = {"b": [1, 2.5, None], "a": ("text", b"bytes")}
    code = (
        "from lading.identity.content import content_hash; import numpy, torch;"
        "print(content_hash({'b': [1, 2.5, None], 'a': ('text', b'bytes')}))"
    )

    elsewhere = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert elsewhere.stdout.strip() == content_hash(sample)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1, [2]], [[1], 2]),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"b": 1}),
        (np.zeros(2), np.zeros(3)),
        (np.zeros(4), np.zeros((2, 2))),
        (np.zeros(2, np.float32), np.zeros(2, np.float64)),
        ("1", 1),
        (["ab", "c"], ["a", "bc"]),
        (None, False),
    ],
)
def test_different_content_has_different_hashes(one, other):
    """Structure, types and shapes count, not only bytes."""
    assert content_hash(one) != content_hash(other)


def test_equal_content_has_equal_hashes_in_any_framework():
    """A tensor and the array of its values are the same content."""
    assert content_hash(torch.arange(3)) == content_hash(np.arange(3))
    assert content_hash(torch.ones(2, dtype=torch.bfloat16)) == content_hash(np.ones(2, np.float32))
    assert content_hash({"a": 1, "b": 2}) == content_hash({"b": 2, "a": 1})


def test_content_without_bytes_is_refused():
    """Objects whose bytes mean nothing elsewhere get an error with a way out."""
    with pytest.raises(SourceError, match=r"holds a object, which has no content hash.*Pass ids="):
        TaggedDataset([object()], ids="hash")[0]


def test_reads_many_at_once_where_the_dataset_can():
    """The dataset's own ``__getitems__`` is used, with names in the right rows."""
    dataset = Several(10)

    samples = TaggedDataset(dataset).__getitems__([3, -1, 0])

    assert dataset.asked == [3, 9, 0]
    assert [(s["idx"], int(s["x"])) for s in samples] == [(3, 30), (9, 90), (0, 0)]


def test_a_tagged_dataset_is_one_part_with_its_number():
    """What loaders and reports call its samples is what the samples say."""
    dataset = TaggedDataset(Documents(6), dataset_idx=2)

    assert dataset.parts == (Part(2, "", 6, 6),)
    assert provides_names(dataset)
    assert not provides_names(Documents(6))


def test_own_idx_column_is_refused_with_a_way_out():
    """A column of the user's is never overwritten."""
    data = [{"idx": 99, "x": 1}]

    with pytest.raises(
        SourceError, match=r"already have a 'idx'; they have idx, x. Pass names=\{'idx': 'sample_idx'\}"
    ):
        TaggedDataset(data)[0]
    renamed = TaggedDataset(data, names={"idx": "sample_idx"})[0]
    assert renamed == {"idx": 99, "x": 1, "sample_idx": 0, "dataset_idx": 0}
    with pytest.raises(SourceError, match="names= renames 'x': expected only"):
        TaggedDataset(data, names={"x": "y"})


def test_tagging_twice_keeps_the_outer_names():
    """Names of a dataset further in are names, not data."""
    inner = TaggedDataset([{"x": 1}], dataset_idx=1)

    assert TaggedDataset(inner, dataset_idx=5)[0]["dataset_idx"] == 5


class SizedStream(IterableDataset):
    """A torch stream with a length, and an inherited ``__getitem__`` that only raises."""

    def __len__(self):
        return 3

    def __iter__(self):
        return iter(range(3))


def test_misuse_is_named():
    """Each wrong argument says what was expected."""
    with pytest.raises(ValueError, match="2 ids for 3 samples"):
        TaggedDataset([1, 2, 3], ids=["a", "b"])
    with pytest.raises(ValueError, match="ids is 'sha': expected an id for each sample, or 'hash'"):
        TaggedDataset([1], ids="sha")
    with pytest.raises(SourceError, match=r"a generator has no length.*TaggedIterableDataset"):
        TaggedDataset(i for i in range(3))
    with pytest.raises(SourceError, match=r"a SizedStream has no length or no samples by index"):
        TaggedDataset(SizedStream())
    with pytest.raises(IndexError, match=r"Index 3 out of range \[0, 3\)"):
        TaggedDataset([1, 2, 3])[3]
    with pytest.raises(IndexError):
        TaggedDataset([1, 2, 3])[-4]


def test_epoch_reaches_the_dataset():
    """A dataset that wants to know the epoch is notified."""

    class Curriculum(Documents):
        epoch = 0

        def set_epoch(self, epoch):
            self.epoch = epoch

    dataset = Curriculum(2)
    TaggedDataset(dataset).set_epoch(3)
    TaggedDataset(Documents(2)).set_epoch(3)

    assert dataset.epoch == 3


def test_tensor_dataset_is_tagged_as_tuples():
    """torch's own TensorDataset yields tuples: they become pairs."""
    loader = DataLoader(TaggedDataset(TensorDataset(torch.arange(4), torch.arange(4) * 2)), batch_size=4)

    ((x, y), ids) = next(iter(loader))

    assert torch.equal(x, ids)
    assert torch.equal(y, ids * 2)
