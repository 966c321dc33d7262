"""The names that count are the batch's: whatever stands between, everybody books what the batch carries.

Here: DataLoader, Loader, NumpyLoader, RepeatingLoader, ``track`` and Lightning. The JAX loader is in
``tests/loader/jax/test_loader_names.py``, DsTrainer and its file in ``tests/kits/deepspeed/test_trainer.py``.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from tests.loader.named_sources import NAMED, SOURCES, Rows, by_dataset, carried, concatenated, named, weighted
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split

from lading import (
    BatchTracker,
    Ledger,
    Loader,
    RepeatingLoader,
    SequentialWeightedConcatDataset,
    TaggedDataset,
    WeightedConcatDataset,
    World,
    open_run,
    track,
)
from lading.errors import LoaderError, PlanError, SourceError
from lading.loader.numpy import NumpyLoader
from lading.train.lightning import LedgerCallback


def concatenated_at(*numbers):
    """Return torch's concatenation of datasets that say these numbers in their data, and nothing of names."""
    return ConcatDataset([Rows(number, 3) for number in numbers])


def recorded(path):
    """Return the samples of a run's applied steps, in order, by its ledger; the run must verify."""
    run = open_run(path)
    assert run.verify().holds
    return [(row["dataset"], row["index"]) for row in run.sql("SELECT * FROM samples ORDER BY step, slot")]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("make", NAMED)
def test_dataloader(make, num_workers):
    """Torch's own loader: the tracker books what the samples say they are."""
    tracker, seen = BatchTracker(), []

    for batch in DataLoader(make(), 3, shuffle=True, num_workers=num_workers):
        assert carried(batch) == named(batch)
        tracker.update(batch)
        seen += named(batch)

    assert tracker.samples_idx_per_dataset == by_dataset(seen)


@pytest.mark.parametrize("face", [Loader, NumpyLoader])
@pytest.mark.parametrize("make", SOURCES)
def test_loaders(make, face, tmp_path):
    """Data, name columns, bill, tracker, ledger and where all name the same samples."""
    tracker, ledger = BatchTracker(), Ledger(tmp_path)
    loader = face(make(), batch_size=3, tracker=[tracker, ledger])
    seen = []

    for batch, bill in loader.with_bills():
        assert carried(batch) == named(batch) == bill.samples
        seen += named(batch)
        ledger.commit(bill)
    ledger.close()

    assert tracker.samples_idx_per_dataset == by_dataset(seen)
    assert recorded(tmp_path) == seen
    run = open_run(tmp_path)
    assert sorted(len(run.where(d, i)) for d, i in seen) == sorted(seen.count(s) for s in seen)


@pytest.mark.parametrize("make", SOURCES)
def test_loader_with_workers_ranks_and_a_substitute(make):
    """Two ranks, worker processes, a blocked sample: padding is marked and counted by no one."""
    loaders = [NumpyLoader(make(), 2, num_workers=rank, world=World(rank, 2)) for rank in (0, 1)]
    victim = loaders[0].plan.bill(0).samples[0]
    seen = []

    for loader in loaders:
        tracker, mine = BatchTracker(), []
        loader.block(loader.plan.names[victim.dataset], [victim.index])
        for batch, bill in loader.with_bills():
            tracker.update(batch)
            assert named(batch) == bill.samples
            assert set(named(batch)) <= set(carried(batch))
            mine += bill.samples
        assert tracker.samples_idx_per_dataset == by_dataset(mine)
        seen += mine

    assert victim not in seen
    assert len(seen) == loaders[0].plan.epoch_samples


@pytest.mark.parametrize("wrapped", [DataLoader, Loader])
@pytest.mark.parametrize("make", NAMED)
def test_repeating_loader(make, wrapped):
    """Over several passes, around torch's loader and around ours."""
    batches = RepeatingLoader(wrapped(make(), batch_size=3), use_batch_tracker=True)
    seen = []

    for batch in itertools.islice(batches, 8):
        assert carried(batch) == named(batch)
        seen += named(batch)

    assert batches.batch_tracker.samples_idx_per_dataset == by_dataset(seen)


@pytest.mark.parametrize("make", SOURCES)
def test_repeating_loader_around_ours_with_a_ledger(make, tmp_path):
    """Tracker, bill and ledger agree over several passes, also where only the plan knows the names."""
    ledger, seen = Ledger(tmp_path), []
    loader = Loader(make(), batch_size=3, tracker=ledger)
    batches = RepeatingLoader(loader, use_batch_tracker=True)

    for batch in itertools.islice(batches, 8):
        assert carried(batch) == named(batch) == loader.last_bill.samples
        seen += named(batch)
        ledger.commit(loader.last_bill)
    ledger.close()

    assert batches.batch_tracker.samples_idx_per_dataset == by_dataset(seen)
    assert recorded(tmp_path) == seen


