"""Which files a waybill covers."""

from __future__ import annotations

import hashlib
import pickle

import pytest

from lading.errors import ConfigError, LedgerError
from lading.ledger.waybill import covered, stamping
from lading.ledger.waybill.covered import check_complete, files_of, hashed
from lading.ledger.waybill.waybill import Waybill


def make(folder, **files):
    """Write files by name; ``__`` stands for a slash."""
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_marks_claims_and_what_answers_for_itself_are_not_covered(tmp_path):
    """Nor is a run inside, nor a checkpoint inside that has a waybill."""
    folder = make(tmp_path, model="w", latest="x", sub__model="w")
    for name in ("waybill.json", "claims.jsonl", "lading.json", "run7/run.json", "run7/log/000000.json"):
        make(folder, **{name.replace("/", "__"): "{}"})
    for name in ("checkpoint-5/waybill.json", "checkpoint-5/model", ".model.0123456789ab.aside", "sub/latest"):
        make(folder, **{name.replace("/", "__"): "{}"})

    assert list(files_of(folder)) == ["model", "sub/latest", "sub/model"]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 14, 15, 100])
def test_a_file_has_the_sha256_that_everybody_computes(tmp_path, monkeypatch, size):
    """Whether another thread reads ahead or not, and wherever its blocks end."""
    monkeypatch.setattr(covered, "_BLOCK", 5)
    monkeypatch.setattr(covered, "_LONG_BLOCK", 7)
    content = bytes(range(size))
    (tmp_path / "model").write_bytes(content)
    shares: list[float] = []

    found = [hashed(files_of(tmp_path), is_fast, shares.append)["model"] for is_fast in (False, True)]

    assert found == [covered.CoveredFile(size, hashlib.sha256(content).hexdigest())] * 2
    assert not size or shares[-1] == 1


def test_links_to_files_are_hashed_and_links_to_folders_and_nothing_are_not(tmp_path):
    """A hub cache is links."""
    make(tmp_path / "blobs", abc="weights")
    snapshot = make(tmp_path / "snapshots" / "1", config="{}")
    (snapshot / "model").symlink_to("../../blobs/abc")
    (snapshot / "broken").symlink_to("nowhere")
    (snapshot / "loop").symlink_to("..")

    found = hashed(files_of(snapshot))

    assert sorted(found) == ["config", "model"]
    assert found["model"].size == len("weights")


def test_a_shard_that_the_metadata_names_must_be_there(tmp_path):
    """The pickle is read, never run."""
    folder = make(tmp_path, __0_0="x")
    (folder / "__0_0.distcp").write_text("x")
    (folder / ".metadata").write_bytes(pickle.dumps({"a": "__0_0.distcp", "b": "__1_0.distcp"}))

    with pytest.raises(LedgerError, match=r"lacks __1_0.distcp"):
        check_complete(folder, files_of(folder))

    (folder / "__1_0.distcp").write_text("x")
    check_complete(folder, files_of(folder))


def test_names_that_no_reader_takes_are_refused(tmp_path, monkeypatch):
    """Before anything is hashed; an empty folder, too."""
    with pytest.raises(LedgerError, match="holds no file"):
        check_complete(tmp_path, files_of(tmp_path))
    make(tmp_path, **{"a\\b": "x"})
    monkeypatch.setattr(stamping, "hashed", None)
    with pytest.raises(ConfigError, match="only names that are relative paths"):
        stamping.prepared(tmp_path, Waybill("import", {}))
