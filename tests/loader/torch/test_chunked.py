"""The chunked loader: one chunk an iteration, the whole data in the end, nothing changed without chunks."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from lading.errors import LoaderError, ResumeError
from lading.loader.torch.chunked import ChunkedDataLoader, chunk_info
from lading.loader.torch.loader import Loader
from lading.order.chunked_sampler import ChunkedSampler


def numbers(batches) -> list[list[int]]:
    """Return batches of numbers as lists."""
    return [batch.tolist() for batch in batches]


def flat(batches) -> list[int]:
    """Return the numbers in batches."""
    return [n for batch in batches for n in batch.tolist()]


@given(st.integers(1, 60), st.integers(1, 7), st.integers(1, 12), st.integers(0, 2**40), st.booleans())
def test_order_equals_the_chunked_samplers(size, batch_size, chunk_size, seed, shuffle):
    """Chunk for chunk, over two passes, the samples are those of a ChunkedSampler with the same seed."""
    loader = ChunkedDataLoader(range(size), batch_size, chunk_size, seed=seed, shuffle=shuffle)
    sampler = ChunkedSampler(size, chunk_size * batch_size, seed, shuffle)

    assert loader.total_chunks == sampler.total_chunks
    for chunk in range(2 * loader.total_chunks):
        assert loader.current_chunk == chunk
        assert flat(loader) == sampler.get_chunk_indices(chunk).tolist()


def test_default_seed_is_the_samplers():
    """Without a seed both use 42 and shuffle."""
    assert flat(ChunkedDataLoader(range(50), 5, 4)) == ChunkedSampler(50, 20).get_chunk_indices(0).tolist()


@given(st.integers(1, 60), st.integers(1, 7), st.integers(1, 12), st.booleans())
def test_length_is_that_of_the_coming_chunk(size, batch_size, chunk_size, drop_last):
    """``len`` before an iteration is what it yields, for the short last chunk too."""
    drop_last = drop_last and size >= batch_size
    loader = ChunkedDataLoader(range(size), batch_size, chunk_size, drop_last=drop_last)

    for _ in range(2 * loader.total_chunks + 1):
        coming = len(loader)
        assert coming == len(list(loader))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("limit", [None, 3])
def test_without_chunk_size_it_is_the_standard_loader(shuffle, limit):
    """Same batches as a plain DataLoader from the same seed; a limit does not switch chunking on."""
    data = torch.arange(23)
    torch.manual_seed(7)
    plain = numbers(DataLoader(data, batch_size=4, shuffle=shuffle))
    torch.manual_seed(7)
    loader = ChunkedDataLoader(data, 4, shuffle=shuffle, limit_batches=limit)

    assert not loader.use_chunked and isinstance(loader.standard_dataloader, DataLoader)
    assert numbers(loader) == plain
    assert (len(loader), loader.total_chunks, loader.current_chunk, loader.state_dict()) == (6, 1, 0, {})
    with pytest.raises(LoaderError, match="has no chunks: chunk_size was not given"):
        loader.get_chunk_info()


def test_chunk_size_takes_precedence_over_the_limit():
    """With both, chunks are as long as the chunk size says."""
    loader = ChunkedDataLoader(range(20), 2, 5, limit_batches=1)

    assert loader.use_chunked and loader.standard_dataloader is None
    assert [len(list(loader)) for _ in range(3)] == [5, 5, 5]


def test_an_abandoned_chunk_comes_again():
    """Breaking off uses nothing up; a chunk counts when its last batch was yielded."""
    loader = ChunkedDataLoader(range(20), 2, 3)
    first = numbers(itertools.islice(loader, 2))

    again = numbers(loader)

    assert again[:2] == first and loader.current_chunk == 1


def test_a_chunk_is_finished_when_its_last_batch_was_handed_out():
    """No one has to ask for the StopIteration."""
    loader = ChunkedDataLoader(range(20), 2, 3)
    iterator = iter(loader)

    chunks = [(next(iterator), loader.current_chunk)[1] for _ in range(3)]

    assert chunks == [0, 0, 1]


def test_drop_last_drops_at_the_end_of_a_pass_only():
    """23 samples in batches of 4, chunks of 2: only the pass's own remainder is missing."""
    loader = ChunkedDataLoader(range(23), 4, 2, drop_last=True)

    sizes = [[len(batch) for batch in loader] for _ in range(loader.total_chunks)]

    assert sizes == [[4, 4], [4, 4], [4]]
    assert [len(b) for b in ChunkedDataLoader(range(23), 4, 100)] == [4, 4, 4, 4, 4, 3]


def test_a_chunk_above_the_data_is_the_whole_pass():
    """Then each iteration is a pass, each shuffled differently."""
    loader = ChunkedDataLoader(range(10), 3, 1000)

    first, second = flat(loader), flat(loader)

    assert sorted(first) == sorted(second) == list(range(10)) and first != second
    assert loader.total_chunks == 1 and loader.current_chunk == 2


