"""``track``: the same batches as before, now with names, bills, tracker and ledger."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.launching import torchrun
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

from lading.errors import LadingError, LoaderError, ResumeError, SourceError
from lading.identity.content import content_hash
from lading.ledger.ledger import Ledger
from lading.ledger.tracker.tracker import BatchTracker
from lading.loader.torch.loader import Loader
from lading.observe.names import stream_index, stream_place
from lading.observe.tracking import track
from lading.report import open_run
from lading.report.summary import summarise
from lading.source.stream.torch import TaggedIterableDataset
from lading.source.tagged import TaggedDataset
from lading.source.weighted_concat import WeightedConcatDataset
from lading.train.repeating import RepeatingLoader

SIZE = 23


class Noisy(Dataset):
    """Samples that show their index and draw from every global generator."""

    def __init__(self, size=SIZE):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        noise = [torch.rand(2), np.random.rand(), random.random()]  # noqa: NPY002
        return {"index": index, "noise": noise[0], "more": noise[1] + noise[2]}


class Shards(IterableDataset):
    """A stream that shards itself by its own worker info, as the torch manual shows it."""

    def __init__(self, size=SIZE):
        self.size = size
        self.secret = 7

    def __iter__(self):
        info = get_worker_info()
        assert info is None or info.dataset.secret == 7
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for i in range(first, self.size, step):
            yield {"index": i, "noise": torch.rand(2)}


class SizeThenIndices:
    """A batch sampler that uses one list for all its batches, and draws when it is asked for an iterator."""

    def __init__(self, size):
        self.size = size

    def __iter__(self):
        order = np.random.permutation(self.size).tolist()  # noqa: NPY002
        return self._batches(order)

    def _batches(self, order):
        batch = []
        for start in range(0, self.size, 4):
            batch[:] = order[start : start + 4]
            yield batch

    def __len__(self):
        return -(-self.size // 4)


def list_collate(samples):
    """A collate function that keeps a list of odd shape."""
    return [[s["index"] for s in samples], torch.stack([s["noise"] for s in samples]).sum()]


def hugging_face():
    """A real Hugging Face dataset in torch format."""
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({"index": list(range(SIZE))}).with_format("torch")


SETUPS = {
    "weighted sampler": lambda: DataLoader(Noisy(), 4, sampler=WeightedRandomSampler(torch.arange(1.0, SIZE + 1), 30)),
    "batch sampler": lambda: DataLoader(Noisy(), batch_sampler=SizeThenIndices(SIZE)),
    "custom collate": lambda: DataLoader(Noisy(), 4, shuffle=True, collate_fn=list_collate, num_workers=2),
    "subset": lambda: DataLoader(Subset(Noisy(40), range(0, 40, 2)), 4, shuffle=True, num_workers=1),
    "iterable with sharding": lambda: DataLoader(Shards(), 4, num_workers=2),
    "iterable alone": lambda: DataLoader(Shards(), 4, drop_last=True),
    "persistent workers": lambda: DataLoader(Noisy(), 4, shuffle=True, num_workers=2, persistent_workers=True),
    "persistent iterable": lambda: DataLoader(Shards(), 3, num_workers=2, persistent_workers=True),
    "hugging face": lambda: DataLoader(hugging_face(), 4, shuffle=True),
    "tensor dataset": lambda: DataLoader(TensorDataset(torch.arange(SIZE)), 4, shuffle=True, drop_last=True),
    "distributed sampler": lambda: DataLoader(Noisy(), 4, sampler=DistributedSampler(Noisy(), 2, 1, seed=3)),
    "a generator passed": lambda: DataLoader(
        Noisy(), 4, shuffle=True, generator=torch.Generator().manual_seed(5), num_workers=2
    ),
    "a sampler's generator": lambda: DataLoader(
        Noisy(), 4, sampler=RandomSampler(Noisy(), replacement=True, num_samples=50, generator=torch.Generator())
    ),
    "no batching": lambda: (
        DataLoader(Noisy(), batch_size=None, sampler=BatchSampler(range(SIZE), 4, False))
        and DataLoader(Noisy(), batch_size=None, shuffle=True)
    ),
    "items of a stream": lambda: DataLoader(Shards(), batch_size=None, num_workers=2),
}


def in_turn(bill, workers):
    """Return the places of a bill's rows in a stream that workers share in turns; with 1 its indices."""
    return [count * workers + shard for shard, count in map(stream_place, bill.idx.tolist())]


