"""Rows of a stream are named by what is known of them: which worker read them, and how many it had read before."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from lading.errors import SourceError, UnshardedStreamWarning
from lading.ledger.tracker.tracker import BatchTracker
from lading.observe.names import own_names, pulled_indices, stream_index, stream_place
from lading.observe.tracking import track
from lading.report import open_run
from lading.runtime import compiled
from lading.source.stream.torch import TaggedIterableDataset

SIZE = 40


class Unsharded(IterableDataset):
    """The best known data bug of torch: every worker reads everything."""

    def __iter__(self):
        return ({"x": torch.tensor(i)} for i in range(SIZE))


class Sharded(IterableDataset):
    """A stream whose workers read in blocks, not in turn."""

    def __iter__(self):
        info = get_worker_info()
        first, share = (0, SIZE) if info is None else (info.id * SIZE // info.num_workers, SIZE // info.num_workers)
        return ({"x": torch.tensor(i)} for i in range(first, first + share))


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}])
def test_a_stream_that_every_worker_reads_is_not_called_80_different_rows(tmp_path, options):
    """The model received row k of a worker where the books say so, whoever else read it; and it is warned of."""
    tracked = track(DataLoader(Unsharded(), 4, num_workers=2, **options), run=tmp_path / "run", tracker=BatchTracker())

    with pytest.warns(UnshardedStreamWarning, match=r"workers 0 and 1 .* equal batches.*Unsharded.*lading audit"):
        received = [(batch["x"].tolist(), bill.idx.tolist()) for batch, bill in tracked.with_bills()]
    tracked.close()

    assert len(received) == 2 * SIZE / 4
    for values, named in received:
        shards, counts = zip(*map(stream_place, named), strict=True)
        assert list(counts) == values and len(set(shards)) == 1
    run = open_run(tmp_path / "run")
    assert [row["step"] for row in run.where("data", stream_index(1, 7))] == [
        step for step, (_, named) in enumerate(received) if stream_index(1, 7) in named
    ]
    assert any("equal batches" in finding.message for finding in run.verify().findings)


def test_a_sharded_stream_is_named_by_worker_and_count_without_a_word():
    """Blocks or turns: the name does not say which, because nobody knows."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tracked = track(DataLoader(Sharded(), 4, num_workers=2))
        for batch, bill in tracked.with_bills():
            places = [stream_place(index) for index in bill.idx.tolist()]
            assert [worker * SIZE // 2 + count for worker, count in places] == batch["x"].tolist()


def test_ranks_are_shards_too(monkeypatch):
    """Rank 1 with two workers has shards 2 and 3."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")

    bills = [bill for _, bill in track(DataLoader(Sharded(), 4, num_workers=2)).with_bills()]

    assert {stream_place(index)[0] for bill in bills for index in bill.idx.tolist()} == {2, 3}


def test_places_come_back_from_indices():
    """Shard and count are read from the index; without workers it is the count."""
    assert stream_index(0, 17) == 17
    for place in [(0, 0), (3, 2**40 - 1), (2**22, 5)]:
        assert stream_place(stream_index(*place)) == place


@pytest.mark.parametrize(
    "pulled", [[], [3, 1], [-1, 0], [True, 2], [np.int64(4), 1], [2**62], (1, 2), [(1, "a"), (2, "b")]]
)
def test_indices_are_read_alike_compiled_and_plain(monkeypatch, pulled):
    """Whatever a sampler gives."""
    found = pulled_indices(pulled, 10)
    monkeypatch.setattr(compiled, "kernels", None)

    assert found.dtype == np.int64 and found.tolist() == pulled_indices(pulled, 10).tolist()


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("pulled", [["a"], [0.5], [None], [[1.5]]])
def test_what_is_no_index_is_refused(monkeypatch, pulled, is_plain):
    """As soon as it is pulled, with what to do."""
    if is_plain:
        monkeypatch.setattr(compiled, "kernels", None)
    with pytest.raises(SourceError, match="expected integers"):
        pulled_indices(pulled, 10)


def test_what_a_batch_says_of_padding_is_kept():
    """Training may write into its batch before the bill is made or recorded."""
    stream = TaggedIterableDataset([{"x": i} for i in range(4)])
    batch = {"idx": torch.arange(3), "dataset_idx": torch.zeros(3), "is_padding": torch.tensor([False, False, True])}
    names = own_names(stream, batch)
    batch["is_padding"][:] = True

    assert names is not None and names.is_padding.tolist() == [False, False, True]
