"""Names of documents from the files they came from to the store."""

from __future__ import annotations

import datetime
import gzip
import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from lading import PackedRows, TaggedDataset, TokenStore, Windows, build_tokens
from lading.errors import SourceError
from lading.runtime.blocks import run as blocks
from lading.runtime.blocks.run import Task
from lading.source.protocol import Named
from lading.source.tokens import inputs as tokens_inputs
from lading.source.tokens.build import build_task, token_job
from lading.source.tokens.tokenizer import ByteTokenizer

RECORDS = st.lists(
    st.one_of(
        st.none(),
        st.text(max_size=20),
        st.integers(-(2**70), 2**70),
        st.booleans(),
        st.just("☃" * 500),
        st.just("twice"),
        st.just(...),
    ),
    max_size=12,
)


def said(value):
    """What an id becomes, "" for none."""
    if value is None or value is ...:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode(errors="backslashreplace").decode()


@settings(max_examples=25)
@given(RECORDS)
def test_ids_of_jsonl_come_back(tmp_path_factory, values):
    """Texts, numbers, doubles, long ones; without one the file and the line."""
    folder = tmp_path_factory.mktemp("ids")
    path = folder / "a.jsonl"
    rows = [{"text": "x"} if value is ... else {"text": "x", "id": value} for value in values]
    path.write_text("\n\n".join(map(json.dumps, rows)))

    store = build_tokens(path, folder / "store", id="id")

    expected = [said(value) or f"{path}:{2 * number + 1}" for number, value in enumerate(values)]
    assert [store.name(d) for d in range(len(store))] == expected
    assert store.names.num_ids == sum(bool(said(value)) for value in values)


@settings(max_examples=25)
@given(st.lists(st.one_of(st.none(), st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20))))
def test_ids_of_parquet_come_back(tmp_path_factory, values):
    """The same of a column; rows count from 0, over row groups."""
    folder = tmp_path_factory.mktemp("ids")
    path = folder / "a.parquet"
    pq.write_table(
        pa.table({"text": ["x"] * len(values), "url": pa.array(values, pa.string())}), path, row_group_size=3
    )

    store = build_tokens(path, folder / "store", id="url")

    assert [store.name(d) for d in range(len(store))] == [v or f"{path}#{n}" for n, v in enumerate(values)]


