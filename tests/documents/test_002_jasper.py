"""Document 002, JASPER loaders: its usage patterns, with only the imports and nccl/cuda replaced."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.documents.contract import check_arguments, promised
from tests.kits.jasper.jasper_directory import CURRICULUM, make_directory, table
from torch.utils.data import DataLoader

from lading import (
    JASPERBuilder,
    JASPERSteeringDataset,
    Ledger,
    create_loader,
    open_run,
    set_epoch,
    validate_first_batch,
)
from lading.errors import ResumeError

# A plain DataLoader forks whatever is loaded; a framework with threads, loaded by another test, warns of it.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

NINE = {
    "question_emb",
    "target_source_emb",
    "steering",
    "negative_embs",
    "cluster_id",
    "relevance",
    "centroid_distance",
    "steering_variant",
    "negative_tiers",
}

NAMES = {
    "JASPERSteeringDataset": (
        "kits.jasper",
        "dataset_dir, split, epoch=0, device=None, storage_format='auto', use_mmap=None",
    ),
    "create_loader": (
        "kits.jasper",
        "dataset_dir, split, batch_size, num_workers=0, distributed=False, epoch=0, drop_last=None, pin_memory=True",
    ),
    "set_epoch": ("kits.jasper", "loader, epoch"),
    "validate_first_batch": ("kits.jasper", "loader"),
    "BatchSpec": ("source", ""),
    "JASPERBuilder": ("kits.jasper", ""),
    "build_jasper_dataset": (
        "kits.jasper",
        "output_dir, pairs, question_embs=None, source_embs=None, keyword_embs=None",
    ),
    "mine_negatives": ("kits.jasper", "dataset_dir"),
    "build_steering": ("kits.jasper", "dataset_dir"),
}


@pytest.fixture
def directory(tmp_path):
    """100 pairs: 70 for training, 15 and 15 for the rest."""
    return make_directory(tmp_path / "data", pairs=100, curriculum=CURRICULUM)


def test_pattern_profiling(directory):
    """Time of a batch, as the document measures it; the bound is a benchmark's business, the loop is ours."""
    loader = create_loader(directory, "train", batch_size=32, num_workers=1)
    times = []
    for i, batch in enumerate(loader):
        start = time.time()
        batch = {k: v.to("cpu") for k, v in batch.items()}
        times.append(time.time() - start)
        if i >= 100:
            break

    assert f"Avg batch time: {np.mean(times) * 1000:.2f} ms" and len(times) == 2


def test_a_batch_of_32_in_under_5_ms_is_a_goal_of_the_benchmarks():
    """``make bench`` measures it, ``make bench-check`` compares; here it would measure the other tests."""
    goals = tomllib.loads((Path(__file__).parents[2] / "benchmarks" / "goals.toml").read_text())

    assert goals["ours"]["jasper loader, a batch of 32"] <= 5


def test_pattern_errors_of_the_document(directory):
    """The three errors it shows, in its words."""
    (directory / "val_idx.pt").unlink()
    with pytest.raises(ValueError, match=r"Split file not found: .*val_idx\.pt\. Valid splits are: train, val, test"):
        create_loader(directory, "val", batch_size=32)
    pairs = table(directory, "pair_index")
    pairs[3, 1] = 500
    torch.save(pairs, directory / "pair_index.pt")
    with pytest.raises(ValueError, match="pair_index references source 500, but only 8 sources exist"):
        create_loader(directory, "train", batch_size=32)
    pairs[3, 1] = 0
    torch.save(pairs, directory / "pair_index.pt")
    torch.save(table(directory, "question_embs") * float("nan"), directory / "question_embs.pt")
    with pytest.raises(AssertionError, match="NaN detected in question_emb"):
        validate_first_batch(create_loader(directory, "train", batch_size=32, validate=False))


def test_progressive_batch_size_with_a_ledger_names_the_way(directory, tmp_path):
    """A new loader of another batch size is another plan; the error says what a planned growth is called."""
    first = create_loader(directory, "train", batch_size=16)
    with Ledger(tmp_path / "run", first.plan) as ledger:
        first.tracker = ledger
        for _, bill in first.with_bills():
            ledger.commit(bill)

    second = create_loader(directory, "train", batch_size=32, epoch=1)
    second.tracker = Ledger(tmp_path / "run", second.plan)
    with pytest.raises(ResumeError, match=r"global batch size 16 -> 32.*batch_schedule="):
        next(iter(second))


def test_progressive_batch_size_as_one_planned_loader(directory, tmp_path):
    """batch_schedule: the sizes of the document in one loader, one ledger, a record that verifies."""
    loader = create_loader(directory, "train", None, batch_schedule=[(0, 16), ("4ba", 32), ("6ba", 64)])
    sizes = []
    with Ledger(tmp_path / "run", loader.plan) as ledger:
        loader.tracker = ledger
        for epoch in range(3):
            set_epoch(loader, epoch)
            for batch, bill in loader.with_bills():
                sizes.append(len(batch["idx"]))
                ledger.commit(bill)

    assert sizes[:4] == [16] * 4 and set(sizes[4:6]) == {32} and sizes[-1] == 64
    assert open_run(tmp_path / "run").verify().holds


