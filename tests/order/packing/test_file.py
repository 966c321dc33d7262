"""Packing indices on disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lading.errors import PackingError
from lading.order.packing import file as packing_file
from lading.order.packing.file import index_for, open_index, save_index
from lading.order.packing.fill import fill_rows
from lading.order.packing.index import PackingIndex
from lading.order.packing.rules import PackingRules
from lading.runtime import compiled as kernels

LENGTHS = np.array([5, 9, 3, 0, 16, 7])


def same(one, other):
    """Whether two indices hold the same columns."""
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in packing_file.COLUMNS)


def test_a_saved_index_comes_back_mapped(tmp_path):
    """Equal columns, equal fingerprint, read-only, and it knows its path."""
    index = PackingIndex.build(LENGTHS, 16)

    saved = save_index(index, tmp_path)
    opened = open_index(saved.path)

    assert same(index, opened) and opened.fingerprint == index.fingerprint and opened.rules == index.rules
    assert not opened.size.flags.writeable and opened.path == str(tmp_path / f"packing-{index.fingerprint}")
    assert save_index(index, tmp_path).path == opened.path


def test_an_index_is_made_once(tmp_path, monkeypatch):
    """The second time it is found by its fingerprint; other rules are another index."""
    first = index_for(LENGTHS, PackingRules(16), tmp_path)
    monkeypatch.setattr(packing_file, "build_index", None)

    second = index_for(LENGTHS, PackingRules(16), tmp_path)

    assert same(first, second)
    with pytest.raises(TypeError):
        index_for(LENGTHS, PackingRules(32), tmp_path)


def test_without_a_directory_nothing_is_saved():
    """An index may live in memory alone."""
    assert index_for(LENGTHS, PackingRules(16), None).path is None


def test_an_empty_index_survives(tmp_path):
    """No documents, no rows."""
    assert len(save_index(PackingIndex.build([], 16), tmp_path)) == 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda d: (d / "size.npy").write_bytes((d / "size.npy").read_bytes()[:-4]),
            r"size\.npy: expected 5 numbers, found what cannot be read",
        ),
        (
            lambda d: np.save(d / "start.npy", np.zeros(2)),
            r"start\.npy: expected 5 numbers of int32 or int64, found \(2,\) of float64",
        ),
        (
            lambda d: shorten_header(d / "document.npy"),
            r"document\.npy: expected .*, found \(5,\) of int32 from byte 127 on",
        ),
        (lambda d: (d / "document.npy").unlink(), r"document\.npy: expected 5 numbers, found no file"),
        (lambda d: (d / "packing.json").unlink(), r"packing\.json is missing"),
        (lambda d: (d / "packing.json").write_text("{"), r"packing\.json: expected JSON"),
        (lambda d: change(d, packing_version=0), "packing_version: expected 1, found 0"),
        (lambda d: change(d, num_documents=7), "says fingerprint .*, but its rules give"),
    ],
)
def test_damage_is_named_by_file(tmp_path, damage, message):
    """A truncated, missing or changed file is found when the index is opened."""
    path = tmp_path / f"packing-{save_index(PackingIndex.build(LENGTHS, 16), tmp_path).fingerprint}"

    damage(path)

    with pytest.raises(PackingError, match=message):
        open_index(path)


def shorten_header(file):
    """Take a space out of the header: the numbers lie askew in memory then, which kernels refuse in their own words."""
    content = file.read_bytes()
    size = int.from_bytes(content[8:10], "little")
    header = content[10 : 8 + size] + content[9 + size : 10 + size]
    file.write_bytes(content[:8] + (size - 1).to_bytes(2, "little") + header + content[10 + size :])


def change(directory, **fields):
    """Change fields of packing.json."""
    file = directory / "packing.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    """With the way out; nothing is left behind."""
    (tmp_path / "file").write_text("")

    with pytest.raises(PackingError, match=r"the packing index cannot be saved at .* Pass index_dir="):
        save_index(PackingIndex.build(LENGTHS, 16), tmp_path / "file")


WITH_KERNELS = pytest.mark.skipif(not kernels.enabled(), reason="nothing is compiled here")


@pytest.mark.parametrize("compiled", [pytest.param(True, marks=WITH_KERNELS), False])
@pytest.mark.parametrize(
    ("column", "place", "value"),
    [
        ("document", 1, 1 << 30),
        ("document", 1, -1),
        ("start", 1, 1 << 30),
        ("start", 1, -4),
        ("size", 1, (1 << 31) - 1),
        ("size", 1, 0),
        ("size", 1, -3),
        ("row_offsets", 1, 1 << 60),
        ("row_offsets", 1, -2),
    ],
)
def test_pieces_outside_their_documents_are_refused_not_followed(tmp_path, monkeypatch, column, place, value, compiled):
    """Compiled code would read or write whatever lies there in memory; every piece is checked before it is used."""
    monkeypatch.setattr("lading.runtime.compiled.enabled", lambda: compiled)
    index = save_index(PackingIndex.build(LENGTHS, 16, overflow="split"), tmp_path)
    file = Path(index.path) / f"{column}.npy"
    numbers = np.load(file)
    numbers[place] = value
    np.save(file, numbers)
    offsets = np.concatenate([[0], np.cumsum(LENGTHS)])

    with pytest.raises(PackingError, match=r"row . of the packing index"):
        fill_rows(open_index(index.path), np.arange(len(index)), np.arange(offsets[-1]), offsets)


def test_offsets_that_leave_the_tokens_are_refused_not_followed():
    """A token store may be damaged where the index is sound."""
    index = PackingIndex.build(LENGTHS, 16, overflow="split")
    for wrong in (1 << 60, -(1 << 60), -1, 1000):
        offsets = np.concatenate([[0], np.cumsum(LENGTHS)])
        offsets[1] = wrong
        with pytest.raises(PackingError, match="damaged"):
            fill_rows(index, np.arange(len(index)), np.arange(sum(LENGTHS)), offsets)
