"""Every build, killed before each of its disk calls: the old or the new is there, the next one leaves no trace."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.crash_points import crash_points

from lading.kits.jasper.build.write import write_directory
from lading.order.packing.file import open_index, save_index
from lading.order.packing.index import build_index
from lading.order.packing.rules import PackingRules
from lading.runtime import files
from lading.runtime.files import built_aside, clean_up, create_aside, write_aside
from lading.source.tokens.store import TokenStore
from lading.source.tokens.tokenizer import ByteTokenizer
from lading.source.tokens.write import TokenWriter

EXCHANGE = (files, "_renameat2")


def names(folder: Path) -> set[str]:
    """Return everything in a folder."""
    return {path.name for path in folder.iterdir()}


def tokens(out: Path, text: bytes) -> None:
    """Build a token store of two documents."""
    with TokenWriter(out, ByteTokenizer(), overwrite=True) as writer:
        writer.add(list(text))
        writer.add([1, 2, 3])


def read_tokens(out: Path) -> bytes:
    """Return the first document of a store that is whole."""
    return bytes(TokenStore(out)[0].tolist())


def jasper(out: Path, value: bytes) -> None:
    """Write the files of a JASPER directory."""
    table = torch.tensor(list(value))
    write_directory(out, {"version": 1}, {"a": table, "b": table}, [[1], [2]], overwrite=True)


def read_jasper(out: Path) -> bytes:
    """Return a table of a directory whose files are whole."""
    tables = [torch.load(out / f"{name}.pt", weights_only=True).tolist() for name in ("a", "b")]
    assert tables[0] == tables[1] and names(out) == {"a.pt", "b.pt", "pair_keyword_ids.pt", "config.json"}
    return bytes(tables[0])


BUILDS: dict[str, tuple[Callable, Callable, tuple]] = {
    "tokens": (tokens, read_tokens, ()),
    "jasper": (jasper, read_jasper, ((torch, "save"),)),
}


@pytest.mark.parametrize("build", BUILDS)
def test_a_build_killed_anywhere_leaves_the_old_or_the_new(tmp_path, build):
    """There is no moment without one of them; the next build removes what the dead one left."""
    make, read, patched = BUILDS[build]
    out, seen = tmp_path / "out", []

    make(out, b"old")
    for _ in crash_points(lambda: make(out, b"new"), tmp_path, EXCHANGE, *patched):
        seen.append(read(out))
        make(out, b"old")
        assert names(tmp_path) == {"out"}
    make(out, b"new")

    assert read(out) == b"new" and set(seen) == {b"old", b"new"} and len(seen) > 15


@pytest.mark.parametrize("build", BUILDS)
def test_a_first_build_killed_anywhere_leaves_nothing_or_all(tmp_path, build):
    """Where nothing was before, there is nothing or the whole thing."""
    make, read, patched = BUILDS[build]
    out = tmp_path / "below" / "out"

    for _ in crash_points(lambda: make(out, b"new"), tmp_path, EXCHANGE, *patched):
        assert not out.exists() or read(out) == b"new"
        make(out, b"again")
        assert names(out.parent) == {"out"}
        files._remove(out.parent)


def test_without_exchange_the_next_build_puts_the_old_one_back(tmp_path, monkeypatch):
    """Some file systems cannot swap two names: what was renamed away is found again."""
    out, moments = tmp_path / "out", 0

    def cannot(one, other, flag):
        raise OSError(errno.EINVAL, "no exchange here")

    monkeypatch.setattr(files, "_renameat2", cannot)
    tokens(out, b"old")
    for _ in crash_points(lambda: tokens(out, b"new"), tmp_path):
        moments += not out.exists()
        clean_up(tmp_path)
        assert names(tmp_path) == {"out"} and read_tokens(out) in (b"old", b"new")
        tokens(out, b"old")

    assert moments == 1


def test_a_packing_index_killed_anywhere_is_there_or_not(tmp_path):
    """The next start makes it again and leaves nothing else."""
    index = build_index(np.array([3, 4, 5]), PackingRules(8))
    target = f"packing-{index.fingerprint}"

    for _ in crash_points(lambda: save_index(index, tmp_path), tmp_path):
        if (tmp_path / target).exists():
            assert open_index(tmp_path / target).fingerprint == index.fingerprint
        save_index(index, tmp_path)
        assert names(tmp_path) == {target}
        files._remove(tmp_path / target)


def test_an_hdf5_twin_killed_anywhere_is_old_or_new(tmp_path):
    """It is written by name, by a library; still it is there completely or not at all."""
    h5py = pytest.importorskip("h5py")
    out = tmp_path / "dataset.h5"

    def make(value: int) -> None:
        with files.named_aside(out) as aside, h5py.File(aside, "w") as file:
            file["x"] = np.full(1000, value)

    make(1)
    for _ in crash_points(lambda: make(2), tmp_path, (h5py, "File")):
        with h5py.File(out) as file:
            assert file["x"][0] in (1, 2)
        make(1)
        assert names(tmp_path) == {"dataset.h5"}


def test_a_file_killed_anywhere_is_old_or_new(tmp_path):
    """Replaced files, and files that are created only once."""
    replaced, created = tmp_path / "page.html", tmp_path / "record.json"

    write_aside(replaced, b"old")
    for _ in crash_points(lambda: (write_aside(replaced, b"new"), create_aside(created, b"new")), tmp_path):
        assert replaced.read_bytes() in (b"old", b"new")
        assert not created.exists() or created.read_bytes() == b"new"
        clean_up(tmp_path)
        assert names(tmp_path) <= {"page.html", "record.json"}
        created.unlink(missing_ok=True)


def test_what_a_living_process_writes_is_left_alone(tmp_path):
    """Its lock says that it lives, whatever its process number."""
    with built_aside(tmp_path / "out") as aside:
        child = os.fork()
        if child == 0:
            clean_up(tmp_path)
            os._exit(0 if aside.is_dir() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        (aside / "file").write_text("x")

    clean_up(tmp_path)
    assert names(tmp_path) == {"out"}


def test_many_processes_write_and_clean_up_one_name(tmp_path):
    """No writer loses its file to another one's cleaning."""

    def work(number: int) -> None:
        for turn in range(60):
            clean_up(tmp_path)
            write_aside(tmp_path / "name", f"{number} {turn}".encode())

    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            try:
                work(number)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)

    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert names(tmp_path) == {"name"}