def seed_everything(seed=0):
    """Put all global generators at one place."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)


def random_places():
    """Return where the global generators stand."""
    return [torch.rand(1).item(), np.random.rand(), random.random()]  # noqa: NPY002


def indices_of(batch):
    """Return the indices a batch of these tests shows."""
    if isinstance(batch, dict):
        return torch.as_tensor(batch["index"]).reshape(-1).tolist()
    return torch.as_tensor(batch[0]).reshape(-1).tolist()


@pytest.mark.parametrize("name", SETUPS)
def test_batches_are_byte_for_byte_the_same_and_names_are_right(name):
    """Two epochs of the same batches from the same RNG state, which ends at the same place, with the right names."""
    seed_everything()
    plain = [content_hash(batch) for loader in [SETUPS[name]()] for _ in range(2) for batch in loader]
    plain_places = random_places()

    seed_everything()
    tracker = BatchTracker()
    tracked = track(SETUPS[name](), tracker=tracker)
    seen = [(content_hash(b), indices_of(b), bill) for _ in range(2) for b, bill in tracked.with_bills()]
    tracked_places = random_places()

    assert [h for h, _, _ in seen] == plain
    assert tracked_places == plain_places
    step = 2 if name == "subset" else 1  # a Subset's index is the one the sampler gave: dataset[index] is the sample
    workers = max(tracked.num_workers, 1) if isinstance(tracked.dataset, IterableDataset) else 1
    assert [in_turn(bill, workers) for _, _, bill in seen] == [[i // step for i in shown] for _, shown, _ in seen]
    assert [bill.step for _, _, bill in seen] == list(range(len(seen)))
    assert {bill.epoch for _, _, bill in seen} == {0, 1}
    assert len({bill.batch_id for _, _, bill in seen}) == len(seen)
    assert tracker.samples_idx_per_dataset == {0: [i for _, _, bill in seen for i in bill.idx.tolist()]}
    assert len(tracked) == len(SETUPS[name]()) if name in ("batch sampler", "tensor dataset") else True


def test_sampling_by_lists_without_batching_is_named():
    """A sampler that gives lists of indices names them all."""
    data = TensorDataset(torch.arange(SIZE))
    loader = DataLoader(data, batch_size=None, sampler=BatchSampler(RandomSampler(data), 4, False))

    for batch, bill in track(loader).with_bills():
        assert bill.idx.tolist() == batch[0].tolist()


def test_user_loader_stays_as_it_is():
    """Nothing of the DataLoader is changed; its attributes are the tracked loader's."""
    loader = DataLoader(Noisy(), 4, shuffle=True)
    before = dict(loader.__dict__)

    tracked = track(loader)
    next(iter(tracked))

    assert loader.__dict__ == before
    assert tracked.dataset is loader.dataset
    assert tracked.sampler is loader.sampler
    assert tracked.batch_size == 4
    assert tracked.dataloader is loader
    with pytest.raises(AttributeError):
        _ = tracked.no_such_thing


def test_parts_of_a_concatenation_are_datasets():
    """Names are by part, for torch's concatenation and for ours, negative indices included."""
    parts = [TensorDataset(torch.arange(5)), TensorDataset(torch.arange(3)), TensorDataset(torch.arange(4))]
    order = [11, 0, 5, -1, 7, 8]
    tracker = BatchTracker()

    tracked = track(DataLoader(ConcatDataset(parts), 4, sampler=order), tracker=tracker)
    for batch, bill in tracked.with_bills():
        assert bill.idx.tolist() == batch[0].tolist()

    assert tracker.samples_idx_per_dataset == {0: [0], 1: [0, 2], 2: [3, 3, 0]}
    assert tracked.last_bill.names == ("data[0]", "data[1]", "data[2]")


@pytest.mark.parametrize(
    "dataset",
    [
        TaggedDataset([{"x": i} for i in range(9)], dataset_idx=3),
        WeightedConcatDataset([[{"x": 0}] * 3, [{"x": 1}] * 4], [2, 0.5]),
    ],
)
def test_datasets_with_names_keep_them(dataset):
    """What the samples say of themselves is what the bill says."""
    for batch, bill in track(DataLoader(dataset, 4, shuffle=True)).with_bills():
        assert bill.idx.tolist() == batch["idx"].tolist()
        assert bill.dataset_idx.tolist() == batch["dataset_idx"].tolist()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_tagged_streams_keep_their_names(num_workers):
    """Samples, pairs and whole batches of a tagged stream are named by themselves; padding does not count."""
    dicts = [{"x": i} for i in range(11)]
    stream = TaggedIterableDataset(dicts, dataset_idx=1)
    for batch, bill in track(DataLoader(stream, 4, num_workers=num_workers)).with_bills():
        assert bill.idx.tolist() == batch["x"].tolist()
        assert set(bill.dataset_idx.tolist()) == {1}

    tracker = BatchTracker()
    for rank in range(2):
        part = TaggedIterableDataset([torch.tensor(i) for i in range(11)], 2, rank=rank, world_size=2)
        for _ in track(DataLoader(part, batch_size=None, num_workers=num_workers), tracker=tracker):
            pass
    assert sorted(tracker.samples_idx_per_dataset[0]) == list(range(11))

    names = TaggedIterableDataset([(f"k{i}", i) for i in range(4)], 2, "pairs")
    bills = [b.idx.tolist() for _, b in track(DataLoader(names, batch_size=None, num_workers=num_workers)).with_bills()]
    assert sum(map(len, bills)) == 2  # ids that are texts: the batches themselves are counted


