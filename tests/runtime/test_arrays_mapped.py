"""What a batch needs of a mapped file is fetched at once, not page by page."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.kits.jasper.jasper_directory import make_directory

from lading import Columns, Loader, NumpyLoader, PackedRows
from lading.kits.jasper.dataset import JASPERSteeringDataset
from lading.order.packing.rules import PackingRules
from lading.runtime import arrays
from lading.source.tokens.store import TokenStore
from lading.source.tokens.tokenizer import ByteTokenizer
from lading.source.tokens.write import TokenWriter
from lading.source.windows import Windows

ROWS, WIDTH = 2000, 2048  # rows of two pages


@pytest.fixture
def tmp_path():
    """Return a folder on a disk: the suite's own may lie in memory, which forgets nothing."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def path(tmp_path):
    """A file of which nothing is in memory."""
    path = tmp_path / "rows.bin"
    np.arange(ROWS * WIDTH, dtype=np.int32).tofile(path)
    return cold(path)


def cold(path):
    """Have the system forget a file; a busy one keeps some of it for a while."""
    descriptor = os.open(path, os.O_RDONLY)
    for _ in range(100):
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        content = np.memmap(path, np.uint8, "r")
        size, pages = len(content), ctypes.create_string_buffer(-(-len(content) // mmap.PAGESIZE))
        assert arrays._system()[0](content.ctypes.data, size, pages) == 0
        if not any(byte & 1 for byte in pages.raw):
            break
        del content
        time.sleep(0.1)
    else:
        pytest.skip("the system does not forget a file that was written")
    os.close(descriptor)
    return path


@pytest.fixture
def announced(monkeypatch):
    """Collect what is announced to the system: address and size."""
    found, system = [], arrays._system()

    def announcing(address, size, advice):
        found.append((address, size))
        assert system[1](address, size, advice) == 0
        return 0

    monkeypatch.setattr(arrays, "_system", lambda: (system[0], announcing))
    return found


def opened(path):
    """Map the rows; the system reads nothing around what is touched, however busy it is."""
    rows = np.memmap(path, np.int32, "r", shape=(ROWS, WIDTH))
    rows.base.madvise(mmap.MADV_RANDOM)
    return rows


def test_an_array_knows_whether_it_is_mapped(path):
    """Views too; a copy is not."""
    rows = opened(path)

    assert arrays.is_mapped(rows) and arrays.is_mapped(np.asarray(rows)[5:, 3:])
    assert not arrays.is_mapped(np.array(rows[:3])) and not arrays.is_mapped(np.frombuffer(b"1234", np.uint8))


@pytest.mark.parametrize("face", [Loader, NumpyLoader])
@pytest.mark.parametrize("several", [False, True])
def test_rows_that_are_not_in_memory_are_announced(path, announced, face, several):
    """All of a batch before any is touched, of every mapped source; then nothing more, once all is in memory."""
    rows = np.asarray(opened(path))
    source = {"mapped": Columns(x=rows), "other": Columns(x=np.zeros_like(rows[:50]))} if several else Columns(x=rows)
    loader = face(source, 64)
    batch, bill = next(iter(loader.with_bills()))

    mine = bill.idx[bill.dataset_idx == 0]
    wanted = {int(i) * WIDTH * 4 // mmap.PAGESIZE for i in mine}
    assert {(address - rows.ctypes.data) // mmap.PAGESIZE for address, _ in announced} == wanted
    assert np.array_equal(np.asarray(batch["x"])[bill.dataset_idx == 0], np.asarray(rows)[mine])

    passes = []
    while not passes or (passes[-1] and len(passes) < 20):  # a machine short of memory forgets some of it meanwhile
        announced.clear()
        rows.sum()  # whatever was forgotten is in memory again
        assert len(list(loader)) > 1
        passes.append(len(announced))
    assert not announced, f"everything is in memory now: {passes}"


def test_windows_of_tokens_are_announced(path, announced):
    """Random windows lie anywhere."""
    source = Windows(path, 1024, dtype=np.int32, at="random", num_samples=64)
    inputs, _ = source.take(np.arange(16))

    assert len(announced) == 16 and inputs.shape == (16, 1024)


def test_packed_rows_are_announced(tmp_path, announced):
    """Every piece of the rows of a batch."""
    with TokenWriter(tmp_path / "store", ByteTokenizer()) as writer:
        for _ in range(600):
            writer.add(np.full(30_000, 7))
    rows = PackedRows(TokenStore(tmp_path / "store", validate=False), PackingRules(4096, overflow="split"))
    cold(tmp_path / "store" / "tokens.bin")
    announced.clear()
    taken = rows.take(np.array([3, 70, 200]))

    pieces = sum(len(rows.index.pieces(row)) for row in (3, 70, 200))
    assert len(announced) == pieces and taken["inputs"].shape == (3, 4096)


def test_what_lies_in_memory_is_not_asked_about(announced, monkeypatch):
    """Plain arrays and tensors cost nothing."""
    monkeypatch.setattr(arrays, "_system", lambda: pytest.fail("asked"))

    assert len(list(Loader(torch.zeros(100, 9), 10))) == 10
    arrays.read_ahead(np.zeros(9), np.arange(3), 8)


def test_rows_of_mapped_jasper_tables_are_announced(tmp_path, announced, monkeypatch):
    """Questions, targets and negatives."""
    monkeypatch.setattr(arrays, "is_in_memory", lambda *_: False)
    dataset = JASPERSteeringDataset(make_directory(tmp_path / "jasper"), "train", use_mmap=True)
    expected = JASPERSteeringDataset(tmp_path / "jasper", "train", use_mmap=False).take(np.arange(8))
    announced.clear()
    batch = dataset.take(np.arange(8))

    assert len(announced) == 8 * (2 + dataset.n_neg)
    assert all(torch.equal(batch[name], expected[name]) for name in expected)


def test_places_that_are_not_there_are_no_error(path):
    """A damaged index may say anything."""
    rows = opened(path)

    assert not arrays.is_in_memory(rows.ctypes.data, np.array([1 << 60]))
    arrays.read_ahead(rows, np.array([-(1 << 60), 1 << 60]), 1 << 40)
    arrays.read_ahead(rows, np.array([], np.int64), 8)


def test_a_system_without_such_functions(path, monkeypatch):
    """Rows are read as they come."""
    monkeypatch.setattr(arrays, "_system", lambda: None)

    assert int(next(iter(NumpyLoader(opened(path), 4, shuffle=False)))[1, 0]) == WIDTH
