"""Packed rows as a source."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import datasets
import numpy as np
import pytest

from lading.batch import llm_batch, pack
from lading.errors import PackingError, SourceError
from lading.order import Plan
from lading.order.packing.index import PackingIndex
from lading.order.packing.rules import PackingRules
from lading.source.reader import reader_of
from lading.source.spec import validate_batch
from lading.source.tokens.column import TokenColumn
from lading.source.tokens.packed import PackedRows
from lading.source.tokens.store import TokenStore
from lading.source.tokens.write import TokenWriter

RULES = PackingRules(16, "best_fit", "split")


class Numbers:
    """A vocabulary of 1 000 with E 999."""

    vocab_size = 1000
    eod_token_id = 999

    def encode(self, text):
        """Not used: ids are ready."""
        raise AssertionError


@pytest.fixture(scope="module")
def documents():
    """Documents of 0 to 40 tokens."""
    random = np.random.default_rng(0)
    return [random.integers(0, 900, length) for length in [0, 16, 40, *random.integers(1, 30, 60)]]


@pytest.fixture
def store(tmp_path, documents):
    """The documents in a token store."""
    with TokenWriter(tmp_path / "corpus", Numbers()) as writer:
        for document in documents:
            writer.add(document)
    return TokenStore(tmp_path / "corpus")


def test_rows_are_those_of_pack(store, documents):
    """The same columns as packing everything in memory."""
    rows = PackedRows(store, RULES)

    batch = llm_batch(rows.take(np.arange(len(rows))))

    assert batch.equals(pack(documents, 16, 999, "best_fit", "split"))


def test_any_rows_in_any_order(store):
    """take gathers what __getitem__ and __getitems__ give one by one."""
    rows = PackedRows(store.path, RULES)
    wanted = np.array([5, 0, 5, len(rows) - 1])

    columns = rows.take(wanted)

    for place, row in enumerate(wanted.tolist()):
        for one in (rows[row], rows.__getitems__(wanted.tolist())[place]):
            assert all(np.array_equal(columns[name][place], one[name]) for name in columns)
    assert reader_of(rows, "rows").columns is not None


def test_a_hugging_face_column_gives_the_same_rows(store, documents):
    """Read piece by piece instead of from one flat array."""
    column = TokenColumn(datasets.Dataset.from_dict({"input_ids": documents}), eod_token_id=999)

    mine, theirs = PackedRows(store, RULES), PackedRows(column, RULES)

    everything = np.arange(len(mine))
    assert llm_batch(mine.take(everything)).equals(llm_batch(theirs.take(everything)))
    assert theirs.index.path is None and theirs.stored_at() is None and theirs.file_of(0) == ""


def test_the_index_is_saved_beside_the_tokens_and_found_again(store):
    """Made once; its place can be written down."""
    rows = PackedRows(store, RULES)

    again = PackedRows(store.path, RULES)

    assert rows.index.path == again.index.path == str(store.path / f"packing-{rows.index.fingerprint}")
    assert rows.stored_at() == rows.index.path
    assert (
        rows.fingerprint() == again.fingerprint() != PackedRows(store, PackingRules(16, overflow="split")).fingerprint()
    )


def test_an_index_may_be_saved_elsewhere(store, tmp_path):
    """For stores that cannot be written to."""
    assert PackedRows(store, RULES, index_dir=tmp_path / "elsewhere").index.path.startswith(str(tmp_path / "elsewhere"))


def test_pickled_rows_are_paths(store):
    """A worker maps index and tokens again."""
    rows = PackedRows(store, RULES)

    sent = pickle.dumps(rows)

    assert len(sent) < 1500
    assert np.array_equal(pickle.loads(sent)[3]["inputs"], rows[3]["inputs"])


def test_an_index_in_memory_is_sent_along(documents):
    """Without a directory there is nothing to map again."""
    column = TokenColumn(datasets.Dataset.from_dict({"input_ids": documents}))
    rows = PackedRows(column, RULES)

    assert np.array_equal(pickle.loads(pickle.dumps(rows))[3]["inputs"], rows[3]["inputs"])


def test_documents_are_found_in_every_step_that_held_them(store, documents):
    """rows_of_document and plan.where together are the inverse of the bills."""
    rows = PackedRows(store, RULES)
    plan = Plan.make({"corpus": len(rows)}, batch_size=4, seed=3)
    document = 2  # 40 tokens: three pieces
    steps = plan.epoch_steps(0)

    found = {
        place.step for piece in rows.rows_of_document(document) for place in plan.where("corpus", piece.row, 0, steps)
    }

    held = {step for step in range(steps) if (rows.take(plan.bill(step).idx)["document_idx"] == document + 1).any()}
    assert found == held and len(rows.rows_of_document(document)) == 3
    assert rows.rows_of_document(0) == []


def test_options_of_rows(store):
    """Positions may run on, documents may be left out, E may be another."""
    rows = PackedRows(store, RULES, eod_token_id=5, reset_positions=False, with_documents=False)

    columns = rows.take(np.array([0]))

    real = columns["inputs_segmentation"][0] > 0
    assert columns["inputs_position"][0][real].tolist() == list(range(real.sum()))
    assert "document_idx" not in columns and columns["inputs"][0, 0] == 5


def test_batches_fit_their_spec(store):
    """What a row looks like is declared; a token out of the vocabulary is found."""
    rows = PackedRows(store, RULES)
    columns = rows.take(np.arange(4))

    assert validate_batch(columns, rows.spec(), strict=True)
    columns["targets"][2, 3] = 1000
    with pytest.raises(AssertionError, match="targets must be < 1000, got max 1000"):
        validate_batch(columns, rows.spec())


def test_wrong_use_is_refused(store):
    """A long document, an index of other tokens, things that are no tokens, rows that do not exist."""
    with pytest.raises(PackingError, match="document 2 has 40 tokens but a row holds 16"):
        PackedRows(store, 16)
    with pytest.raises(SourceError, match="the packing index is of 1 documents, but the tokens have 63"):
        PackedRows(store, PackingIndex.build([3], 16))
    with pytest.raises(SourceError, match="tokens are a list, expected a TokenStore"):
        PackedRows([[1, 2]], 16)
    with pytest.raises(IndexError, match=r"row -1 out of range \[0, "):
        PackedRows(store, RULES)[-1]


def test_batches_that_are_held_do_not_change(store):
    """Buffers are reused only when no one holds them."""
    rows = PackedRows(store, RULES)

    held = [rows.take(np.array([row])) for row in range(len(rows))]

    assert all(np.array_equal(batch["targets"][0], rows[row]["targets"]) for row, batch in enumerate(held))


def anonymous_memory():
    """Bytes of this process that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="counts memory as Linux does")
