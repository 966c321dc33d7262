"""create_loader, set_epoch and validate_first_batch: the names, rules and messages of the founding document."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from tests.kits.jasper.jasper_directory import CURRICULUM, make_directory, table
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
)

from lading.errors import LoaderError, SourceError
from lading.kits.jasper import create_loader, set_epoch, validate_first_batch
from lading.kits.jasper.dataset import JASPERSteeringDataset
from lading.loader import Loader
from lading.source.spec import BatchSpec, Field

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


@pytest.fixture
def directory(tmp_path):
    """100 pairs: 70 for training, 15 and 15 for the rest."""
    return make_directory(tmp_path / "data", pairs=100, curriculum=CURRICULUM)


@pytest.fixture
def as_rank(monkeypatch):
    """Be a rank of a world, as a launcher tells it."""

    def become(rank, world_size):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(world_size))

    return become


class Listener:
    """A tracker that remembers the batches it was notified of."""

    def __init__(self):
        self.batches = []

    def update(self, bill):
        self.batches.append(bill.batch_id)

    def flush(self):
        pass


def variants(batches, dataset):
    """Steering variant by pair, over some batches, padding left out."""
    found = {}
    for batch in batches:
        real = ~batch.get("is_padding", torch.zeros(len(batch["idx"]), dtype=torch.bool))
        pairs = dataset.pair_numbers[batch["idx"][real]].tolist()
        found.update(zip(pairs, batch["steering_variant"][real].tolist(), strict=True))
    return found


def same(one, two):
    """Equal batches in equal order."""
    one, two = list(one), list(two)
    return len(one) == len(two) and all(torch.equal(a[k], b[k]) for a, b in zip(one, two, strict=True) for k in a)


def test_it_is_a_dataloader_with_the_attributes_of_the_original(directory):
    """isinstance, dataset_obj, sampler_obj, and every argument by its name."""
    loader = create_loader(directory, "train", 8, num_workers=2)

    assert isinstance(loader, DataLoader)
    assert isinstance(loader, Loader)
    assert loader.dataset.source is loader.dataset_obj
    assert (loader.batch_size, loader.num_workers, loader.pin_memory) == (8, 2, True)
    assert (len(loader.dataset), len(loader)) == (70, 8)
    assert create_loader(directory, "train", 8, pin_memory=False).pin_memory is False


def test_a_batch_has_the_nine_keys_and_its_names(directory):
    """idx is the index in the split; names can be renamed and switched off."""
    loader = create_loader(directory, "val", 5)
    batch = next(iter(loader))

    assert set(batch) == NINE | {"idx", "dataset_idx"}
    assert batch["negative_embs"].shape == (5, 3, 4)
    pairs = loader.dataset_obj.pair_numbers[batch["idx"]]
    assert torch.equal(batch["relevance"], table(directory, "pair_relevance")[pairs])
    assert set(next(iter(create_loader(directory, "val", 5, names=False)))) == NINE
    assert "sample" in next(iter(create_loader(directory, "val", 5, names={"idx": "sample"})))


def test_batches_are_gathered_and_equal_the_collated_samples(directory, monkeypatch):
    """Never sample by sample, yet the same content."""
    loader = create_loader(directory, "train", 16)
    samples = [loader.dataset_obj[i] for i in range(70)]
    monkeypatch.delattr(JASPERSteeringDataset, "__getitem__")
    monkeypatch.delattr(JASPERSteeringDataset, "item_keyed")

    for batch in loader:
        expected = default_collate([samples[i] for i in batch.pop("idx").tolist()])
        assert same([expected], [batch])


def test_a_collate_function_of_ones_own_gets_samples(directory):
    """Through the generic loader; the epoch still reaches every sample."""
    dataset = JASPERSteeringDataset(directory, "val")
    loader = Loader(dataset, 15, shuffle=False, collate_fn=default_collate)
    set_epoch(loader, 9)
    (batch,) = loader

    assert torch.equal(batch["steering_variant"], dataset.take_keyed(np.arange(15), epoch=9)["steering_variant"])


@pytest.mark.parametrize("prefetch", [0, 3])
def test_batches_kept_in_a_list_stay_what_they_were(directory, prefetch):
    """list(loader), with and without a thread that gathers ahead."""
    kept, looked = create_loader(directory, "train", 4), create_loader(directory, "train", 4)
    kept.prefetch = prefetch
    copies = [{key: value.clone() for key, value in batch.items()} for batch in looked]

    assert same(list(kept), copies)


def test_samplers_are_those_torch_would_have_made(directory, as_rank):
    """Random for train, sequential otherwise, distributed where asked for."""
    train, val, test = (create_loader(directory, split, 8) for split in ("train", "val", "test"))
    as_rank(1, 2)
    distributed = create_loader(directory, "train", 8, distributed=True)

    assert isinstance(train.sampler, RandomSampler)
    assert isinstance(val.sampler, SequentialSampler)
    assert isinstance(test.sampler, SequentialSampler)
    assert not any(isinstance(loader.sampler, DistributedSampler) for loader in (train, val, test))
    assert train.sampler_obj is val.sampler_obj is None
    assert isinstance(distributed.sampler_obj, DistributedSampler)
    assert distributed.sampler_obj is distributed.sampler
    assert (distributed.sampler_obj.rank, distributed.sampler_obj.num_replicas) == (1, 2)


def test_a_sampler_tells_the_order_of_the_loader(directory):
    """What the sampler yields is what the batches hold."""
    for loader in (create_loader(directory, "train", 8), create_loader(directory, "val", 8)):
        expected = list(loader.sampler)
        assert torch.cat([batch["idx"] for batch in loader]).tolist() == expected
        assert len(loader.sampler) == len(expected)


def test_drop_last_is_for_train_only_unless_said(directory):
    """None means True for train, False otherwise."""
    assert [create_loader(directory, split, 8).drop_last for split in ("train", "val", "test")] == [True, False, False]
    assert [len(create_loader(directory, "train", 8, drop_last=drop)) for drop in (None, True, False)] == [8, 8, 9]
    assert [len(create_loader(directory, "val", 8, drop_last=drop)) for drop in (None, True, False)] == [2, 1, 2]


def test_train_is_shuffled_differently_each_epoch_and_val_is_in_order(directory):
    """Seeds make orders; val and test have one."""
    train = create_loader(directory, "train", 70, seed=3)
    orders = [next(iter(train))["idx"].tolist() for _ in range(2)]
    other = next(iter(create_loader(directory, "train", 70, seed=4)))["idx"].tolist()

    assert sorted(orders[0]) == sorted(orders[1]) == sorted(other) == list(range(70))
    assert len({*map(tuple, orders), tuple(other), tuple(range(70))}) == 4
    assert torch.cat([batch["idx"] for batch in create_loader(directory, "val", 4)]).tolist() == list(range(15))


def test_epoch_reaches_dataset_and_sampler(directory):
    """Starting at an epoch is as having got there."""
    there = create_loader(directory, "train", 8, epoch=2)
    walked = create_loader(directory, "train", 8)
    set_epoch(walked, 2)

    assert (there.epoch, there.dataset_obj.current_epoch) == (2, 2)
    assert same(there, walked)
    chunked = create_loader(directory, "train", 8, epoch=2, chunk_batches=3)
    assert same(list(chunked), itertools.islice(create_loader(directory, "train", 8, epoch=2), 3))


def test_variants_do_not_depend_on_workers_ranks_or_resumes(directory, as_rank):
    """0, 1, 2 workers, 2 ranks, and a state loaded half way: always the pure function of epoch and pair."""
    found = []
    for workers in (0, 1, 2):
        loader = create_loader(directory, "train", 8, num_workers=workers, epoch=3)
        found.append(variants(loader, loader.dataset_obj))
    for rank in (0, 1):
        as_rank(rank, 2)
        loader = create_loader(directory, "train", 8, distributed=True, epoch=3)
        found.append(variants(loader, loader.dataset_obj))
    resumed = create_loader(directory, "train", 8, epoch=3)
    started = create_loader(directory, "train", 8, epoch=3)
    list(itertools.islice(started, 4))
    resumed.load_state_dict(started.state_dict())
    rest = variants(resumed, resumed.dataset_obj)

    expected = resumed.dataset_obj._shared.steering.variants(np.arange(100), 3).tolist()
    assert len(rest) == 32
    for drawn in (*found, rest):
        assert drawn == {pair: expected[pair] for pair in drawn}


def test_set_epoch_reaches_persistent_workers_of_both_kinds_of_loader(directory):
    """A Lading loader and a plain DataLoader, each with a worker that lives through three epochs."""
    dataset = JASPERSteeringDataset(directory, "val")
    plain = DataLoader(dataset, batch_size=15, num_workers=1, persistent_workers=True)
    ours = create_loader(directory, "val", 15, num_workers=1, persistent_workers=True)
    for epoch in (0, 1, 60):
        set_epoch(plain, epoch)
        set_epoch(ours, epoch)
        expected = dataset.take_keyed(np.arange(15), epoch=epoch)["steering_variant"]
        assert torch.equal(next(iter(plain))["steering_variant"], expected)
        assert torch.equal(next(iter(ours))["steering_variant"], expected)
        assert (dataset.current_epoch, ours.dataset_obj.current_epoch) == (epoch, epoch)


def test_set_epoch_finds_distributed_samplers_and_subsets(directory):
    """Of plain DataLoaders; and refuses loaders that have nothing to set."""
    dataset = JASPERSteeringDataset(directory, "train")
    sampler = DistributedSampler(dataset, num_replicas=2, rank=0)
    set_epoch(DataLoader(dataset, sampler=sampler, batch_size=4), 5)
    assert (sampler.epoch, dataset.current_epoch) == (5, 5)

    set_epoch(DataLoader(Subset(dataset, [0, 1])), 6)
    set_epoch(DataLoader(dataset.subset_by_cluster([1])), dataset.current_epoch + 1)
    assert dataset.current_epoch == 7
    with pytest.raises(LoaderError, match=r"neither the TensorDataset nor the SequentialSampler .* has a set_epoch"):
        set_epoch(DataLoader(TensorDataset(torch.arange(3))), 1)


def test_distributed_training_shards_without_overlap(directory, as_rank):
    """Two ranks together get what one would."""
    seen = []
    for rank in (0, 1):
        as_rank(rank, 2)
        loader = create_loader(directory, "train", 5, distributed=True)
        seen.append(torch.cat([batch["idx"] for batch in loader]).tolist())
        assert len(loader) == 7
    assert not set(seen[0]) & set(seen[1])
    assert sorted(seen[0] + seen[1]) == list(range(70))


def test_without_distributed_every_process_gets_everything(directory, as_rank):
    """Even inside a launched job."""
    as_rank(1, 2)

    assert len(create_loader(directory, "train", 7)) == 10


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_distributed_evaluation_counts_every_sample_once(directory, as_rank, world_size):
    """Missing rows are marked as padding, every rank delivers every step."""
    counted, lengths = [], set()
    for rank in range(world_size):
        as_rank(rank, world_size)
        loader = create_loader(directory, "test", 4, distributed=True)
        batches = list(loader)
        lengths.add(len(batches))
        for batch in batches:
            real = ~batch.get("is_padding", torch.zeros(len(batch["idx"]), dtype=torch.bool))
            counted += batch["idx"][real].tolist()
    assert sorted(counted) == list(range(15))
    assert len(lengths) == 1


def test_trackers_chunks_and_devices_are_passed_on(directory):
    """The keyword-only additions."""
    listener = Listener()
    loader = create_loader(directory, "train", 8, tracker=listener, chunk_batches=3, device="cpu")
    first, second = list(loader), list(loader)

    assert len(first) == len(second) == 3
    assert len(set(listener.batches)) == 6
    assert not {*torch.cat([b["idx"] for b in first]).tolist()} & {*torch.cat([b["idx"] for b in second]).tolist()}
    assert create_loader(directory, "val", 8, device="meta").dataset_obj.question_embs.is_meta
    workers = create_loader(directory, "train", 8, num_workers=1, prefetch_factor=4, persistent_workers=True)
    assert (workers.prefetch_factor, workers.persistent_workers) == (4, True)


def test_construction_errors_are_those_of_the_dataset(directory):
    """The split that is not there."""
    with pytest.raises(SourceError, match=r"^Split file not found: .* Valid splits are: train, val, test"):
        create_loader(directory, "dev", 8)


def test_two_jasper_datasets_in_one_loader_follow_set_epoch(directory, tmp_path):
    """Generic loaders work as well."""
    other = make_directory(tmp_path / "other", pairs=40, seed=1, curriculum=CURRICULUM)
    sources = {"a": JASPERSteeringDataset(directory, "train"), "b": JASPERSteeringDataset(other, "train")}
    loader = Loader(sources, 14)
    set_epoch(loader, 4)

    assert {dataset.current_epoch for dataset in sources.values()} == {loader.epoch} == {4}
    assert validate_first_batch(loader)
    clusters = Loader(sources["a"].subset_by_cluster([2]), 4)
    assert set(torch.cat([batch["cluster_id"] for batch in clusters]).tolist()) == {2}


def broken(directory, name, place, value):
    """A loader whose data breaks one rule in training sample 3 (pair 66)."""
    loader = create_loader(directory, "train", 70)
    getattr(loader.dataset_obj, name)[place] = value
    return loader


def test_a_good_loader_is_true(directory):
    """Lading's and torch's, with and without workers and names."""
    assert validate_first_batch(create_loader(directory, "train", 8)) is True
    assert validate_first_batch(create_loader(directory, "val", 8, num_workers=1)) is True
    assert validate_first_batch(DataLoader(JASPERSteeringDataset(directory, "train"), batch_size=8)) is True
    assert validate_first_batch(create_loader(directory, "train", 8, names=False), strict=True) is True
    assert validate_first_batch(create_loader(directory, "train", 8, names={"idx": "sample"})) is True


def test_strict_allows_exactly_the_nine_keys(directory):
    """Names are extra then."""
    with pytest.raises(AssertionError, match=r"^Batch keys mismatch\. Expected: \[.*\], Got: \[.*'dataset_idx', 'idx'"):
        validate_first_batch(create_loader(directory, "train", 8), strict=True)


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("question_embs", slice(None), float("nan"), "NaN detected in question_emb"),
        ("question_embs", slice(None), float("inf"), "Inf detected in question_emb"),
        ("source_embs", slice(None), float("nan"), "NaN detected in target_source_emb"),
        ("pair_cluster_id", 66, -1, "cluster_id must be non-negative"),
        ("pair_cluster_id", 66, 9, "cluster_id must be < 3, got max 9"),
        ("pair_relevance", 66, -0.5, "relevance must be >= 0"),
        ("pair_relevance", 66, 1.5, "relevance must be <= 1"),
        ("pair_relevance", 66, float("nan"), "NaN detected in relevance"),
        ("centroid_distances", 66, -0.5, "centroid_distance must be >= 0"),
        ("centroid_distances", 66, 2.5, "centroid_distance must be <= 2"),
        ("negative_tiers", (66, 1), 0, "negative_tiers must be >= 1"),
        ("negative_tiers", (66, 1), 5, "negative_tiers must be <= 4"),
    ],
)
@pytest.mark.parametrize("kind", ["lading", "torch"])
def test_each_fault_has_its_message_and_names_the_pair(directory, name, place, value, message, kind):
    """Raised, with the sample and the pair at fault; a plain DataLoader's shuffled batch, too."""
    loader = broken(directory, name, place, value)
    if kind == "torch":
        loader = DataLoader(loader.dataset_obj, batch_size=70, shuffle=True)

    with pytest.raises(AssertionError, match=f"^{message}: sample ") as caught:
        validate_first_batch(loader)
    if place != slice(None):
        assert str(caught.value).endswith("sample 3 of 'train' (pair 66)")


