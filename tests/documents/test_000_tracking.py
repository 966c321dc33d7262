"""Document 000, batch tracking: its code, as it is printed there."""

from __future__ import annotations

import json

import pytest
import torch
from tests.documents.contract import check_arguments, promised
from torch.utils.data import DataLoader

from lading import BatchTracker, Loader, MixtureScheduler, RepeatingLoader, SteerToShares, WeightedConcatDataset

NAMES = {
    "BatchTracker": ("ledger", ""),
    "RepeatingLoader": ("train", "loader, use_batch_tracker=False"),
    "StatefulDistributedSampler": (
        "loader",
        "dataset, num_replicas=None, rank=None, shuffle=True, seed=42, drop_last=False, epoch=0, "
        "total_consumed_samples=0",
    ),
    "WeightedConcatDataset": ("source", "datasets, weights"),
    "SequentialWeightedConcatDataset": ("source", "datasets, weights"),
    "WeightedConcatIterableDataset": ("source", "datasets, weights"),
    "DsTrainingArguments": ("kits.deepspeed", "output_dir"),
}


def numbers(size: int, offset: int = 0) -> list[dict]:
    """Return dict samples."""
    return [{"x": torch.tensor(float(i + offset))} for i in range(size)]


def test_tracking_retrieving_and_resetting():
    """The printed outputs, to the letter."""
    tracker = BatchTracker()
    assert tracker.tracker == {}

    batch_data = {"idx": torch.tensor([0, 1, 2]), "dataset_idx": torch.tensor([1, 1, 2])}
    tracker.update(batch_data)

    assert str(tracker.samples_idx_per_dataset) == "{1: [0, 1], 2: [2]}"
    assert str(tracker.n_samples_per_dataset) == "{1: 2, 2: 1}"
    tracker.reset()
    assert tracker.tracker == {} and tracker.n_samples_per_dataset == {}


def test_an_instance_passed_to_the_repeating_loader_is_updated():
    """ "If you pass a BatchTracker instance to RepeatingLoader, every batch is automatically forwarded"."""
    dataset = WeightedConcatDataset([numbers(5), numbers(4, 100)], [1.0, 0.5])
    tracker = BatchTracker()
    repeating = RepeatingLoader(DataLoader(dataset, batch_size=3), use_batch_tracker=tracker)

    for _ in range(6):  # two passes
        next(repeating)

    assert repeating.batch_tracker is tracker and iter(repeating) is repeating
    assert sum(tracker.n_samples_per_dataset.values()) == 14
    assert tracker.samples_idx_per_dataset[1] == [0, 1, 0, 1]


def test_logging_dumps_statistics_of_each_dataset(tmp_path):
    """ "Dump per-dataset statistics to disk for post-training analysis"."""
    tracker, path = BatchTracker(), tmp_path / "statistics.jsonl"
    for step in range(2):
        tracker.update({"idx": [step], "dataset_idx": [3]})
        tracker.dump(path, step=step)
        tracker.reset()

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1]
    assert all("3" in json.dumps(line) for line in lines)


def test_a_curriculum_schedule_reads_the_mapping():
    """ "Plug the mapping into a scheduler that adjusts sampling probabilities on-the-fly"."""
    tracker = BatchTracker()
    loader = Loader({"a": numbers(64), "b": numbers(64, 100)}, 8, weights={"a": 1, "b": 1}, tracker=tracker)
    scheduler = MixtureScheduler(loader, tracker, SteerToShares({"a": 3, "b": 1}, every_steps=4))
    changed = [scheduler.step() for _ in loader]

    assert scheduler.probabilities["a"] > 0.5
    assert any(probabilities is not None for probabilities in changed)


@pytest.mark.parametrize("name", NAMES)
def test_names_and_arguments_are_those_of_the_contract(name):
    """From ``lading`` and from the stage, arguments by place, with the defaults that are promised."""
    stage, written = NAMES[name]

    check_arguments(promised(name, stage), written)
