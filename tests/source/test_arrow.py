"""Hugging Face datasets read from their buffers: equal to what collating their samples gives, or left alone."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("datasets")

import datasets
import torch
from datasets import ClassLabel, Dataset, Features, LargeList, List, Value, concatenate_datasets
from torch.utils.data import DataLoader, Subset, default_collate

from lading import Loader, NumpyLoader
from lading.errors import SourceError
from lading.loader.numpy import NumpyArrays
from lading.loader.torch.collate import TorchArrays
from lading.runtime import compiled
from lading.source import arrow
from lading.source.reader import reader_of

NUMBERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
FORMATS = (None, "numpy", "torch")


def numbers(rng, name, count):
    """Return numbers of a type, its largest and smallest among them."""
    if name == "bool":
        return rng.random(count) < 0.5
    if name.startswith("float"):
        found = (rng.standard_normal(count) * 100).astype(name)
        found[rng.random(count) < 0.05] = rng.choice([np.inf, -np.inf, np.nan, 0.0])
        return found
    limits = np.iinfo(name)
    high = min(int(limits.max), 2**63 - 2)
    return rng.integers(int(limits.min), high, count, dtype=name, endpoint=True)


def column(rng, count):
    """Return a random column and its feature; some are of kinds that are not taken."""
    kind = rng.choice(["number", "number", "fixed", "lists", "ragged", "large", "bool", "text", "label", "odd"])
    name = str(rng.choice([*NUMBERS, "bool"]))
    length = int(rng.integers(0, 6))
    if kind == "label":
        return rng.integers(0, 3, count), ClassLabel(names=["a", "b", "c"])
    if kind == "text":
        words = ["", "a", "ü", "tail\0", "a\0b", "漢字", "longer text"]
        return [str(rng.choice(words[:4] if rng.random() < 0.5 else words)) for _ in range(count)], Value(
            str(rng.choice(["string", "large_string"]))
        )
    if kind == "odd":
        return odd(rng, count)
    if kind in ("number", "bool"):
        name = "bool" if kind == "bool" else name
        return numbers(rng, name, count), Value(name)
    lengths = rng.integers(0, 5, count) if kind == "ragged" else np.full(count, max(length, 1))
    rows = [numbers(rng, name, n).tolist() for n in lengths]
    made = {"fixed": List(Value(name), length=max(length, 1)), "large": LargeList(Value(name))}
    return rows, made.get(str(kind), List(Value(name)))


def odd(rng, count):
    """Return a column that is read as ever."""
    kind = rng.integers(6)
    if kind == 0:
        return [None if rng.random() < 0.3 else 1 for _ in range(count)], Value("int32")
    if kind == 1:
        return [b"ab"] * count, Value("binary")
    if kind == 2:
        return np.arange(count).astype("M8[s]"), Value("timestamp[s]")
    if kind == 3:
        return [[[1, 2], [3, 4]]] * count, List(List(Value("int32")))
    if kind == 4:
        return [{"a": 1}] * count, {"a": Value("int32")}
    return [[1, None, 3]] * count, List(Value("int32"))


def storage(feature):
    """Return the Arrow type of a feature."""
    return Features({"x": feature}).arrow_schema.field("x").type


def table(rng, features, made, count):
    """Return a table of random chunks, some of them cut out of longer arrays."""
    cuts = np.sort(rng.integers(0, count + 1, int(rng.integers(0, 4))))
    bounds = [0, *cuts.tolist(), count]
    columns = {}
    for name, values in made.items():
        kind = storage(features[name])
        listed = values.tolist() if isinstance(values, np.ndarray) and kind != pa.float16() else list(values)
        whole = pa.array(listed, type=kind)
        columns[name] = pa.chunked_array([whole.slice(a, b - a) for a, b in itertools.pairwise(bounds)])
    return pa.table(columns, schema=features.arrow_schema)


def random_dataset(seed):
    """Return a dataset of random columns, chunks and ways to choose rows."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(8, 60))
    made, features = {}, {}
    for number in range(int(rng.integers(1, 4))):
        made[f"c{number}"], features[f"c{number}"] = column(rng, count)
    features = Features(features)
    found = Dataset(pa_table(table(rng, features, made, count)))
    ways = {
        "none": lambda: found,
        "select": lambda: found.select(rng.integers(0, count, count)),
        "range": lambda: found.select(range(2, count - 2)),
        "shuffle": lambda: found.shuffle(seed=seed),
        "shard": lambda: found.shard(3, 1),
        "concatenate": lambda: concatenate_datasets([found, found.select(range(3, count))]),
        "shuffled twice": lambda: concatenate_datasets([found.shuffle(seed=1), found.shuffle(seed=2)]),
    }
    return ways[str(rng.choice(list(ways)))](), rng


