"""Megatron's indexed datasets, read and written; against megatron-core where it is installed."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pytest

from lading.errors import SourceError
from lading.kits.formats.convert import store_tokens
from lading.kits.formats.megatron import MegatronDocuments, write_megatron
from lading.loader import NumpyLoader
from lading.source.tokens.packed import PackedRows
from lading.source.windows import Windows

DOCUMENTS = [[1, 2, 3, 99], [4, 99], [5, 6, 7, 8, 9, 99], [99]]


def written_by_format(prefix, sequences, ends, dtype=np.int32, code=4, modes=False):
    """Write the files by their description, independently of our writer."""
    (prefix.parent / f"{prefix.name}.bin").write_bytes(b"".join(np.array(s, dtype).tobytes() for s in sequences))
    lengths = np.array([len(s) for s in sequences], np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths[:-1])]).astype(np.int64) * np.dtype(dtype).itemsize
    parts = [b"MMIDIDX\x00\x00", struct.pack("<Q", 1), struct.pack("<B", code), struct.pack("<Q", len(sequences))]
    parts += [struct.pack("<Q", len(ends)), lengths.tobytes(), starts.tobytes(), np.array(ends, np.int64).tobytes()]
    parts += [np.zeros(len(sequences), np.int8).tobytes()] * modes
    (prefix.parent / f"{prefix.name}.idx").write_bytes(b"".join(parts))


@pytest.mark.parametrize(("dtype", "code", "modes"), [(np.int32, 4, False), (np.uint16, 8, True), (np.int64, 5, False)])
def test_sequences_and_documents(tmp_path, dtype, code, modes):
    """As IndexedDataset has them, or as whole documents of several sequences."""
    written_by_format(tmp_path / "data", DOCUMENTS, [0, 2, 3, 4], dtype, code, modes)

    sequences, documents = MegatronDocuments(tmp_path / "data"), MegatronDocuments(tmp_path / "data.idx", by="document")

    assert [sequences[i].tolist() for i in range(len(sequences))] == DOCUMENTS
    assert [documents[i].tolist() for i in range(3)] == [DOCUMENTS[0] + DOCUMENTS[1], DOCUMENTS[2], DOCUMENTS[3]]
    assert pickle.loads(pickle.dumps(documents))[0].tolist() == documents[0].tolist()
    assert sequences.fingerprint() != documents.fingerprint() and documents.mean_tokens == 13 / 3


def test_what_we_write_is_what_the_format_says(tmp_path):
    """Byte for byte what the description gives."""
    write_megatron(DOCUMENTS, tmp_path / "ours")
    written_by_format(tmp_path / "theirs", DOCUMENTS, [0, 1, 2, 3, 4])

    for kind in ("bin", "idx"):
        assert (tmp_path / f"ours.{kind}").read_bytes() == (tmp_path / f"theirs.{kind}").read_bytes()
    with pytest.raises(SourceError, match="document 0 is no sequence of uint16"):
        write_megatron([[70_000]], tmp_path / "small", dtype=np.uint16)
    assert write_megatron([], tmp_path / "empty").lengths().tolist() == []


def test_to_a_store_and_back(tmp_path):
    """Megatron's end-of-document tokens are left out: packing appends them."""
    write_megatron(DOCUMENTS, tmp_path / "data")

    store = store_tokens(MegatronDocuments(tmp_path / "data"), tmp_path / "store", vocab_size=100, eod_token_id=99)
    again = write_megatron(([*store[d], 99] for d in range(len(store))), tmp_path / "again")

    assert [store[d].tolist() for d in range(4)] == [d[:-1] for d in DOCUMENTS]
    assert [again[i].tolist() for i in range(4)] == DOCUMENTS


def test_packed_shuffled_resumed_and_found(tmp_path):
    """Rows of packed documents behind a loader; where gives the steps that held one."""
    random = np.random.default_rng(0)
    write_megatron((random.integers(1, 90, n) for n in random.integers(1, 30, 200)), tmp_path / "data")
    rows = PackedRows(MegatronDocuments(tmp_path / "data"), 32, index_dir=tmp_path)
    loader = NumpyLoader({"web": rows}, batch_size=4, seed=1)
    seen = [np.asarray(batch["inputs"]).copy() for batch in loader]

    again = NumpyLoader({"web": rows}, batch_size=4, seed=1)
    for number, _ in enumerate(again):
        if number == 6:
            break
    state = again.state_dict()
    resumed = NumpyLoader({"web": rows}, batch_size=4, seed=1)
    resumed.load_state_dict(state)
    rest = [np.asarray(batch["inputs"]).copy() for batch in resumed]

    assert all(map(np.array_equal, rest, seen[7:])) and len(rest) == len(seen) - 7
    place = next(iter(loader.plan.where("web", 5, 0, len(seen))))
    expected = rows.take(np.array([5]))["inputs"][0]
    assert (seen[place.step] == expected).all(axis=1).any()
    assert len(Windows(MegatronDocuments(tmp_path / "data").tokens, 16)) > 50


@pytest.mark.parametrize("cut", [5, 30, -1, -9])
def test_damage_is_named(tmp_path, cut):
    """An index that was cut, data that was cut, another file altogether."""
    write_megatron(DOCUMENTS, tmp_path / "data")
    whole = (tmp_path / "data.idx").read_bytes()
    (tmp_path / "data.idx").write_bytes(whole[:cut])
    with pytest.raises(SourceError, match=r"data\.idx"):
        MegatronDocuments(tmp_path / "data")
    (tmp_path / "data.idx").write_bytes(whole)
    content = (tmp_path / "data.bin").read_bytes()
    (tmp_path / "data.bin").write_bytes(content[:-4])
    with pytest.raises(SourceError, match=r"data\.bin has 12 tokens, fewer than"):
        MegatronDocuments(tmp_path / "data")
    (tmp_path / "data.bin").unlink()
    with pytest.raises(SourceError, match=r"data\.bin is missing"):
        MegatronDocuments(tmp_path / "data")
    with pytest.raises(SourceError, match="is no file: expected the index"):
        MegatronDocuments(tmp_path / "nothing")


def test_megatron_core_reads_ours_and_we_read_theirs(tmp_path):
    """The real IndexedDataset and its builder, both ways."""
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    torch = pytest.importorskip("torch")
    builder = indexed.IndexedDatasetBuilder(str(tmp_path / "theirs.bin"), dtype=np.int32)
    for document in DOCUMENTS:
        builder.add_item(torch.tensor(document))
        builder.end_document()
    builder.finalize(str(tmp_path / "theirs.idx"))
    write_megatron(DOCUMENTS, tmp_path / "ours")

    theirs, ours = MegatronDocuments(tmp_path / "theirs"), indexed.IndexedDataset(str(tmp_path / "ours"))

    assert [theirs[i].tolist() for i in range(len(theirs))] == DOCUMENTS
    assert [ours[i].tolist() for i in range(len(ours))] == DOCUMENTS
    for kind in ("bin", "idx"):
        assert (tmp_path / f"ours.{kind}").read_bytes() == (tmp_path / f"theirs.{kind}").read_bytes()
