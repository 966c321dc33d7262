"""Worker processes and threads: order, contents, errors, deaths, and nothing left behind."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass
from itertools import islice
from multiprocessing import resource_tracker
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from tests.launching import wait_until
from torch.utils.data import get_worker_info

from lading.errors import LadingError, LoaderError, SourceError, WorkerError
from lading.loader.failure import also
from lading.loader.numpy import NumpyLoader
from lading.loader.torch.loader import Loader
from lading.loader.workers import ProcessSettings, Settings, ThreadWorkers, Workers
from lading.loader.workers.slots import MAX_HELD, SlotReader, SlotWriter
from lading.source.columns import Columns


def worker_processes(fetch, *, persistent=False, **asked):
    """Return processes that fetch."""
    return Workers(ProcessSettings(fetch, **asked), persistent=persistent)


def worker_threads(fetch, **asked):
    """Return threads that fetch."""
    return ThreadWorkers(Settings(fetch, **asked))


BOTH = pytest.mark.parametrize("kind", [worker_processes, worker_threads])


@dataclass
class Batch:
    """A dataclass with a tensor inside."""

    x: torch.Tensor
    name: str


class OddError(Exception):
    """An error whose ``__init__`` pickle cannot call."""

    def __init__(self, code, text):
        super().__init__(f"{text} ({code})")
        self.code = code


def double(k):
    """Return something cheap."""
    return 2 * k


def arrays(k):
    """Return an array and a tensor that depend on the request alone."""
    return {"k": k, "a": np.full((50, 30), k), "t": torch.full((40, 20), float(k))}


def sometimes(k):
    """Fail for some requests."""
    if k == 3:
        raise FileNotFoundError(2, "no such file", "a.wav")
    return k


def draws(k):
    """Draw from all three global generators."""
    return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002


def info(k):
    """Describe the worker."""
    found = get_worker_info()
    return found.id, found.num_workers, found.seed, found.dataset, torch.get_num_threads(), torch.initial_seed()


def process_of(k):
    """Return the worker's process."""
    return os.getpid()


def sleeps(seconds):
    """Take a while."""
    time.sleep(seconds)
    return seconds


def waits(path):
    """Return when a file is there."""
    wait_until(Path(path).exists)
    return path


def dies(k):
    """Kill the worker at one request."""
    if k == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return k


def results(workers, requests):
    """Return the results of some requests."""
    return [result for _, result in workers.run(iter(requests))]


def children():
    """Return the ids of this process's children, dead ones that were not waited for included."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def counts():
    """Return what a leak would raise: open files, shared memory, children."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("lading-slot"), children()


