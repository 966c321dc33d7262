"""``audit``: planted faults are found, sound set-ups are left in peace."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

from lading.errors import LoaderError
from lading.identity import World
from lading.kits.audit.command import audit
from lading.kits.audit.finding import (
    DROPPED_TAIL,
    FAULTS,
    LEFT_OUT,
    NEVER_REACHED,
    PADDING_TWICE,
    REPEATED,
    REPLACEMENT,
    SAME_HEAD,
    SAME_NUMBERS,
    SAME_ORDER,
    Finding,
)
from lading.loader.torch.distributed_sampler import StatefulDistributedSampler
from lading.loader.torch.loader import Loader
from lading.observe.tracking import track
from lading.source.stream.torch import TaggedIterableDataset
from lading.source.tagged import TaggedDataset

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def numbers(size=40):
    """Return a dataset of numbers."""
    return TensorDataset(torch.arange(size))


def faults(loader):
    """Return the findings that are no notes."""
    return [finding for finding in audit(loader) if finding.level == "fault"]


class Stream(IterableDataset):
    """A stream that gives everything to every worker."""

    def __init__(self, size=40):
        self.size = size

    def __iter__(self):
        return iter(range(self.size))


class Sharded(Stream):
    """A stream that divides itself among workers, in the way it is asked to."""

    def __init__(self, size=40, lost=0, rank=0, world_size=1):
        super().__init__(size)
        self.lost, self.rank, self.world_size = lost, rank, world_size

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        shard, shards = self.rank * workers + worker, self.world_size * workers
        # A classic: whole blocks, rounded down, so that the end belongs to no case.
        if self.lost and workers > 1:
            block = self.size // workers - self.lost
            return iter(range(worker * block, (worker + 1) * block))
        return iter(range(shard, self.size, shards))


class ForkedNumbers(Dataset):
    """Augments with a generator made once, which every worker inherits as it is."""

    def __init__(self, size=40):
        self.size, self.rng = size, np.random.default_rng(0)

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return index + self.rng.random()


class ForkedStream(Sharded):
    """A sharded stream that adds numbers from an inherited generator."""

    def __init__(self, size=40):
        super().__init__(size)
        self.rng = np.random.default_rng(0)

    def __iter__(self):
        return ((i, self.rng.random()) for i in super().__iter__())


class OnlyForkedNumbers(IterableDataset):
    """A stream of nothing but inherited random numbers."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __iter__(self):
        return (self.rng.random() for _ in range(12))


class WellSeeded(ForkedNumbers):
    """Augments with numbers that torch seeds for each worker."""

    def __getitem__(self, index):
        return index + torch.rand(1).item() + random.random() + np.random.rand()  # noqa: NPY002


class Fixed(Sampler):
    """A sampler that seeds its generator anew in every epoch."""

    def __init__(self, size, take=None):
        self.size, self.take = size, take or size

    def __iter__(self):
        generator = torch.Generator().manual_seed(0)
        return iter(torch.randperm(self.size, generator=generator)[: self.take].tolist())

    def __len__(self):
        return self.take


class FirstBatches(DataLoader):
    """A loader that stops early, as ``limit_train_batches`` does."""

    def __iter__(self):
        for number, batch in enumerate(super().__iter__()):
            if number == 3:
                return
            yield batch


class FixedHead(Sampler):
    """A sampler whose first samples never change."""

    def __iter__(self):
        return iter([*range(16), *(16 + torch.randperm(24)).tolist()])

    def __len__(self):
        return 40


class Lossy(Sampler):
    """A sampler that leaves samples out, others in each epoch, and repeats one instead."""

    def __init__(self, size=40, take=30, again=10):
        self.size, self.take, self.again = size, take, again

    def __iter__(self):
        return iter(torch.randperm(self.size)[: self.take].tolist() + [3] * self.again)

    def __len__(self):
        return self.take + self.again