def test_a_concatenation_without_names_is_not_booked_in_silence():
    """Torch's loader drops the names of a plain ConcatDataset: one warning says so, and how to add them."""
    tracker, batches = BatchTracker(), list(DataLoader(concatenated(), 3))

    with pytest.warns(UserWarning, match=r"TaggedDataset"):
        tracker.update(batches[0])
    tracker.update(batches[1])
    tracker.update(batches[2])

    assert tracker.n_untracked_batches == 3 and tracker.n_samples_per_dataset == {}


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("make", SOURCES)
def test_track(make, num_workers, tmp_path):
    """The bills, the tracker and the ledger of a watched loader say what the data are."""
    tracker, seen = BatchTracker(), []
    loader = track(DataLoader(make(), 3, shuffle=True, num_workers=num_workers), run=tmp_path, tracker=tracker)

    for batch, bill in loader.with_bills():
        assert bill.samples == carried(batch)
        assert "idx" not in batch or named(batch) == bill.samples
        seen += carried(batch)
    loader.ledger.close()

    assert tracker.samples_idx_per_dataset == by_dataset(seen)
    assert recorded(tmp_path)[: len(seen) - 3] == seen[: len(seen) - 3]  # the last batch may wait for its fate
    assert loader.names == Loader(make(), batch_size=3).plan.names


class Seer(LightningModule):
    """Remembers what it was trained on."""

    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(2, 1), []

    def training_step(self, batch, batch_idx):
        """Return a loss."""
        assert carried(batch) == named(batch)
        self.seen += named(batch)
        return self.layer(batch["x"]).square().mean()

    def configure_optimizers(self):
        """Return plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=1e-4)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
@pytest.mark.parametrize("make", SOURCES)
def test_lightning(make, tmp_path):
    """A real trainer: tracker and ledger hold what training_step got."""
    tracker, model = BatchTracker(), Seer()
    loader = Loader(make(), batch_size=3, tracker=tracker)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = Trainer(max_epochs=2, callbacks=[LedgerCallback(tmp_path / "run")], enable_checkpointing=False, **quiet)

    trainer.fit(model, loader)

    assert recorded(tmp_path / "run") == model.seen
    assert tracker.samples_idx_per_dataset == by_dataset(model.seen)


def test_names_that_the_plan_cannot_know_are_refused():
    """Samples that say something else than their bill: a sentence instead of two truths."""

    class Liar(Rows):
        provides_names = True

        def __getitem__(self, index):
            return {**super().__getitem__(index), "idx": index + 1, "dataset_idx": 0}

    with pytest.raises(SourceError, match=r"carry 'idx' themselves and say \d+ in row 0, their bill says \d+"):
        next(iter(Loader(Liar(0, 5), batch_size=2)))
    with pytest.raises(SourceError, match="has a key 'idx' of its own"):
        next(iter(Loader(Subset(TaggedDataset(Rows(0, 5)), [3, 4]), batch_size=2)))
    with pytest.raises(PlanError, match=r"'a' and 'b' both have the number 0.*dataset_idx="):
        _ = Loader({"a": TaggedDataset(Rows(0, 5)), "b": TaggedDataset(Rows(0, 5))}, batch_size=2).plan
    with pytest.raises(LoaderError, match=r"'data' is a SequentialWeightedConcatDataset.*Pass shuffle=False"):
        _ = Loader(SequentialWeightedConcatDataset([Rows(0, 5)], [1]), batch_size=2).plan


def test_two_concatenations_go_into_one_loader_under_numbers_of_their_own():
    """Weights are of the sources, names of their datasets."""
    first = WeightedConcatDataset([Rows(0, 4), Rows(1, 4)], [1, 2])
    second = WeightedConcatDataset([Rows(7, 4), Rows(5, 4)], [1, 2], dataset_idx=[7, 5])
    loader = Loader({"a": first, "b": second}, batch_size=4, weights={"a": 3, "b": 1})

    for batch, bill in loader.with_bills():
        assert carried(batch) == named(batch) == bill.samples

    assert loader.plan.names == ("a[0]", "a[1]", "", "", "", "b[1]", "", "b[0]")


def test_parts_are_called_by_their_place_and_keep_their_numbers():
    """A concatenation is ``data[0]``, ``data[1]``; a number given is kept, the others take the lowest free ones."""
    assert Loader(concatenated(), batch_size=3).plan.names == ("data[0]", "data[1]")
    assert Loader(TaggedDataset(Rows(3, 7), dataset_idx=3), batch_size=3).plan.names == ("", "", "", "data")
    loader = Loader(
        {"a": Rows(1, 4), "own": TaggedDataset(Rows(0, 4), dataset_idx=0), "both": concatenated_at(2, 3)}, 4
    )

    assert loader.plan.names == ("own", "a", "both[0]", "both[1]")
    for batch, bill in loader.with_bills():
        assert carried(batch) == named(batch) == bill.samples
    assert Loader(weighted(), batch_size=3).plan.source_names == ("data",)  # one unit of order, weights and passes


def test_a_split_of_a_tagged_dataset_keeps_its_names_under_track():
    """``random_split`` of named samples: the names of the whole dataset count."""
    part, _ = random_split(TaggedDataset(Rows(2, 9), dataset_idx=2), [6, 3], torch.Generator().manual_seed(0))

    for batch, bill in track(DataLoader(part, 4, shuffle=True)).with_bills():
        assert carried(batch) == named(batch) == bill.samples


def test_global_idx_is_booked_as_the_batch_has_it():
    """The original's ``idx``, on request: the position in the whole concatenation."""
    data = WeightedConcatDataset([Rows(0, 2), Rows(1, 4)], [2.5, 0.5], global_idx=True)
    loader = Loader(data, batch_size=3)

    for batch, bill in loader.with_bills():
        assert named(batch) == bill.samples

    assert len(loader.plan.where("data[1]", 6)) == 1
    assert len(weighted()) == len(data)