def has_ended(process):
    """Say whether a process is gone, or a zombie that someone else must wait for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@BOTH
@pytest.mark.parametrize("num_workers", [1, 2, 3])
@pytest.mark.parametrize("length", [0, 1, 5, 40])
def test_order_is_kept(kind, num_workers, length):
    """Requests and results come in pairs, in the order of the requests."""
    workers = kind(double, num_workers=num_workers)

    found = list(workers.run(iter(range(length))))

    assert found == [(k, 2 * k) for k in range(length)]


@BOTH
def test_fetching_begins_when_run_is_called(kind, tmp_path):
    """As many requests as the workers may have are read before the first result is asked for."""
    read = []

    def requests():
        for k in range(100):
            read.append(k)
            yield k

    workers = kind(double, num_workers=2, prefetch_factor=3)
    run = workers.run(requests())
    before = list(read)
    next(run)
    after = list(read)
    run.close()

    assert before == list(range(6))
    assert after == list(range(7))


DTYPES = sorted(
    {
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16),
        *(torch.float32, torch.float64, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64),
        *(torch.float8_e4m3fn, torch.float8_e5m2),
    },
    key=str,
)


def tensors_of(name):
    """Return tensors of one type in many shapes."""
    dtype = getattr(torch, name)
    plain = torch.arange(24, dtype=torch.float32).to(dtype)
    shapes = [plain, plain.reshape(2, 3, 4), plain[:0], plain.reshape(2, 12)[:, :0], plain[3].clone()]
    views = [plain.reshape(4, 6).t(), plain[::3], plain[:1].expand(5), plain.reshape(2, 3, 4)[:, 1:, ::2]]
    return [*shapes, *views]


def same_bits(one, other):
    """Say whether two tensors are equal to the last bit."""
    flat = [t.contiguous().reshape(-1).view(torch.uint8) for t in (one, other)]
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*flat)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_every_type_and_shape_travel(dtype):
    """Contiguous or not, without elements, without dimensions: each bit arrives."""
    name = str(dtype).removeprefix("torch.")

    (found,) = results(worker_processes(tensors_of, num_workers=1, seed=0), [name])

    assert all(same_bits(a, b) for a, b in zip(tensors_of(name), found, strict=True))


def special_tensors(_):
    """Return tensors that are not plain memory."""
    image = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    imaginary = torch.tensor([1 + 2j, 3 - 1j]).conj()
    sparse = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    parameter = torch.nn.Parameter(torch.ones(3))
    nested = torch.nested.nested_tensor([torch.arange(3.0), torch.arange(2.0)])
    return {
        "image": image, "conj": imaginary, "sparse": sparse, "parameter": parameter, "grad": parameter.detach(),
        "nested": nested,
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_special_tensors_travel():
    """Channels last stay so; conjugates, sparse and nested tensors and parameters keep what they are."""
    torch.manual_seed(0)

    (found,) = results(worker_processes(special_tensors, num_workers=1, seed=0), [0])

    assert found["image"].is_contiguous(memory_format=torch.channels_last)
    assert found["conj"].tolist() == [1 - 2j, 3 + 1j]
    assert found["sparse"].is_sparse and found["sparse"].to_dense().tolist() == [[0.0, 2.0], [3.0, 0.0]]
    assert isinstance(found["parameter"], torch.nn.Parameter) and found["parameter"].requires_grad
    assert [part.tolist() for part in found["nested"].unbind()] == [[0.0, 1.0, 2.0], [0.0, 1.0]]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_list_of_nested_tensors_is_read(workers):
    """They have no shape to ask for, and are samples all the same."""
    samples = [torch.nested.nested_tensor([torch.arange(3.0) + k, torch.arange(2.0)]) for k in range(4)]

    batches = list(Loader(samples, 2, shuffle=False, num_workers=workers, collate_fn=list))

    assert [[float(sample.unbind()[0][0]) for sample in batch] for batch in batches] == [[0.0, 1.0], [2.0, 3.0]]


def array_zoo(_):
    """Return arrays of every kind."""
    plain = np.arange(24.0).reshape(4, 6)
    frozen = np.arange(5)
    frozen.flags.writeable = False
    return [
        plain, plain.T, plain[::2, 1:], plain[:0], np.array(3.5), np.asfortranarray(plain), frozen,
        np.arange(4, dtype=">i4"), np.array(["a", "bc"]), np.array([b"x"]), np.array(["2026-11-16"], "M8[D]"),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]), np.array([None, {"a": 1}], dtype=object),
        np.ma.masked_array([1, 2], [True, False]),
    ]  # fmt: skip


def test_arrays_of_every_kind_travel():
    """Strides, byte orders, text, dates, records, objects and subclasses; what arrives can be written to."""
    (found,) = results(worker_processes(array_zoo, num_workers=1, seed=0), [0])

    for expected, array in zip(array_zoo(0), found, strict=True):
        assert type(array) is type(expected) and array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)
        assert array.flags.writeable


def mixed(k):
    """Return all sorts of things."""
    return {
        "batch": Batch(torch.full((3, 4), float(k)), "ä" * 10), "none": None, "bytes": b"\0" * k, "text": "é" * k,
        "list": [np.arange(k), (1, 2.5, True)], "shared": [np.ones(2)] * 2, "big": 2**100, "empty": {},
    }  # fmt: skip


@BOTH
def test_anything_that_can_be_pickled_travels(kind):
    """Dataclasses, text, bytes, None, nested containers; one object twice stays one object."""
    found = results(kind(mixed, num_workers=2), range(8))

    for k, result in enumerate(found):
        expected = mixed(k)
        assert torch.equal(result["batch"].x, expected["batch"].x) and result["batch"].name == "ä" * 10
        assert {n: result[n] for n in ("none", "bytes", "text", "big", "empty")} == {
            n: expected[n] for n in ("none", "bytes", "text", "big", "empty")
        }
        np.testing.assert_array_equal(result["list"][0], np.arange(k))
        assert result["shared"][0] is result["shared"][1]


def sized(n):
    """Return an array of a size."""
    return np.full(n, n % 251, np.uint8)


@settings(max_examples=10)
@given(st.lists(st.integers(0, 3_000_000), max_size=12), st.integers(1, 3))
def test_results_of_any_size_travel(sizes, num_workers):
    """Slots grow with what is put into them."""
    found = results(worker_processes(sized, num_workers=num_workers, seed=0), sizes)

    assert [len(f) for f in found] == sizes
    assert all((f == n % 251).all() for f, n in zip(found, sizes, strict=True))


def test_large_requests_do_not_block():
    """Requests larger than the socket's buffer arrive while results come back."""
    requests = [np.full(500_000, k, np.int64) for k in range(10)]

    found = results(worker_processes(double, num_workers=2, seed=0, prefetch_factor=4), requests)

    assert [int(f[-1]) for f in found] == [2 * k for k in range(10)]


