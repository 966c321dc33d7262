"""Construction errors of JASPER datasets: their order, their beginnings, and the file, row and value they name."""

from __future__ import annotations

import os
import re

import h5py
import pytest
import torch
from tests.kits.jasper.jasper_directory import make_directory, put, table, write_config

from lading.errors import LadingError, MissingFileError
from lading.kits.jasper import validate as checks
from lading.kits.jasper.dataset import JASPERSteeringDataset
from lading.kits.jasper.layout import TABLES


@pytest.fixture
def directory(tmp_path):
    """A directory of .pt files."""
    return make_directory(tmp_path / "data")


def refused(directory, beginning, split="train", error=ValueError, **options):
    """Expect an error whose text begins with this."""
    with pytest.raises(error, match=r"^" + re.escape(str(beginning))) as caught:
        JASPERSteeringDataset(directory, split, **options)
    assert isinstance(caught.value, LadingError)
    return str(caught.value)


def test_errors_come_in_the_promised_order(tmp_path):
    """From nothing at all to a complete directory, each repair shows the next error."""
    directory = tmp_path / "data"
    refused(directory, f"Dataset directory not found: {directory}", storage_format="zip")
    directory.mkdir()
    refused(directory, f"Config file not found: {directory / 'config.json'}", storage_format="zip")
    write_config(directory, embedding_dim=None, n_neg=None)
    refused(directory, "Invalid storage_format: zip. Must be 'auto', 'pt', or 'hdf5'", storage_format="zip")
    refused(directory, f"No dataset files found in {directory}")
    refused(directory, f"PT files not found in {directory}", storage_format="pt")
    refused(directory, f"HDF5 file not found: {directory / 'dataset.h5'}", storage_format="hdf5")
    torch.save(torch.zeros(1), directory / "question_embs.pt")
    assert "has no key 'embedding_dim'" in refused(directory, "Config file ")
    write_config(directory, n_neg=None)
    assert "has no key 'n_neg'; it has 'embedding_dim'" in refused(directory, "Config file ")
    write_config(directory)
    refused(directory, f"Split file not found: {directory / 'train_idx.pt'}. Valid splits are: train, val, test")
    torch.save(torch.tensor([[999]]), directory / "train_idx.pt")
    missing = directory / "source_embs.pt"
    refused(directory, f"Required tensor file not found: {missing}", error=FileNotFoundError)
    make_directory(directory)
    torch.save(torch.tensor([[999]]), directory / "train_idx.pt")
    refused(directory, "train_idx.pt has 2 dimensions, expected 1 dimensions")
    torch.save(torch.tensor([999]), directory / "train_idx.pt")
    torch.save(torch.zeros(20, 3), directory / "steering_residual.pt")
    refused(directory, "steering_residual.pt dimension 1 has size 3, expected 4")
    torch.save(torch.zeros(19, 4), directory / "steering_residual.pt")
    put(directory, "pair_index", (4, 0), 999)
    put(directory, "pair_index", (5, 1), 500)
    put(directory, "hard_negatives", (6, 2), 99)
    refused(directory, "Split indices reference pair 999, but only 20 pairs exist (train_idx.pt, row 0)")
    torch.save(torch.arange(5), directory / "train_idx.pt")
    refused(directory, "pair_index references question 999, but only 6 questions exist (pair_index.pt, row 4)")
    put(directory, "pair_index", (4, 0), 0)
    refused(directory, "pair_index references source 500, but only 8 sources exist (pair_index.pt, row 5)")
    put(directory, "pair_index", (5, 1), 0)
    refused(directory, "hard_negatives references source 99, but only 8 sources exist (hard_negatives.pt, row 6)")
    put(directory, "hard_negatives", (6, 2), 0)
    refused(directory, "steering_residual has 19 entries, expected 20 (steering_residual.pt)")
    make_directory(directory)
    assert len(JASPERSteeringDataset(directory, "train")) == 14


@pytest.mark.parametrize("split", ["invalid", "../train", "TRAIN"])
def test_an_unknown_split_names_the_valid_ones(directory, split):
    """Even where such a file might exist."""
    message = refused(directory, "Split file not found: ", split=split)

    assert "Valid splits are: train, val, test" in message


@pytest.mark.parametrize("name", [*(table.name for table in TABLES[1:]), "pair_keyword_ids"])
def test_every_missing_file_is_named(directory, name):
    """All but question_embs, whose absence means that there is no .pt dataset at all."""
    (directory / f"{name}.pt").unlink()

    refused(directory, f"Required tensor file not found: {directory / name}.pt", error=MissingFileError)