def test_abandoned_epochs_and_persistent_workers_keep_iterable_names_right():
    """Workers count on past batches no one took; names start again with each epoch all the same."""
    tracked = track(DataLoader(Shards(40), 4, num_workers=2, persistent_workers=True))

    for _ in range(3):
        for count, (batch, bill) in enumerate(tracked.with_bills()):
            assert in_turn(bill, 2) == batch["index"].tolist()
            if count == 1:
                break
    assert tracked.epoch == 2
    assert next(in_turn(bill, 2) for _, bill in tracked.with_bills()) == [0, 2, 4, 6]


def test_two_iterators_do_not_mix_their_names():
    """Each pass has its own record; the newest one moves the loader."""
    tracked = track(DataLoader(TensorDataset(torch.arange(8)), 2, shuffle=True))

    for (a, bill_a), (b, bill_b) in zip(tracked.with_bills(), tracked.with_bills(), strict=True):
        assert bill_a.idx.tolist() == a[0].tolist()
        assert bill_b.idx.tolist() == b[0].tolist()


def test_passes_that_run_side_by_side_use_different_steps(tmp_path):
    """Two iterators over one loader are two batches each time; the ledger has them all."""
    tracked = track(DataLoader(TensorDataset(torch.arange(8)), 2, shuffle=True), run=tmp_path / "run")

    steps = [(a.step, b.step) for (_, a), (_, b) in zip(tracked.with_bills(), tracked.with_bills(), strict=True)]
    tracked.close()

    assert steps == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert open_run(tmp_path / "run").num_steps == 8


def test_iterator_that_nobody_uses_changes_nothing():
    """Frameworks call iter() only to see whether they can: the batches that follow are the same."""
    torch.manual_seed(0)
    plain = [b[0].tolist() for b in DataLoader(TensorDataset(torch.arange(12)), 4, shuffle=True)]
    plain_places = torch.rand(1)

    torch.manual_seed(0)
    tracked = track(DataLoader(TensorDataset(torch.arange(12)), 4, shuffle=True))
    iter(tracked)

    assert [b[0].tolist() for b in tracked] == plain
    assert torch.equal(torch.rand(1), plain_places)
    state = tracked.state_dict()
    tracked.load_state_dict(state)
    iter(tracked)
    assert tracked.state_dict() == state


def test_ranks_share_steps_and_batch_ids(monkeypatch):
    """Two ranks name the same steps; their rows are different slots of one global batch."""
    bills = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        sampler = DistributedSampler(Noisy(24), 2, rank)
        bills.append([bill for _, bill in track(DataLoader(Noisy(24), 4, sampler=sampler)).with_bills()])

    for first, second in zip(*bills, strict=True):
        assert first.batch_id == second.batch_id
        assert first.slots.tolist() + second.slots.tolist() == list(range(8))
        assert first.global_size == 8
        assert first.loss_weight == 1.0
    assert sorted(i for rank in bills for bill in rank for i in bill.idx.tolist()) == list(range(24))


def test_sharded_iterables_of_two_ranks_have_different_names(monkeypatch):
    """Ranks and workers together are the shards."""
    seen = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        tracked = track(DataLoader(Shards(12), 4, num_workers=2))
        seen += [i for _, bill in tracked.with_bills() for i in bill.idx.tolist()]

    assert sorted(seen) == [stream_index(shard, count) for shard in range(4) for count in range(6)]


def test_failed_batch_does_not_shift_the_names():
    """A batch that raises takes its names with it, with and without workers."""

    class Fragile(Noisy):
        def __getitem__(self, index):
            if index == 5:
                raise RuntimeError("bad sample")
            return {"index": index}

    for num_workers in (0, 2):
        tracked = iter(track(DataLoader(Fragile(), 4, num_workers=num_workers)).with_bills())
        next(tracked)
        with pytest.raises(RuntimeError, match="bad sample"):
            next(tracked)
        rest = [(batch["index"].tolist(), bill.idx.tolist()) for batch, bill in tracked]
        assert rest[0][0] == [8, 9, 10, 11]
        assert all(shown == named for shown, named in rest)


RESUMABLE = {
    "sequential": lambda: DataLoader(Noisy(), 4),
    "global shuffle": lambda: DataLoader(Noisy(), 4, shuffle=True),
    "shuffle with workers": lambda: DataLoader(Noisy(), 4, shuffle=True, num_workers=2),
    "generator": lambda: DataLoader(Noisy(), 4, shuffle=True, generator=torch.Generator().manual_seed(1)),
    "weighted": lambda: DataLoader(Noisy(), 4, sampler=WeightedRandomSampler(torch.ones(SIZE), 30)),
    "replacement": lambda: DataLoader(Noisy(), 4, sampler=RandomSampler(Noisy(), replacement=True, num_samples=70)),
    "numpy batch sampler": lambda: DataLoader(Noisy(), batch_sampler=SizeThenIndices(SIZE)),
    "distributed": lambda: DataLoader(Noisy(), 4, sampler=DistributedSampler(Noisy(), 2, 0)),
}