class Fixed:
    """A loader of ready batches."""

    def __init__(self, **changes):
        batch = {key: torch.zeros(2, 4) for key in ("question_emb", "target_source_emb", "steering")}
        batch |= {"negative_embs": torch.zeros(2, 3, 4), "negative_tiers": torch.ones(2, 3, dtype=torch.int64)}
        batch |= {key: torch.zeros(2, dtype=torch.int64) for key in ("cluster_id", "steering_variant")}
        batch |= {key: torch.zeros(2) for key in ("relevance", "centroid_distance")}
        self.batch = {key: value for key, value in (batch | changes).items() if value is not None}

    def __iter__(self):
        return iter([self.batch])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"steering": None}, "Batch keys mismatch. Expected: .*, Got: "),
        ({"label": torch.zeros(2)}, "Batch keys mismatch. Expected: .*, Got: .*'label'"),
        *((({key: torch.zeros(2, 5, 5)}), f"{key} shape mismatch: ") for key in sorted(NINE)),
        ({"steering_variant": torch.tensor([0, -1])}, "steering_variant must be >= 0: row 1 of the batch"),
        ({"steering_variant": torch.tensor([4, 0])}, "steering_variant must be <= 3: row 0 of the batch"),
        ({"cluster_id": torch.tensor([0, -1])}, "cluster_id must be >= 0"),
        ({"relevance": torch.zeros(2, dtype=torch.float64)}, "relevance dtype mismatch: float64 != float32"),
    ],
)
def test_any_iterable_of_batches_can_be_checked(changes, message):
    """Without a dataset to ask, the sizes must only agree among themselves."""
    if message is None:
        assert validate_first_batch(Fixed(**changes)) is True
    else:
        with pytest.raises(AssertionError, match=f"^{message}"):
            validate_first_batch(Fixed(**changes))