@pytest.mark.parametrize("validate", [None, True, False])
def test_the_originals_checks_hold_whatever_validate_says(directory, validate):
    """False skips only what the original does not check."""
    torch.save(table(directory, "steering_centroid")[:19], directory / "steering_centroid.pt")
    refused(directory, "steering_centroid has 19 entries, expected 20", validate=validate)


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("train_idx", 3, -1, "Split indices reference pair -1, but pair numbers start at 0 (train_idx.pt, row 3)"),
        ("pair_index", (2, 0), -3, "pair_index references question -3, but question numbers start at 0"),
        ("pair_index", (2, 1), -4, "pair_index references source -4, but source numbers start at 0"),
        ("hard_negatives", (7, 1), -2, "hard_negatives references source -2, but source numbers start at 0"),
        ("pair_cluster_id", 9, 3, "pair_cluster_id references cluster 3, but only 3 clusters exist"),
        ("pair_cluster_id", 9, -1, "pair_cluster_id references cluster -1, but cluster numbers start at 0"),
        ("negative_tiers", (8, 0), 0, "negative_tiers is 0, expected 1 to 4 (negative_tiers.pt, row 8)"),
        ("negative_tiers", (8, 0), 5, "negative_tiers is 5, expected 1 to 4 (negative_tiers.pt, row 8)"),
        ("pair_relevance", 4, 1.5, "pair_relevance is 1.5, expected 0 to 1 (pair_relevance.pt, row 4)"),
        ("pair_relevance", 4, -0.5, "pair_relevance is -0.5, expected 0 to 1 (pair_relevance.pt, row 4)"),
        ("centroid_distances", 5, 2.25, "centroid_distances is 2.25, expected 0 to 2 (centroid_distances.pt, row 5)"),
        ("question_embs", (3, 2), float("nan"), "NaN detected in question_embs (question_embs.pt, row 3, column 2)"),
        ("source_embs", (3, 2), float("inf"), "Inf detected in source_embs (source_embs.pt, row 3, column 2)"),
        ("keyword_embs", (3, 2), float("-inf"), "Inf detected in keyword_embs (keyword_embs.pt, row 3, column 2)"),
        ("centroid_embs", (2, 2), float("nan"), "NaN detected in centroid_embs (centroid_embs.pt, row 2, column 2)"),
        ("steering_residual", (1, 0), float("nan"), "NaN detected in steering_residual (steering_residual.pt, row 1"),
        ("pair_relevance", 4, float("nan"), "NaN detected in pair_relevance (pair_relevance.pt, row 4, column 0)"),
        ("centroid_distances", 4, float("inf"), "Inf detected in centroid_distances (centroid_distances.pt, row 4"),
    ],
)
def test_what_the_original_misses_is_refused(directory, name, place, value, message):
    """With file, row and value; validate=False lets it pass, if someone insists."""
    put(directory, name, place, value)

    text = refused(directory, message)
    row = place[0] if isinstance(place, tuple) else place
    assert f"{name}.pt, row {row}" in text
    JASPERSteeringDataset(directory, "train", validate=False)


def test_every_value_is_checked_below_1_gb_unless_said(directory, monkeypatch):
    """The limit is set to the size of this directory instead of writing 1 GB."""
    assert checks.FULL_SCAN_BYTES == 1 << 30
    put(directory, "pair_relevance", 4, 1.5)
    refused(directory, "pair_relevance is 1.5")
    tables = JASPERSteeringDataset(directory, "train", validate=False)
    size = sum(getattr(tables, table.name).nbytes for table in TABLES)

    monkeypatch.setattr(checks, "FULL_SCAN_BYTES", size + 1)
    refused(directory, "pair_relevance is 1.5")
    monkeypatch.setattr(checks, "FULL_SCAN_BYTES", size)
    assert len(JASPERSteeringDataset(directory, "train")) == 14
    refused(directory, "pair_relevance is 1.5", validate=True)


@pytest.mark.parametrize("name", ["pair_relevance", "centroid_distances", "pair_cluster_id", "negative_tiers"])
def test_tables_of_another_length_are_refused(directory, name):
    """Not only the steering tables."""
    torch.save(table(directory, name)[:19], directory / f"{name}.pt")

    refused(directory, f"{name} has 19 entries, expected 20 ({name}.pt)")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[0]] * 19, "pair_keyword_ids has 19 entries, expected 20 (pair_keyword_ids.pt)"),
        ([[0]] * 7 + [[1, 5]] + [[0]] * 12, "pair_keyword_ids references keyword 5, but only 5 keywords exist"),
        ([[0]] * 7 + [[-1]] + [[0]] * 12, "pair_keyword_ids references keyword -1, but keyword numbers start at 0"),
        (
            [[0]] * 7 + [["a"]] + [[0]] * 12,
            "pair_keyword_ids holds 'a' (pair_keyword_ids.pt, row 7), expected integers",
        ),
        ([0] * 20, "pair_keyword_ids.pt holds a list, expected a list with one list of ints for each pair"),
        (torch.zeros(20, 2), "pair_keyword_ids.pt holds a Tensor, expected a list with one list of ints"),
    ],
)
def test_wrong_keyword_ids_are_refused(directory, ids, message):
    """Lengths, ids out of range, things that are no ids."""
    torch.save(ids, directory / "pair_keyword_ids.pt")

    text = refused(directory, message)
    assert "references" not in text or "(pair_keyword_ids.pt, row 7)" in text