@pytest.mark.filterwarnings("ignore::lading.errors.InexactResumeWarning")
@pytest.mark.parametrize("stop", [3, 6, 8])
def test_resume_with_persistent_workers_goes_on_over_epochs(stop):
    """Persistent workers drew their seed in the first epoch only; a resumed run draws it later, and nothing shifts."""

    def make():
        generator = torch.Generator().manual_seed(7)
        return track(DataLoader(Noisy(), 4, shuffle=True, num_workers=2, persistent_workers=True, generator=generator))

    def read(loader, count):
        seen = []
        while len(seen) < count:
            for _, bill in loader.with_bills():
                seen.append((bill.step, bill.idx.tolist()))
                if len(seen) == count:
                    break
        return seen

    whole = read(make(), 18)
    first, second = make(), make()
    begun = read(first, stop)
    second.load_state_dict(first.state_dict())

    assert begun + read(second, 18 - stop) == whole


@pytest.mark.filterwarnings("ignore::lading.errors.InexactResumeWarning")
@pytest.mark.parametrize("name", RESUMABLE)
@pytest.mark.parametrize("stop", [1, 3, 6])
def test_resume_goes_on_in_the_middle_of_an_epoch(name, stop):
    """A new process with other random numbers continues with the same samples, and the same steps."""
    seed_everything(1)
    tracked = track(RESUMABLE[name]())
    whole, taken = [], []
    for _ in range(3):
        tracked.set_epoch(tracked.epoch)
        for _, bill in tracked.with_bills():
            whole.append((bill.step, bill.epoch, bill.idx.tolist()))
            if len(whole) == stop:
                state = json.loads(json.dumps(tracked.state_dict()))
    seed_everything(2)
    torch.rand(17)
    fresh = track(RESUMABLE[name]())
    fresh.load_state_dict(state)
    assert fresh.state_dict() == state
    fresh.set_epoch(fresh.epoch)
    for _, bill in fresh.with_bills():
        taken.append((bill.step, bill.epoch, bill.idx.tolist()))

    end = next((k for k, (_, epoch, _) in enumerate(whole) if epoch > whole[stop][1]), len(whole))
    assert taken == whole[stop:end]
    assert len(fresh) == len(tracked)


def test_resume_leaves_the_global_generators_to_the_user():
    """Drawing the order again does not disturb the random numbers of training."""
    seed_everything(1)
    tracked = track(DataLoader(TensorDataset(torch.arange(20)), 4, shuffle=True))
    batches = iter(tracked)
    next(batches)
    state = tracked.state_dict()

    seed_everything(9)
    expected = random_places()
    fresh = track(DataLoader(TensorDataset(torch.arange(20)), 4, shuffle=True))
    fresh.load_state_dict(state)
    seed_everything(9)  # what is restored later wins
    rest = [b[0].tolist() for b in fresh]

    assert random_places() == expected
    assert rest == [b[0].tolist() for b in batches]


def test_resume_at_the_end_of_an_epoch_starts_the_next():
    """Frameworks never ask for the StopIteration: after the last batch the state is at the next epoch."""
    seed_everything(1)
    tracked = track(DataLoader(TensorDataset(torch.arange(8)), 4, shuffle=True))
    batches = iter(tracked)
    next(batches), next(batches)
    state = tracked.state_dict()
    following = [(bill.epoch, bill.step, bill.idx.tolist()) for _, bill in tracked.with_bills()]

    fresh = track(DataLoader(TensorDataset(torch.arange(8)), 4, shuffle=True))
    seed_everything(77)
    fresh.load_state_dict(state)

    assert state["epoch"] == 1
    assert state["batch"] == 0
    assert [(bill.epoch, bill.step, bill.idx.tolist()) for _, bill in fresh.with_bills()] == following


def test_sampler_that_cannot_be_drawn_again_is_refused_with_the_reason():
    """The order is compared with what was yielded; nothing is believed."""

    class Secretive(Sampler):
        def __init__(self):
            self.rng = np.random.default_rng()

        def __iter__(self):
            return iter(self.rng.permutation(SIZE).tolist())

        def __len__(self):
            return SIZE

    tracked = track(DataLoader(Noisy(), 4, sampler=Secretive()))
    next(iter(tracked))
    fresh = track(DataLoader(Noisy(), 4, sampler=Secretive()))
    fresh.load_state_dict(tracked.state_dict())

    with pytest.raises(
        ResumeError, match=r"the Secretive gave other samples when its first 1 batches.*torch.Generator"
    ):
        next(iter(fresh))


