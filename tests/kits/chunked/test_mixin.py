"""Hand-written loops in chunks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import TensorDataset

from lading.errors import ConfigError
from lading.kits.chunked import Config, SequenceDataset
from lading.kits.chunked.mixin import ChunkedTrainingMixin


def pairs(size: int) -> TensorDataset:
    """Return pairs (i, -i)."""
    return TensorDataset(torch.arange(size), -torch.arange(size))


class Loop(ChunkedTrainingMixin):
    """A loop that notes what it sees."""

    def __init__(self, config) -> None:
        self.dataset = SequenceDataset(pairs(40), pairs(12))
        self.trained: list[int] = []
        self.validated: list[int] = []
        super().__init__(config)

    def training_step(self, batch) -> torch.Tensor:
        """Note the samples."""
        self.trained += batch[0].tolist()
        return torch.tensor(2.0)

    def validation_step(self, batch) -> float:
        """Note the samples."""
        self.validated += batch[0].tolist()
        return 1.0


LOADER = {"loader": {"batch_size": 4}}


@pytest.mark.parametrize(
    ("train", "enabled", "sizes"),
    [
        ({}, False, (None, None)),
        ({"train_chunk_size": 4}, True, (4, 3)),
        ({"val_chunk_size": 2}, True, (10, 2)),
        ({"train_chunk_size": 4, "val_chunk_size": 2, "limit_train_batches": 1}, True, (4, 2)),
    ],
)
def test_chunking_is_detected_and_the_missing_size_inferred(train, enabled, sizes):
    """From the configuration alone, by the sizes rule."""
    loop = Loop({"train": train, **LOADER})

    assert loop.chunked_training_enabled is enabled
    assert (loop.train_chunk_size, loop.val_chunk_size) == sizes
    assert loop.explicit_train_chunk_size == train.get("train_chunk_size")


def test_each_epoch_trains_a_chunk_validates_a_chunk_and_tells_progress():
    """Three epochs go through the training data once."""
    loop = Loop(
        {"train": {"train_chunk_size": 4, "val_chunk_size": 2}, "trainer": {"limit_train_batches": 1}, **LOADER}
    )

    results = [loop.train_epoch_with_chunking() for _ in range(3)]

    assert sorted(loop.trained) == list(range(40))
    assert [r["train_batches"] for r in results] == [4, 4, 2] and [r["val_batches"] for r in results] == [2, 1, 2]
    assert (results[0]["train_loss"], results[0]["val_loss"]) == (2.0, 1.0)
    assert loop.validated == [*range(12), *range(8)]
    assert results[0]["line"] == "pass 0, chunk 1/3, 40 % of the data"
    assert results[2]["line"] == "pass 0, chunk 3/3, 100 % of the data"
    assert (loop.progress["pass"], loop.progress["current_chunk"], loop.progress["share"]) == (0, 2, 1.0)
    assert (loop.current_train_chunk, loop.current_val_chunk) == (3, 3)
    assert loop.train_epoch_with_chunking()["line"] == "pass 1, chunk 1/3, 40 % of the data"


def test_without_sizes_a_standard_epoch_with_limits():
    """Limits work as ever, integers and shares."""
    loop = Loop({"trainer": {"limit_train_batches": 3}, "train": {"limit_val_batches": 0.34}, **LOADER})

    result = loop.train_epoch_with_chunking()

    assert (result["train_batches"], result["val_batches"]) == (3, 1)
    assert loop.state_dict() == {} and loop.current_train_chunk == 0


def test_standard_epochs_equal_a_plain_loop():
    """Same batches as the data module's own loader from the same seed."""
    loop = Loop(LOADER)
    torch.manual_seed(1)
    expected = [n for x, _, _ in loop.dataset.train_dataloader(batch_size=4) for n in x.tolist()]

    torch.manual_seed(1)
    loop.standard_training_epoch()

    assert loop.trained == expected


def test_a_state_goes_on_in_another_process():
    """The loop that resumes sees what the first one would have seen."""
    config = {"train": {"train_chunk_size": 3}, **LOADER}
    first, resumed = Loop(config), Loop(config)
    first.train_epoch_with_chunking()
    state = first.state_dict()
    first.trained.clear()

    resumed.load_state_dict(state)
    first.train_epoch_with_chunking()
    resumed.train_epoch_with_chunking()

    assert resumed.trained == first.trained


def test_any_kind_of_configuration_is_understood():
    """Dicts, objects with attributes, and checked configurations."""
    objects = SimpleNamespace(train=SimpleNamespace(train_chunk_size=4), loader={"batch_size": 4})
    checked = Config.from_dict({"train": {"train_chunk_size": 4}, **LOADER})

    assert Loop(objects).train_chunk_size == Loop(checked).train_chunk_size == 4


def test_a_data_module_may_come_later_but_not_never():
    """Sizes wait for the data; without any the error says where they are expected."""

    class Late(ChunkedTrainingMixin):
        pass

    late = Late({"train": {"train_chunk_size": 4}, **LOADER})
    with pytest.raises(ConfigError, match=r"Late has no dataset: expected a data module in self\.dataset"):
        late.train_epoch_with_chunking()
    late.dataset = SequenceDataset(pairs(40), pairs(12))
    late.setup_chunked_training()

    assert late.val_chunk_size == 3
