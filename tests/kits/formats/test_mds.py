"""MDS shards: fixtures written by the format's description, and shards that mosaicml-streaming itself wrote."""

from __future__ import annotations

import json
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.documentation import ROOT, blocks

from lading.errors import BadSampleError, SourceError
from lading.kits.formats.convert import store_tokens
from lading.kits.formats.mds import MDSDataset, MDSDocuments
from lading.loader import NumpyLoader
from lading.source.tokens.packed import PackedRows
from lading.testing import SourceContract

GUIDE = ROOT / "docs" / "guides" / "from-mds.md"
STREAMING = ROOT / ".venv-mds" / "bin" / "python"
COLUMNS = {"id": ("int", 8), "text": ("str", None), "tokens": ("ndarray:int32", None), "score": ("float32", 4)}


def encoded_array(array, *, dtype=True, shape=True):
    """An array as MDS has it: type and shape before the values, where the column does not fix them."""
    codes = {"uint8": 8, "int8": 9, "uint16": 16, "int32": 33, "float32": 34, "int64": 65}
    head = bytes([codes[array.dtype.name]]) if dtype else b""
    head += bytes([array.ndim << 2 | 1]) + np.array(array.shape, np.uint16).tobytes() if shape else b""
    return head + array.tobytes()


def sample(number):
    """A sample, and its bytes."""
    tokens = np.arange(number, number + 1 + number % 5, dtype=np.int32)
    value = {"id": number, "text": f"text {number} ☃", "tokens": tokens, "score": np.float32(number / 2)}
    parts = [np.int64(number).tobytes(), value["text"].encode(), encoded_array(tokens, dtype=False)]
    parts.append(value["score"].tobytes())
    sizes = [len(part) for part, (_, size) in zip(parts, COLUMNS.values(), strict=True) if size is None]
    return value, np.array(sizes, np.uint32).tobytes() + b"".join(parts)


