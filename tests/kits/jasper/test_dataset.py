"""The JASPER dataset: samples, batches, steering, names, life and death."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest
import torch
from tests.kits.jasper.jasper_directory import CURRICULUM, make_directory, table
from torch.utils.data import DataLoader, Subset, default_collate

from lading.errors import SourceError
from lading.kits.jasper.dataset import JASPERSteeringDataset
from lading.source.spec import validate_batch

# A plain DataLoader forks whatever is loaded; a framework with threads, loaded by another test, warns of it.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

SAMPLE = {
    "question_emb": ((4,), torch.float32),
    "target_source_emb": ((4,), torch.float32),
    "steering": ((4,), torch.float32),
    "negative_embs": ((3, 4), torch.float32),
    "cluster_id": ((), torch.int64),
    "relevance": ((), torch.float32),
    "centroid_distance": ((), torch.float32),
    "steering_variant": ((), torch.int64),
    "negative_tiers": ((3,), torch.int64),
}


@pytest.fixture
def directory(tmp_path):
    """A directory with a curriculum."""
    return make_directory(tmp_path / "data", curriculum=CURRICULUM)


@pytest.fixture
def dataset(directory):
    """Its training split: pairs 13, 12, ... 0."""
    return JASPERSteeringDataset(directory, "train")


def same(one, two):
    """Equal keys and equal values."""
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def variants_of(loader):
    """All steering variants a loader yields, in order."""
    return torch.cat([batch["steering_variant"] for batch in loader]).tolist()


def test_a_sample_has_exactly_the_nine_keys_with_their_shapes_and_types(dataset):
    """As the contract lists them."""
    found = {key: (tuple(value.shape), value.dtype) for key, value in dataset[0].items()}

    assert found == SAMPLE


def test_a_sample_holds_the_rows_of_its_pair(dataset, directory):
    """Sample 2 of the split is pair 11; every value is that pair's."""
    pair, sample = 11, dataset[2]
    question, source = table(directory, "pair_index")[pair]

    assert torch.equal(sample["question_emb"], table(directory, "question_embs")[question])
    assert torch.equal(sample["target_source_emb"], table(directory, "source_embs")[source])
    negatives = table(directory, "source_embs")[table(directory, "hard_negatives")[pair]]
    assert torch.equal(sample["negative_embs"], negatives)
    for key, name in (
        ("cluster_id", "pair_cluster_id"),
        ("relevance", "pair_relevance"),
        ("centroid_distance", "centroid_distances"),
        ("negative_tiers", "negative_tiers"),
    ):
        assert torch.equal(sample[key], table(directory, name)[pair])


@pytest.mark.parametrize(
    ("name", "number", "tensor"),
    [
        ("zero", 0, None),
        ("none", 0, None),
        ("centroid", 1, "steering_centroid"),
        ("keyword", 2, "steering_keyword_weighted"),
        ("keyword_weighted", 2, "steering_keyword_weighted"),
        ("residual", 3, "steering_residual"),
    ],
)
def test_forced_steering_gives_every_sample_that_variant(dataset, directory, name, number, tensor):
    """Samples and batches, by either name."""
    dataset.force_steering(name)
    batch = dataset.take(np.arange(len(dataset)))
    expected = torch.zeros(14, 4) if tensor is None else table(directory, tensor)[dataset.pair_numbers]

    assert batch["steering_variant"].tolist() == [number] * 14
    assert torch.equal(batch["steering"], expected)
    assert torch.equal(dataset[5]["steering"], expected[5])


def test_forced_steering_ends_with_none_and_refuses_unknown_names(dataset):
    """None goes back to the curriculum."""
    before = dataset.take(np.arange(14))["steering_variant"]
    dataset.force_steering("residual")
    dataset.force_steering(None)

    assert torch.equal(dataset.take(np.arange(14))["steering_variant"], before)
    with pytest.raises(ValueError, match=r"^Invalid steering variant: diagonal"):
        dataset.force_steering("diagonal")


def test_take_equals_samples_stacked(dataset):
    """A gathered batch is the collated one, repeated and reordered indices included."""
    indices = [3, 0, 13, 3, 7]
    dataset.set_epoch(4)

    batch = dataset.take(np.array(indices))

    assert same(batch, default_collate([dataset[i] for i in indices]))


