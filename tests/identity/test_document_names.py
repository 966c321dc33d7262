"""Names of documents on disk: whatever was written comes back, and whatever lies there is a name or an error."""

from __future__ import annotations

import contextlib
import json
import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.errors import SourceError
from lading.identity.document_names import WHOLE_FILE, DocumentNames, NamesWriter, has_names

IDS = st.one_of(st.just(""), st.text(min_size=1, max_size=30), st.sampled_from(["a", "b", "https://a.example/1"]))
DOCUMENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(WHOLE_FILE, 4), IDS), max_size=40)
FILES = ["a.jsonl", "b.parquet", "c:7.txt", "x" * 300 + ".jsonl"]


def written(folder, documents, field="id", cut=None):
    """Write names of documents (file, line, id), in two pieces."""
    with NamesWriter(folder, FILES, field) as writer:
        for part in (documents[:cut], documents[cut:]) if cut else (documents,):
            ids = [id_.encode(errors="backslashreplace") for *_, id_ in part]
            columns = [np.array(column, np.int64) for column in ([f for f, *_ in part], [n for _, n, _ in part])]
            writer.add(*columns, np.array(list(map(len, ids)), np.int64), b"".join(ids))
    return DocumentNames(folder)


def place(file, line):
    """What a document without an id is called."""
    mark = "#" if FILES[file].endswith(".parquet") else ":"
    return FILES[file] if line == WHOLE_FILE else f"{FILES[file]}{mark}{line}"


@given(DOCUMENTS, st.booleans(), st.integers(0, 10))
def test_names_come_back_and_are_found(tmp_path_factory, documents, with_ids, cut):
    """Unicode, doubles, missing ones, any mixture of files; ``find`` is what a scan finds."""
    names = written(tmp_path_factory.mktemp("names"), documents, "id" if with_ids else "", cut)

    own = [id_ if with_ids else "" for *_, id_ in documents]
    places = [place(file, line) for file, line, _ in documents]
    assert [names.id(d) for d in range(len(names))] == own
    assert [names.place(d) for d in range(len(names))] == places
    assert [names[d] for d in range(len(names))] == [id_ or where for id_, where in zip(own, places, strict=True)]
    for name in {*own, *places, "not there", "a.jsonl:99"} - {""}:
        scan = [d for d in range(len(names)) if name in (own[d], places[d])]
        assert names.find(name) == scan
    names.check()


def test_half_characters_and_long_ids(tmp_path):
    """What has no bytes is spelled out; 64 kB come back whole."""
    names = written(tmp_path, [(0, 1, "a\ud800"), (0, 2, "é" * 30_000)])

    assert names[0] == "a\\ud800" and names[1] == "é" * 30_000
    assert names.find("a\ud800") == [0] and names.find("é" * 30_000) == [1]


def test_documents_that_do_not_exist(tmp_path):
    """No index wraps around."""
    names = written(tmp_path, [(0, 1, "a")])

    for wrong in (-1, 1):
        with pytest.raises(IndexError, match="out of range"):
            names[wrong]


def test_no_damaged_byte_does_more_than_raise(tmp_path):
    """Flipped, cut or lengthened: a text or a SourceError; ``check`` finds every flip."""
    draw = random.Random(0)
    documents = [(i % 3, i, f"id {i}" if i % 4 else "") for i in range(30)]
    written(tmp_path, documents)
    files = sorted(tmp_path.glob("names*"))
    sound = {file: file.read_bytes() for file in files}

    for _ in range(400):
        file = draw.choice(files)
        damaged = bytearray(sound[file])
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        if draw.random() < 0.2:
            damaged = damaged[: draw.randrange(len(damaged))]
        file.write_bytes(damaged)
        with contextlib.suppress(SourceError):
            names = DocumentNames(tmp_path)
            for document in range(min(len(names), 50)):
                with contextlib.suppress(SourceError):
                    assert isinstance(names[document], str)
            assert all(0 <= d < len(names) for d in names.find("id 3") + names.find("a.jsonl:3"))
            if file.suffix == ".bin":
                with pytest.raises(SourceError, match="digest"):
                    names.check()
        file.write_bytes(sound[file])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("names_version", 2),
        ("num_documents", -1),
        ("num_documents", 1 << 40),
        ("texts", 7),
        ("places", 4),
        ("field", 1),
    ],
)
def test_a_description_that_cannot_be_is_named(tmp_path, field, value):
    """Each field is checked when the names are opened."""
    written(tmp_path, [(0, 1, "a"), (1, 2, "b")])
    path = tmp_path / "names.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))

    with pytest.raises(SourceError, match="names"):
        DocumentNames(tmp_path)


def test_no_names_are_no_names(tmp_path):
    """A folder without them says so."""
    assert not has_names(tmp_path)
    written(tmp_path, [])
    assert has_names(tmp_path) and len(DocumentNames(tmp_path)) == 0


def test_a_million_names_are_not_loaded(tmp_path):
    """Opening, a name and a search take little memory, whatever there is."""
    count = 1_000_000
    with NamesWriter(tmp_path, ["a.jsonl"], "id") as writer:
        for first in range(0, count, 100_000):
            ids = [f"https://a.example/{n:08d}".encode() for n in range(first, first + 100_000)]
            lines = np.arange(first, first + 100_000) * 2  # no two in one run
            writer.add(np.zeros(100_000, np.int64), lines, np.array(list(map(len, ids))), b"".join(ids))

    tracemalloc.start()
    names = DocumentNames(tmp_path)
    assert names[777_777] == "https://a.example/00777777" and names.place(777_777) == "a.jsonl:1555554"
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    assert names.find("https://a.example/00999999") == [999_999]
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