def write_mds(folder, samples, columns=COLUMNS, shard_samples=8):
    """Write shards and their index."""
    folder.mkdir(exist_ok=True)
    names, shards = sorted(columns) if columns is not COLUMNS else list(columns), []
    config = json.dumps({"column_names": names}).encode()
    for first in range(0, len(samples), shard_samples):
        part = samples[first : first + shard_samples]
        start = 4 + 4 * (len(part) + 1) + len(config)
        offsets = (np.cumsum([0, *map(len, part)]) + start).astype(np.uint32)
        data = np.uint32(len(part)).tobytes() + offsets.tobytes() + config + b"".join(part)
        name = f"shard.{len(shards):05d}.mds"
        (folder / name).write_bytes(data)
        shards.append(
            {
                "column_names": names,
                "column_encodings": [columns[n][0] for n in names],
                "column_sizes": [columns[n][1] for n in names],
                "compression": None,
                "format": "mds",
                "hashes": [],
                "raw_data": {"basename": name, "bytes": len(data), "hashes": {}},
                "samples": len(part),
                "size_limit": 1 << 26,
                "version": 2,
                "zip_data": None,
            }
        )
    (folder / "index.json").write_text(json.dumps({"shards": shards, "version": 2}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three shards of 20 samples."""
    path = tmp_path_factory.mktemp("mds") / "data"
    write_mds(path, [sample(n)[1] for n in range(20)])
    return path


class TestMDS(SourceContract):
    """As every source; columns of numbers and arrays of one shape."""

    @pytest.fixture(autouse=True)
    def _folder(self, folder):
        self.folder = folder

    def make(self):
        """The dataset."""
        return MDSDataset(self.folder, columns=["id", "score"])


def test_every_sample_is_read(folder):
    """Over shards, in order; a worker maps the files again."""
    for dataset in (MDSDataset(folder), pickle.loads(pickle.dumps(MDSDataset(folder)))):
        assert len(dataset) == 20
        for number in range(20):
            expected, found = sample(number)[0], dataset[number]
            assert found["id"] == number and found["text"] == expected["text"] and found["score"] == expected["score"]
            assert found["tokens"].tolist() == expected["tokens"].tolist() and found["tokens"].dtype == np.int32
    assert dataset.file_of(9).endswith("shard.00001.mds")
    assert dataset.take(np.array([3, 19]))["id"].tolist() == [3, 19]
    assert dataset.take(np.array([3, 4]))["text"].tolist() == ["text 3 ☃", "text 4 ☃"]


@pytest.mark.parametrize(
    ("encoding", "size", "data", "value"),
    [
        ("ndarray", None, encoded_array(np.arange(6, dtype=np.uint16).reshape(2, 3)), [[0, 1, 2], [3, 4, 5]]),
        ("ndarray:int64:2,2", 32, np.arange(4).tobytes(), [[0, 1], [2, 3]]),
        ("uint8", 1, b"\x07", 7),
        ("str_int", None, b"123456789012345678901", 123456789012345678901),
        ("json", None, b'{"a": [1]}', {"a": [1]}),
        ("bytes", None, b"\xff\x00", b"\xff\x00"),
    ],
)
def test_encodings(tmp_path, encoding, size, data, value):
    """Each as its description says."""
    head = np.array([len(data)], np.uint32).tobytes() if size is None else b""
    write_mds(tmp_path / "d", [head + data], {"x": (encoding, size)})

    found = MDSDataset(tmp_path / "d")[0]["x"]

    assert (found.tolist() if isinstance(found, np.ndarray) else found) == value


def test_code_and_images_are_not_run(tmp_path):
    """pkl is refused; its bytes can be had, or it is left out."""
    write_mds(
        tmp_path / "d", [np.array([3], np.uint32).tobytes() + b"\x01abc"], {"a": ("uint8", 1), "p": ("pkl", None)}
    )
    samples = np.array([3], np.uint32).tobytes() + b"\x01abc"

    with pytest.raises(SourceError, match=r"column 'p' is encoded as pkl, .*it would run code"):
        MDSDataset(tmp_path / "d")
    assert MDSDataset(tmp_path / "d", raw=["p"])[0] == {"a": 1, "p": b"abc"} and len(samples) == 8
    assert MDSDataset(tmp_path / "d", columns=["a"])[0] == {"a": 1}
    with pytest.raises(SourceError, match="has no column q; it has a, p"):
        MDSDataset(tmp_path / "d", columns=["q"])


def test_damage_is_named(tmp_path):
    """A shard that is gone, packed, cut; a sample whose sizes are wrong."""
    write_mds(tmp_path / "d", [sample(n)[1] for n in range(3)])
    shard = tmp_path / "d" / "shard.00000.mds"
    whole = shard.read_bytes()
    broken = bytearray(whole)
    start = int(np.frombuffer(whole[4:8], np.uint32)[0])
    broken[start : start + 4] = b"\xff\xff\xff\x00"
    shard.write_bytes(bytes(broken))
    with pytest.raises(BadSampleError, match=r"shard\.00000\.mds: sample 0 cannot be decoded"):
        MDSDataset(tmp_path / "d")[0]
    assert MDSDataset(tmp_path / "d")[1]["id"] == 1
    shard.write_bytes(whole[:-1])
    with pytest.raises(SourceError, match="bytes, its index says"):
        MDSDataset(tmp_path / "d")
    shard.unlink()
    with pytest.raises(SourceError, match="is missing; fetch it again"):
        MDSDataset(tmp_path / "d")
    index = json.loads((tmp_path / "d" / "index.json").read_text())
    index["shards"][0]["compression"] = "zstd"
    (tmp_path / "d" / "index.json").write_text(json.dumps(index))
    with pytest.raises(SourceError, match=r"it is packed \(zstd\): unpack the shards first"):
        MDSDataset(tmp_path / "d")


def test_tokens_packed_shuffled_resumed_and_stored(folder, tmp_path):
    """A column of ids as documents; where finds a row again."""
    documents = MDSDocuments(folder, "tokens", eod_token_id=99)
    store = store_tokens(documents, tmp_path / "store", vocab_size=100, eod_token_id=99)
    rows = PackedRows(documents, 8, index_dir=tmp_path)
    loader = NumpyLoader({"mds": rows}, batch_size=2, seed=1)
    seen = [np.asarray(batch["inputs"]).copy() for batch in loader]

    assert [store[d].tolist() for d in range(20)] == [sample(d)[0]["tokens"].tolist() for d in range(20)]
    place = next(iter(loader.plan.where("mds", 1, 0, len(seen))))
    assert (seen[place.step] == rows.take(np.array([1]))["inputs"][0]).all(axis=1).any()
    resumed = NumpyLoader({"mds": rows}, batch_size=2, seed=1)
    for number, _ in enumerate(resumed):
        if number == 1:
            break
    again = NumpyLoader({"mds": rows}, batch_size=2, seed=1)
    again.load_state_dict(resumed.state_dict())
    assert all(map(np.array_equal, (np.asarray(batch["inputs"]) for batch in again), seen[2:]))


def same(one, other):
    """Equal values of equal types."""
    if isinstance(one, np.ndarray | np.generic):
        return type(one) is type(other) and one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and one == other


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Shards that mosaicml-streaming wrote in its own environment, and what its own reader makes of them."""
    if not STREAMING.exists():
        pytest.skip("no .venv-mds: `make test-all` makes it, or `make .venv-mds/.made`")
    out = tmp_path_factory.mktemp("real")
    subprocess.run([STREAMING, Path(__file__).with_name("mds_writer.py"), out], check=True, timeout=600)
    return out, pickle.loads((out / "expected.pickle").read_bytes())


@pytest.mark.slow
def test_shards_of_the_real_writer_read_equal(real):
    """Every encoding, several shards: as streaming's own reader gives them, types included."""
    out, expected = real
    dataset = MDSDataset(out / "plain")

    assert len(list((out / "plain").glob("*.mds"))) > 2 and len(dataset) == len(expected) == 120
    assert set(dataset.columns) == set(expected[0])
    for number, theirs in enumerate(expected):
        ours = dataset[number]
        assert [name for name in theirs if not same(ours[name], theirs[name])] == []


@pytest.mark.slow
def test_packed_shards_of_the_real_writer_are_refused_until_unpacked(real, monkeypatch):
    """By name of the packing; the guide's own lines unpack them."""
    out, expected = real
    for packing in ("zstd", "gz", "bz2", "br", "snappy"):
        with pytest.raises(SourceError, match=rf"it is packed \({packing}\): unpack the shards first"):
            MDSDataset(out / packing)
    (out / "data").mkdir()
    (out / "zstd").rename(out / "data" / "mds")
    monkeypatch.chdir(out)
    lines = next(block.text for block in blocks(GUIDE) if "zstandard" in block.text)
    exec(compile(lines, "from-mds.md", "exec"), {})

    unpacked = MDSDataset("data/mds")

    assert all(same(unpacked[number]["text"], theirs["text"]) for number, theirs in enumerate(expected))


@pytest.mark.slow
def test_shards_of_the_real_writer_shuffled_resumed_and_found(real, tmp_path):
    """Behind a loader: each sample once, the same rest after a resume, and `where` names the batch that held it."""
    out, expected = real

    def loader():
        return NumpyLoader({"mds": MDSDataset(out / "plain", columns=["id", "text"])}, batch_size=8, seed=3)

    seen = [batch["id"].tolist() for batch in loader()]
    first = loader()
    for number, _ in enumerate(first):
        if number == 4:
            break
    resumed = loader()
    resumed.load_state_dict(first.state_dict())
    documents = MDSDocuments(out / "plain", "tokens", eod_token_id=99)
    store = store_tokens(documents, tmp_path / "store", vocab_size=100, eod_token_id=99)

    ids, flat = [theirs["id"] for theirs in expected], [number for batch in seen for number in batch]
    assert sorted(flat) == ids and flat != ids
    assert [batch["id"].tolist() for batch in resumed] == seen[5:]
    for index in (0, 41, 119):
        (place,) = first.plan.where("mds", index, 0, len(seen))
        assert seen[place.step][place.slot] == ids[index]
    assert all(store[d].tolist() == theirs["tokens"].tolist() for d, theirs in enumerate(expected))