@pytest.mark.parametrize("persistent", [False, True])
def test_batches_that_are_held_never_change(persistent):
    """A user who keeps everything gets copies once the slots are used up."""
    workers = worker_processes(arrays, num_workers=2, seed=0, persistent=persistent)

    kept = [result for _ in range(2) for result in results(workers, range(6 * MAX_HELD))]
    workers.close()

    for number, batch in enumerate(kept):
        k = number % (6 * MAX_HELD)
        assert batch["k"] == k and (batch["a"] == k).all() and (batch["t"] == k).all()


def test_a_part_of_a_batch_keeps_its_memory():
    """A view of a tensor, an array made of a tensor, a slice of an array: each keeps what it shows."""
    workers = worker_processes(arrays, num_workers=1, seed=0)
    kept = []

    for _, batch in workers.run(iter(range(40))):
        kept.append((batch["t"][3:5, ::2], batch["t"].numpy()[1], batch["a"][7]) if batch["k"] % 7 == 0 else None)

    for k, parts in enumerate(kept):
        assert parts is None or all((part == k).all() for part in parts)


def test_results_are_read_without_a_copy_and_slots_are_used_again():
    """A loop that drops its batches sees the same few addresses again and again."""
    workers = worker_processes(arrays, num_workers=1, seed=0)

    addresses = {batch["a"].ctypes.data for _, batch in workers.run(iter(range(100)))}

    assert len(addresses) <= 6


@settings(deadline=None)
@given(st.lists(st.tuples(st.lists(st.tuples(st.booleans(), st.integers(0, 9_000)), max_size=4), st.booleans())))
def test_results_made_in_their_slots_are_read_as_they_were(results):
    """Whatever is borrowed, whatever is not, whatever the sizes, and while results before are held or let go."""
    writer, reader, held = SlotWriter(), SlotReader(), []
    for number, (pieces, is_held) in enumerate(results):
        made = []
        for is_borrowed, size in pieces:
            lent = writer.lend(size) if is_borrowed else None
            made.append(np.empty(size, np.uint8) if lent is None else lent)
            made[-1][:] = (np.arange(size) + number) % 251
        expected = [array.copy() for array in made]

        place, descriptor = writer.write(made)
        reader.adopt(place, descriptor)
        held.append((reader.read(place), expected))

        del made
        held = held if is_held else held[-1:]
        for found, wanted in held:
            assert all(map(np.array_equal, found, wanted)) and len(found) == len(wanted)


def test_what_is_borrowed_is_sent_without_a_copy():
    """From the second result on: the size of the first says how large a slot is."""
    writer = SlotWriter()

    before = writer.lend(5_000)
    writer.write(np.zeros(5_000, np.uint8))
    lent = writer.lend(5_000)
    lent[:] = 7
    place, _ = writer.write(lent)

    assert before is None
    assert np.shares_memory(np.frombuffer(writer._maps[place.slot], np.uint8), lent)
    assert writer.lend(9_000) is None  # more than was expected


class Wide:
    """Samples of 24 kB: sixteen of them make a large array."""

    def __init__(self):
        self.x = np.arange(40 * 6_000, dtype=np.float32).reshape(40, 6_000)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": torch.from_numpy(self.x[index]), "y": index}


@pytest.mark.parametrize("loader", [Loader, NumpyLoader])
@pytest.mark.parametrize("source", [Wide, lambda: Columns(x=Wide().x, y=np.arange(40))])
def test_large_batches_of_workers_are_those_of_no_workers(loader, source):
    """Made in shared memory, held or not; the last is smaller, and so are its arrays."""
    alone, sent = list(loader(source(), 16)), []
    for batch in loader(source(), 16, num_workers=2):
        sent.append(batch)

    for found, wanted in zip(sent, alone, strict=True):
        assert found.keys() == wanted.keys()
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


