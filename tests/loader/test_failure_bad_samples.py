"""Bad samples beside blocked ones and padding: every pair of the three."""

from __future__ import annotations

import itertools
import traceback
import warnings

import numpy as np
import pytest

from lading.errors import BadSampleError, LoaderError, SourceError
from lading.identity import World
from lading.loader.failure import BadSamplePolicy
from lading.loader.numpy import NumpyLoader
from lading.order import Plan
from lading.order.dataset import Parts, PlannedDataset
from lading.order.substitute import part_substitutes

LENGTH, BATCH = 13, 4


def substitutes(length: int, seed: int, index: int):
    """Yield who may take the place of a sample in a dataset of so many, best first."""
    return part_substitutes(Parts([PlannedDataset("data", length)]), 0, seed, index)


RING = list(substitutes(LENGTH, 0, 5))  # who takes the place of sample 5, best first


class Broken:
    """Numbers, some of which cannot be read."""

    def __init__(self, bad):
        self.bad = bad

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        if index in self.bad:
            raise OSError("unexpected end of file")
        return {"x": np.int64(index)}


def delivered(policy, bad, blocked, *, pad, world_size=1):
    """Return (loader, bill, values) of every step of one epoch, of every rank."""
    found = []
    for rank in range(world_size):
        loader = NumpyLoader(
            {"web": Broken(bad)},
            global_batch_size=BATCH,
            shuffle=False,
            on_bad_sample=policy,
            pad=pad,
            world=World(rank, world_size),
        )
        if blocked:
            loader.block("web", sorted(blocked))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # each bad sample is warned of once
            found += [(loader, bill, batch["x"].tolist()) for batch, bill in loader.with_bills()]
    return found


# Sample 12 fills the last, incomplete batch; blocked: nothing, the bad sample itself, and its first two substitutes.
@pytest.mark.parametrize(
    ("policy", "blocked", "world_size"),
    list(itertools.product(["skip", "substitute"], [(), (5,), tuple(RING[:2])], [1, 3])),
)
def test_what_is_delivered_is_the_plan_with_its_deviations(policy, blocked, world_size):
    """No row holds a bad or a blocked sample; real rows that differ are deviations, padding rows never are."""
    bad = {5, 12, RING[2]}

    for loader, bill, values in delivered(policy, bad, blocked, pad=True, world_size=world_size):
        planned = loader.plan.bill(bill.step, world=loader.world, pad=True)
        unread = [d for d in bill.deviations if "OSError" in d.reason]
        changed = {d.slot: d for d in unread}
        real = planned.slots[~planned.is_padding & np.isin(planned.idx, list(bad))]
        assert sorted(d.slot for d in unread) == sorted(real.tolist())  # a padding row repeats a slot, and adds none
        assert not set(values) & (bad | set(blocked)) and values == bill.idx.tolist()
        for row, slot in enumerate(bill.slots.tolist()):
            if planned.is_padding[row]:
                assert bill.is_padding[row]
            elif planned.idx[row] in bad:
                ring = substitutes(LENGTH, 0, int(planned.idx[row]))
                expected = next(i for i in ring if i not in bad | set(blocked))
                assert changed[slot].substitute == (expected if policy == "substitute" else None)
                assert bool(bill.is_padding[row]) == (policy == "skip")
            else:
                assert values[row] == planned.idx[row]


def test_a_bad_sample_that_is_repeated_as_padding_is_one_deviation():
    """The first version's tests let a padding row be recorded as a deviation of its own."""
    bills = [bill for _, bill, _ in delivered("substitute", {12}, (), pad=True)]

    assert [(d.slot, d.kind, d.index) for d in bills[-1].deviations] == [(0, "substituted", 12)]
    assert bills[-1].is_padding.tolist() == [False, True, True, True]


def test_a_blocked_sample_is_no_substitute_of_another():
    """Of a blocked one in the plan, and of a bad one in a batch, the next in the ring comes."""
    plan = Plan.make({"web": LENGTH}, batch_size=BATCH, shuffle="none")
    loader, bill, _ = delivered("substitute", {5}, RING[:2], pad=False)[1]

    assert [d.substitute for d in bill.deviations if d.index == 5] == [RING[2]]
    assert loader.plan.bill(1).idx.tolist() == [
        next(j for j in substitutes(LENGTH, 0, i) if j not in RING[:2]) if i in RING[:2] else i
        for i in plan.bill(1).idx.tolist()
    ]


class Unplugged(Exception):
    """An error of the user's own, whose ``__init__`` takes what no other does."""

    def __init__(self, disk, *, seconds):
        super().__init__(f"{disk} has been silent for {seconds} s")
        self.disk = disk


class Failing:
    """Numbers that cannot be read, each for another reason."""

    random_free = True

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 0:
            raise FileNotFoundError(2, "no such file", "a.wav")
        if index == 1:
            raise Unplugged("sdb", seconds=30)
        if index == 2:
            raise StopIteration("not the end")
        return {"x": np.int64(index)}


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"num_workers": 1, "workers": "threads"}])
@pytest.mark.parametrize(("bad", "kind"), [(0, FileNotFoundError), (1, Unplugged), (2, BadSampleError)])
def test_a_bad_sample_is_also_of_the_type_its_source_raised(options, bad, kind):
    """``except FileNotFoundError`` around a loop still catches it, with workers, too; the original is its cause."""
    loader = NumpyLoader({"web": Failing()}, batch_size=1, shuffle=False, **options)
    loader.move_to(bad)

    with pytest.raises(kind) as caught:
        list(loader)

    error = caught.value
    assert isinstance(error, BadSampleError) and (error.dataset, error.index, error.step) == ("web", bad, bad)
    assert "on_bad_sample='skip'" in str(error) and "in __getitem__" in "".join(traceback.format_exception(error))
    assert isinstance(error.__cause__, (kind, StopIteration)) and not isinstance(error, StopIteration)
    if kind is FileNotFoundError:
        assert (error.errno, error.filename) == (2, "a.wav")


class Whole:
    """A source that can be read sample by sample, not batch by batch."""

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        return index

    def __getitems__(self, indices):
        if len(indices) > 1:
            raise LookupError("no two at once")
        return indices


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_the_whole_batch_is_of_its_own_type(workers):
    """A batch that cannot be read, although each sample can."""
    with pytest.raises(LookupError, match="no two at once") as caught:
        list(NumpyLoader(Whole(), BATCH, num_workers=workers))

    assert isinstance(caught.value, SourceError)


def test_an_error_of_a_local_type_is_caught_by_it():
    """Without workers nothing is pickled: a type that only a function knows, and the traceback, stay as they were."""

    class LocalError(Exception):
        """Known here only."""

    class Failing(Broken):
        def __getitem__(self, index):
            raise LocalError(index)

    with pytest.raises(LocalError) as caught:
        list(NumpyLoader(Failing(()), BATCH))

    assert isinstance(caught.value, BadSampleError)
    assert type(caught.value.__cause__) is LocalError and caught.value.__cause__.__traceback__ is not None


@pytest.mark.filterwarnings("ignore:sample .* could not be read")
def test_the_limit_is_how_many_may_be_bad():
    """As many as the limit says are passed over; one more ends the run, by number."""

    def run(bad: set[int]) -> None:
        loader = NumpyLoader(Broken(bad), BATCH, on_bad_sample=BadSamplePolicy("skip", limit=2))
        list(loader)

    run({1, 2})

    with pytest.raises(LoaderError, match="more than 2 samples could not be read"):
        run({1, 2, 3})