def test_steering_is_the_table_row_of_the_variant_drawn(dataset, directory):
    """Each row of a batch has the steering its variant names."""
    names = [None, "steering_centroid", "steering_keyword_weighted", "steering_residual"]
    seen = set()
    for epoch in range(4):
        batch = dataset.take_keyed(np.arange(14), epoch=epoch)
        for row, variant in enumerate(batch["steering_variant"].tolist()):
            pair = int(dataset.pair_numbers[row])
            expected = torch.zeros(4) if variant == 0 else table(directory, names[variant])[pair]
            assert torch.equal(batch["steering"][row], expected)
            seen.add(variant)
    assert seen == {0, 1, 2, 3}


def test_the_variant_belongs_to_the_pair_not_to_the_access(directory):
    """Any order of access, any split, any object: the same variant of a pair in an epoch."""
    one = JASPERSteeringDataset(directory, "train", epoch=5)
    two = JASPERSteeringDataset(directory, "train", epoch=5)
    forwards = [int(one[i]["steering_variant"]) for i in range(14)]
    backwards = [int(two[i]["steering_variant"]) for i in reversed(range(14))]

    assert forwards == backwards[::-1] == two.take(np.arange(14))["steering_variant"].tolist()
    assert forwards != one.take_keyed(np.arange(14), epoch=6)["steering_variant"].tolist()


def test_variants_are_the_same_for_any_number_of_workers(directory):
    """0, 1 and 2 real worker processes of a plain DataLoader."""
    found = []
    for workers in (0, 1, 2):
        dataset = JASPERSteeringDataset(directory, "train", epoch=3)
        found.append(variants_of(DataLoader(dataset, batch_size=4, num_workers=workers)))

    assert found[0] == found[1] == found[2]


def test_set_epoch_and_force_steering_reach_persistent_workers(directory):
    """A plain DataLoader whose workers were started epochs ago."""
    dataset = JASPERSteeringDataset(directory, "train")
    loader = DataLoader(dataset, batch_size=7, num_workers=1, persistent_workers=True)
    found, expected = [], []
    for epoch in (0, 1, 40):
        dataset.set_epoch(epoch)
        found.append(variants_of(loader))
        expected.append(dataset.take(np.arange(14))["steering_variant"].tolist())
    dataset.force_steering("keyword")
    found.append(variants_of(loader))

    assert found == [*expected, [2] * 14]
    assert len(set(map(tuple, expected))) == 3


def test_new_negatives_reach_persistent_workers(directory):
    """reload_negatives in the parent is followed by workers that run already."""
    dataset = JASPERSteeringDataset(directory, "train")
    loader = DataLoader(dataset, batch_size=14, num_workers=1, persistent_workers=True)
    before = next(iter(loader))["negative_embs"]
    torch.save((table(directory, "hard_negatives") + 1) % 8, directory / "hard_negatives.pt")
    torch.save(torch.full((20, 3), 2), directory / "negative_tiers.pt")

    dataset.reload_negatives()
    after = next(iter(loader))

    assert not torch.equal(before, after["negative_embs"])
    assert torch.equal(after["negative_embs"], dataset.take(np.arange(14))["negative_embs"])
    assert after["negative_tiers"].unique().tolist() == [2]


def test_refused_negatives_leave_the_old_ones(dataset, directory):
    """Both tables are checked before either is replaced."""
    before = dataset.take(np.arange(14))
    torch.save(torch.full((20, 3), 99), directory / "hard_negatives.pt")

    with pytest.raises(SourceError, match=r"hard_negatives references source 99, but only 8 sources exist"):
        dataset.reload_negatives()
    assert same(dataset.take(np.arange(14)), before)


def test_epochs_move_the_curriculum(dataset):
    """current_epoch, steering_probs and get_steering_stats tell the same."""
    dataset.set_epoch(50)

    assert dataset.current_epoch == 50
    assert dataset.steering_probs["zero"] == pytest.approx(0.3)
    assert dataset.get_steering_stats() == {
        "epoch": 50,
        "probs": list(dataset.steering_probs.values()),
        "variant_names": ["zero", "centroid", "keyword", "residual"],
    }
    with pytest.raises(SourceError, match=r"epoch is -1, expected 0 or more"):
        dataset.set_epoch(-1)