def test_pattern_single_process(directory):
    """Train and validate, epoch by epoch."""
    train_loader = create_loader(directory, "train", batch_size=32, num_workers=1)
    val_loader = create_loader(directory, "val", batch_size=64, num_workers=0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for epoch in range(2):
        set_epoch(train_loader, epoch)
        model.train()
        for batch in train_loader:
            loss = (model(batch["question_emb"] + batch["steering"]) - batch["target_source_emb"]).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            seen += [len(batch["relevance"]) for batch in val_loader]
    assert seen == [15, 15]


def test_pattern_debugging_with_validation(directory):
    """Validate, then look by hand."""
    loader = create_loader(directory, "train", batch_size=32)
    validate_first_batch(loader)
    batch = next(iter(loader))

    assert batch["question_emb"].shape == batch["steering"].shape == (32, 4)
    assert 0 <= batch["cluster_id"].min() <= batch["cluster_id"].max() < 3
    assert f"{batch['relevance'].min():.3f}" <= f"{batch['relevance'].max():.3f}"
    sample = loader.dataset_obj[0]
    assert {k: v.shape if torch.is_tensor(v) else v for k, v in sample.items()}.keys() == NINE


def test_pattern_progressive_batch_size(directory):
    """A new loader for each batch size continues in the curriculum and in the order."""
    sizes = {0: 16, 1: 32, 2: 64}
    steps = []
    for epoch, batch_size in sizes.items():
        train_loader = create_loader(directory, "train", batch_size=batch_size, num_workers=0)
        set_epoch(train_loader, epoch)
        assert train_loader.dataset_obj.current_epoch == epoch
        steps.append([len(batch["idx"]) for batch in train_loader])
    assert steps == [[16] * 4, [32] * 2, [64]]


def test_pattern_validation_with_fixed_steering(directory):
    """All batches use centroid steering."""
    val_dataset = JASPERSteeringDataset(directory, split="val")
    val_dataset.force_steering("centroid")
    val_loader = DataLoader(val_dataset, batch_size=64, num_workers=2)
    (batch,) = val_loader

    assert batch["steering_variant"].tolist() == [1] * 15
    assert torch.equal(batch["steering"], table(directory, "steering_centroid")[val_dataset.pair_numbers])
    ours = create_loader(directory, "val", 64)
    ours.dataset_obj.force_steering("none")
    assert next(iter(ours))["steering_variant"].tolist() == [0] * 15


DDP_PATTERN = """
import sys, json, warnings, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from lading import create_loader, set_epoch, validate_first_batch

def main():
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    device = torch.device("cpu")
    model = torch.nn.Linear(4, 4).to(device)
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_loader = create_loader(dataset_dir=sys.argv[1], split="train", batch_size=8, num_workers=1, distributed=True)
    validate_first_batch(train_loader)
    seen = []
    for epoch in range(2):
        set_epoch(train_loader, epoch)
        for batch in train_loader:
            batch = {k: v.to(device) for k, v in batch.items()}
            output = model(batch["question_emb"] + batch["steering"])
            loss = (output - batch["target_source_emb"]).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pairs = train_loader.dataset_obj.pair_numbers[batch["idx"]]
            seen.append([epoch, pairs.tolist(), batch["steering_variant"].tolist()])
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        create_loader(sys.argv[1], "val", 4)
    evaluated = [i for b in create_loader(sys.argv[1], "test", 4, distributed=True)
                 for i, pad in zip(b["idx"].tolist(), b["is_padding"].tolist()) if not pad]
    with open(f"{sys.argv[2]}/{rank}.json", "w") as file:
        json.dump({"seen": seen, "evaluated": evaluated, "weight": model.module.weight.tolist(),
                   "heard": [str(w.message) for w in heard]}, file)
    dist.barrier()  # gloo may abort a process that leaves while another still talks
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""


@pytest.mark.launch
def test_pattern_multi_process_ddp(directory, tmp_path):
    """The document's DDP script under a real torchrun with two processes."""
    script = tmp_path / "train.py"
    script.write_text(DDP_PATTERN)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", str(script), str(directory), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr[-3000:]
    ranks = [json.loads(Path(tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]

    alone = create_loader(directory, "train", 16)
    steering = alone.dataset_obj._shared.steering
    for epoch in (0, 1):
        pairs = [[p for e, batch, _ in rank["seen"] if e == epoch for p in batch] for rank in ranks]
        assert not set(pairs[0]) & set(pairs[1])
        whole = torch.cat([alone.dataset_obj.pair_numbers[batch["idx"]] for batch in alone]).tolist()
        assert sorted(pairs[0] + pairs[1]) == sorted(whole)
        for rank in ranks:
            for e, batch, drawn in rank["seen"]:
                assert steering.variants(np.array(batch), e).tolist() == drawn
    assert sorted(ranks[0]["evaluated"] + ranks[1]["evaluated"]) == list(range(15))
    assert ranks[0]["weight"] == ranks[1]["weight"]
    for rank in ranks:  # without distributed=True every rank would read everything: said once
        assert len(rank["heard"]) == 1 and "process group of 2 ranks: every rank reads every sample" in rank["heard"][0]
        assert "Pass distributed=True" in rank["heard"][0]


@pytest.mark.parametrize("name", NAMES)
def test_names_and_arguments_are_those_of_the_contract(name):
    """From ``lading`` and from the stage, arguments by place, with the defaults that are promised."""
    stage, written = NAMES[name]

    check_arguments(promised(name, stage), written)


def test_our_additions_to_the_loader_are_keywords():
    """The original's arguments keep their places."""
    arguments = inspect.signature(create_loader).parameters
    added = ["seed", "device", "chunk_batches", "tracker", "persistent_workers", "prefetch_factor"]

    assert {arguments[name].kind for name in added} == {inspect.Parameter.KEYWORD_ONLY}
    check_arguments(JASPERSteeringDataset.convert_pt_to_hdf5, "dataset_dir, compression='gzip'")
    fields = inspect.signature(JASPERBuilder).parameters
    assert (fields["adjacent_k"].default, fields["splits"].default) == (3, (0.8, 0.1, 0.1))