def test_any_loader_can_be_checked_against_a_spec():
    """Generic underneath."""
    loader = Loader(
        TensorDataset(torch.arange(4.0)), 2, collate_fn=lambda rows: {"x": torch.stack([r[0] for r in rows])}
    )

    assert validate_first_batch(loader, spec=BatchSpec({"x": Field(("B",), "float32", high=3)}))
    with pytest.raises(AssertionError, match=r"^x must be <= 1: sample [23]"):
        validate_first_batch(loader, spec=BatchSpec({"x": Field(("B",), "float32", high=-1 + 2)}))


@pytest.mark.parametrize("workers", [0, 1])
def test_looking_takes_nothing_from_a_lading_loader(directory, workers):
    """Neither batches, nor the tracker's count, nor a position loaded from a state."""
    listener = Listener()
    loader = create_loader(directory, "train", 8, num_workers=workers, tracker=listener)
    twin = create_loader(directory, "train", 8)
    list(itertools.islice(twin, 3))
    loader.load_state_dict(twin.state_dict())
    state = loader.state_dict()

    assert validate_first_batch(loader)
    assert (listener.batches, loader.state_dict(), loader.last_bill) == ([], state, None)
    resumed = create_loader(directory, "train", 8)
    resumed.load_state_dict(state)
    assert same(loader, resumed)
    assert len(listener.batches) == 5