@pytest.mark.parametrize("index", [14, -1, 999])
def test_an_index_outside_the_split_is_an_index_error(dataset, index):
    """Samples and batches, negative ones too."""
    with pytest.raises(IndexError, match=rf"^Index {index} out of range \[0, 14\)$"):
        dataset[index]
    with pytest.raises(IndexError, match=rf"^Index {index} out of range \[0, 14\)$"):
        dataset.take(np.array([0, index]))


def test_iterating_a_dataset_ends(dataset):
    """The IndexError is the one Python's protocol expects."""
    assert sum(1 for _ in dataset) == 14


def test_pair_numbers_name_the_pair_of_an_index(dataset):
    """dataset.pair_numbers[idx], and errors name both."""
    assert dataset.pair_numbers[torch.tensor([0, 13])].tolist() == [13, 0]
    assert dataset.describe(3) == "sample 3 of 'train' (pair 10)"
    assert dataset.file_of(3).endswith("data, sample 3 of 'train' (pair 10)")


def test_a_subset_by_cluster_holds_exactly_its_samples(dataset):
    """It is a torch Subset, and gathers batches as the whole split does."""
    subset = dataset.subset_by_cluster([0, 2])
    batch = subset.take(np.arange(len(subset)))

    assert isinstance(subset, Subset)
    clusters = dataset.take(np.arange(14))["cluster_id"]
    assert len(subset) == int(((clusters == 0) | (clusters == 2)).sum())
    assert set(batch["cluster_id"].tolist()) == {0, 2}
    assert same(batch, default_collate(list(subset)))
    assert torch.equal(subset.pair_numbers, dataset.pair_numbers[subset.indices])
    assert subset.describe(0) == dataset.describe(subset.indices[0])
    assert validate_batch(batch, subset.spec())


def test_a_subset_refuses_clusters_and_indices_that_do_not_exist(dataset):
    """Each with the numbers that do."""
    with pytest.raises(SourceError, match=r"clusters \[3\] were asked for, expected numbers from 0 to 2"):
        dataset.subset_by_cluster([3])
    subset = dataset.subset_by_cluster([1])
    with pytest.raises(IndexError, match=rf"Index {len(subset)} out of range \[0, {len(subset)}\)"):
        subset.take([len(subset)])


def test_combined_splits_share_their_tables_but_not_their_epoch(directory):
    """train, val and test; the tables are read once."""
    splits = JASPERSteeringDataset.create_combined_splits(directory, epoch=2)
    splits["train"].set_epoch(9)

    assert {name: len(split) for name, split in splits.items()} == {"train": 14, "val": 3, "test": 3}
    assert [split.split for split in splits.values()] == ["train", "val", "test"]
    assert splits["val"].question_embs is splits["train"].question_embs
    assert (splits["val"].current_epoch, splits["train"].current_epoch) == (2, 9)
    assert same(splits["test"][1], JASPERSteeringDataset(directory, "test", epoch=2)[1])


def test_memory_is_counted_and_logged(directory, caplog):
    """The bytes of all tables, in MB."""
    caplog.set_level(logging.INFO)
    dataset = JASPERSteeringDataset(directory, "train")
    stored = sum(table(directory, path.stem).nbytes for path in directory.glob("*.pt") if path.stem.count("key") != 1)
    stored += table(directory, "keyword_embs").nbytes + table(directory, "steering_keyword_weighted").nbytes
    stored -= sum(table(directory, f"{split}_idx").nbytes for split in ("val", "test"))

    assert dataset.memory_usage_mb == pytest.approx(stored / 1024**2)
    assert any("memory=" in record.message for record in caplog.records)