def test_state_of_other_data_is_refused():
    """Another dataset, another version, a sampler that became too short."""
    state = track(DataLoader(Noisy(8), 4)).state_dict()

    with pytest.raises(ResumeError, match="taken from Noisy of 8 samples, this loader reads Noisy of 9 samples"):
        track(DataLoader(Noisy(9), 4)).load_state_dict(state)
    with pytest.raises(ResumeError, match="the state has version None: expected 2"):
        track(DataLoader(Noisy(8), 4)).load_state_dict({})

    tracked = track(DataLoader(Noisy(8), 1, sampler=range(8)))
    batches = iter(tracked)
    for _ in range(6):
        next(batches)
    shorter = track(DataLoader(Noisy(8), 1, sampler=range(3)))
    shorter.load_state_dict(tracked.state_dict())
    with pytest.raises(ResumeError, match="the sampler ended after 3 batches, before the place"):
        next(iter(shorter))


def test_iterable_resumes_at_epochs_and_says_why_not_in_between():
    """A stream has no order to go back to."""
    tracked = track(DataLoader(Shards(), 4))
    for _ in tracked:
        pass
    at_end = tracked.state_dict()
    next(iter(tracked))

    fresh = track(DataLoader(Shards(), 4))
    fresh.load_state_dict(at_end)
    _, bill = next(fresh.with_bills())

    assert (bill.epoch, bill.step) == (1, 6)
    with pytest.raises(ResumeError, match=r"after 1 batches of an epoch, but Shards is an iterable.*cannot be entered"):
        track(DataLoader(Shards(), 4)).load_state_dict(tracked.state_dict())


def test_state_is_flat_and_always_has_the_same_keys():
    """Distributed checkpoints need fixed keys and plain values."""
    tracked = track(DataLoader(Noisy(), 4, shuffle=True))
    fresh = tracked.state_dict()
    next(iter(tracked))

    assert fresh.keys() == tracked.state_dict().keys()
    assert all(isinstance(value, int | str) for value in tracked.state_dict().values())


def test_progress_bars_end_at_the_end():
    """``len`` is that of the whole pass; ``batches_done`` is where a bar begins after a resume."""
    tqdm = pytest.importorskip("tqdm").tqdm
    torch.manual_seed(0)
    first, loader = (track(DataLoader(Noisy(), batch_size=4, shuffle=True)) for _ in range(2))
    batches = first.with_bills()
    next(batches), next(batches)
    loader.load_state_dict(first.state_dict())

    bar = tqdm(loader.with_bills(), initial=loader.batches_done, file=io.StringIO())
    ran = [bill.step for _, bill in bar]

    assert len(batches) == len(loader.with_bills()) == 6
    assert ran == [2, 3, 4, 5]
    assert (bar.n, bar.total) == (6, 6)
    with pytest.raises(TypeError, match="no len"):
        len(track(DataLoader(Shards())).with_bills())


def test_ledger_keeps_the_names_of_a_tracked_run(tmp_path):
    """A batch counts as used when the next one is asked for; the run can be asked where a sample was."""
    tracked = track(
        DataLoader(TensorDataset(torch.arange(10)), 4, shuffle=True), run=tmp_path / "run", names=["numbers"]
    )
    seen = [bill for _ in range(2) for _, bill in tracked.with_bills()]
    tracked.close()

    run = open_run(tmp_path / "run")
    for index in (0, 9):
        expected = [(b.step, int(np.flatnonzero(b.idx == index)[0])) for b in seen if index in b.idx]
        assert [(row["step"], row["slot"]) for row in run.where("numbers", index)] == expected
    assert run.verify().holds
    assert [run.step(bill.batch_id).step for bill in seen] == [bill.step for bill in seen]


def test_the_id_of_a_batch_depends_on_what_is_in_it():
    """Other samples, or the same ones in another order, are another batch; the same again is the same."""

    def ids(seed, shuffle=True):
        torch.manual_seed(seed)
        loader = DataLoader(TensorDataset(torch.arange(10)), 4, shuffle=shuffle)
        return [bill.batch_id for _, bill in track(loader).with_bills()]

    assert ids(0) == ids(0) and ids(0, False) == ids(1, False)
    assert not set(ids(0)) & set(ids(1)) and not set(ids(0)) & set(ids(0, False))


def test_a_bill_that_is_asked_for_late_is_the_one_of_its_batch():
    """Without anybody who is notified it is made when it is wanted, once; after a pass too."""
    made = track(
        DataLoader(TensorDataset(torch.arange(8)), 4, shuffle=True, generator=torch.Generator().manual_seed(0))
    )
    late = track(
        DataLoader(TensorDataset(torch.arange(8)), 4, shuffle=True, generator=torch.Generator().manual_seed(0))
    )

    for _ in range(2):
        for (_, bill), _ in zip(made.with_bills(), late, strict=True):
            assert late.last_bill is late.last_bill
            assert late.last_bill.batch_id == bill.batch_id and late.last_bill.position == bill.position
            assert (late.last_bill.step, late.last_bill.epoch) == (bill.step, bill.epoch)
    for _ in late:
        pass
    assert (late.last_bill.step, late.last_bill.epoch, late.step) == (5, 2, 6)