def test_a_forked_child_keeps_what_it_saw():
    """A child that was forked while a batch was held reads the same batch after the parent has let go of it."""
    run = worker_processes(arrays, num_workers=1, seed=0).run(iter(range(60)))
    _, batch = next(run)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(read_end, 1)
        is_same = bool((batch["a"] == 0).all() and (batch["t"] == 0).all())
        del batch
        os._exit(0 if is_same else 1)

    del batch
    rest = [int(b["a"][0, 0]) for _, b in run]
    os.write(write_end, b"x")
    status = os.waitpid(child, 0)[1]
    os.close(read_end), os.close(write_end)

    assert status == 0
    assert rest == list(range(1, 60))


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_start_methods_give_the_same(method):
    """However the processes start: results, generators and worker numbers are equal."""
    workers = worker_processes(draws, num_workers=2, seed=5, context=method)
    plain = worker_processes(draws, num_workers=2, seed=5)

    assert results(workers, range(6)) == results(plain, range(6))


def test_a_context_object_is_taken():
    """As torch does, beside the name of a start method."""
    workers = worker_processes(double, num_workers=1, seed=0, context=multiprocessing.get_context("fork"))

    assert results(workers, range(3)) == [0, 2, 4]


def test_what_cannot_be_sent_to_a_new_process_is_refused_by_name():
    """A function inside a function cannot be spawned."""
    resource_tracker.ensure_running()  # Python's own process, started once
    before = counts()
    workers = worker_processes(lambda k: k, num_workers=2, seed=0, context="spawn")

    with pytest.raises(LoaderError, match=r"cannot be sent to a new process.*multiprocessing_context='fork'"):
        workers.run(iter(range(3)))

    assert counts() == before


def test_workers_are_seeded_reproducibly_and_differently():
    """The same seed gives the same numbers, another worker or seed gives others; this process draws nothing."""
    torch.manual_seed(1)
    before = torch.random.get_rng_state()

    first, again, other = (results(worker_processes(draws, num_workers=2, seed=s), range(4)) for s in (7, 7, 8))

    assert first == again != other
    assert len({number for result in first for number in result}) == 12
    assert torch.equal(torch.random.get_rng_state(), before)


def test_torch_knows_which_worker_it_is():
    """``get_worker_info`` has id, number of workers, seed and the user's dataset; torch has one thread."""
    found = results(worker_processes(info, num_workers=2, seed=3, dataset=["mine"]), range(4))

    assert [f[0] for f in found] == [0, 1, 0, 1]
    assert all(f[1] == 2 and f[3] == ["mine"] and f[4] == 1 and f[2] == f[5] < 2**63 for f in found)
    assert found[1][2] == (found[0][2] + 1) % 2**63


class TorchSeeds:
    """Samples that are the seed torch was given."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> int:
        return torch.initial_seed()


def test_seeds_given_to_torch_have_63_bits_and_can_be_collated():
    """Every sample of every seed fits a tensor of int64; the seeds of samples differ in their high bits, too."""
    found = [b for seed in range(3) for b in Loader(TorchSeeds(), batch_size=2, num_workers=2, seed=seed)]

    seeds = torch.cat(found)
    assert seeds.dtype == torch.int64 and len(found) == 48
    assert (seeds >= 0).all() and (seeds > 2**62).any() and (seeds < 2**62).any()


def test_the_numpy_worker_never_loads_torch():
    """In a process without torch, workers send arrays and torch stays out."""
    script = """
        import sys
        import numpy as np
        from lading.loader.workers import ProcessSettings, Workers
        def fetch(k):
            return np.full(3, k), "torch" in sys.modules
        print([(int(a[0]), t) for _, (a, t) in Workers(ProcessSettings(fetch, 2)).run(iter(range(3)))])
    """
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=600)

    assert found.stdout.strip() == "[(0, False), (1, False), (2, False)]", found.stderr


def mark(number):
    """Note that the worker has started."""
    os.environ["LADING_TEST_WORKER"] = str(number)


def marked(k):
    """Return the note."""
    return os.environ.get("LADING_TEST_WORKER")


def broken_start(number):
    """Fail in one worker."""
    if number == 1:
        raise ValueError("no licence")


def test_worker_init_fn_runs_once_in_each_worker():
    """With the worker's number, before the first request."""
    assert results(worker_processes(marked, num_workers=2, seed=0, worker_init_fn=mark), range(4)) == [
        "0",
        "1",
        "0",
        "1",
    ]


