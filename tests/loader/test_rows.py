"""One compiled gather gives what a gather per source and column gives."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.utils.data import TensorDataset

from lading import Columns, Loader, NumpyLoader, Plan
from lading.loader.numpy import NumpyArrays
from lading.loader.rows import RowGather, _Quicker
from lading.loader.torch.collate import TorchArrays
from lading.runtime import compiled, threads
from lading.source import buffers
from lading.source.reader import reader_of

pytestmark = pytest.mark.skipif(not compiled.enabled(), reason="Numba is not installed")


@pytest.fixture(autouse=True)
def compiled_here(monkeypatch):
    """Compile, also where a question of the command line was asked in this process before."""
    monkeypatch.setattr(compiled, "_forgone", False)


DTYPES = ["float32", "float64", "float16", "int8", "int64", "uint8", "bool", "complex64"]


@st.composite
def datasets(draw):
    """Draw some datasets with equal columns, the face's kind of arrays, and a batch size."""
    kinds = draw(
        st.lists(st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(1, 3), max_size=2)), min_size=1, max_size=3)
    )
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    is_torch = draw(st.booleans())
    made = {}
    for number in range(draw(st.integers(1, 5))):
        length = draw(st.integers(1, 9))
        columns = {
            f"c{k}": (rng.random((length, *shape)) * 100).astype(dtype) for k, (dtype, shape) in enumerate(kinds)
        }
        if is_torch:
            columns = {name: torch.from_numpy(column) for name, column in columns.items()}
        made[f"d{number}"] = Columns(**columns)
    return made, draw(st.integers(1, 7))


@settings(max_examples=60)
@given(datasets(), st.sampled_from([Loader, NumpyLoader]))
def test_it_equals_a_gather_per_source(drawn, face):
    """Values, dtypes, shapes and names, for either face over either kind of arrays."""
    made, size = drawn
    weights = [1.0] * len(made) if len(made) > 1 else None
    loader, plain = (face(made, size, weights=weights) for _ in range(2))
    plain.engine.fetcher.__dict__["_rows"] = None

    assert loader.engine.fetcher._rows is not None
    for ours, theirs in zip(loader, plain, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert ours[name].dtype == theirs[name].dtype
            assert ours[name].shape == theirs[name].shape
            assert ours[name].tolist() == theirs[name].tolist()


@pytest.mark.parametrize("face", [Loader, NumpyLoader])
@pytest.mark.parametrize("source", [np.arange(6.0), torch.arange(6), TensorDataset(torch.arange(6), torch.ones(6, 2))])
def test_containers_are_those_of_a_gather_per_source(source, face):
    """A list for torch, a tuple for NumPy, or the column alone."""
    loader, plain = (face(source, 4, shuffle=False) for _ in range(2))
    plain.engine.fetcher.__dict__["_rows"] = None

    assert loader.engine.fetcher._rows is not None
    assert [repr(batch) for batch in loader] == [repr(batch) for batch in plain]


def test_large_columns_lie_over_memory_that_is_used_again_only_when_it_is_unused(monkeypatch):
    """A batch that is held keeps its values."""
    monkeypatch.setattr(buffers, "MIN_BYTES", 1)
    data = np.arange(400.0).reshape(100, 4)
    batches = list(Loader(data, 10, shuffle=False, prefetch=0))
    one_by_one = [batch.tolist() for batch in Loader(data, 10, shuffle=False, prefetch=0)]

    assert torch.cat(batches).tolist() == data.tolist()
    assert [row for batch in one_by_one for row in batch] == data.tolist()


def test_bfloat16_rows():
    """NumPy has no such type; bytes are bytes."""
    loader = Loader(torch.arange(8).to(torch.bfloat16), 4, shuffle=False)

    assert loader.engine.fetcher._rows is not None
    assert [(batch.dtype, batch.tolist()) for batch in loader][1] == (torch.bfloat16, [4.0, 5.0, 6.0, 7.0])


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("face", [Loader, NumpyLoader])
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.complex32, torch.uint16, torch.bool]
)
def test_values_are_those_of_the_tensor_whatever_its_type(face, dtype):
    """NumPy has no bfloat16: its bytes were taken for those of float32, once; of complex32 a part was lost."""
    numbers = torch.arange(8)
    source = (numbers + 1j * numbers if dtype.is_complex else numbers).to(dtype)

    found = [value for batch in face(source, 4, shuffle=False) for value in batch.tolist()]

    assert found == source.tolist()


