"""Partitions without chunks: what people know, unchanged."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler, TensorDataset, random_split

from lading.errors import SourceError
from lading.kits.chunked import ChunkedSequenceDataset, SequenceDataset
from lading.kits.chunked.datamodule.sequence import collate_sequences
from lading.loader.torch.loader import Loader


def pairs(size: int) -> TensorDataset:
    """Return pairs (i, -i)."""
    return TensorDataset(torch.arange(size), -torch.arange(size))


def inputs(loader) -> list[list[int]]:
    """Return x of every batch."""
    return [batch[0].tolist() for batch in loader]


class Numbers(SequenceDataset):
    """A data module as subclasses are written: defaults, ``init`` and ``setup``."""

    init_defaults = {"size": 20, "colour": "red"}  # noqa: RUF012

    def init(self) -> None:
        """Remember that it was called."""
        self.was_initialised = True

    def setup(self, stage: str | None = None) -> None:
        """Make the partitions."""
        self.dataset_train, self.dataset_test = pairs(self.size), pairs(3)
        self.split_train_val(0.2)


def test_subclasses_set_partitions_and_keep_their_options():
    """Options become attributes over the defaults; ``init`` and ``setup`` are called."""
    module = Numbers(size=50)
    module.setup()

    assert (module.size, module.colour, module.was_initialised) == (50, "red", True)
    assert [len(d) for d in (module.dataset_train, module.dataset_val, module.dataset_test)] == [40, 10, 3]


@pytest.mark.parametrize("seed", [42, 7])
def test_split_is_torchs_split_with_the_modules_seed(seed):
    """The same split as torch's ``random_split`` with a generator of that seed."""
    module = Numbers(seed=seed)
    module.setup()
    expected = random_split(pairs(20), (16, 4), generator=torch.Generator().manual_seed(seed))

    assert module.dataset_train.indices == expected[0].indices
    assert module.dataset_val.indices == expected[1].indices


def test_standard_loaders_give_the_batches_of_a_plain_dataloader():
    """Same seed, same batches: shuffled training, validation in order."""
    module = SequenceDataset(pairs(23), pairs(9))
    module.setup()
    torch.manual_seed(3)
    plain = [batch[0].tolist() for batch in DataLoader(pairs(23), batch_size=4, shuffle=True)]

    torch.manual_seed(3)
    loader = module.train_dataloader(batch_size=4)

    assert type(loader) is DataLoader
    assert inputs(loader) == plain
    assert inputs(module.val_dataloader(batch_size=4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]


def test_batches_are_triples():
    """``(x, y, {})``, further elements by name."""
    x, y, rest = next(iter(SequenceDataset(pairs(8)).train_dataloader(batch_size=4, shuffle=False)))

    assert x.tolist() == [0, 1, 2, 3] and (y == -x).all() and rest == {}
    assert collate_sequences([1, 2]).tolist() == [1, 2]
    with pytest.raises(SourceError, match=r"samples have 1 elements beyond \(x, y\), expected 0 \(no names\)"):
        collate_sequences([(1, 2, 3)])


def test_drop_last_does_not_empty_a_small_validation_set():
    """The loader's ``drop_last`` is about training."""
    module = SequenceDataset(pairs(10), pairs(3), pairs(2), loader={"batch_size": 4, "drop_last": True})

    assert [len(b) for b in inputs(module.train_dataloader())] == [4, 4]
    assert [len(b) for b in inputs(module.val_dataloader())] == [3]
    assert [len(b) for b in inputs(module.test_dataloader())] == [2]


def test_a_sampler_takes_the_place_of_shuffling():
    """A user's sampler for training crashes neither training nor validation."""
    data = pairs(6)
    module = SequenceDataset(data, pairs(4), loader={"batch_size": 3, "sampler": SequentialSampler(data)})

    assert inputs(module.train_dataloader()) == [[0, 1, 2], [3, 4, 5]]
    assert inputs(module.val_dataloader()) == [[0, 1, 2], [3]]


def test_missing_and_empty_partitions_have_no_loader():
    """No partition, no loader; nothing at all is an error that says what to do."""
    module = SequenceDataset(pairs(6), dataset_test=pairs(0))

    assert module.val_dataloader() is None and module.test_dataloader() is None
    with pytest.raises(SourceError, match=r"SequenceDataset has no partition.*override setup\(\)"):
        SequenceDataset().setup()


def test_default_setup_splits_once():
    """Trainers call ``setup`` for every stage; the split is made once."""
    module = SequenceDataset(pairs(10), val_split=0.3)
    module.setup("fit")
    module.setup("validate")

    assert (len(module.dataset_train), len(module.dataset_val)) == (7, 3)
    with pytest.raises(SourceError, match=r"val_split=1\.5: expected a share"):
        module.split_train_val(1.5)


def test_accounted_and_mixed_training_get_ladings_loader():
    """A ledger, several datasets or weights ask for a loader that can say what it delivers."""
    accounted = SequenceDataset(pairs(8), accounted=True, loader={"batch_size": 4})
    mixed = SequenceDataset(
        {"a": pairs(8), "b": pairs(4)}, pairs(3), loader={"batch_size": 4, "weights": {"a": 1, "b": 1}}
    )

    assert isinstance(accounted.train_dataloader(), Loader)
    assert mixed.train_dataloader().plan.names == ("a", "b")
    assert type(mixed.val_dataloader()) is DataLoader


def test_a_seed_in_the_loader_section_fixes_the_order():
    """Without chunks a seed is torch's generator."""
    module = SequenceDataset(pairs(20), loader={"batch_size": 5, "seed": 11})
    generator = torch.Generator().manual_seed(11)

    expected = [b[0].tolist() for b in DataLoader(pairs(20), batch_size=5, shuffle=True, generator=generator)]

    assert inputs(module.train_dataloader()) == expected


def test_streams_are_loaded_as_torch_loads_them():
    """A partition without a length goes through; it cannot be shuffled, nor cut into chunks."""

    class Stream(IterableDataset):
        def __iter__(self):
            yield from zip(range(5), range(5), strict=True)

    module = ChunkedSequenceDataset(Stream(), loader={"batch_size": 2})

    assert inputs(module.train_dataloader()) == [[0, 1], [2, 3], [4]]
    with pytest.raises(SourceError, match=r"type Stream has no length: expected __len__ and __getitem__"):
        ChunkedSequenceDataset(Stream(), train_chunk_size=2).train_dataloader()