@BOTH
def test_an_error_in_worker_init_fn_is_raised(kind):
    """In the place of the worker's first result, with its own type."""
    run = kind(sleeps, num_workers=2, worker_init_fn=broken_start).run(iter([0.05] * 4))

    with pytest.raises(ValueError, match="no licence") as caught:
        list(run)

    assert isinstance(caught.value, LadingError)


@BOTH
def test_an_error_is_raised_in_its_place_and_the_iteration_continues(kind):
    """It is ours and the user's own type, has the cause and the worker's traceback; the next results still come."""
    run = kind(sometimes, num_workers=2).run(iter(range(7)))
    before = [next(run)[1] for _ in range(3)]

    with pytest.raises(FileNotFoundError, match=r"could not fetch: FileNotFoundError.*no such file.*a\.wav") as caught:
        next(run)

    error = caught.value
    assert isinstance(error, WorkerError)
    assert isinstance(error.__cause__, FileNotFoundError) and error.filename == "a.wav" and error.errno == 2
    assert kind is worker_threads or "in sometimes" in error.__notes__[-1]
    assert before == [0, 1, 2]
    assert [result for _, result in run] == [4, 5, 6]


def odd(k):
    """Raise errors that are hard to send."""
    if k == 0:
        raise OddError(7, "odd")
    if k == 1:
        raise StopIteration("not the end")
    if k == 2:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise SourceError("ours") from inner
    if k == 3:
        error = ValueError("with a lambda")
        error.helper = lambda: None
        raise error
    if k == 4:
        sys.exit(3)
    if k == 5:
        return lambda: None
    return k


def test_every_kind_of_error_crosses():
    """Own ``__init__``, StopIteration, our own errors with a cause, what cannot be pickled, exits: none is lost."""
    run = worker_processes(odd, num_workers=2, seed=0).run(iter(range(7)))
    errors = []
    for _ in range(6):
        with pytest.raises(LadingError) as caught:
            next(run)
        errors.append(caught.value)

    assert isinstance(errors[0], OddError) and "odd (7)" in str(errors[0])
    assert not isinstance(errors[1], StopIteration) and "StopIteration: not the end" in str(errors[1])
    assert type(errors[2]) is SourceError and isinstance(errors[2].__cause__, KeyError)
    assert isinstance(errors[3], ValueError) and "with a lambda" in str(errors[3])
    assert isinstance(errors[4], WorkerError) and "SystemExit: 3" in str(errors[4])
    assert "could not send what it fetched" in str(errors[5])
    assert [result for _, result in run] == [6]


@pytest.mark.parametrize(
    "original", [FileNotFoundError(2, "no such file", "a"), KeyError("k"), UnicodeDecodeError("utf8", b"a", 0, 1, "b")]
)
def test_an_error_of_two_types_can_be_pickled(original):
    """So that it crosses another process border."""
    error = also(SourceError("sample 3 could not be read"), original)

    back = pickle.loads(pickle.dumps(error))

    for found in (error, back):
        assert isinstance(found, SourceError) and isinstance(found, type(original))
        assert str(found) == "sample 3 could not be read"
        assert getattr(found, "filename", None) == getattr(original, "filename", None)


@BOTH
def test_an_error_of_the_requests_comes_after_the_results_before_it(kind):
    """What was asked for before it is delivered first."""

    def requests():
        yield from range(3)
        raise RuntimeError("no plan")

    run = kind(double, num_workers=2).run(requests())

    assert [next(run)[1] for _ in range(3)] == [0, 2, 4]
    with pytest.raises(RuntimeError, match="no plan"):
        next(run)
    assert list(run) == []


@pytest.mark.parametrize("persistent", [False, True])
def test_a_dead_worker_is_named_at_once(persistent):
    """With its process and signal; every further call says so; nothing is left behind."""
    before = counts()
    workers = worker_processes(dies, num_workers=2, seed=0, persistent=persistent)
    run = workers.run(iter(range(20)))

    with pytest.raises(WorkerError, match=r"worker 1 \(process \d+\) was killed by SIGKILL.*memory"):
        list(run)
    with pytest.raises(WorkerError, match="SIGKILL"):
        next(run)

    assert results(workers, range(4)) == [0, 1, 2, 3], "the next iteration has new workers"
    workers.close()
    assert counts() == before


def slow_or_dead(k):
    """Worker 0 takes long, worker 1 is killed."""
    if get_worker_info().id == 0:
        time.sleep(600)
    os._exit(3)