def pa_table(found):
    """Return a table as the library holds it."""
    return datasets.table.InMemoryTable(found)


def outcome(make):
    """Return a batch, or that there is none."""
    try:
        return make()
    except Exception:
        return "refused"


def assert_same(ours, theirs, where):
    """Compare two batches: containers, types, shapes, values."""
    assert type(ours) is type(theirs), where
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), where
        for name in theirs:
            assert_same(ours[name], theirs[name], (where, name))
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs), where
        for mine, yours in zip(ours, theirs, strict=True):
            assert_same(mine, yours, where)
    elif isinstance(theirs, torch.Tensor | np.ndarray):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, where
        assert np.array_equal(np.asarray(ours), np.asarray(theirs), equal_nan=theirs.dtype in FLOATS), where
    else:
        assert ours == theirs, where


FLOATS = (torch.float32, torch.float64, np.dtype("f4"), np.dtype("f8"))


def compared(seeds):
    """Compare random datasets with what collating gives; return how many were taken, and left alone, by format."""
    counts = Counter()
    for seed in seeds:
        made, rng = random_dataset(seed)
        for kind in FORMATS:
            found = made.with_format(kind)
            reader = reader_of(found, "data")
            if reader.columns is None:
                counts[kind, "left as now"] += 1
                continue
            counts[kind, "taken"] += 1
            for size in (1, 2, 7, 32):
                rows = rng.integers(0, len(found), size)
                for arrays, collate in ((TorchArrays(), default_collate), (NumpyArrays(), NumpyArrays().collate)):
                    ours = outcome(lambda: arrays.columns(reader.columns(rows, 0, None)))  # noqa: B023
                    theirs = outcome(lambda: collate(found.__getitems__(rows.tolist())))  # noqa: B023
                    assert_same(ours, theirs, (seed, kind, size, found.features))
    return counts


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_random_datasets_are_equal_or_left_alone():
    """200 datasets in three formats, batches of 1 to 32 rows, both faces; a third and more is taken."""
    counts = compared(range(200))

    print(dict(counts))
    for kind in FORMATS:
        assert counts[kind, "taken"] + counts[kind, "left as now"] == 200
        assert counts[kind, "taken"] > 80
        assert counts[kind, "left as now"] > 40


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_the_plain_twin_is_equal_too(monkeypatch):
    """Without kernels, the same comparison over fewer datasets."""
    monkeypatch.setattr(compiled, "enabled", lambda: False)

    assert sum(count for (_, word), count in compared(range(200, 220)).items() if word == "taken") > 20


ROWS = Dataset.from_dict({"ids": np.arange(400).reshape(100, 4).tolist(), "text": [f"t{n}" for n in range(100)]})


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_what_torch_gives(kind, workers):
    """Batches of a whole epoch, in this process and from workers."""
    found = ROWS.with_format(kind).shuffle(seed=3)
    theirs = list(DataLoader(found, batch_size=32))

    ours = list(Loader(found, batch_size=32, shuffle=False, names=False, num_workers=workers))

    assert len(ours) == len(theirs) == 4
    for mine, yours in zip(ours, theirs, strict=True):
        assert_same(mine, yours, kind)


