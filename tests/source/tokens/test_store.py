"""The token store: mapped, checked, and honest about damage."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from lading.errors import SourceError
from lading.source.tokens.store import TokenStore
from lading.source.tokens.tokenizer import ByteTokenizer
from lading.source.tokens.write import TokenWriter

DOCUMENTS = ["hello", "", "a longer document", "é"]


@pytest.fixture
def path(tmp_path):
    """A small store of bytes."""
    with TokenWriter(tmp_path / "corpus", ByteTokenizer()) as writer:
        for text in DOCUMENTS:
            writer.add(ByteTokenizer().encode(text))
    return tmp_path / "corpus"


def test_documents_come_back(path):
    """Empty ones keep their number; tokens are the smallest integers that hold the vocabulary."""
    store = TokenStore(path)

    assert len(store) == 4 and [ByteTokenizer().decode(store[d]) for d in range(4)] == DOCUMENTS
    assert store.lengths().tolist() == [5, 0, 17, 2] and store.num_tokens == 24
    assert store.tokens.dtype == np.uint16 and not store.tokens.flags.writeable
    assert bytes(store.read(2, 2, 8).astype(np.uint8)) == b"longer"
    assert (store.vocab_size, store.eod_token_id, store.tokenizer) == (257, 256, "byte")


def test_documents_that_do_not_exist(path):
    """Counted from 0, no negative ones."""
    for document in (-1, 4):
        with pytest.raises(IndexError, match=r"out of range \[0, 4\)"):
            TokenStore(path)[document]


def test_the_fingerprint_is_of_the_content(path, tmp_path):
    """The same documents elsewhere have it; others have not."""
    with (
        TokenWriter(tmp_path / "same", ByteTokenizer()) as same,
        TokenWriter(tmp_path / "other", ByteTokenizer()) as other,
    ):
        for text in DOCUMENTS:
            same.add(ByteTokenizer().encode(text))
            other.add(ByteTokenizer().encode(text[::-1]))

    assert TokenStore(tmp_path / "same").fingerprint() == TokenStore(path).fingerprint()
    assert TokenStore(tmp_path / "other").fingerprint() != TokenStore(path).fingerprint()


def test_a_pickled_store_is_a_path(path):
    """Workers map the files again; pages are not sent."""
    sent = pickle.dumps(TokenStore(path))

    assert len(sent) < 500 and pickle.loads(sent).lengths().tolist() == [5, 0, 17, 2]


def test_an_empty_store_opens(tmp_path):
    """Nothing can be mapped of an empty file."""
    with TokenWriter(tmp_path / "empty", ByteTokenizer()):
        pass

    assert len(TokenStore(tmp_path / "empty")) == 0 and TokenStore(tmp_path / "empty").lengths().size == 0


def test_tokens_out_of_the_vocabulary_are_named(path):
    """File, document and value; not looked for when validate is off."""
    tokens = np.memmap(path / "tokens.bin", "<u2", "r+")
    tokens[7] = 300
    tokens.flush()

    with pytest.raises(SourceError, match=r"tokens\.bin: document 2 holds token 300, but the vocabulary has 257"):
        TokenStore(path)
    assert TokenStore(path, validate=False)[2][2] == 300


def test_offsets_that_go_backwards_are_named(path):
    """File, document and both offsets; found by lengths() even when validate is off."""
    offsets = np.memmap(path / "offsets.bin", "<i8", "r+")
    offsets[3] = 2
    offsets.flush()

    message = r"offsets\.bin: document 2 starts at 5 and ends at 2: offsets go backwards"
    with pytest.raises(SourceError, match=message):
        TokenStore(path)
    with pytest.raises(SourceError, match=message):
        TokenStore(path, validate=False).lengths()


def edit(path, **fields):
    """Change tokens.json."""
    file = path / "tokens.json"
    found = json.loads(file.read_text()) | fields
    file.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))


def cut(file, size):
    """Cut bytes off the end of a file."""
    file.write_bytes(file.read_bytes()[:-size])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: cut(p / "tokens.bin", 2), r"tokens\.bin has 46 bytes, expected 48 \(24 x uint16\)"),
        (lambda p: cut(p / "offsets.bin", 8), r"offsets\.bin has 32 bytes, expected 40"),
        (lambda p: (p / "offsets.bin").unlink(), r"offsets\.bin is missing"),
        (lambda p: (p / "tokens.json").unlink(), r"no token store at .*tokens\.json is missing"),
        (lambda p: (p / "tokens.json").write_text("{"), r"tokens\.json: expected JSON"),
        (lambda p: edit(p, tokens_version=9), "tokens_version: expected 1, found 9"),
        (lambda p: edit(p, dtype=None), r"dtype: expected one of \|u1, <u2, <u4, found nothing"),
        (
            lambda p: (p / "offsets.bin").write_bytes(np.array([0, 5, 5, 22, 23], "<i8").tobytes()),
            r"offsets\.bin goes from 0 to 23, expected 0 to 24",
        ),
    ],
)
def test_damage_is_named_by_file(path, damage, message):
    """A truncated, missing or strange file is found when the store is opened, even unvalidated."""
    damage(path)

    with pytest.raises(SourceError, match=message):
        TokenStore(path, validate=False)