def test_columns_of_other_types_are_ids_too(tmp_path):
    """Numbers, times, bytes; a column that is not there is none."""
    table = pa.table(
        {
            "text": ["x", "y"],
            "number": [7, None],
            "time": [datetime.date(2026, 1, 2), None],
            "uuid": pa.array([b"\x01\xff", None], pa.binary(2)),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")

    found = {
        field: build_tokens(tmp_path / "a.parquet", tmp_path / field, id=field).name(0)
        for field in ("number", "time", "uuid", "nothing")
    }

    assert found == {"number": "7", "time": "2026-01-02", "uuid": "01ff", "nothing": f"{tmp_path / 'a.parquet'}#0"}


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Files of every kind in blocks of 1 kB, with blank lines; each document says the line that it stands in."""
    monkeypatch.setattr(tokens_inputs, "_LEAST_BLOCK", 1024)
    monkeypatch.setattr(blocks, "start_method", lambda: "fork")
    folder = tmp_path / "corpus"
    folder.mkdir()

    def lines(letter, count):
        rows = [
            json.dumps({"text": f"{letter}:{n} {'.' * (n % 40)}", "id": f"{letter}{n}"}) for n in range(1, count + 1)
        ]
        return "\n".join("" if n % 5 in (2, 3) else row for n, row in enumerate(rows, 1)) + "\n\n\n"

    (folder / "a.jsonl").write_text(lines("a", 200))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines("b", 30).encode()))
    texts = [f"c#{row}" for row in range(50)]
    pq.write_table(pa.table({"text": texts, "other": texts}), folder / "c.parquet", row_group_size=4)
    (folder / "d.jsonl").write_text(lines("d", 100))
    return folder


def texts(store):
    """The documents of a byte store."""
    return [ByteTokenizer().decode(store[d]) for d in range(len(store))]


def test_a_name_leads_to_the_line_of_the_file(corpus, tmp_path):
    """However the files were cut into blocks, blank lines counted."""
    store = build_tokens(str(corpus / "*"), tmp_path / "store")

    for document, text in enumerate(texts(store)):
        letter, place = text.split(" ")[0][0], text.split(" ")[0][1:]
        file = next(corpus.glob(f"{letter}.*"))
        assert store.name(document) == f"{file}{place}"


@pytest.mark.parametrize("split", ["file", "line", "paragraph"])
def test_documents_of_texts_are_named(tmp_path, monkeypatch, split):
    """The file, or the line that a line or a paragraph begins in."""
    monkeypatch.setattr(tokens_inputs, "_LEAST_BLOCK", 64)
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {n}\n" + "\n" * (n % 7 == 0) for n in range(100)))
    lines = path.read_text().split("\n")

    store = build_tokens(path, tmp_path / "store", split=split)

    for document, text in enumerate(texts(store)):
        name = store.name(document)
        if split == "file":
            assert name == str(path)
        else:
            assert lines[int(name.removeprefix(f"{path}:")) - 1] == text.split("\n")[0]


def bytes_of(folder):
    """Every file of a store."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_names_are_the_same_bytes_however_they_are_made(corpus, tmp_path):
    """1 and 3 workers, tasks in any order, and a build that was stopped half-way."""
    pattern = str(corpus / "*")

    build_tokens(pattern, tmp_path / "one", id="id")
    build_tokens(pattern, tmp_path / "three", id="id", workers=3)
    job = token_job(pattern, tmp_path / "tasks", id="id")
    for i in (1, 2, 0):
        build_task(job, Task(i, 3))
    halted = token_job(pattern, tmp_path / "halted", id="id")
    build_task(halted, Task(1, 2))
    build_tokens(pattern, tmp_path / "halted", id="id")

    assert len(job.blocks) > 6
    one = bytes_of(tmp_path / "one")
    assert "names-ends.bin" in one
    assert all(bytes_of(tmp_path / other) == one for other in ("three", "tasks", "halted"))


def test_another_field_makes_blocks_anew_and_tokens_stay_the_same(corpus, tmp_path):
    """Finished blocks know which ids they hold; names are no part of what identifies the tokens."""
    pattern = str(corpus / "*")
    build_task(token_job(pattern, tmp_path / "store"), Task(0, 2))

    store = build_tokens(pattern, tmp_path / "store", id="id")
    plain = build_tokens(pattern, tmp_path / "plain")

    assert store.name(0) == "a1" and plain.name(0) == f"{corpus / 'a.jsonl'}:1"
    assert store.fingerprint() == plain.fingerprint()


def test_a_store_without_names_stays_readable(corpus, tmp_path):
    """One that was made before there were names, or of files that hold tokens."""
    store = build_tokens(str(corpus / "*"), tmp_path / "store")
    for file in (tmp_path / "store").glob("names*"):
        file.unlink()

    old = TokenStore(tmp_path / "store")

    assert old.name(3) == "" and old.names is None and len(old) == len(store)
    assert PackedRows(old, 512).name(0) == ""


def test_names_of_another_store_are_refused(corpus, tmp_path):
    """Another number of names cannot be these documents'; damaged ones are found by a check."""
    store = build_tokens(str(corpus / "a.jsonl"), tmp_path / "a")
    other = build_tokens(str(corpus / "*"), tmp_path / "b")
    damaged = store.path / "names-texts.bin"
    damaged.write_bytes(b"X" + damaged.read_bytes()[1:])
    with pytest.raises(SourceError, match="digest"):
        TokenStore(store.path, validate=True)

    for file in other.path.glob("names*"):
        (store.path / file.name).write_bytes(file.read_bytes())

    with pytest.raises(SourceError, match=f"{len(store)} documents and {len(other)} names"):
        TokenStore(store.path, validate=False).name(0)


def test_an_id_that_is_too_long_is_named(tmp_path):
    """File, line and the way out."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "x", "id": "y" * 70_000}))

    with pytest.raises(SourceError, match=r"a\.jsonl, line 1 has an id of 70000 bytes: expected at most 65536.*--id"):
        build_tokens(tmp_path / "a.jsonl", tmp_path / "store", id="id")


def test_sources_say_what_their_samples_are_called(corpus, tmp_path):
    """Stores, packed rows, windows of a file, samples with ids; in another process too."""
    store = build_tokens(str(corpus / "a.jsonl"), tmp_path / "store", id="id")
    rows = PackedRows(store, 512)
    tokens = tmp_path / "train.bin"
    np.arange(100, dtype=np.uint16).tofile(tokens)
    windows, anywhere = Windows(tokens, 8), Windows(tokens, 8, at="random")

    assert all(isinstance(source, Named) for source in (store, rows, windows, TaggedDataset([1])))
    assert rows.name(0).split(", ")[:2] == [store.name(piece.document) for piece in rows.index.pieces(0)][:2]
    assert pickle.loads(pickle.dumps(rows)).name(0) == rows.name(0)
    assert (windows.name(2), anywhere.name(2)) == ("train.bin:16-23", "")
    assert TaggedDataset(["x", "y"], ids=["a", "b"]).name(1) == "b"
    assert TaggedDataset(store).name(1) == store.name(1) and TaggedDataset(["x"]).name(0) == ""