def test_an_empty_split_is_refused(directory):
    """By name, whatever validate says."""
    torch.save(torch.zeros(0, dtype=torch.int64), directory / "val_idx.pt")

    for validate in (None, False):
        refused(directory, "Split 'val' is empty (val_idx.pt has 0 rows)", split="val", validate=validate)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("question_embs", "float64"),
        ("source_embs", "bfloat16"),
        ("pair_index", "int32"),
        ("train_idx", "int32"),
        ("pair_relevance", "float16"),
    ],
)
@pytest.mark.parametrize("mapped", [True, False])
def test_wrong_dtypes_are_refused(directory, name, dtype, mapped):
    """With the dtype found and the one expected."""
    tensor = table(directory, name)
    expected = str(tensor.dtype).removeprefix("torch.")
    torch.save(tensor.to(getattr(torch, dtype)), directory / f"{name}.pt")

    message = f"{name}.pt has dtype {dtype}, expected {expected}. Save it as tensor.to(torch.{expected})."
    refused(directory, message, use_mmap=mapped)


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("name", ["question_embs", "hard_negatives", "train_idx"])
@pytest.mark.parametrize("keep", [0, 0.5, 0.99])
def test_truncated_files_are_named(directory, name, keep, mapped):
    """Cut anywhere, read or mapped."""
    path = directory / f"{name}.pt"
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])

    refused(directory, f"{name}.pt cannot be read, it is truncated or not written by torch.save", use_mmap=mapped)


def test_a_file_that_holds_no_tensor_is_named(directory):
    """A list where a tensor belongs."""
    torch.save([1, 2], directory / "source_embs.pt")

    refused(directory, "source_embs.pt holds a list, expected a tensor")


def test_truncated_hdf5_is_named(directory):
    """Cut in half, and a table removed."""
    JASPERSteeringDataset.convert_pt_to_hdf5(directory)
    path = directory / "dataset.h5"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(directory, "dataset.h5 cannot be read, it is truncated or no HDF5")

    path.write_bytes(whole)
    with h5py.File(path, "a") as file:
        del file["negatives/tiers"]
    refused(directory, f"Required tensor file not found: {path}/negatives/tiers", error=FileNotFoundError)


def test_hdf5_errors_name_the_table_in_the_file(directory):
    """Shapes, ids and keyword ids."""
    JASPERSteeringDataset.convert_pt_to_hdf5(directory)
    with h5py.File(directory / "dataset.h5", "a") as file:
        file["pair_data/keyword_ids/7"][0] = 5
    refused(
        directory,
        "pair_keyword_ids references keyword 5, but only 5 keywords exist (dataset.h5/pair_data/keyword_ids, row 7)",
    )
    with h5py.File(directory / "dataset.h5", "a") as file:
        file["pair_data/index"][3, 0] = 99
    refused(
        directory, "pair_index references question 99, but only 6 questions exist (dataset.h5/pair_data/index, row 3)"
    )
    with h5py.File(directory / "dataset.h5", "a") as file:
        del file["embeddings/questions"]
        file["embeddings/questions"] = torch.zeros(6, 5).numpy()
    refused(directory, "dataset.h5/embeddings/questions dimension 1 has size 5, expected 4")


class Intruder:
    """What a pickle can do: write a file while it is read."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("name", ["pair_keyword_ids", "question_embs", "train_idx"])
@pytest.mark.parametrize("validate", [None, False])
def test_a_file_that_would_run_code_is_refused_and_nothing_runs(directory, name, validate):
    """Whichever file; the keyword ids are refused when they are read."""
    target = directory / "intruded"
    torch.save([[0], Intruder(target)], directory / f"{name}.pt")
    message = f"{name}.pt holds more than tensors, lists and numbers; refused"

    if name == "pair_keyword_ids" and validate is False:
        dataset = JASPERSteeringDataset(directory, "train", validate=False)
        with pytest.raises(ValueError, match=message):
            _ = dataset.pair_keyword_ids
    else:
        refused(directory, message, validate=validate)
    assert not target.exists()


def test_the_intruder_of_the_test_before_works_where_it_is_let_in(tmp_path):
    """A test that cannot fail is worse than none."""
    torch.save([[0], Intruder(tmp_path / "intruded")], tmp_path / "list.pt")
    torch.load(tmp_path / "list.pt", weights_only=False)

    assert (tmp_path / "intruded").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", "holds a list, expected an object"),
        ('{"embedding_dim": 4, "n_neg": "three"}', "has 'n_neg' = 'three', expected an integer above 0"),
        ('{"embedding_dim": 0, "n_neg": 3}', "has 'embedding_dim' = 0, expected an integer above 0"),
        ("{}", "has no key 'embedding_dim'; it has no keys"),
    ],
)
def test_config_errors_name_file_and_key(directory, text, message):
    """Never a bare KeyError."""
    (directory / "config.json").write_text(text)

    assert message in refused(directory, f"Config file {directory / 'config.json'}")
