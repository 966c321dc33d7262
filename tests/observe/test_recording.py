"""Names travel with the rows: what a bill says of a batch is what the batch holds, whatever the loader does to it."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, RandomSampler, Subset, TensorDataset

from lading.errors import LoaderError
from lading.observe.tracking import track
from lading.report import open_run

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata 0.11 and torch 2.13

SIZE = 40
WORKERS = pytest.mark.parametrize("workers", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])


class Items(Dataset):
    """Samples that are their index, read one by one."""

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return {"index": index}


class Lists(Items):
    """Samples read by lists, which have to be what torch gives: lists, turned into arrays at once."""

    def __getitems__(self, indices):
        assert type(indices) is list
        return [{"index": int(i)} for i in np.asarray(indices)]


class Numbers(IterableDataset):
    """A stream of numbers."""

    def __iter__(self):
        return ({"index": i} for i in range(SIZE))


class Lazy(DataLoader):
    """Begins with its first batch."""

    def __iter__(self):
        yield from super().__iter__()


class Filtering(DataLoader):
    """Leaves out every other batch, by the old way to call a base class."""

    def __iter__(self):
        for number, batch in enumerate(DataLoader.__iter__(self)):
            if number % 2:
                yield batch


class Reversing(DataLoader):
    """The last batch first."""

    def __iter__(self):
        return iter(list(super().__iter__())[::-1])


class Skipping(DataLoader):
    """Leaves out the first three batches."""

    def __iter__(self):
        batches = super().__iter__()
        for _ in range(3):
            next(batches)
        yield from batches


class Merging(DataLoader):
    """Makes one batch of two."""

    def __iter__(self):
        batches = super().__iter__()
        for first, second in zip(batches, batches, strict=True):
            yield {"index": torch.cat([first["index"], second["index"]])}


class Changing:
    """A batch sampler with one list for all its batches, changed when the next one is asked for."""

    def __iter__(self):
        batch = []
        for start in range(0, SIZE, 4):
            batch[:] = range(start, start + 4)
            yield batch
            batch[:] = [0] * 4

    def __len__(self):
        return SIZE // 4


class ChangingRows(Changing):
    """The same with rows that are lists themselves."""

    def __iter__(self):
        for batch in super().__iter__():
            rows = [[index, 64] for index in batch]
            yield rows
            for row in rows:
                row[0] = 0


class Pairs(Items):
    """Samples asked for by (index, size)."""

    def __getitem__(self, asked):
        return {"index": asked[0]}


def shown(batch):
    """Return the indices that a batch holds."""
    return torch.as_tensor(batch["index"] if isinstance(batch, dict) else batch[0]).reshape(-1).tolist()


def compared(tracked, passes=2):
    """Return the rows of some passes; every bill says what its batch holds."""
    rows = []
    for _ in range(passes):
        for batch, bill in tracked.with_bills():
            assert bill.idx.tolist() == shown(batch)
            rows.append(shown(batch))
    return rows


@WORKERS
@pytest.mark.parametrize("kind", [Lazy, Filtering, Reversing, Skipping])
@pytest.mark.parametrize("data", [Items, Lists])
def test_loaders_that_choose_among_their_batches_are_named_right(kind, data, workers):
    """A subclass that leaves out, reorders or begins late: each batch has its own names, and is as untracked."""
    torch.manual_seed(3)
    plain = [shown(batch) for batch in kind(data(), 4, shuffle=True, **workers)]
    torch.manual_seed(3)

    rows = compared(track(kind(data(), 4, shuffle=True, **workers)))

    assert rows[: len(plain)] == plain


@WORKERS
def test_streams_in_loaders_that_choose_are_named_by_what_was_counted(workers):
    """A subclass sees the batches themselves, of a stream too, and their counts stay with them."""
    if workers:
        workers = {**workers, "num_workers": 1}
    rows = compared(track(Filtering(Numbers(), 4, **workers)))

    assert rows[0] == [4, 5, 6, 7]


@WORKERS
def test_merged_batches_are_refused_by_class_name(workers):
    """A batch that is none of those that were made has no names."""
    with pytest.raises(LoaderError, match=r"this Merging gave a batch \(dict\) that its collate_fn did not make"):
        list(track(Merging(Items(), 4, **workers)))


@WORKERS
@pytest.mark.parametrize("broken_off", [3, 7])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_stateful_loader_resumed_by_its_own_state_is_named_right(workers, broken_off, shuffle):
    """torchdata's loader continues inside an epoch; so do the names, and the order is its own."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def make():
        torch.manual_seed(1)
        return stateful(Items(), 4, shuffle=shuffle, **workers)

    first, whole, state = make(), [], None
    for epoch in range(2):
        for number, batch in enumerate(first):
            whole.append(shown(batch))
            if epoch == 0 and number + 1 == broken_off:
                state = first.state_dict()
    second = make()
    second.load_state_dict(state)

    assert compared(track(second)) == whole[broken_off:]