@pytest.mark.parametrize("generator", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
def test_looking_takes_nothing_from_a_plain_loader(directory, generator, workers):
    """The same shuffled epoch as without it, from the global generator or an own one."""
    dataset = JASPERSteeringDataset(directory, "train")

    def epoch(look):
        torch.manual_seed(7)
        own = torch.Generator().manual_seed(8) if generator else None
        loader = DataLoader(dataset, batch_size=8, shuffle=True, generator=own, num_workers=workers)
        assert not look or validate_first_batch(loader)
        return [*loader, {"after": torch.rand(3)}]

    assert same(epoch(look=True), epoch(look=False))


def test_an_empty_loader_has_nothing_to_look_at(directory):
    """Said in words, not as a bare StopIteration."""
    loader = DataLoader(JASPERSteeringDataset(directory, "val"), batch_size=16, drop_last=True)

    with pytest.raises(LoaderError, match="has no batch to look at"):
        validate_first_batch(loader)


def test_the_check_survives_python_o():
    """Raised, not asserted."""
    code = (
        "import numpy as np\n"
        "from lading.source.spec import *\n"
        "try: validate_batch({'x': np.full(2, np.nan)}, BatchSpec({'x': Field(('B',))}))\n"
        "except AssertionError as error: print(error)\n"
        "assert False, 'python -O was not on'"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, timeout=600)

    assert (done.returncode, done.stdout) == (0, "NaN detected in x: row 0 of the batch\n")
