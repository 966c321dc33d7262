"""Building token stores from text, JSONL and Parquet."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lading.errors import ConfigError, SourceError
from lading.source.tokens import block as tokens_block
from lading.source.tokens.build import build_tokens
from lading.source.tokens.store import TokenStore
from lading.source.tokens.tokenizer import ByteTokenizer, load_tokenizer
from lading.source.tokens.write import TokenWriter, smallest_dtype


class Words:
    """A tokenizer of one's own: numbers are tokens."""

    vocab_size = 100
    eod_token_id = 99

    def encode(self, text):
        """Split at blanks."""
        return [int(word) for word in text.split()]


def texts(store):
    """The documents of a byte store."""
    return [ByteTokenizer().decode(store[d]) for d in range(len(store))]


@pytest.mark.parametrize(
    ("split", "documents"),
    [
        ("file", ["one\ntwo\n\n\nthree\n"]),
        ("line", ["one", "two", "", "", "three"]),
        ("paragraph", ["one\ntwo", "three"]),
    ],
)
def test_text_files_are_split_as_asked(tmp_path, split, documents):
    """A file, its lines, or its paragraphs."""
    (tmp_path / "a.txt").write_text("one\ntwo\n\n\nthree\n")

    store = build_tokens(tmp_path / "a.txt", tmp_path / "out", split=split)

    assert texts(store) == documents


def test_jsonl_and_parquet_in_one_store(tmp_path):
    """Files follow each other in the order given; a column may hold texts or ids."""
    (tmp_path / "a.jsonl").write_text('{"t": "1 2 3"}\n\n{"t": [4, 5]}\n')
    pq.write_table(pa.table({"t": ["6", "7 8"]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"t": pa.array([[9], [], [10, 11]], pa.list_(pa.int32()))}), tmp_path / "c.parquet")

    files = [tmp_path / name for name in ("a.jsonl", "b.parquet", "c.parquet")]
    store = build_tokens(files, tmp_path / "out", Words(), field="t")

    assert [store[d].tolist() for d in range(len(store))] == [[1, 2, 3], [4, 5], [6], [7, 8], [9], [], [10, 11]]
    assert store.tokens.dtype == np.uint8 and (store.tokenizer, store.eod_token_id) == ("Words", 99)


def test_content_does_not_depend_on_when_it_is_written(tmp_path, monkeypatch):
    """Memory is bounded by flushing; the store and its fingerprint stay the same."""
    (tmp_path / "a.txt").write_text("\n".join("x" * n for n in range(50)))
    whole = build_tokens(tmp_path / "a.txt", tmp_path / "whole", split="line")
    monkeypatch.setattr(tokens_block, "_BATCH_CHARACTERS", 100)

    parts = build_tokens(tmp_path / "a.txt", tmp_path / "parts", split="line")

    assert parts.fingerprint() == whole.fingerprint() and texts(parts) == texts(whole)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "1"}\n{"text": "1 200"}', r"a\.jsonl, line 2 holds token 200, .* has 100"),
        ("a.jsonl", '{"text": [-1]}', r"line 1 holds token -1"),
        ("a.jsonl", '{"text": "1"}\n{"te', r"a\.jsonl, line 2 is no JSON"),
        ("a.jsonl", '{"body": "1"}', r"a\.jsonl, line 1 has no 'text'; it has body"),
        ("a.jsonl", '{"text": null}', r"a\.jsonl, line 1 holds NoneType, expected a text or a list of token ids"),
        ("a.jsonl", '{"text": [[1]]}', r"line 1 holds int64 with 2 axes"),
        ("a.parquet", "no parquet", r"a\.parquet is no Parquet file"),
        ("a.txt", b"\xff\xfe\x00", r"a\.txt is no UTF-8 text"),
    ],
)
def test_bad_documents_are_named_and_nothing_is_left(tmp_path, name, content, message):
    """File, place, document and value; no half-written store stays."""
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(SourceError, match=message):
        build_tokens(tmp_path / name, tmp_path / "out", Words())
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_parquet_columns_that_do_not_exist_or_hold_nothing(tmp_path):
    """The columns there are, and the row of the missing value, are named."""
    pq.write_table(pa.table({"t": ["1", None]}), tmp_path / "a.parquet")

    with pytest.raises(SourceError, match=r"a\.parquet has no column 'text'; it has t"):
        build_tokens(tmp_path / "a.parquet", tmp_path / "out", Words())
    with pytest.raises(SourceError, match=r"a\.parquet, row 1 holds NoneType"):
        build_tokens(tmp_path / "a.parquet", tmp_path / "out", Words(), field="t")


def test_a_store_is_not_overwritten_by_accident(tmp_path):
    """Only when asked, and only when the new one is complete."""
    (tmp_path / "a.txt").write_text("one")
    build_tokens(tmp_path / "a.txt", tmp_path / "out")

    with pytest.raises(SourceError, match="exists already"):
        build_tokens(tmp_path / "a.txt", tmp_path / "out")
    with pytest.raises(SourceError, match="is no file"):
        build_tokens(tmp_path / "missing.txt", tmp_path / "out", overwrite=True)
    assert texts(TokenStore(tmp_path / "out")) == ["one"]
    (tmp_path / "a.txt").write_text("two")
    assert texts(build_tokens(tmp_path / "a.txt", tmp_path / "out", overwrite=True)) == ["two"]


def test_wrong_use_is_refused(tmp_path):
    """No files, an unknown way to split, a vocabulary that int32 cannot hold."""
    with pytest.raises(ConfigError, match="there are no files to read"):
        build_tokens([], tmp_path / "out")
    with pytest.raises(ConfigError, match="split='word' is unknown"):
        build_tokens(tmp_path / "a.txt", tmp_path / "out", split="word")
    with pytest.raises(SourceError, match="vocab_size is 0"):
        smallest_dtype(0)
    assert [smallest_dtype(n).itemsize for n in (256, 257, 65536, 65537)] == [1, 2, 2, 4]


def test_tokenizers_by_name(tmp_path, monkeypatch):
    """byte, or module:object: a class, a function that makes one, or a ready object."""
    (tmp_path / "mine.py").write_text(
        "class Words:\n    vocab_size = 9\n    eod_token_id = 8\n    def encode(self, text): return [1]\n"
        "ready = Words()\ndef make(): return Words()\nnumber = int\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    assert load_tokenizer("byte").vocab_size == 257
    assert all(load_tokenizer(f"mine:{name}").encode("") == [1] for name in ("Words", "ready", "make"))
    for name, message in {
        "bpe": "tokenizer 'bpe' is unknown",
        "mine:missing": "mine has no 'missing'; it has Words, ready, make, number",
        "nowhere:x": "cannot be imported",
        "mine:number": "is a int without encode",
    }.items():
        with pytest.raises(ConfigError, match=message):
            load_tokenizer(name)


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    """The directory appears only at the end of the block."""
    with pytest.raises(SourceError), TokenWriter(tmp_path / "out", Words()) as writer:
        writer.add([1, 200])

    assert list(tmp_path.iterdir()) == []
    with TokenWriter(tmp_path / "out", Words()) as writer:
        writer.add([1, 2])
    assert json.loads((tmp_path / "out" / "tokens.json").read_text())["num_tokens"] == 2
