"""Where JASPER tables come from: .pt files, HDF5, mapped or in memory; all the same batches."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from tests.kits.jasper.jasper_directory import make_directory, table, write_config
from torch.utils.data import DataLoader

from lading.errors import SourceError
from lading.kits.jasper.dataset import JASPERSteeringDataset
from lading.kits.jasper.hdf5 import Hdf5Storage
from lading.kits.jasper.layout import BY_NAME
from lading.kits.jasper.pt import remap

HDF5_PATHS = {
    "embeddings/questions": "question_embs",
    "embeddings/sources": "source_embs",
    "embeddings/keywords": "keyword_embs",
    "embeddings/centroids": "centroid_embs",
    "pair_data/index": "pair_index",
    "pair_data/cluster_id": "pair_cluster_id",
    "pair_data/relevance": "pair_relevance",
    "negatives/hardnegatives": "hard_negatives",
    "negatives/tiers": "negative_tiers",
    "steering/centroid": "steering_centroid",
    "steering/keyword_weighted": "steering_keyword_weighted",
    "steering/residual": "steering_residual",
    "steering/distances": "centroid_distances",
    "splits/train": "train_idx",
    "splits/val": "val_idx",
    "splits/test": "test_idx",
}


@pytest.fixture
def directory(tmp_path):
    """A directory of .pt files."""
    return make_directory(tmp_path / "data")


def everything(dataset):
    """One batch of the whole split."""
    return dataset.take(np.arange(len(dataset)))


def same(one, two):
    """Equal keys and equal values."""
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def anonymous_kb():
    """Memory of this process that is no file's."""
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("RssAnon")).split()[1])


def maps_of(directory):
    """Permissions of every mapping of a file of this directory."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[1] for line in lines if str(directory) in line}


@pytest.mark.parametrize("compression", ["gzip", None, "lzf"])
def test_conversion_writes_the_groups_of_the_format(directory, compression):
    """Every table under its path, the keyword ids one by one, nothing left aside."""
    JASPERSteeringDataset.convert_pt_to_hdf5(directory, compression)

    with h5py.File(directory / "dataset.h5") as file:
        for path, name in HDF5_PATHS.items():
            assert np.array_equal(file[path][()], table(directory, name).numpy())
        assert file["embeddings/questions"].compression == compression
        assert [file[f"pair_data/keyword_ids/{i}"][()].tolist() for i in (0, 19)] == [[0, 1, 2], [4]]
    assert not list(directory.glob(".*"))


def test_auto_prefers_hdf5_and_both_give_the_same_batches(directory):
    """Same content, whichever storage."""
    from_pt = JASPERSteeringDataset(directory, "train")
    JASPERSteeringDataset.convert_pt_to_hdf5(directory)
    from_hdf5 = JASPERSteeringDataset(directory, "train")

    assert (from_pt.storage_format, from_hdf5.storage_format) == ("pt", "hdf5")
    assert same(everything(from_pt), everything(from_hdf5))
    assert from_hdf5.pair_keyword_ids == from_pt.pair_keyword_ids
    assert JASPERSteeringDataset(directory, "train", storage_format="pt").storage_format == "pt"


def test_hdf5_splits_come_from_the_file_else_from_the_pt_files(directory):
    """A file without splits/ is completed by *_idx.pt; with it, they are not needed."""
    JASPERSteeringDataset.convert_pt_to_hdf5(directory)
    for path in directory.glob("*.pt"):
        if path.stem not in ("train_idx", "val_idx"):
            path.unlink()
    (directory / "val_idx.pt").unlink()
    assert len(JASPERSteeringDataset(directory, "val")) == 3

    with h5py.File(directory / "dataset.h5", "a") as file:
        del file["splits"]
    assert len(JASPERSteeringDataset(directory, "train")) == 14
    with pytest.raises(ValueError, match=r"^Split file not found: .*val_idx.pt. Valid splits are: train, val, test"):
        JASPERSteeringDataset(directory, "val")


def test_an_interrupted_conversion_leaves_no_file(directory):
    """Neither dataset.h5 nor anything aside."""
    (directory / "steering_residual.pt").write_bytes(b"gone")

    with pytest.raises(SourceError, match=r"steering_residual.pt cannot be read"):
        JASPERSteeringDataset.convert_pt_to_hdf5(directory)
    assert not list(directory.glob("*dataset.h5*"))
    assert not list(directory.glob(".*"))


def test_conversion_needs_pt_files(tmp_path):
    """And says so."""
    with pytest.raises(ValueError, match=r"^PT files not found in "):
        JASPERSteeringDataset.convert_pt_to_hdf5(tmp_path)


def test_without_h5py_the_errors_say_what_to_install(directory, monkeypatch):
    """A ValueError for the format, an ImportError for the conversion; auto falls back to .pt."""
    JASPERSteeringDataset.convert_pt_to_hdf5(directory)
    monkeypatch.setitem(sys.modules, "h5py", None)
    monkeypatch.delitem(sys.modules, "lading.kits.jasper.hdf5")
    monkeypatch.delattr("lading.kits.jasper.hdf5")

    with pytest.raises(ValueError, match=r"h5py is not installed. Install with: pip install h5py"):
        JASPERSteeringDataset(directory, "train", storage_format="hdf5")
    with pytest.raises(ImportError, match=r"h5py is required for HDF5 conversion. Install with: pip install"):
        JASPERSteeringDataset.convert_pt_to_hdf5(directory)
    assert JASPERSteeringDataset(directory, "train").storage_format == "pt"


@pytest.mark.parametrize("how", ["pt", "hdf5"])
def test_mapped_tables_are_shared_and_read_only(directory, how):
    """The kernel's own list of mappings says r--s; the batches are the same."""
    plain = JASPERSteeringDataset(directory, "train")
    if how == "hdf5":
        JASPERSteeringDataset.convert_pt_to_hdf5(directory, compression=None)

    mapped = JASPERSteeringDataset(directory, "train", use_mmap=True)

    assert (mapped.use_mmap, mapped.storage_format, plain.use_mmap) == (True, how, False)
    assert maps_of(directory) == {"r--s"}
    assert same(everything(mapped), everything(plain))
    mapped[0]["question_emb"].zero_()
    assert same(mapped[0], plain[0])


