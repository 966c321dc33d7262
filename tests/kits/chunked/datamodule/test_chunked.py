"""Partitions in chunks: the sizes rule on real data, and loaders that continue where they were."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from lading.errors import ConfigError
from lading.kits.chunked import ChunkedSequenceDataset, SequenceDataset
from lading.loader.torch.chunked import ChunkedDataLoader


def pairs(size: int) -> TensorDataset:
    """Return pairs (i, -i)."""
    return TensorDataset(torch.arange(size), -torch.arange(size))


def inputs(loader) -> list[int]:
    """Return x of one iteration."""
    return [n for batch in loader for n in batch[0].tolist()]


class Late(ChunkedSequenceDataset):
    """Makes its partitions in ``setup``, as subclasses do."""

    def setup(self, stage: str | None = None) -> None:
        """Make the partitions."""
        self.dataset_train, self.dataset_val, self.dataset_test = pairs(40), pairs(14), pairs(9)


@pytest.mark.parametrize(
    ("sizes", "chunked", "train", "val"),
    [
        ({}, False, None, None),
        ({"train_chunk_size": 3}, True, 3, 4),
        ({"val_chunk_size": 2}, True, 10, 2),
        ({"train_chunk_size": 3, "val_chunk_size": 2}, True, 3, 2),
    ],
)
def test_missing_sizes_are_worked_out_after_setup(sizes, chunked, train, val):
    """One size given: the other is the whole partition, in batches, once it is known."""
    module = Late(**sizes, loader={"batch_size": 4})
    before = (module.use_chunked_training, module.train_chunk_size, module.val_chunk_size)

    module.setup()

    assert before == (chunked, sizes.get("train_chunk_size"), sizes.get("val_chunk_size"))
    assert (module.use_chunked_training, module.train_chunk_size, module.val_chunk_size) == (chunked, train, val)
    assert module.explicit_train_chunk_size == sizes.get("train_chunk_size")
    assert module.explicit_val_chunk_size == sizes.get("val_chunk_size")


def test_a_missing_size_is_one_chunk_with_any_batch_size():
    """Also where the batch size comes with the call for the loader."""
    module = Late(train_chunk_size=3)
    module.setup()
    unknown = module.val_chunk_size

    loader = module.val_dataloader(batch_size=5)

    assert unknown == 14 and module.val_chunk_size == 3
    assert inputs(loader) == inputs(loader) == list(range(14))


def test_without_sizes_it_is_a_sequence_dataset():
    """Same loaders, same batches."""
    module = Late(loader={"batch_size": 4})
    module.setup()
    plain = SequenceDataset(pairs(40), loader={"batch_size": 4})
    torch.manual_seed(0)
    expected = inputs(plain.train_dataloader())

    torch.manual_seed(0)
    loader = module.train_dataloader()

    assert type(loader) is DataLoader and inputs(loader) == expected
    assert (module.current_train_chunk, module.current_val_chunk, module.state_dict()) == (0, 0, {})


def test_chunks_cover_all_the_data_and_asking_again_goes_on():
    """A trainer that reloads its loaders every epoch gets the chunks that follow."""
    module = Late(train_chunk_size=3, val_chunk_size=2, loader={"batch_size": 4})
    module.setup()

    seen = [inputs(module.train_dataloader()) for _ in range(4)]
    validated = [inputs(module.val_dataloader()) for _ in range(3)]

    assert isinstance(module.train_dataloader(), ChunkedDataLoader)
    assert [len(chunk) for chunk in seen] == [12, 12, 12, 4] and sorted(n for chunk in seen for n in chunk) == list(
        range(40)
    )
    assert validated == [list(range(8)), list(range(8, 14)), list(range(8))]
    assert (module.current_train_chunk, module.current_val_chunk) == (4, 3)


def test_the_test_partition_uses_the_validation_size():
    """Nine samples in batches of four, two batches a chunk."""
    module = Late(val_chunk_size=2, loader={"batch_size": 4})
    module.setup()

    assert [inputs(module.test_dataloader()) for _ in range(2)] == [list(range(8)), [8]]


def test_states_go_on_before_and_after_loaders_are_made():
    """A state may be loaded before anybody asked for a loader."""
    module, early, late = (Late(train_chunk_size=3, val_chunk_size=2, loader={"batch_size": 4}) for _ in range(3))
    for m in (module, early, late):
        m.setup()
    inputs(module.train_dataloader())
    next(iter(module.train_dataloader()))
    inputs(module.val_dataloader())
    state = module.state_dict()

    early.load_state_dict(state)
    for name in ("train", "val"):
        getattr(late, f"{name}_dataloader")()
    late.load_state_dict(state)

    assert early.state_dict() == late.state_dict() == state
    assert inputs(early.train_dataloader()) == inputs(late.train_dataloader())
    assert (late.current_train_chunk, late.current_val_chunk) == (2, 1)


def test_another_batch_size_is_another_loader():
    """Arguments of the call take precedence and make a loader of their own."""
    module = Late(train_chunk_size=3, loader={"batch_size": 4})
    module.setup()

    assert len(inputs(module.train_dataloader())) == 12
    assert len(inputs(module.train_dataloader(batch_size=2))) == 6


def test_any_data_module_can_be_chunked():
    """The partitions and ways of another module, in chunks."""
    other = SequenceDataset(pairs(20), pairs(6), loader={"batch_size": 4})

    module = ChunkedSequenceDataset.of(other, 2, None)

    assert module.setup_chunked_training().val == 2
    assert sorted(inputs(module.train_dataloader()) + inputs(module.train_dataloader())) != list(range(20))
    assert module.current_train_chunk == 2


def test_setup_chunked_training_makes_the_partitions():
    """Asked for sizes, a module that was not set up sets itself up."""
    sizes = Late(train_chunk_size=3, loader={"batch_size": 4}).setup_chunked_training()

    assert (sizes.enabled, sizes.train, sizes.val) == (True, 3, 4)


def test_impossible_sizes_are_refused_at_once():
    """Before any data are read."""
    with pytest.raises(ConfigError, match="train_chunk_size=0"):
        Late(train_chunk_size=0)


def test_drop_last_and_inference_agree():
    """The whole partition is what the loader really yields."""
    module = Late(val_chunk_size=2, loader={"batch_size": 7, "drop_last": True})
    module.setup()

    assert module.train_chunk_size == len(module.train_dataloader()) == 5