def test_names_cannot_be_written_over_before_they_are_recorded():
    """What stands in a bill at the commit is what the books say."""
    [(_, bill)] = track(DataLoader(range(4), batch_size=4)).with_bills()

    for column in (bill.idx, bill.dataset_idx, bill.slots, bill.is_padding):
        with pytest.raises(ValueError, match="read-only"):
            column += 1


def test_commit_and_skip_say_it_more_precisely(tmp_path):
    """What the user says of a batch is not said again."""
    tracked = track(DataLoader(TensorDataset(torch.arange(12)), 4), run=tmp_path / "run")

    for step, _ in enumerate(tracked):
        if step == 1:
            tracked.skip("overflow")
        else:
            tracked.commit(update=step, loss=torch.tensor(float(step)))
    tracked.close()

    run = open_run(tmp_path / "run")
    assert [run.step(k).fate for k in range(3)] == ["applied", "skipped", "applied"]


def test_a_block_that_an_exception_leaves_has_not_used_its_last_batch(tmp_path):
    """Closing counts the last batch as used; an exception in the middle of it does not."""
    loader = DataLoader(TensorDataset(torch.arange(12)), 4)

    def fails() -> None:
        with track(loader, run=tmp_path / "run") as tracked:
            for step, _ in enumerate(tracked):
                assert step < 1

    with pytest.raises(AssertionError):
        fails()
    with track(loader, run=tmp_path / "whole") as tracked:
        list(tracked)

    assert len(open_run(tmp_path / "run").history) == 1
    assert [attempt["state"] for attempt in summarise(open_run(tmp_path / "run")).attempts] == ["failed"]
    assert len(open_run(tmp_path / "whole").history) == 3


def test_resumed_run_rolls_back_in_the_ledger(tmp_path):
    """After a crash the steps behind the checkpoint are done again, and the history has each once."""
    torch.manual_seed(0)
    first = track(DataLoader(TensorDataset(torch.arange(20)), 4, shuffle=True), run=tmp_path / "run")
    batches = first.with_bills()
    next(batches), next(batches)
    state = first.state_dict()
    next(batches), next(batches)
    first.ledger.close(interrupted=True)

    second = track(DataLoader(TensorDataset(torch.arange(20)), 4, shuffle=True), run=tmp_path / "run")
    second.load_state_dict(state)
    rest = [bill.idx.tolist() for _, bill in second.with_bills()]
    second.close()

    run = open_run(tmp_path / "run")
    assert sorted(i for step in range(5) for i in run.step(step).samples["index"]) == list(range(20))
    assert len(rest) == 3


def test_ledger_of_the_user_is_left_to_the_user(tmp_path):
    """With a Ledger passed, batches are delivered and nothing is committed for them."""
    with Ledger(tmp_path / "run", names=["numbers"]) as ledger:
        tracked = track(DataLoader(TensorDataset(torch.arange(8)), 4), run=ledger)
        bills = [bill for _, bill in tracked.with_bills()]
        assert all(ledger.is_open(bill) for bill in bills)
        tracked.close()
        ledger.commit(bills)


def test_misuse_is_named():
    """What cannot be watched is refused with a sentence."""
    with pytest.raises(LoaderError, match="in_order=False: batches then come in the order in which workers finish"):
        track(DataLoader(Noisy(), 4, num_workers=2, in_order=False))
    with pytest.raises(LoaderError, match="found a list: expected a torch DataLoader"):
        track([1, 2])
    with pytest.raises(LoaderError, match="a Loader has bills already"):
        track(Loader({"n": TensorDataset(torch.arange(4))}, batch_size=2))
    with pytest.raises(LoaderError, match="a TrackedLoader has bills already"):
        track(track(DataLoader(Noisy())))
    with pytest.raises(SourceError, match=r"the sampler gave \['a', 'b'\] \(list\): expected integers"):
        next(iter(track(DataLoader({"a": 1, "b": 2}, 2, sampler=["a", "b"]))))


def test_indices_with_extras_are_named_by_their_first_part():
    """Samplers that give (index, size) name the index."""

    class Sized(Noisy):
        def __getitem__(self, asked):
            return {"index": asked[0]}

    loader = DataLoader(Sized(), batch_sampler=[[(3, 64), (4, 64)], [(0, 32)]])

    assert [bill.idx.tolist() for _, bill in track(loader).with_bills()] == [[3, 4], [0]]


def test_dataset_without_a_length_is_tracked():
    """With a sampler of its own a dataset need not know how long it is."""

    class Squares(Dataset):
        def __getitem__(self, index):
            return index**2

    tracked = track(DataLoader(Squares(), 2, sampler=[3, 5, 4]))
    batches = tracked.with_bills()

    assert [bill.idx.tolist() for _, bill in [next(batches)]] == [[3, 5]]
    fresh = track(DataLoader(Squares(), 2, sampler=[3, 5, 4]))
    fresh.load_state_dict(tracked.state_dict())
    assert [batch.tolist() for batch in fresh] == [[16]]