@pytest.mark.parametrize("kind", FORMATS)
def test_mixtures_of_such_datasets_are_mixed_row_by_row(kind):
    """Texts and lists of several datasets lie in the slots of their bill; a subset is read the same way."""
    sources = {"a": ROWS.with_format(kind), "b": Subset(ROWS.with_format(kind).select(range(50)), range(5, 45))}
    loader = Loader(sources, batch_size=16)

    for batch, bill in loader.with_bills():
        row = [r + 5 if d else r for d, r in zip(bill.dataset_idx.tolist(), bill.idx.tolist(), strict=True)]
        theirs = default_collate(ROWS.with_format(kind).__getitems__(row))
        assert_same({name: batch[name] for name in theirs}, theirs, kind)


def test_datasets_of_different_columns_are_read_as_samples():
    """A mixture with arrays, or of formats, is collated as it was before such datasets were taken."""
    arrays = {"ids": np.zeros((9, 4), dtype=np.int64), "text": np.array(["x"] * 9)}
    plain = ROWS.with_format("torch").select_columns(["ids"])

    loader = NumpyLoader({"a": plain, "b": [{"ids": row} for row in arrays["ids"]]}, batch_size=8)

    assert not loader.engine.fetcher.in_columns
    assert next(iter(loader))["ids"].shape == (8, 4)


def test_set_format_is_followed():
    """A dataset whose format changes in its place is read in the new one, or refused."""
    found = Dataset.from_dict({"x": [1.5, 2.5, 3.5, 4.5]})
    loader = Loader(found, batch_size=2, shuffle=False, names=False, prefetch=0)
    assert next(iter(loader))["x"].dtype == torch.float64

    found.set_format("torch")
    assert next(iter(loader))["x"].dtype == torch.float32

    found.set_format("pandas")
    with pytest.raises(SourceError, match="the format of a dataset became 'pandas' while it was read from"):
        next(iter(loader))


def test_lists_of_different_lengths_say_what_to_do():
    """Where torch says that elements differ in size."""
    ragged = Dataset.from_dict({"ids": [[1, 2], [3]]}).with_format("torch")
    with pytest.raises(SourceError, match=r"row 1 has 1 numbers, others of its batch 2.*pass a collate_fn"):
        list(Loader(ragged, batch_size=2, shuffle=False))


def test_views_are_not_pickled():
    """What travels to a worker is the dataset; the copy opens its buffers again."""
    loader = Loader(ROWS.with_format("torch"), batch_size=4)
    next(iter(loader))

    pickled = pickle.dumps(loader.engine.fetcher)
    copy = pickle.loads(pickled)

    assert b"lading.source.arrow" not in pickled
    assert copy.in_columns
    assert copy.readers[0].columns(np.array([7]), 0, None)["ids"].tolist() == [[28, 29, 30, 31]]


def test_eight_rows_that_differ_leave_a_dataset_alone(monkeypatch):
    """Were the library to give something else one day, its own way would be taken."""
    assert arrow.opened(ROWS) is not None
    monkeypatch.setattr(arrow, "_is_equal", lambda ours, theirs: False)

    assert arrow.opened(ROWS) is None


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_row_outside_its_buffer_is_refused(monkeypatch, is_compiled):
    """A damaged file: Arrow looks at the first and the last offset, not at those between."""
    monkeypatch.setattr(compiled, "enabled", lambda: is_compiled)
    offsets = pa.py_buffer(np.array([0, 900, 902, 4], dtype=np.int32))
    lists = pa.Array.from_buffers(pa.list_(pa.int64()), 3, [None, offsets], children=[pa.array([1, 2, 3, 4])])
    column = arrow.NumberColumn(pa.chunked_array([lists]), pa.int64(), np.dtype("i8"))

    with pytest.raises(SourceError, match="row 1 lies outside its Arrow buffer: the file is damaged"):
        column.take(np.array([1]))