@WORKERS
@pytest.mark.parametrize(
    "dataset",
    [
        Subset(ConcatDataset([TensorDataset(torch.arange(25)), TensorDataset(torch.arange(25, SIZE))]), range(SIZE)),
        TensorDataset(torch.arange(SIZE)),
        "hugging face",
    ],
)
def test_datasets_that_are_read_by_lists_are_named_right(dataset, workers):
    """Subset of a concatenation, tensors, Hugging Face: the indices that were asked for, reversed order or not."""
    if dataset == "hugging face":
        datasets = pytest.importorskip("datasets")
        dataset = datasets.Dataset.from_dict({"index": list(range(SIZE))}).with_format("torch")

    rows = compared(track(Reversing(dataset, 4, shuffle=True, **workers)), 1)
    assert sorted(index for batch in rows for index in batch) == list(range(SIZE))


@WORKERS
@pytest.mark.parametrize("kind", [DataLoader, Reversing])
def test_samples_without_batching_are_named_right(kind, workers):
    """With ``batch_size=None`` the names travel, too; equal samples that are one object each have one of its names."""
    compared(track(kind(Items(), batch_size=None, shuffle=True, **workers)))
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    first = stateful(Items(), batch_size=None, **workers)
    batches = iter(first)
    next(batches), next(batches)
    second = stateful(Items(), batch_size=None, **workers)
    second.load_state_dict(first.state_dict())

    assert compared(track(second), 1) == [[i] for i in range(2, SIZE)]


@WORKERS
def test_batches_that_are_one_object_keep_their_order(workers):
    """A collate function may give the same object for every batch: then they come in the order they were pulled."""
    tracked = track(DataLoader(Items(), 4, collate_fn=nothing, **workers))

    assert [bill.idx.tolist() for _, bill in tracked.with_bills()] == [list(range(i, i + 4)) for i in range(0, SIZE, 4)]
    with pytest.raises(LoaderError, match="this Filtering gave one object for several batches"):
        list(track(Filtering(Items(), 4, collate_fn=nothing, **workers)))


def nothing(samples):
    """A collate function that returns None."""


@WORKERS
@pytest.mark.parametrize(("sampler", "data"), [(Changing, Items), (ChangingRows, Pairs)])
def test_a_list_changed_after_it_was_given_is_read_as_it_was(workers, sampler, data):
    """What a sampler gives is copied when it is pulled: workers get it later, and would read other rows."""
    rows = compared(track(DataLoader(data(), batch_sampler=sampler(), **workers)))

    assert rows == [list(range(i, i + 4)) for i in range(0, SIZE, 4)] * 2


class Whole(Items):
    """A dataset that makes its batches itself."""

    def __getitem__(self, index):
        return {"index": torch.arange(4) + 4 * index, "x": torch.zeros(4, 3)}


class WholeStream(IterableDataset):
    """The same as a stream."""

    def __iter__(self):
        return (Whole()[index] for index in range(3))


@pytest.mark.parametrize("data", [Whole, WholeStream])
def test_batches_that_the_dataset_makes_are_counted_as_one_sample_with_a_word(data, tmp_path):
    """With ``batch_size=None`` a bill names one item; that it holds several rows is said, here and by ``verify``."""
    tracked = track(DataLoader(data(), batch_size=None), run=tmp_path / "run")

    with pytest.warns(UserWarning, match=rf"the {data.__name__} gives whole batches, as it seems .4 rows .*ids="):
        bills = [bill for _, (_, bill) in zip(range(2), tracked.with_bills(), strict=False)]
    tracked.close()

    assert [len(bill) for bill in bills] == [1, 1]
    assert any("gives whole batches" in finding.message for finding in open_run(tmp_path / "run").verify().findings)


def test_batches_left_out_are_not_kept():
    """A loader that leaves out nearly all of its batches does not fill the memory with them."""

    class Last(DataLoader):
        def __iter__(self):
            for number, batch in enumerate(super().__iter__()):
                made.append(weakref.ref(batch))
                if number == 999:
                    yield batch

    made = []
    tracked = track(Last(torch.arange(1000), 1, sampler=RandomSampler(range(1000))))
    (batch,) = [batch for batch, bill in tracked.with_bills() if bill.idx.tolist() == batch.tolist()]
    gc.collect()

    assert sum(ref() is not None for ref in made) < 100
    assert batch is made[-1]()


def test_a_stateful_loader_inside_accelerate_is_named_right():
    """Accelerate moves batches, so they are known by their order; what was fast-forwarded never arrived."""
    accelerate = pytest.importorskip("accelerate")
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    first = stateful(Items(), 4)
    batches = iter(first)
    next(batches), next(batches)
    second = stateful(Items(), 4)
    config = accelerate.DataLoaderConfiguration(use_stateful_dataloader=True)
    prepared = accelerate.Accelerator(cpu=True, dataloader_config=config).prepare(second)
    prepared.load_state_dict(first.state_dict())

    assert compared(track(prepared), 1) == [list(range(i, i + 4)) for i in range(8, SIZE, 4)]
    skipped = accelerate.skip_first_batches(accelerate.Accelerator(cpu=True).prepare(DataLoader(Items(), 4)), 3)
    assert compared(track(skipped), 1) == [list(range(i, i + 4)) for i in range(12, SIZE, 4)]