def test_loader_that_makes_its_own_batches_is_found_out():
    """A subclass that gives batches of its own cannot be named; one that leaves batches out can."""

    class Doubling(DataLoader):
        def __iter__(self):
            for batch in super().__iter__():
                yield batch
                yield copy.deepcopy(batch)

    class Halving(DataLoader):
        def __iter__(self):
            yield from list(super().__iter__())[::2]

    with pytest.raises(LoaderError, match=r"this Doubling gave a batch \(dict\) that its collate_fn did not make"):
        list(track(Doubling(Noisy(), 12)))
    assert [bill.idx[0] for _, bill in track(Halving(Noisy(), 4)).with_bills()] == [0, 8, 16]


def test_lazy_subclass_is_tracked():
    """A subclass whose __iter__ is a generator begins with the first batch."""

    class Lazy(DataLoader):
        def __iter__(self):
            yield from super().__iter__()

    tracked = track(Lazy(TensorDataset(torch.arange(10)), 4, shuffle=True))

    for _ in range(2):
        for batch, bill in tracked.with_bills():
            assert bill.idx.tolist() == batch[0].tolist()


def test_example_finds_the_broken_label(tmp_path, capsys):
    """The example that is shown to people runs, resumes and gives the right answer."""
    path = Path(__file__).parents[2] / "examples" / "adopt_existing_loader.py"
    example = runpy.run_path(str(path))

    example["main"](tmp_path / "run")

    out = capsys.readouterr().out
    assert "every step recorded, each once: True - steps: 96" in out
    assert out.strip().endswith("yes")
    assert len(path.read_text().splitlines()) < 80


def test_loader_that_accelerate_prepared_is_tracked():
    """Accelerate keeps a DataLoader inside its own, and reads one batch ahead; it leaves a tracked one alone."""
    accelerator = pytest.importorskip("accelerate").Accelerator(cpu=True)
    data = TensorDataset(torch.arange(SIZE))
    torch.manual_seed(0)
    plain = [batch[0].tolist() for batch in accelerator.prepare(DataLoader(data, 4, shuffle=True))]

    torch.manual_seed(0)
    outside = track(accelerator.prepare(DataLoader(data, 4, shuffle=True)))
    shown = [(batch[0].tolist(), bill.idx.tolist()) for batch, bill in outside.with_bills()]
    torch.manual_seed(0)
    inside = accelerator.prepare(track(DataLoader(data, 4, shuffle=True)))

    assert shown == [(batch, batch) for batch in plain]
    assert [batch[0].tolist() for batch in inside] == plain


def test_repeated_and_tracked_go_together():
    """A repeating loader around a tracked one feeds its tracker from bills, and tells a sampler its epochs."""
    sampler = DistributedSampler(range(8), 1, 0, shuffle=True)
    tracker = BatchTracker()
    loader = RepeatingLoader(track(DataLoader(TensorDataset(torch.arange(8)), 4, sampler=sampler)), tracker)

    seen = [next(loader)[0].tolist() for _ in range(5)]

    assert tracker.samples_idx_per_dataset == {0: [i for batch in seen for i in batch]}
    assert sampler.epoch == 2


@pytest.mark.launch
def test_two_real_ranks_track_stream_and_audit(tmp_path):
    """In a real process group: shared batch ids, one ledger, a stream dealt once, and faults seen across ranks."""
    torchrun(Path(__file__).parent / "scripts" / "track_ranks.py", 2, tmp_path)
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2))

    assert [b[0] for b in first["bills"]] == [b[0] for b in second["bills"]]
    assert [b[2] for b in first["bills"] + second["bills"]] == first["shown"] + second["shown"]
    assert sorted(i for b in first["bills"][:3] + second["bills"][:3] for i in b[2]) == list(range(24))
    run = open_run(tmp_path / "run")
    assert run.verify().holds
    assert [run.step(step).batch_id for step in range(6)] == [b[0] for b in first["bills"]]
    assert len(run.where("numbers", 7)) == 2
    assert [number for _, number in first["stream"]] == [0, 2, 4]
    assert [number for _, number in second["stream"]] == [1, 3, 5]
    assert second["stream"][-1] == [[10, -1], 5]
    assert [f["fault"] for f in first["faulty"]] == ["repeated in an epoch"]
    assert "in ranks 0, 1" in second["faulty"][0]["evidence"]
    assert first["sound"] == second["sound"] == []
    assert "repeated in an epoch" in first["own rank only"]


def test_content_of_a_tracked_run_is_recorded(tmp_path):
    """``run.json`` says content: the first version recorded none, and called two different runs equal."""
    runs = []
    for number, scale in enumerate((1.0, 2.0)):
        data = TensorDataset(torch.arange(10.0) * scale)
        ledger = Ledger(tmp_path / str(number), names=("data",), record="content")
        for _ in (loader := track(DataLoader(data, batch_size=4), ledger)):
            ledger.commit(loader.last_bill)
        ledger.close()
        runs.append(open_run(tmp_path / str(number)))

    row = content_hash([data[9][0]])
    assert f"{runs[1].content_of(2)[1] & (2**64 - 1):016x}" == row
    assert runs[0].compare(runs[1]).kind == "content"