@pytest.mark.parametrize("mapped", [True, False])
def test_tensors_are_read_however_they_were_saved(directory, mapped):
    """Parameters, views of larger tensors, tensors that want gradients."""
    plain = everything(JASPERSteeringDataset(directory, "train"))
    questions, sources = table(directory, "question_embs"), table(directory, "source_embs")
    torch.save(torch.nn.Parameter(questions), directory / "question_embs.pt")
    torch.save(torch.cat([torch.zeros(5, 4), sources, torch.ones(2, 4)])[5:13], directory / "source_embs.pt")

    assert same(everything(JASPERSteeringDataset(directory, "train", use_mmap=mapped)), plain)


def test_compressed_hdf5_cannot_be_mapped(directory):
    """auto then maps the .pt files; asking for HDF5 is an error with a way out."""
    JASPERSteeringDataset.convert_pt_to_hdf5(directory)

    assert JASPERSteeringDataset(directory, "train", use_mmap=True).storage_format == "pt"
    with pytest.raises(SourceError, match=r"is compressed, so it cannot be mapped\. Use storage_format='pt'"):
        JASPERSteeringDataset(directory, "train", storage_format="hdf5", use_mmap=True)


def test_directories_that_say_they_are_large_are_mapped(tmp_path):
    """Above 10 GB by the original's estimate; not on another device, not when asked otherwise."""
    directory = make_directory(tmp_path, n_pairs=50_000_000)

    assert JASPERSteeringDataset(directory, "train").use_mmap is True
    assert JASPERSteeringDataset(directory, "train", use_mmap=False).use_mmap is False
    assert JASPERSteeringDataset(directory, "train", device="meta").use_mmap is False


def test_mapped_tables_reach_a_spawned_worker_as_files(directory):
    """What is sent is small; the worker maps again, and set_epoch still reaches it."""
    dataset = JASPERSteeringDataset(directory, "train", use_mmap=True)
    assert not {"question_embs", "source_embs"} & dataset.__getstate__().keys()
    loader = DataLoader(dataset, batch_size=14, num_workers=1, multiprocessing_context="spawn", persistent_workers=True)
    for epoch in (0, 5):
        dataset.set_epoch(epoch)
        assert same(next(iter(loader)), everything(dataset))