def test_the_death_of_another_worker_does_not_wait_for_its_turn():
    """While the first result is awaited, the second worker's end is seen."""
    run = worker_processes(slow_or_dead, num_workers=2, seed=0).run(iter(range(4)))

    with pytest.raises(WorkerError, match=r"worker 1 \(process \d+\) exited with code 3"):
        next(run)  # the sleeping worker is given its grace, then it is killed


@BOTH
def test_a_result_that_takes_too_long_is_an_error(kind, tmp_path):
    """As with torch's ``timeout``; the result can still be had afterwards."""
    requests, found = [str(tmp_path / "there"), str(tmp_path)], []
    run = kind(waits, num_workers=1, timeout=0.2).run(iter(requests))

    with pytest.raises(WorkerError, match=r"within timeout=0\.2 seconds"):
        next(run)
    (tmp_path / "there").touch()

    def is_done():
        with contextlib.suppress(WorkerError):  # a busy machine takes its time
            found.extend(result for _, result in run)
        return len(found) == 2

    assert wait_until(is_done) and found == requests


@BOTH
@pytest.mark.parametrize("numbers", [{"num_workers": 0}, {"num_workers": 1, "prefetch_factor": 0}])
def test_numbers_that_make_no_sense_are_refused(kind, numbers):
    """Before any process starts."""
    with pytest.raises(LoaderError, match="expected at least 1 worker"):
        kind(double, **numbers)


def test_persistent_workers_are_used_again():
    """The same processes serve every iteration; others are new."""
    kept = worker_processes(process_of, num_workers=2, seed=0, persistent=True)
    fresh = worker_processes(process_of, num_workers=2, seed=0)

    first, second = set(results(kept, range(6))), set(results(kept, range(6)))
    others = set(results(fresh, range(6))), set(results(fresh, range(6)))
    kept.close()

    assert first == second and len(first) == 2
    assert not others[0] & others[1]


@BOTH
@pytest.mark.parametrize("taken", [0, 1, 5])
def test_an_iteration_that_is_broken_off_leaves_persistent_workers_clean(kind, taken):
    """What was prefetched for it never reaches the next one."""
    workers = kind(arrays, num_workers=2, prefetch_factor=3)

    for _ in range(3):
        run = workers.run(iter(range(100, 150)))
        assert [b["k"] for _, b in islice(run, taken)] == list(range(100, 100 + taken))
        run.close()
        assert list(run) == []
        found = results(workers, range(9))
        assert [int(b["a"][0, 0]) for b in found] == list(range(9))
        del found
    workers.close()


def test_a_newer_iteration_of_persistent_workers_ends_the_older():
    """The older one says so instead of mixing up results."""
    workers = worker_processes(double, num_workers=2, seed=0, persistent=True)
    old = workers.run(iter(range(10)))
    next(old)
    new = workers.run(iter(range(50, 53)))

    with pytest.raises(LoaderError, match="newer iteration has taken over the persistent workers"):
        next(old)

    assert [result for _, result in new] == [100, 102, 104]
    workers.close()


@BOTH
def test_two_iterations_at_once(kind):
    """Without persistent workers each has its own."""
    workers = kind(arrays, num_workers=2)

    pairs = list(zip(workers.run(iter(range(12))), workers.run(iter(range(50, 62))), strict=True))

    assert [(a[1]["k"], int(b[1]["a"][0, 0])) for a, b in pairs] == [(k, 50 + k) for k in range(12)]


def test_workers_can_be_pickled_after_use():
    """A copy starts processes of its own."""
    workers = worker_processes(process_of, num_workers=1, seed=0, persistent=True)
    first = results(workers, range(2))

    copy = pickle.loads(pickle.dumps(workers))
    other = results(copy, range(2))
    workers.close(), copy.close()

    assert set(first).isdisjoint(other)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("end", ["finish", "close", "drop", "error"])
def test_nothing_is_left_behind(persistent, end):
    """No process, no zombie, no file descriptor, no shared memory, however an iteration ends."""
    results(worker_processes(arrays, num_workers=1, seed=0), range(2))  # what Python opens once
    before = counts()

    for _ in range(3):
        workers = worker_processes(
            sometimes if end == "error" else arrays, num_workers=2, seed=0, persistent=persistent
        )
        run = workers.run(iter(range(30)))
        taken = [request for request, _ in islice(run, 3)]
        assert taken == [0, 1, 2]
        if end == "finish":
            assert len(list(run)) == 27
        elif end == "error":
            with pytest.raises(FileNotFoundError):
                next(run)
            run.close()
        elif end == "close":
            run.close()
        del run
        if persistent and end != "drop":
            workers.close()
        del workers

    assert counts() == before