def test_a_closed_dataset_says_so(directory):
    """The context manager closes; twice is fine."""
    with JASPERSteeringDataset(directory, "train") as dataset:
        assert len(dataset) == 14
    dataset.close()

    with pytest.raises(AttributeError, match=r"question_embs is gone: this dataset was closed"):
        _ = dataset.question_embs
    with pytest.raises(AttributeError, match=r"has no attribute 'colour'"):
        _ = dataset.colour
    assert dataset.memory_usage_mb == 0


def test_the_device_holds_everything_zero_steering_included(directory):
    """On torch's meta device, the only other one every machine has."""
    dataset = JASPERSteeringDataset(directory, "train", device="meta")
    dataset.force_steering("zero")

    assert {value.device.type for value in dataset.take(np.arange(4)).values()} == {"meta"}
    assert not {name for name in vars(dataset) if getattr(getattr(dataset, name), "is_cpu", False)}
    assert JASPERSteeringDataset(directory, "train").device == torch.device("cpu")


def test_keyword_ids_are_read_when_asked_for(dataset):
    """A list of lists, kept."""
    assert dataset.pair_keyword_ids[:2] == [[0, 1, 2], [4]]
    assert dataset.pair_keyword_ids is dataset.pair_keyword_ids


def test_unknown_config_keys_are_kept(tmp_path):
    """The config is the file's."""
    dataset = JASPERSteeringDataset(make_directory(tmp_path, dataset_name="bio", n_pairs=20), "val")

    assert dataset.config == {"embedding_dim": 4, "n_neg": 3, "dataset_name": "bio", "n_pairs": 20}


def test_samples_are_copies(dataset):
    """Writing into a sample or batch leaves the dataset alone."""
    before = dataset.take(np.arange(14))
    for value in itertools.chain(dataset[0].values(), dataset.take(np.arange(14)).values()):
        value.zero_()

    assert same(dataset.take(np.arange(14)), before)


def test_fingerprints_follow_the_content_and_not_the_place(directory, tmp_path):
    """A copy elsewhere is the same; another split, config or embedding is not; new negatives are no new data."""
    mark = JASPERSteeringDataset(directory, "train").fingerprint()
    copy = make_directory(tmp_path / "copy", curriculum=CURRICULUM)
    torch.save((table(copy, "hard_negatives") + 1) % 8, copy / "hard_negatives.pt")

    assert JASPERSteeringDataset(copy, "train").fingerprint() == mark
    assert JASPERSteeringDataset(copy, "val").fingerprint() != mark
    torch.save(table(copy, "question_embs") * 2, copy / "question_embs.pt")
    assert JASPERSteeringDataset(copy, "train").fingerprint() != mark


def test_a_batch_never_changes_under_whoever_holds_it(dataset):
    """Whole batches, one column, a view of a row, an array: memory is used again only when all are gone."""
    dataset.force_steering("centroid")
    wholes = [dataset.take(np.arange(i, i + 4)) for i in range(10)]
    columns = [dataset.take(np.arange(i, i + 4))["steering"] for i in range(10)]
    rows = [dataset.take(np.arange(i, i + 4))["negative_embs"][2, 1] for i in range(10)]
    arrays = [dataset.take(np.arange(i, i + 4))["question_emb"].numpy() for i in range(10)]
    for i in range(10):
        expected = default_collate([dataset[j] for j in range(i, i + 4)])
        assert same(wholes[i], expected)
        assert torch.equal(columns[i], expected["steering"])
        assert torch.equal(rows[i], expected["negative_embs"][2, 1])
        assert np.array_equal(arrays[i], expected["question_emb"].numpy())


def test_memory_nobody_holds_is_used_again(dataset):
    """The next batch of the same size lies where the last one lay."""
    places = {dataset.take(np.arange(4))["negative_embs"].data_ptr() for _ in range(20)}

    assert len(places) <= 2


def test_tables_can_be_changed_and_replaced(dataset):
    """What the attributes hold is what batches are made of, steering too."""
    dataset.force_steering("residual")
    dataset.steering_residual[13] = 7.0
    assert dataset.take([0])["steering"].tolist() == [[7.0] * 4]

    dataset.steering_residual = torch.full((20, 4), 8.0)
    assert dataset.take([0])["steering"].tolist() == [[8.0] * 4]
    assert dataset[0]["steering"].tolist() == [8.0] * 4