def write_large(directory, rows):
    """Grow the tables that matter to about 5 x rows x 1 kB."""
    make_directory(directory)
    write_config(directory, embedding_dim=256, n_neg=3)
    for name in ("question_embs", "source_embs", "steering_centroid", "steering_keyword_weighted", "steering_residual"):
        torch.save(torch.randn(rows, 256), directory / f"{name}.pt")
    for name in ("keyword_embs", "centroid_embs"):
        torch.save(torch.randn(5, 256), directory / f"{name}.pt")
    pairs = torch.randint(0, rows, (rows, 2))
    torch.save(pairs, directory / "pair_index.pt")
    torch.save(torch.randint(0, rows, (rows, 3)), directory / "hard_negatives.pt")
    torch.save(torch.ones(rows, 3, dtype=torch.int64), directory / "negative_tiers.pt")
    torch.save(torch.zeros(rows, dtype=torch.int64), directory / "pair_cluster_id.pt")
    torch.save([[0]] * rows, directory / "pair_keyword_ids.pt")
    for name in ("pair_relevance", "centroid_distances"):
        torch.save(torch.rand(rows), directory / f"{name}.pt")
    torch.save(torch.randperm(rows), directory / "train_idx.pt")


def grown_mb(directory, validate):
    """Open a mapped directory, go through it, and say how much anonymous memory grew."""
    before = anonymous_kb()
    dataset = JASPERSteeringDataset(directory, "train", use_mmap=True, validate=validate)
    for start in range(0, len(dataset), 256):
        dataset.take(np.arange(start, min(start + 256, len(dataset))))
    return (anonymous_kb() - before) / 1024


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_a_pass_through_a_mapped_directory_takes_little_memory(tmp_path):
    """The small twin: 150 MB of tables, validated and read, in far less anonymous memory."""
    write_large(tmp_path, 30_000)

    assert grown_mb(tmp_path, validate=True) < 75


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_a_pass_through_a_mapped_3_gb_directory_takes_less_than_100_mb(tmp_path):
    """Anonymous memory, which is what a process really owns."""
    write_large(tmp_path, 600_000)

    assert grown_mb(tmp_path, validate=None) < 100


def _linked(file, other):
    file["embeddings/questions"] = h5py.ExternalLink(str(other), "/secret")


def _stored_elsewhere(file, other):
    file.create_dataset("embeddings/questions", (6, 4), "f4", external=[(str(other), 0, 96)])


def _virtual(file, other):
    layout = h5py.VirtualLayout((6, 4), "f4")
    layout[:] = h5py.VirtualSource(str(other), "secret", (6, 4))
    file.create_virtual_dataset("embeddings/questions", layout)


def _endless(file, other):
    file.create_dataset("embeddings/questions", (1 << 40, 4), "f4", chunks=(1024, 4))


def _no_dataset(file, other):
    file.create_group("embeddings/questions")


@pytest.mark.parametrize("craft", [_linked, _stored_elsewhere, _virtual, _endless, _no_dataset])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_crafted_hdf5_file_reads_no_other_file(tmp_path, craft, mapped):
    """Links, external storage, virtual datasets and endless ones are refused before a byte is read."""
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = np.arange(24, dtype="f4").reshape(6, 4)
    with h5py.File(tmp_path / "dataset.h5", "w") as file:
        craft(file, tmp_path / "other.h5")

    with pytest.raises(SourceError, match=r"dataset\.h5/embeddings/questions"):
        Hdf5Storage(tmp_path, mapped=mapped).read(BY_NAME["question_embs"])


def test_keyword_ids_lie_in_the_file_itself(tmp_path):
    """The many small lists are looked at like the tables."""
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = np.arange(3)
    with h5py.File(tmp_path / "dataset.h5", "w") as file:
        file.create_group("pair_data/keyword_ids")["0"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/secret")

    with pytest.raises(SourceError, match="no short list in this very file"):
        Hdf5Storage(tmp_path).keyword_ids()


def test_an_archive_whose_contents_no_reader_of_python_knows_is_refused(tmp_path):
    """Torch reads past a version that is not; to map the file Python has to read the list of contents."""
    file, tensor = tmp_path / "x.pt", torch.arange(4.0)
    torch.save(tensor, file)
    content = bytearray(file.read_bytes())
    content[content.index(b"PK\x01\x02") + 6] = 115  # version needed to extract
    file.write_bytes(content)

    with pytest.raises(SourceError, match=r"x\.pt cannot be mapped: zip file version 11\.5"):
        remap(file, tensor)