@pytest.mark.parametrize("face", [Loader, NumpyLoader])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_batch_is_the_same_however_many_threads_copy_it(face, threads, monkeypatch):
    """Every row is copied, whoever comes late; a held batch keeps its values."""
    rng = np.random.default_rng(0)
    columns = {
        "wide": rng.random((3000, 700)), "long": rng.random((3000, 3)), "one": rng.integers(0, 99, 3000),
        "huge rows": rng.random((3000, 9, 1000), dtype=np.float32),
    }  # fmt: skip
    face_arrays = TorchArrays if face is Loader else NumpyArrays
    monkeypatch.setattr(face_arrays, "threads", lambda self: threads)
    bills, held = [], []
    for batch, bill in face(Columns(**columns), 60, drop_last=True).with_bills():
        assert all(np.array_equal(batch[name], column[bill.idx]) for name, column in columns.items())
        bills, held = [*bills, bill][-3:], [*held, batch][-3:]

    for bill, batch in zip(bills, held, strict=True):
        assert all(np.array_equal(batch[name], column[bill.idx]) for name, column in columns.items())


def test_a_row_that_is_not_there_is_refused_before_threads_copy(monkeypatch):
    """Memory behind a dataset that became shorter is not read."""
    monkeypatch.setattr(TorchArrays, "threads", lambda self: 2)
    gather = RowGather.of([reader_of(np.zeros((9, 99_000)), "a")], TorchArrays())
    bill = Plan.make(20, batch_size=20).bill(0)

    for _ in range(8):  # alone and with others
        with pytest.raises(IndexError, match="of 9 rows"):
            gather.batch(bill)


def test_whoever_is_quicker_copies():
    """Others help as long as that is measured to be quicker, and are tried again from time to time."""
    quicker, choices = _Quicker(), []
    for number in range(600):
        choices.append(quicker.shared)
        busy = number >= 300
        quicker.note(choices[-1], (3.0 if busy else 1.0) if choices[-1] else 2.0)

    assert np.mean(choices[10:300]) > 0.95 and np.mean(choices[310:]) < 0.05
    assert any(choices[400:])


@pytest.mark.parametrize(
    "source",
    [
        np.asfortranarray(np.ones((4, 3))),
        np.array(["a", "b"]),
        torch.ones(4, 3).t(),
        torch.ones(4, requires_grad=True),
        torch.ones(4, dtype=torch.complex64).conj(),
        [1, 2, 3],
        {"a": 1},
    ],
    ids=["fortran", "strings", "transposed", "gradient", "conjugated", "list", "dict"],
)
def test_what_is_not_rows_of_bytes_is_read_otherwise(source):
    """By the gather of each source."""
    assert RowGather.of([reader_of(source, "a")], TorchArrays()) is None


def test_sources_that_differ_are_read_otherwise():
    """Where the error that names them is."""
    readers = [reader_of(np.ones((3, 2)), "a"), reader_of(np.ones((3, 2), np.float32), "b")]

    assert RowGather.of(readers, NumpyArrays()) is None


def test_a_row_that_is_not_there_is_an_error_and_copies_nothing():
    """As NumPy would say; the engine then finds the sample."""
    data = np.arange(10)
    loader = NumpyLoader(data, 5, shuffle=False)
    bill = loader.share_of(1)
    gather = RowGather.of([reader_of(data[:7], "a")], NumpyArrays())

    with pytest.raises(IndexError, match="row 7 of 7"):
        gather.batch(bill)


def test_a_tensor_that_was_resized_is_not_read_from():
    """Its memory is somebody else's by then."""
    tensor = torch.arange(1000)
    loader = Loader(tensor, 10, shuffle=False, prefetch=0)
    batches = iter(loader)
    next(batches)
    tensor.resize_(100_000)

    with pytest.raises(Exception, match="resized"):
        next(batches)


def test_a_process_that_was_forked_has_helpers_of_its_own(monkeypatch):
    """Threads do not come along; what they were called does, and must be forgotten."""
    monkeypatch.setattr(TorchArrays, "threads", lambda self: 2)
    monkeypatch.setattr(_Quicker, "shared", True)
    data = np.random.default_rng(0).random((200, 9000))
    gather = RowGather.of([reader_of(data, "a")], TorchArrays())
    bills = [Plan.make(200, batch_size=50, seed=seed).bill(0) for seed in range(8)]

    def is_right():
        return all(np.array_equal(gather.batch(bill), data[bill.idx]) for bill in bills)

    assert is_right() and threads._helpers
    child = os.fork()
    if child == 0:
        os._exit(0 if not threads._helpers and is_right() and threads._helpers else 1)

    assert os.waitpid(child, 0)[1] == 0 and is_right()