class Drawn(Sampler):
    """A sampler of somebody's own that draws by weights, and has no word for it."""

    def __init__(self, weights):
        self.weights = torch.as_tensor(weights).double()

    def __iter__(self):
        return iter(torch.multinomial(self.weights, len(self), replacement=True).tolist())

    def __len__(self):
        return len(self.weights)


class DividedAfterShuffle(Sharded):
    """A stream that every worker shuffles in its own way before it takes its share."""

    def __init__(self, size=40, seeds=(0, 1)):
        super().__init__(size)
        self.seeds = seeds

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        seed = torch.initial_seed() if self.seeds is None else self.seeds[worker]
        return iter(np.random.default_rng(seed).permutation(self.size).tolist()[worker::workers])


class FilledUp:
    """A batch sampler that fills up its last batch with the first samples."""

    def __iter__(self):
        for start in range(0, 42, 4):
            yield [i % 42 for i in range(start, start + 4)]

    def __len__(self):
        return 11


def distributed(size=40, rank=0, **arguments):
    """Return one of 3 ranks' loaders."""
    data = numbers(size)
    sampler = DistributedSampler(data, 3, rank, **{"shuffle": False, **arguments})
    return DataLoader(data, 4, sampler=sampler)


FAULTY = {
    "stream not divided among workers": (REPEATED, lambda: DataLoader(Stream(), 4, num_workers=2)),
    "ranks without a distributed sampler": (REPEATED, lambda: [DataLoader(numbers(), 4) for _ in range(2)]),
    "ranks without a distributed sampler, shuffled": (
        REPEATED,
        lambda: [DataLoader(numbers(), 4, shuffle=True) for _ in range(2)],
    ),
    "stream not divided among ranks": (REPEATED, lambda: [DataLoader(Stream(), 4) for _ in range(2)]),
    "sampler that repeats": (REPEATED, lambda: DataLoader(numbers(), 4, sampler=[i // 2 for i in range(80)])),
    "sampler of a part": (NEVER_REACHED, lambda: DataLoader(numbers(), 4, sampler=SubsetRandomSampler(range(30)))),
    "range that ends too early": (NEVER_REACHED, lambda: DataLoader(numbers(), 4, sampler=range(39))),
    "stream divided badly": (NEVER_REACHED, lambda: DataLoader(Sharded(40, lost=2), 4, num_workers=2)),
    "stream shuffled by each worker": (NEVER_REACHED, lambda: DataLoader(DividedAfterShuffle(), 4, num_workers=2)),
    "sampler that repeats one of many": (REPEATED, lambda: DataLoader(numbers(), 4, sampler=Lossy())),
    "sampler that leaves out": (LEFT_OUT, lambda: DataLoader(numbers(), 4, sampler=Lossy(), num_workers=2)),
    "set_epoch forgotten": (SAME_ORDER, lambda: distributed(39, shuffle=True)),
    "seeded in every epoch": (SAME_ORDER, lambda: DataLoader(numbers(), 4, sampler=Fixed(40))),
    "stopped early": (SAME_HEAD, lambda: FirstBatches(numbers(), 4)),
    "the same part": (SAME_HEAD, lambda: DataLoader(numbers(), 4, sampler=Fixed(40, 16))),
    "fixed head": (SAME_HEAD, lambda: DataLoader(numbers(), 4, sampler=FixedHead())),
    "inherited generator": (SAME_NUMBERS, lambda: DataLoader(ForkedNumbers(), 4, shuffle=True, num_workers=2)),
    "inherited generator in a stream": (SAME_NUMBERS, lambda: DataLoader(ForkedStream(), 4, num_workers=2)),
    "nothing but inherited numbers": (SAME_NUMBERS, lambda: DataLoader(OnlyForkedNumbers(), 4, num_workers=2)),
    "drop_last in order": (DROPPED_TAIL, lambda: DataLoader(numbers(42), 4, drop_last=True)),
    "drop_last shuffled": (DROPPED_TAIL, lambda: DataLoader(numbers(42), 4, shuffle=True, drop_last=True)),
    "drop_last of a sampler": (DROPPED_TAIL, lambda: distributed(40, drop_last=True)),
    "drop_last of everything": (DROPPED_TAIL, lambda: DataLoader(numbers(3), 4, shuffle=True, drop_last=True)),
    "sampler that gives nothing": (NEVER_REACHED, lambda: DataLoader(numbers(20), 4, sampler=[])),
    "drop_last of a stream": (DROPPED_TAIL, lambda: DataLoader(Sharded(42), 4, num_workers=2, drop_last=True)),
    "padding of a distributed sampler": (PADDING_TWICE, lambda: distributed(40)),
    "padding of full batches": (PADDING_TWICE, lambda: DataLoader(numbers(42), batch_sampler=FilledUp())),
}

SOUND = {
    "in order": lambda: DataLoader(numbers(42), 4),
    "shuffled": lambda: DataLoader(numbers(), 4, shuffle=True, num_workers=2),
    "shuffled with a generator": lambda: DataLoader(numbers(), 4, shuffle=True, generator=torch.Generator()),
    "drop_last that drops nothing": lambda: DataLoader(numbers(), 4, shuffle=True, drop_last=True),
    "weighted": lambda: DataLoader(numbers(), 4, sampler=WeightedRandomSampler(torch.ones(40), 40)),
    "drawn with replacement": lambda: DataLoader(
        numbers(), batch_sampler=BatchSampler(RandomSampler(numbers(), replacement=True), 4, False)
    ),
    "a part at random": lambda: DataLoader(numbers(400), 4, sampler=RandomSampler(numbers(400), num_samples=100)),
    "subset": lambda: DataLoader(Subset(numbers(), range(0, 40, 3)), 4, shuffle=True),
    "divided stream": lambda: DataLoader(Sharded(42), 4, num_workers=2),
    "stream alone": lambda: DataLoader(Stream(), 4),
    "well-seeded augmentation": lambda: DataLoader(WellSeeded(), 4, shuffle=True, num_workers=2),
    "distributed in order": lambda: distributed(39),
    "ranks with distributed samplers": lambda: [distributed(39, rank) for rank in range(3)],
    "tagged": lambda: DataLoader(TaggedDataset(numbers()), 4, shuffle=True, num_workers=2),
    "tagged stream": lambda: DataLoader(TaggedIterableDataset(range(42), 4), batch_size=None, num_workers=2),
    "tagged stream of samples": lambda: DataLoader(TaggedIterableDataset(range(42)), 4, num_workers=2),
    "tagged streams on two ranks": lambda: [
        DataLoader(TaggedIterableDataset(range(42), 4, rank=r, world_size=2), batch_size=None) for r in range(2)
    ],
    "divided stream on two ranks": lambda: [DataLoader(Sharded(42, rank=r, world_size=2), 4) for r in range(2)],
    "lading": lambda: Loader({"n": numbers(42)}, batch_size=4),
    "lading on three ranks": lambda: Loader({"n": numbers(43)}, batch_size=4, world=World(1, 3)),
    "tracked": lambda: track(DataLoader(numbers(), 4, shuffle=True)),
}


@pytest.mark.parametrize("name", FAULTY)
def test_planted_fault_is_found_with_evidence_and_a_fixing_line(name):
    """Each fault is named, with what was seen and the line that fixes it."""
    fault, make = FAULTY[name]

    findings = audit(make())

    found = [f for f in findings if f.fault == fault]
    assert len(found) == 1, findings
    assert all(f.message and f.evidence and f.fix for f in findings)


@pytest.mark.parametrize("name", SOUND)
def test_sound_loader_is_left_in_peace(name):
    """Nothing is said where nothing is wrong."""
    assert faults(SOUND[name]()) == []


ways_to_shuffle = {
    "in order": lambda data, size: DataLoader(data, size),
    "shuffled": lambda data, size: DataLoader(data, size, shuffle=True),
    "a generator": lambda data, size: DataLoader(data, size, shuffle=True, generator=torch.Generator()),
    "replacement": lambda data, size: DataLoader(data, size, sampler=RandomSampler(data, replacement=True)),
    "a part": lambda data, size: DataLoader(data, size, sampler=RandomSampler(data, num_samples=-(-len(data) // 3))),
    "batches": lambda data, size: DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), size, False)),
}


@given(st.sampled_from(sorted(ways_to_shuffle)), st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**32))
def test_sound_loaders_of_any_size_are_left_in_peace(way, size, batch_size, seed):
    """Chance is not taken for a fault, however little data there is."""
    torch.manual_seed(seed)

    assert faults(ways_to_shuffle[way](numbers(size), batch_size)) == []


@given(st.integers(4, 40), st.integers(1, 9), st.integers(2, 4), st.booleans(), st.booleans())
def test_distributed_samplers_have_exactly_the_faults_of_their_arithmetic(size, batch_size, ranks, drop, shuffle):
    """What does not divide by the ranks is padded or dropped; an epoch that is never given is always the same."""
    data = numbers(size)
    sampler = DistributedSampler(data, ranks, 0, shuffle=shuffle, drop_last=drop)
    loader = DataLoader(data, batch_size, sampler=sampler)
    expected = {DROPPED_TAIL if drop else PADDING_TWICE} if size % ranks else set()

    assert {f.fault for f in audit(loader, set_epoch=True)} == expected
    assert {f.fault for f in audit(loader)} - {SAME_ORDER} == expected
    assert (SAME_ORDER in {f.fault for f in audit(loader)}) == shuffle


def test_every_fault_is_planted():
    """All faults are in the table above."""
    assert {fault for fault, _ in FAULTY.values()} == set(FAULTS)
    assert len(FAULTS) == 8
    assert len(SOUND) >= 7


EXACT = {
    "stream not divided among workers": "one reader gives 40 samples, 2 workers give 80; 40 samples came from several",
    "ranks without a distributed sampler": "sample 0 came 2 times in epoch 0, in ranks 0, 1",
    "sampler of a part": "gave no sample 30, 31, 32, 33, 34, ... (10)",
    "stream divided badly": "one reader gives 40 samples, the loader with 2 workers gives 36",
    "stream shuffled by each worker": "one reader gives 40 samples; of 40 samples of 2 workers",
    "sampler that repeats one of many": "sample 3 came 1",
    "sampler that leaves out": "epoch 0 has 3",
    "set_epoch forgotten": "2 epochs, each beginning with samples",
    "stopped early": "the first batch always holds samples 0, 1, 2, 3; 12 of 40 samples were seen",
    "inherited generator": "read 12 times: 12 different results, the same sequence in workers 0, 1",
    "drop_last in order": "42 samples, 40 in each epoch; missing are always samples 40, 41",
    "drop_last shuffled": "missing are others in each epoch",
    "drop_last of a stream": "worker 0 ends with 1 samples; worker 1 ends with 1 samples, a batch has 4",
    "padding of a distributed sampler": "40 samples, 42 rows in an epoch; twice came 0, 1",
}


@pytest.mark.parametrize("name", EXACT)
def test_evidence_says_what_was_seen(name):
    """Numbers that can be checked, not only a verdict."""
    fault, make = FAULTY[name]
    torch.manual_seed(3)

    (finding,) = [f for f in audit(make()) if f.fault == fault]

    assert EXACT[name] in finding.evidence
    assert str(finding).startswith(f"{fault}: ")
    assert Finding(**finding.to_dict()) == finding


FIXED = {
    "stream not divided among workers": lambda: DataLoader(Sharded(), 4, num_workers=2),
    "ranks without a distributed sampler": lambda: [distributed(39, r) for r in range(3)],
    "sampler of a part": lambda: DataLoader(numbers(), 4, sampler=RandomSampler(numbers())),
    "seeded in every epoch": lambda: DataLoader(numbers(), 4, shuffle=True),
    "stream shuffled by each worker": lambda: DataLoader(DividedAfterShuffle(seeds=(0, 0)), 4, num_workers=2),
    "sampler that repeats one of many": lambda: DataLoader(numbers(), 4, shuffle=True),
    "sampler that leaves out": lambda: DataLoader(numbers(), 4, shuffle=True),
    "drop_last in order": lambda: DataLoader(numbers(42), 4, drop_last=False),
    "padding of a distributed sampler": lambda: Loader(numbers(40), 4, world=World(0, 3)),
}


@pytest.mark.parametrize("name", FIXED)
def test_the_fixing_line_fixes(name):
    """With the line of the finding the fault is gone."""
    assert FAULTY[name][0] not in [f.fault for f in audit(FIXED[name]())]


def test_set_epoch_can_be_part_of_the_loop():
    """A loop that tells the epoch is audited as one that does."""
    loader = distributed(39, shuffle=True)

    assert [f.fault for f in audit(loader)] == [SAME_ORDER]
    assert audit(loader, set_epoch=True) == []
    assert "set_epoch(epoch)" in audit(loader)[0].fix


def test_stream_that_wants_the_epoch_is_told_or_found():
    """A shuffling stream with ``set_epoch`` gives the same order if no one calls it."""

    class Shuffling(IterableDataset):
        epoch = 0

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter(np.random.default_rng(self.epoch).permutation(40).tolist())

    assert [f.fault for f in audit(DataLoader(Shuffling(), 4))] == [SAME_ORDER]
    assert audit(DataLoader(Shuffling(), 4), set_epoch=True) == []


def test_limit_of_the_training_loop_is_judged():
    """Taking 3 batches of each epoch gives the same 3 batches if nothing shuffles, and others if something does."""
    in_order, shuffled = DataLoader(numbers(), 4), DataLoader(numbers(), 4, shuffle=True)

    assert SAME_HEAD in [f.fault for f in audit(in_order, limit_batches=3)]
    assert audit(shuffled, limit_batches=3) == []
    assert audit(in_order, limit_batches=10) == []
    assert [f.fault for f in audit(DataLoader(Stream(), 4), limit_batches=3)] == [SAME_HEAD]


def test_endless_stream_is_watched_for_a_while(monkeypatch):
    """A stream without an end does not hang the audit."""

    class Endless(IterableDataset):
        def __iter__(self):
            return iter(torch.rand(1).item, None)

    monkeypatch.setattr("lading.kits.audit.command.MAX_BATCHES", 20)

    assert audit(DataLoader(Endless(), 4)) == []


def test_several_ranks_in_the_environment_are_a_fault_without_a_distributed_sampler(monkeypatch):
    """Under torchrun, before there is a process group, the sampler must know of ranks."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")

    (finding,) = audit(DataLoader(numbers(), 4, shuffle=True))

    assert finding.fault == REPEATED
    assert "ranks 0, 1" in finding.evidence
    assert "DistributedSampler(dataset)" in finding.fix


def test_audit_takes_nothing_from_the_run():
    """Random numbers, the sampler's epoch, a Lading loader's place: all as before; no data is loaded for the order."""

    class Untouchable(Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            raise AssertionError("no data is needed to judge an order")

    torch.manual_seed(5)
    loader, sampler = DataLoader(Untouchable(), 4, shuffle=True), StatefulDistributedSampler(range(40), 2, 0, epoch=3)
    generators = [torch.Generator().manual_seed(rank) for rank in range(2)]
    lading = Loader({"n": numbers()}, batch_size=4)
    next(iter(lading))
    place, before = lading.state_dict(), torch.get_rng_state()
    drawn = [generator.get_state() for generator in generators]

    audit(loader)
    audit(DataLoader(numbers(), 4, sampler=sampler), set_epoch=True)
    audit(lading)
    audit([DataLoader(numbers(), 4, shuffle=True, generator=generator) for generator in generators])

    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(g.get_state(), state) for g, state in zip(generators, drawn, strict=True))
    assert sampler.epoch == 3
    assert lading.state_dict() == place


def test_loader_that_works_on_its_batches_is_given_them():
    """A subclass that needs real batches is watched with real data."""

    class Halving(DataLoader):
        def __iter__(self):
            return (batch[0] / 2 for batch in super().__iter__())

    assert audit(Halving(numbers(), 4, shuffle=True)) == []


def test_one_epoch_says_what_one_epoch_can_say():
    """Faults between epochs need two; the others do not."""
    assert audit(DataLoader(numbers(), 4, sampler=Fixed(40)), epochs=1) == []
    assert [f.fault for f in audit(DataLoader(numbers(42), 4, drop_last=True), epochs=1)] == [DROPPED_TAIL]


def test_misuse_is_named():
    """What cannot be audited is refused with a sentence."""

    class Endless(Dataset):
        def __getitem__(self, index):
            return index

    with pytest.raises(LoaderError, match="found a int: expected a torch DataLoader"):
        audit(5)
    with pytest.raises(LoaderError, match="found a empty list"):
        audit([])
    with pytest.raises(LoaderError, match="Endless has no length, so whether all of it is reached is unknown"):
        audit(DataLoader(Endless(), 4, sampler=range(8)))
    with pytest.raises(LoaderError, match="epochs is 0: expected at least 1"):
        audit(DataLoader(numbers()), epochs=0)


class Overlapping(IterableDataset):
    """Shards that overlap: each reader begins before the one before it ends."""

    def __init__(self, size: int = 40, rank: int | None = None) -> None:
        self.size, self.rank = size, rank

    def __iter__(self):
        info = get_worker_info()
        number = self.rank if self.rank is not None else info.id if info else 0
        if self.rank is None and info is None:
            return iter(range(self.size))
        half = self.size // 2
        return iter(range(max(0, number * half - 12), (number + 1) * half))


@pytest.mark.parametrize(
    ("make", "message", "fix"),
    [
        (lambda: DataLoader(Overlapping(), 4, num_workers=2), "the shards of 2 workers overlap", "files[info.id ::"),
        (
            lambda: [DataLoader(Overlapping(rank=r), 4) for r in range(2)],
            "the shards of 2 ranks overlap",
            "files[rank::",
        ),
        (lambda: DataLoader(Stream(), 4, num_workers=2), "the stream is not divided", "itertools.islice"),
        (
            lambda: [DataLoader(numbers(), 5, sampler=list(range(15 * r, 15 * r + 25))) for r in range(2)],
            "the ranks' shares overlap",
            "range(rank, len(dataset), world_size)",
        ),
    ],
    ids=["workers", "ranks", "undivided", "map style"],
)
def test_overlapping_shards_are_told_from_undivided_ones(make, message, fix):
    """Each with the line to change."""
    found = [finding for finding in audit(make()) if finding.fault == REPEATED]

    assert len(found) == 1 and message in found[0].message and fix in found[0].fix, found


def test_a_stream_in_the_same_order_every_epoch_is_noted():
    """Right for evaluation, a fault for training: a note that says so; in order, or in another each time, nothing."""

    class Shuffled(IterableDataset):
        def __init__(self, seed: int | None) -> None:
            self.seed = seed

        def __iter__(self):
            return iter(np.random.default_rng(self.seed).permutation(40).tolist())

    found = audit(DataLoader(Shuffled(0), 4))

    assert [(finding.fault, finding.level) for finding in found] == [(SAME_ORDER, "note")]
    assert "only evaluates" in found[0].fix
    assert audit(DataLoader(Shuffled(None), 4)) == [] == audit(DataLoader(Stream(), 4))


def test_sampling_with_replacement_is_mentioned_with_its_coverage():
    """It may be meant: a note, with how much of the data an epoch reaches."""
    weights = WeightedRandomSampler([1.0] * 39 + [200.0], 40)

    (found,) = audit(DataLoader(numbers(), 4, sampler=weights))

    assert (found.fault, found.level) == (REPLACEMENT, "note")
    assert "40 draws of 40 samples reached" in found.evidence and "%" in found.evidence


class OwnOrder(IterableDataset):
    """A stream that gives everything to every reader, to each in another order."""

    def __init__(self, rank: int | None = None) -> None:
        self.rank = rank

    def __iter__(self):
        info = get_worker_info()
        number = self.rank if self.rank is not None else info.id if info else 0
        return iter(np.random.default_rng(number).permutation(40).tolist())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DataLoader(OwnOrder(), 4, num_workers=4), "workers overlap: 40 samples come more often than once"),
        (lambda: [DataLoader(OwnOrder(r), 4) for r in range(4)], "160 rows on all ranks, 40 samples are on several"),
        (
            lambda: [DataLoader(Overlapping(60, r // 2), 4) for r in range(4)],
            "ranks overlap: 60 samples are on several",
        ),
    ],
    ids=["workers", "ranks", "overlapping ranks"],
)
def test_samples_that_come_several_times_are_counted_once(make, said):
    """Forty samples that four readers have are forty that repeat, not 120."""
    (found,) = [finding for finding in audit(make()) if finding.fault == REPEATED]

    assert said in f"{found.message} {found.evidence}"


@pytest.mark.parametrize(
    ("take", "again", "expected"),
    [
        (30, 5, {(REPEATED, "fault"), (LEFT_OUT, "note")}),
        (30, 0, {(LEFT_OUT, "note")}),
        (35, 5, {(REPEATED, "fault"), (LEFT_OUT, "fault")}),
        (40, 8, {(REPEATED, "fault")}),
    ],
)
def test_a_sampler_of_somebodys_own_that_loses_and_repeats_is_found(take, again, expected):
    """What came how often is looked at, not of which class the sampler is; epochs of a part may be meant."""
    torch.manual_seed(3)

    found = audit(DataLoader(numbers(), 4, sampler=Lossy(40, take, again)))

    assert {(finding.fault, finding.level) for finding in found} == expected


@given(st.sampled_from(["even", "one", "steep", "half"]), st.integers(2, 400), st.integers(0, 2**32))
def test_draws_with_any_weights_are_no_fault(way, size, seed):
    """Chance repeats and leaves out, too: that is mentioned, whatever class draws."""
    torch.manual_seed(seed)
    ranks = torch.arange(1, size + 1, dtype=torch.float64)
    weights = {"even": ranks * 0 + 1, "one": 1 + 100 * (ranks == 1), "steep": 1 / ranks, "half": (ranks % 2) + 1e-6}

    found = audit(DataLoader(numbers(size), 4, sampler=Drawn(weights[way])))

    assert {finding.level for finding in found if finding.fault in (REPEATED, LEFT_OUT)} <= {"note"}


def test_a_shuffle_by_the_seed_of_each_worker_is_found():
    """Also where no two passes have the same order: what one reader finds is the same each time."""
    torch.manual_seed(3)

    (found,) = [f for f in audit(DataLoader(DividedAfterShuffle(seeds=None), 4, num_workers=2)) if f.level == "fault"]

    assert found.fault == NEVER_REACHED and "takes its share of another order" in found.message
    assert "first divide, then shuffle" in found.fix and "did not come" in found.evidence
    assert "samples came from several workers, the first from 0, 1" in found.evidence