def test_a_corpus_larger_than_memory_is_packed_and_read(tmp_path):
    """Twice the memory of the machine, in a file with holes: rows come without loading it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    lengths = np.full(2 * memory // 2 // 1_000_000 + 1, 1_000_000)
    with TokenWriter(tmp_path / "huge", Numbers()):
        pass
    facts = json.loads((tmp_path / "huge" / "tokens.json").read_text())
    facts |= {"num_documents": len(lengths), "num_tokens": int(lengths.sum())}
    (tmp_path / "huge" / "tokens.json").write_text(json.dumps(facts))
    np.cumsum([0, *lengths], dtype="<i8").tofile(tmp_path / "huge" / "offsets.bin")
    try:
        os.truncate(tmp_path / "huge" / "tokens.bin", 2 * facts["num_tokens"])
    except OSError as error:
        pytest.skip(f"the file system has no room for a file with holes: {error}")
    before = anonymous_memory()

    rows = PackedRows(tmp_path / "huge", PackingRules(8192, "best_fit", "split"))
    for _ in range(20):
        batch = rows.take(np.random.default_rng(0).integers(0, len(rows), 16))

    assert batch["inputs"].shape == (16, 8192) and rows.tokens.tokens.nbytes > memory
    assert anonymous_memory() - before < 300e6