@pytest.mark.parametrize("chunk_size", [0, -1, 2.0, True, "3"])
def test_impossible_chunk_sizes_are_refused(chunk_size):
    """Chunk sizes are integers of batches."""
    with pytest.raises(ValueError, match=r"chunk_size=.*expected an integer of batches from 1 up, or None"):
        ChunkedDataLoader(range(10), 2, chunk_size)


@given(st.integers(0, 40), st.integers(1, 6))
def test_stopping_anywhere_and_resuming_continues(taken, chunk_size):
    """A state taken after any batch, in the middle of a chunk too, leads to the batches that were to come."""
    whole, stopped, resumed = (ChunkedDataLoader(range(37), 3, chunk_size) for _ in range(3))
    expected = take(whole, taken + 30)[taken:]
    take(stopped, taken)

    resumed.load_state_dict(stopped.state_dict())

    assert resumed.current_chunk == stopped.current_chunk
    assert take(resumed, 30) == expected


def take(loader: ChunkedDataLoader, count: int) -> list[list[int]]:
    """Take batches over as many chunks as needed, breaking off in the last one."""
    taken: list[list[int]] = []
    while len(taken) < count:
        for batch in loader:
            taken.append(batch.tolist())
            if len(taken) == count:
                break
    return taken


def test_length_stays_the_whole_chunk_after_a_resume():
    """Lightning counts restored batches against ``len``."""
    loader = ChunkedDataLoader(range(40), 2, 8)
    take(loader, 11)
    resumed = ChunkedDataLoader(range(40), 2, 8)

    resumed.load_state_dict(loader.state_dict())

    assert len(resumed) == 8
    assert len(list(resumed)) == 5


def test_a_state_of_other_data_is_refused():
    """Changed data are named, with a way to continue."""
    state = ChunkedDataLoader(range(40), 2, 8).state_dict()

    with pytest.raises(ResumeError, match=r"40.*39"):
        ChunkedDataLoader(range(39), 2, 8).load_state_dict(state)


def test_set_chunk_stands_at_its_start():
    """Any chunk of any pass can be asked for."""
    loader = ChunkedDataLoader(range(20), 2, 3)
    loader.set_chunk(6)

    assert flat(loader) == ChunkedSampler(20, 6).get_chunk_indices(6).tolist()


def test_info_tells_where_we_are():
    """Chunk, pass and the share of the data, from 0, in the middle of a chunk too."""
    loader = ChunkedDataLoader(range(100), 5, 6)
    take(loader, 20 + 8)

    info = loader.get_chunk_info()

    assert (info["current_chunk"], info["pass"], info["pass_chunk"], info["total_chunks"]) == (5, 1, 1, 4)
    assert info["share"] == pytest.approx(0.4) and info["num_batches"] == 6
    with pytest.raises(LoaderError, match="has no chunks"):
        chunk_info(Loader(range(10), 2))


@pytest.mark.parametrize(
    ("make", "seed", "shuffle"),
    [
        (lambda data: {"sampler": SequentialSampler(data)}, 42, False),
        (lambda data: {"sampler": RandomSampler(data)}, 42, True),
        (lambda data: {"sampler": RandomSampler(data, generator=torch.Generator().manual_seed(5))}, 5, True),
        (lambda data: {"sampler": ChunkedSampler(30, 6, seed=9)}, 9, True),
        (lambda data: {"sampler": DistributedSampler(data, 1, 0, seed=3)}, 3, True),
        (lambda data: {"generator": torch.Generator().manual_seed(8)}, 8, True),
        (lambda data: {"shuffle": False}, 42, False),
    ],
)
def test_samplers_generators_and_shuffle_are_handled(make, seed, shuffle):
    """What a user would pass to a DataLoader says the order of chunks, and crashes nothing."""
    data = list(range(30))

    loader = ChunkedDataLoader(data, 3, 2, **make(data))

    assert flat(loader) + flat(loader) == ChunkedSampler(30, 12, seed, shuffle).get_chunk_indices(0).tolist()


def test_a_distributed_sampler_shards_the_chunks():
    """Its ranks share each chunk."""
    data = list(range(24))

    ranks = [ChunkedDataLoader(data, 2, 3, sampler=DistributedSampler(data, 2, rank)) for rank in (0, 1)]

    seen = [n for _ in range(2) for loader in ranks for n in flat(loader)]
    assert sorted(seen) == data