def memory_mb(process):
    """Return the memory of a process that is its own or shared, in MB."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return sum(int(lines[name].split()[0]) for name in ("RssAnon", "RssShmem")) / 1024


def sized_and_owner(n):
    """Return an array of a size, and the worker's process."""
    return sized(n), os.getpid()


@pytest.mark.parametrize("batches", [2_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_a_long_run_keeps_its_memory(batches):
    """Batches of changing sizes, some kept for a while: parent and workers stay where they were after a tenth."""
    sizes = (200_000 + 997 * (k % 300) for k in range(batches))
    run = worker_processes(sized_and_owner, num_workers=2, seed=0).run(sizes)
    kept, workers = [], set()

    for k, (size, (batch, worker)) in enumerate(run):
        assert len(batch) == size and batch[-1] == size % 251
        workers.add(worker)
        kept = [*kept[-20:], batch] if k % 100 < 30 else []
        if k == batches // 10:
            before = [memory_mb(p) for p in (os.getpid(), *workers)]
        if k == batches - 50:
            after = [memory_mb(p) for p in (os.getpid(), *workers)]

    assert all(b - a < 20 for a, b in zip(before, after, strict=True)), (before, after)


def test_results_outlive_their_workers():
    """What was read stays valid after processes and iteration are gone; its memory goes with it."""
    results(worker_processes(arrays, num_workers=1, seed=0), range(2))
    before = counts()
    workers = worker_processes(arrays, num_workers=2, seed=0)
    kept = results(workers, range(30))
    del workers

    assert all((b["a"] == k).all() and (b["t"] == k).all() for k, b in enumerate(kept))
    del kept
    assert counts() == before


def test_a_worker_that_has_finished_is_not_taken_for_dead():
    """Workers end right after their last result, which is read before or after their end is seen."""
    workers = worker_processes(double, num_workers=3, seed=0)

    for _ in range(20):
        assert results(workers, range(5)) == [0, 2, 4, 6, 8]


def test_workers_finish_by_themselves_when_no_request_is_left():
    """A framework that never asks for the end of the iteration keeps no busy processes."""
    run = worker_processes(process_of, num_workers=2, seed=0).run(iter(range(4)))
    processes = [next(run)[1] for _ in range(4)]

    assert wait_until(lambda: all(has_ended(p) for p in processes))


class Slow:
    """A source that waits for a disk, as those do that release the interpreter's lock; it draws nothing."""

    random_free = True

    def __len__(self):
        return 30

    def __getitem__(self, index):
        time.sleep(0.001)
        if index == 11:
            raise FileNotFoundError("gone")
        return {"x": np.full(3, index), "thread": threading.current_thread().name}


@pytest.mark.filterwarnings("ignore:sample 11 of dataset")
@pytest.mark.parametrize("face", [Loader, NumpyLoader])
def test_a_loader_reads_in_threads(face):
    """The same batches in the same order as without workers, bad samples included; no process is started."""
    alone, threaded = (
        face(Slow(), 4, seed=3, on_bad_sample="substitute", num_workers=n, workers="threads") for n in (0, 2)
    )
    before = children()

    expected, found = list(alone), list(threaded)

    assert [b["x"].tolist() for b in found] == [b["x"].tolist() for b in expected]
    assert [b["idx"].tolist() for b in found] == [b["idx"].tolist() for b in expected]
    assert {name.rsplit("-", 1)[0] for b in found for name in b["thread"]} == {"lading-worker"}
    assert children() == before
    assert not [t for t in threading.enumerate() if t.name.startswith("lading-worker")]


class Kind(list):
    """A kind of list that may do more than a list."""


def test_threads_are_refused_where_random_numbers_may_be_drawn():
    """Global generators belong to training: a thread that draws from them would change it."""
    for source, collate in ((Kind(range(10)), None), (list(range(10)), torch.tensor)):
        with pytest.raises(LoaderError, match=r"workers='threads' needs .* random_free = True"):
            Loader(source, 2, num_workers=2, workers="threads", collate_fn=collate)
    with pytest.raises(LoaderError, match=r"workers is 'fibres': expected 'processes' or 'threads'"):
        Loader(list(range(10)), 2, num_workers=2, workers="fibres")


def test_a_loader_tells_its_workers_of_the_dataset_and_a_seed():
    """A ``worker_init_fn`` that reads ``get_worker_info`` finds the user's dataset and a reproducible seed."""

    def collate(samples):
        found = get_worker_info()
        return found.dataset is data, found.seed, samples

    data = [10, 11, 12, 13]
    first, again = (list(Loader(data, 2, shuffle=False, num_workers=1, collate_fn=collate)) for _ in range(2))

    assert first == again and all(batch[0] for batch in first)
    assert [batch[2] for batch in first] == [[10, 11], [12, 13]]


KILLED_PARENT = """
    import os, sys, time
    import numpy as np
    from lading.loader.workers import ProcessSettings, Workers
    def fetch(k):
        if k >= 4:
            time.sleep(600)
        return os.getpid(), np.zeros(100_000)
    if __name__ == "__main__":
        run = Workers(ProcessSettings(fetch, 2, context=sys.argv[1])).run(iter(range(8)))
        kept = [next(run)[1] for _ in range(4)]
        print(*sorted({pid for pid, _ in kept}), flush=True)
        time.sleep(600)
"""


@pytest.mark.launch
def test_a_killed_parent_leaves_nothing(tmp_path):
    """After ``kill -9`` no worker lives, in the middle of a fetch or not, and ``/dev/shm`` is as before."""
    script, methods = tmp_path / "parent.py", ["fork", "forkserver", "spawn"]
    script.write_text(textwrap.dedent(KILLED_PARENT))
    before = set(os.listdir("/dev/shm"))
    parents = [subprocess.Popen([sys.executable, str(script), m], stdout=subprocess.PIPE, text=True) for m in methods]
    processes = {m: parent.stdout.readline().split() for m, parent in zip(methods, parents, strict=True)}

    for parent in parents:
        parent.kill()
        parent.wait()
        parent.stdout.close()

    assert [len(found) for found in processes.values()] == [2, 2, 2]
    # A forkserver's children are not ours to be tied to: they end after the fetch under way, so they are ended here.
    for process in processes["forkserver"]:
        os.kill(int(process), signal.SIGTERM)
    assert wait_until(lambda: all(has_ended(p) for found in processes.values() for p in found))
    assert {name for name in set(os.listdir("/dev/shm")) - before if "lading" in name} == set()


IDLE_PARENT = """
    import os, sys, time
    from lading.loader.workers import ProcessSettings, Workers
    def fetch(k):
        return os.getpid()
    if __name__ == "__main__":
        workers = Workers(ProcessSettings(fetch, 2, context=sys.argv[1]), persistent=True)
        print(*sorted({pid for _, pid in workers.run(iter(range(8)))}), flush=True)
        if os.fork() == 0:
            time.sleep(600)
        time.sleep(600)
"""


@pytest.mark.launch
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_idle_workers_of_a_killed_parent_end(method, tmp_path):
    """Also when another child of the parent has inherited the sockets and lives on."""
    script = tmp_path / "parent.py"
    script.write_text(textwrap.dedent(IDLE_PARENT))
    parent = subprocess.Popen([sys.executable, str(script), method], stdout=subprocess.PIPE, text=True)
    processes = parent.stdout.readline().split()
    other = next(p for p in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()[::-1])

    parent.kill()
    parent.wait()
    parent.stdout.close()
    ended = wait_until(lambda: all(has_ended(p) for p in processes))
    os.kill(int(other), signal.SIGKILL)

    assert len(processes) == 2 and ended


INTERRUPTED = """
    import signal, sys, time
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
    from lading.loader.workers import ProcessSettings, Workers
    def fetch(k):
        time.sleep(0.05)
        return k
    if __name__ == "__main__":
        print("ready", flush=True)
        try:
            for _, k in Workers(ProcessSettings(fetch, 2)).run(iter(range(10_000))):
                print(k, flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
"""


@pytest.mark.launch
def test_an_interrupt_is_quiet(tmp_path):
    """Ctrl-C reaches the whole process group; only the parent raises, no worker prints a traceback."""
    script = tmp_path / "parent.py"
    script.write_text(textwrap.dedent(INTERRUPTED))
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while parent.stdout.readline().strip() != "3":
        pass

    os.killpg(parent.pid, signal.SIGINT)
    out, err = parent.communicate(timeout=600)

    assert out.strip().endswith("interrupted") and err == ""
    assert parent.returncode == 0
