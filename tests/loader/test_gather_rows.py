"""One compiled gather gives what a gather per source and column gives."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.utils.data import TensorDataset

from lading import Columns, Loader, NumpyLoader, Plan
from lading.loader import fetch
from lading.loader.gather import RowGather
from lading.loader.iteration import LARGE_BYTES, size_of
from lading.loader.numpy import NumpyArrays
from lading.loader.torch.collate import TorchArrays
from lading.runtime import compiled
from lading.runtime.processes import helper
from lading.source import columns as buffers
from lading.source.reader import reader_of

pytestmark = pytest.mark.skipif(not compiled.enabled(), reason="nothing is compiled here")


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
@pytest.mark.parametrize("row_bytes", [1, 255, 256, 257, 511, 512, 513, 3000])
def test_rows_of_every_length_are_copied_whole(face, row_bytes):
    """Heads of several rows are copied before their tails."""
    data = np.random.default_rng(row_bytes).integers(0, 256, (70, row_bytes), dtype=np.uint8)
    for size in (1, 15, 16, 17, 33):
        loader = face(data, size)
        assert loader.engine.fetcher._rows is not None
        assert all(np.array_equal(batch, data[bill.idx]) for batch, bill in loader.with_bills())


@pytest.fixture(params=[1, 2])
def cores(request, monkeypatch):
    """Have a loader find so many cores."""
    monkeypatch.setattr(fetch, "usable_cpus", lambda: request.param)
    return request.param


def large_columns():
    """Columns of which 60 rows are large (one may not be written to), and small ones."""
    rng = np.random.default_rng(0)
    fixed = rng.random((300, 700))
    fixed.flags.writeable = False
    return {
        "tensor": torch.from_numpy(rng.random((300, 3500))).to(torch.bfloat16),
        "array": rng.random((300, 700)),
        "fixed": fixed,
        "deep": rng.integers(0, 9, (300, 9, 1000)),
        "narrow": rng.random((300, 3)),
        "one": np.arange(300),
    }


@pytest.mark.parametrize("face", [Loader, NumpyLoader])
def test_large_batches_are_the_same_whoever_copies_them(face, cores):
    """One thread, or two; a held batch keeps its values, and nothing is warned of."""
    columns = large_columns()
    if face is NumpyLoader:
        columns.pop("tensor")  # of a type that NumPy has not got
    loader = face(Columns(**columns), 60, drop_last=True)
    held = list(loader.with_bills())

    assert size_of(held[0][0]) > LARGE_BYTES
    for batch, bill in held:
        for name, column in columns.items():
            rows = column[torch.from_numpy(bill.idx)] if name == "tensor" else torch.from_numpy(column[bill.idx])
            assert torch.equal(torch.as_tensor(batch[name]), rows), name


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 31, 32, 33, 100])
def test_two_threads_share_every_number_of_rows(rows):
    """Each has its half; of one row the other thread has all."""
    data = np.random.default_rng(0).random((rows, LARGE_BYTES // 8 // rows + 1))
    gather = RowGather.of([reader_of(data, "a")], NumpyArrays())
    bill = Plan.make(rows, batch_size=rows).bill(0)

    assert np.array_equal(gather.batch(bill, alone=False), data[bill.idx])
    assert np.array_equal(gather.batch(bill), data[bill.idx])


def test_large_batches_of_several_sources_are_shared_too(cores):
    """Sources and rows of a half are its own."""
    wide = np.random.default_rng(0).random((300, 1400))
    loader = Loader({"a": Columns(x=wide), "b": Columns(x=wide + 1)}, 100, drop_last=True)
    batches = list(loader.with_bills())

    assert batches[0][0]["x"].nbytes > LARGE_BYTES
    for batch, bill in batches:
        assert np.array_equal(batch["x"], wide[bill.idx] + bill.dataset_idx[:, None])


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("place", [0, 9, 10, 19])
def test_a_row_of_a_large_batch_that_is_not_there_is_named(alone, place):
    """In whichever half it is; memory behind a dataset that became shorter is not read."""
    gather = RowGather.of([reader_of(np.zeros((9, 99_000)), "a")], TorchArrays())
    rows = np.zeros(20, np.int64)
    rows[place] = 12
    bill = Plan.make(20, batch_size=20).bill(0).replace(idx=rows)

    with pytest.raises(IndexError, match="row 12 of 9 rows"):
        gather.batch(bill, alone=alone)


def test_a_half_that_nobody_has_begun_is_copied_by_the_caller():
    """The other thread is busy with something else, or has no core."""
    data = np.random.default_rng(0).random((200, 9000))
    gather = RowGather.of([reader_of(data, "a")], NumpyArrays())
    bill, going_on = Plan.make(200, batch_size=100).bill(0), threading.Event()
    busy = helper().submit(going_on.wait)

    found = gather.batch(bill, alone=False)
    going_on.set()

    assert np.array_equal(found, data[bill.idx]) and busy.result()


def test_a_thread_that_trains_goes_on_when_the_main_thread_has_ended():
    """Python takes no new work for helping threads from then on, but waits for a thread that is no daemon."""
    code = """
import threading
import numpy as np
from lading import NumpyLoader

data, is_over = np.arange(400_000).reshape(200, 2000), threading.main_thread().join

def train():
    loader = NumpyLoader(data, 100, shuffle=False)
    is_over()
    print(sum(int(batch["data"][0, 0] if isinstance(batch, dict) else batch[0, 0]) for batch in loader))

threading.Thread(target=train).start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("200000\n", "")


def test_memory_is_not_given_again_while_a_copy_that_ctrl_c_broke_off_goes_on(monkeypatch):
    """Else the other thread would copy into the next batch."""
    gather = RowGather.of([reader_of(np.zeros((200, 9000)), "a")], NumpyArrays())
    begun, going_on, places, is_other = threading.Event(), threading.Event(), [], []
    allocated, copied = RowGather._allocated, RowGather._copied

    def watched(gather, rows):
        out, targets = allocated(gather, rows)
        places.append(int(targets[0]))
        return out, targets

    def interrupted(gather, *given):
        if threading.current_thread() is threading.main_thread():
            begun.wait()
            raise KeyboardInterrupt
        begun.set()
        going_on.wait()
        is_other.append(int(allocated(gather, 100)[1][0]) not in places)
        return copied(gather, *given)

    monkeypatch.setattr(RowGather, "_allocated", watched)
    monkeypatch.setattr(RowGather, "_copied", interrupted)
    with contextlib.suppress(KeyboardInterrupt):  # not raises(): it would hold the frames
        gather.batch(Plan.make(200, batch_size=100).bill(0), alone=False)
    going_on.set()
    helper().submit(int).result()

    assert is_other == [True]


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


def test_a_process_that_was_forked_waits_for_no_threads_of_its_parent():
    """Threads do not come along; ours end with the batch that they copied."""
    data = np.random.default_rng(0).random((200, 9000))
    gather = RowGather.of([reader_of(data, "a")], TorchArrays())
    bills = [Plan.make(200, batch_size=50, seed=seed).bill(0) for seed in range(4)]

    def is_right():
        return all(np.array_equal(gather.batch(bill, alone=False), data[bill.idx]) for bill in bills)

    assert is_right()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        os._exit(0 if is_right() else 1)

    assert os.waitpid(child, 0)[1] == 0 and is_right()
