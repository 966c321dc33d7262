"""Chunks of samples: each pass once, any chunk at any time, nothing materialised."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.errors import PlanError, ResumeError
from lading.order.chunked_sampler import ChunkedSampler

sizes = st.integers(1, 200)
chunk_sizes = st.integers(1, 250)
seeds = st.integers(0, 2**32)


def chunks(sampler: ChunkedSampler, count: int) -> np.ndarray:
    """Return the samples of the first chunks, one after another."""
    return np.concatenate([sampler.get_chunk_indices(k) for k in range(count)])


@given(sizes, chunk_sizes, seeds)
def test_one_pass_of_chunks_visits_every_sample_once(size, chunk_size, seed):
    """No sample is missed and none repeats before the pass is over."""
    sampler = ChunkedSampler(size, chunk_size, seed)

    seen = chunks(sampler, sampler.total_chunks)

    assert sorted(seen) == list(range(size))


@given(sizes, chunk_sizes, seeds, st.booleans(), st.booleans(), st.integers(0, 1000))
def test_length_is_what_is_yielded(size, chunk_size, seed, shuffle, wrap, chunk):
    """``len(s) == len(list(s))`` at every chunk, and iterating gives ``get_chunk_indices``."""
    sampler = ChunkedSampler(size, chunk_size, seed, shuffle, wrap)
    sampler.set_chunk(chunk)

    seen = list(sampler)

    assert len(sampler) == len(seen)
    assert seen == sampler.get_chunk_indices(chunk).tolist()


@given(sizes, chunk_sizes, seeds)
def test_wrapped_chunks_are_full_and_repeat_nothing_early(size, chunk_size, seed):
    """With ``wrap`` chunk k is stream positions kc..(k+1)c-1, and each pass of the stream is a permutation."""
    sampler = ChunkedSampler(size, chunk_size, seed, wrap=True)
    num_chunks = 3 * size // chunk_size + 1

    stream = chunks(sampler, num_chunks)

    assert len(stream) == num_chunks * chunk_size
    for start in range(0, len(stream) - size + 1, size):
        assert sorted(stream[start : start + size]) == list(range(size))


@given(sizes, chunk_sizes, seeds)
def test_wrapped_and_unwrapped_streams_are_the_same_stream(size, chunk_size, seed):
    """Wrapping moves the borders of chunks, not the samples."""
    plain, wrapped = ChunkedSampler(size, chunk_size, seed), ChunkedSampler(size, chunk_size, seed, wrap=True)

    stream = chunks(plain, 2 * plain.total_chunks)

    assert stream.tolist() == chunks(wrapped, 2 * size // chunk_size + 1)[: 2 * size].tolist()


def test_passes_are_shuffled_differently():
    """Numbers past one pass start the next pass, in another order."""
    sampler = ChunkedSampler(100, 40)

    first, second = chunks(sampler, 3), np.concatenate([sampler.get_chunk_indices(k) for k in (3, 4, 5)])

    assert sorted(first) == sorted(second) == list(range(100))
    assert first.tolist() != second.tolist()


def test_same_seed_same_chunks_other_seed_others():
    """A chunk is a function of seed and number alone."""
    one, two, other = ChunkedSampler(1000, 100), ChunkedSampler(1000, 100, seed=42), ChunkedSampler(1000, 100, seed=7)

    assert one.get_chunk_indices(17).tolist() == two.get_chunk_indices(17).tolist()
    assert one.get_chunk_indices(17).tolist() != other.get_chunk_indices(17).tolist()


def test_boundaries_and_short_last_chunk():
    """Ten samples in chunks of four: 4, 4, 2, and again; above the data there is one chunk."""
    sampler = ChunkedSampler(10, 4, shuffle=False)

    assert [len(sampler.get_chunk_indices(k)) for k in range(6)] == [4, 4, 2, 4, 4, 2]
    assert sampler.total_chunks == 3
    assert ChunkedSampler(10, 10).total_chunks == 1
    assert ChunkedSampler(10, 11).total_chunks == 1
    assert sorted(ChunkedSampler(10, 1000)) == list(range(10))


@pytest.mark.parametrize("chunk_size", [0, -1, 2.0, "4", None, True])
def test_impossible_chunk_sizes_are_refused(chunk_size):
    """Zero, negative or not an int is a ``ValueError`` that says what was expected and in which unit."""
    with pytest.raises(ValueError, match=r"chunk_size=.*expected an integer from 1 up.*counts samples"):
        ChunkedSampler(10, chunk_size)


def test_impossible_data_and_chunk_numbers_are_refused():
    """No data, and chunks before the first, are refused."""
    with pytest.raises(ValueError, match="dataset_size=0"):
        ChunkedSampler(0, 4)
    with pytest.raises(ValueError, match="chunk=-1"):
        ChunkedSampler(10, 4).set_chunk(-1)


def test_advance_and_info_tell_where_we_are():
    """The info names chunk, pass and the share of the pass that lies before."""
    sampler = ChunkedSampler(100, 30)
    sampler.set_chunk(4)

    assert sampler.advance_chunk() == 5
    info = sampler.get_chunk_info()

    assert (info["current_chunk"], info["total_chunks"], info["pass"], info["pass_chunk"]) == (5, 4, 1, 1)
    assert info["share"] == pytest.approx(0.3)
    assert info["num_samples"] == 30


def test_state_resumes_at_the_chunk_and_refuses_other_data():
    """A state brings the chunk back; a state of other data is refused, each difference named."""
    sampler = ChunkedSampler(100, 30)
    sampler.set_chunk(5)
    state = sampler.state_dict()

    resumed = ChunkedSampler(100, 30)
    resumed.load_state_dict(state)

    assert list(resumed) == list(sampler)
    with pytest.raises(ResumeError, match=r"differs in 2 places: dataset_size 100 -> 99, seed 42 -> 1.*set_chunk"):
        ChunkedSampler(99, 30, seed=1).load_state_dict(state)


def test_any_chunk_of_a_trillion_samples_in_milliseconds_and_constant_memory():
    """No permutation is materialised: the 400 millionth chunk costs what the first does."""
    sampler = ChunkedSampler(10**12, 2000)
    sampler.get_chunk_indices(0)  # the first use may compile
    tracemalloc.start()
    start = time.process_time()

    seen = sampler.get_chunk_indices(399_999_999)

    elapsed, (_, peak) = time.process_time() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(np.unique(seen)) == 2000 and seen.min() >= 0 and seen.max() < 10**12
    assert elapsed < 0.1
    assert peak < 1_000_000


def test_one_huge_chunk_is_iterated_in_blocks():
    """A chunk that is the whole of a huge dataset gives its first samples at once."""
    sampler = iter(ChunkedSampler(10**12, 10**12))

    assert len({next(sampler) for _ in range(100)}) == 100


def test_is_a_torch_sampler_to_those_who_ask():
    """Once torch is loaded, instances are torch samplers, and a DataLoader takes them."""
    sampler = ChunkedSampler(10, 4, shuffle=False)
    import torch.utils.data  # imported after the sampler was made, which is the point

    assert isinstance(sampler, torch.utils.data.Sampler)
    assert isinstance(sampler, ChunkedSampler)
    sampler.set_chunk(1)
    loader = torch.utils.data.DataLoader(range(10), batch_size=2, sampler=sampler)
    assert [b.tolist() for b in loader] == [[4, 5], [6, 7]]


def test_importing_the_sampler_loads_no_framework():
    """NumPy only: torch appears when someone else imports it."""
    code = (
        "import sys; from lading.order.chunked_sampler import ChunkedSampler; s = ChunkedSampler(10, 4); list(s); "
        "print(type(s) is s.__class__, 'torch' in sys.modules)"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.split() == ["True", "False"]


def test_copies_travel():
    """Copies and worker processes get the same sampler at the same chunk."""
    sampler = ChunkedSampler(10, 4)
    sampler.set_chunk(2)

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        far = pool.apply(list, (sampler,))

    assert list(copy.deepcopy(sampler)) == list(copy.copy(sampler)) == far == list(sampler)


@given(sizes, chunk_sizes, seeds)
def test_chunks_shuffled_within_hold_their_own_samples(size, chunk_size, seed):
    """Chunk k is samples kc..(k+1)c-1 in another order; with wrap chunks are full and none repeats early."""
    sampler = ChunkedSampler(size, chunk_size, seed, shuffle="within")

    for chunk in range(sampler.total_chunks * 2):
        place = chunk % sampler.total_chunks
        expected = range(place * chunk_size, min((place + 1) * chunk_size, size))
        sampler.set_chunk(chunk)
        assert sorted(sampler.get_chunk_indices(chunk).tolist()) == list(expected)
        assert list(sampler) == sampler.get_chunk_indices(chunk).tolist() and len(sampler) == len(expected)
    wrapped = ChunkedSampler(size, chunk_size, seed, shuffle="within", wrap=True)
    chunks = [wrapped.get_chunk_indices(chunk) for chunk in range(sampler.total_chunks)]
    assert all(len(chunk) == chunk_size for chunk in chunks)
    assert sorted(np.concatenate(chunks)[:size].tolist()) == list(range(size))


def test_shuffling_within_differs_from_pass_to_pass_and_travels():
    """The same seed gives the same chunks; a state of another shuffle is refused; other words are refused."""
    sampler = ChunkedSampler(100, 50, seed=1, shuffle="within")

    assert sampler.get_chunk_indices(0).tolist() != sampler.get_chunk_indices(2).tolist()
    assert sampler.get_chunk_indices(0).tolist() != list(range(50))
    again = pickle.loads(pickle.dumps(sampler))
    assert again.get_chunk_indices(3).tolist() == sampler.get_chunk_indices(3).tolist()
    with pytest.raises(ResumeError, match="shuffle 'within' -> True"):
        ChunkedSampler(100, 50, seed=1).load_state_dict(sampler.state_dict())
    with pytest.raises(PlanError, match="shuffle='chunks': expected True, False or 'within'"):
        ChunkedSampler(100, 50, shuffle="chunks")