class Numbered(Dataset):
    """Samples that are their index; some are None."""

    def __init__(self, size=20, holes=()):
        self.size, self.holes = size, holes

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return None if index in self.holes else {"x": torch.tensor(float(index))}


def without_none(samples):
    """The usual recipe for broken files."""
    return torch.utils.data.default_collate([sample for sample in samples if sample is not None])


def without_five(samples):
    """Leave a sample out."""
    return torch.utils.data.default_collate([sample for sample in samples if sample["x"] != 5])


class EvenOnes:
    """Keeps samples of even numbers, and says which."""

    def __call__(self, samples):
        self.kept = [place for place, sample in enumerate(samples) if sample["x"] % 2 == 0]
        return torch.utils.data.default_collate([samples[place] for place in self.kept])

    def rows(self, batch):
        """Return the places of the rows of a batch."""
        return self.kept


class Opaque:
    """A batch that nothing can be seen of."""

    def __init__(self, samples):
        self.size = len(samples)


class Streamed(IterableDataset):
    """The same as a stream."""

    def __iter__(self):
        return (Numbered()[index] for index in range(20))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_tracked_batch_that_is_not_its_bill_is_refused(workers):
    """A sample that is None, and rows that the collate function left out, of a dataset and of a stream."""
    with pytest.raises(SourceError, match="a Numbered gave None for sample 5"):
        list(track(DataLoader(Numbered(holes={5}), 4, collate_fn=without_none, num_workers=workers)))
    with pytest.raises(SourceError, match="made of 4 samples, and nothing in it has so many rows: x has shape"):
        list(track(DataLoader(Numbered(), 4, collate_fn=without_five, num_workers=workers)))
    with pytest.raises(SourceError, match="made of 4 samples, and nothing in it has so many rows: x has shape"):
        list(track(DataLoader(Streamed(), 4, collate_fn=without_five, num_workers=min(workers, 1))))


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_tracked_collate_function_left_out_is_booked(workers, tmp_path):
    """By name: the bill has the rows of the batch; a resume inside the epoch draws all of them again."""

    def make():
        generator = torch.Generator().manual_seed(1)
        loader = DataLoader(Numbered(), 4, True, collate_fn=EvenOnes(), num_workers=workers, generator=generator)
        return track(loader, tmp_path)

    first = make()
    pairs = [pair for _, pair in zip(range(2), first.with_bills(), strict=False)]
    state = first.state_dict()
    first.close()
    second = make()
    second.load_state_dict(state)
    with pytest.warns(UserWarning, match="draw the random numbers") if workers else contextlib.nullcontext():
        pairs += list(second.with_bills())
    second.close()
    run = open_run(tmp_path)

    for batch, bill in pairs:
        assert batch["x"].tolist() == bill.idx.tolist()
    assert sorted(i for _, bill in pairs for i in bill.idx.tolist()) == list(range(0, 20, 2))
    assert [run.step(bill.step).batch_id for _, bill in pairs] == [bill.batch_id for _, bill in pairs]
    assert run.verify().holds and len(run.bad()) == 10
    assert [(row["fate"], row["note"]) for row in run.where("data", 7).dicts()] == [
        ("skipped", "left out (by the collate function)")
    ]
    assert len(run.where("data", 8)) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_tracked_batches_that_cannot_be_counted_are_noted_once(workers, tmp_path):
    """``verify`` repeats it."""
    with contextlib.closing(
        track(DataLoader(Numbered(), 4, collate_fn=Opaque, num_workers=workers), tmp_path)
    ) as loader:
        for _ in range(2):
            assert len(list(loader)) == 5

    found = [remark.message for remark in open_run(tmp_path).verify().findings]
    assert found == ["attempt 0: the rows of batches are not counted: a Opaque of Opaque holds no arrays"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"run": 7}, r"run is 7: expected the folder of a run, or a lading.Ledger"),
        ({"tracker": "runs/7"}, "tracker is 'runs/7': expected a ledger, not its folder"),
        ({"tracker": [3]}, r"tracker is 3: expected anything with update\(bill\) and flush\(\)"),
        ({"names": "data"}, "names is 'data': expected the names of the datasets by number"),
        ({"ids": 3}, "ids is 3: expected the name of a column, or two"),
        ({"ids": ("a", "b", "c")}, "expected the name of a column, or two"),
        ({"random": "some"}, "random is 'some': expected 'restore' or 'keep'"),
    ],
)
def test_wrong_arguments_of_track_are_refused_at_once(options, text):
    """In the user's words, before anything is opened."""
    with pytest.raises(LadingError, match=text):
        track(DataLoader(Numbered(), 4), **options)