def test_any_other_sampler_is_drawn_once_and_resumes_only_with_the_same_draws():
    """A subset sampler's draws are cut into chunks; other draws are another dataset."""
    data = list(range(100, 130))

    def make(seed: int) -> ChunkedDataLoader:
        generator = torch.Generator().manual_seed(seed)
        return ChunkedDataLoader(data, 2, 3, sampler=SubsetRandomSampler(range(10), generator=generator))

    loader = make(0)
    assert sorted(flat(loader) + flat(loader)) == data[:10]
    make(0).load_state_dict(loader.state_dict())
    with pytest.raises(ResumeError):
        make(1).load_state_dict(loader.state_dict())
    with pytest.raises(LoaderError, match="drew nothing"):
        ChunkedDataLoader(data, 2, 3, sampler=[])


def test_what_cannot_be_honoured_is_refused_with_a_sentence():
    """A batch sampler makes its own batches; out of order there are no chunks."""
    with pytest.raises(LoaderError, match=r"batch_sampler= and chunk_size= were both given"):
        ChunkedDataLoader(range(10), 2, 3, batch_sampler=[[0, 1]])
    with pytest.raises(LoaderError, match=r"in_order=False and chunk_size="):
        ChunkedDataLoader(range(10), 2, 3, in_order=False)


def test_bills_and_trackers_come_along():
    """Every batch has its bill; a tracker hears of each one yielded."""

    class Heard:
        def __init__(self) -> None:
            self.steps: list[int] = []

        def update(self, bill) -> None:
            """Note the step."""
            self.steps.append(bill.step)

        def flush(self) -> None:
            """Do nothing."""

    loader = ChunkedDataLoader(TensorDataset(torch.arange(10)), 2, 3)
    loader.tracker = Heard()

    pairs = [(batch[0].tolist(), bill) for batch, bill in loader.with_bills()]

    assert [b for b, _ in pairs] == [bill.idx.tolist() for _, bill in pairs]
    assert loader.tracker.steps == [0, 1, 2]
    assert loader.last_bill is not None and loader.last_bill.step == loader.bill_at(2).step == 2


def test_workers_change_nothing():
    """Two worker processes yield the same chunks."""
    data = TensorDataset(torch.arange(30))
    kept = {"persistent_workers": True}

    alone, workers = ChunkedDataLoader(data, 4, 3), ChunkedDataLoader(data, 4, 3, num_workers=2, **kept)

    assert [[b[0].tolist() for b in alone] for _ in range(3)] == [[b[0].tolist() for b in workers] for _ in range(3)]


@pytest.mark.slow
def test_two_hundred_chunks_in_a_row_keep_memory_flat():
    """Nothing piles up from chunk to chunk: anonymous memory grows by less than 8 MB over 200 chunks."""
    data = TensorDataset(torch.zeros(200_000, 64))
    loader = ChunkedDataLoader(data, 64, 50)
    for _ in range(20):
        sum(1 for _ in loader)
    before = anonymous_bytes()

    for _ in range(200):
        sum(1 for _ in loader)

    assert anonymous_bytes() - before < 8_000_000
    assert loader.current_chunk == 220


def anonymous_bytes() -> int:
    """Return this process's anonymous memory (Linux)."""
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("RssAnon"))


@pytest.mark.parametrize("chunk_size", [None, 3])
def test_it_is_a_dataloader_to_those_who_ask(chunk_size):
    """isinstance, and the attributes that frameworks look at, with chunks and without."""
    loader = ChunkedDataLoader(range(10), 2, chunk_size, num_workers=1, drop_last=True, limit_batches=1)

    assert isinstance(loader, DataLoader)
    assert (loader.batch_size, loader.num_workers, loader.drop_last, loader.pin_memory) == (2, 1, True, False)
    assert loader.effective_chunk_size == loader.chunk_size == chunk_size
    assert loader.use_chunked is (chunk_size is not None)
    assert (loader.standard_dataloader is None) is loader.use_chunked
    assert callable(loader.collate_fn) and len(loader.dataset) == 10
    assert len(loader.sampler) >= 6 and loader.batch_sampler is not None
    with pytest.raises(AttributeError, match="no attribute"):
        _ = loader.no_such_thing


def test_a_chunk_size_cannot_be_changed_in_silence():
    """It belongs to the plan; the sentence says what to do."""
    for loader in (ChunkedDataLoader(range(10), 2, 3), ChunkedDataLoader(range(10), 2)):
        with pytest.raises(LoaderError, match=r"chunk_size is (3|None) and cannot become 5: it belongs to the plan"):
            loader.chunk_size = 5
        assert loader.chunk_size in (3, None)


def test_chunks_shuffled_inside_are_for_torchs_own_loader():
    """A ChunkedSampler of that kind says no order of whole passes."""
    with pytest.raises(LoaderError, match="shuffle='within' cannot say the order"):
        ChunkedDataLoader(range(10), 2, 3, sampler=ChunkedSampler(10, 6, shuffle="within"))
