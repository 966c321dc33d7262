"""Laws 1, 2, 4 and 5 of the plan, its clock, its events, and its JSON."""

from __future__ import annotations

import json
import pickle
import time
import tracemalloc

import pytest
from hypothesis import given, strategies as st

from lading.errors import MixtureError, PlanError
from lading.identity import World, total_digest
from lading.order import Block, Mixture, Plan, PlannedDataset, Rebatch
from lading.order.chunked_sampler import ChunkedSampler

lengths = st.dictionaries(st.sampled_from(["code", "prose", "web", "maths"]), st.integers(0, 40), min_size=1).filter(
    lambda d: sum(d.values()) > 0
)
seeds = st.integers(0, 2**32)
batches = st.integers(1, 17)
shuffles = st.sampled_from(["full", "none", "window"])


def make(lengths, batch, seed=0, drop_last=False, **fields):
    """Make a plan; a batch that would leave nothing under drop_last is lowered."""
    batch = min(batch, sum(lengths.values())) if drop_last else batch
    return Plan.make(lengths, batch, seed=seed, drop_last=drop_last, **fields)


def names(plan, start, stop):
    """Return the sample names of a range of steps, in order."""
    return [sample for step in range(start, stop) for sample in plan.bill(step).samples]


@given(lengths, batches, seeds, shuffles, st.booleans(), st.integers(0, 3))
def test_an_epoch_visits_every_sample_exactly_once(lengths, batch, seed, shuffle, drop_last, epoch):
    """Law 1: with drop_last all but the tail, which ``simulate`` names."""
    plan = make(lengths, batch, seed, drop_last, shuffle=shuffle, window_samples=7)
    first = plan.epoch_start(epoch)

    seen = names(plan, first, first + plan.epoch_steps(epoch))

    everything = {(d, i) for d, n in enumerate(plan.lengths) for i in range(n)}
    assert len(seen) == len(set(seen))
    tail = len(everything) % plan.global_batch_size if drop_last else 0
    assert len(seen) == len(everything) - tail
    if epoch == 0:
        simulation = plan.simulate()
        assert everything - set(seen) == set(simulation.tail)
        assert simulation.dropped == tail and simulation.repeats == 0
        assert sum(simulation.delivered.values()) == len(seen)


@given(lengths, batches, seeds, st.integers(1, 7), st.booleans(), st.data())
def test_global_batches_do_not_depend_on_world_size(lengths, batch, seed, world_size, drop_last, data):
    """Law 2: the ranks' shares of a step, put together, are the step; their digests add up to its digest."""
    plan = make(lengths, batch, seed, drop_last)
    step = data.draw(st.integers(0, 3 * plan.epoch_steps(0)))
    whole = plan.bill(step)

    shares = [plan.bill(step, world=World(rank, world_size)) for rank in range(world_size)]

    assert [s for share in shares for s in share.samples] == whole.samples
    assert total_digest(s.digest for s in shares) == whole.digest
    assert {s.batch_id for s in shares} == {whole.batch_id}
    assert all(len(s) >= 1 for s in shares), "every rank delivers every step"
    assert sum(s.loss_weight for s in shares) == pytest.approx(world_size)


@given(lengths, batches, shuffles, st.booleans(), st.integers(1, 30), st.sampled_from([None, True, False]), st.data())
def test_a_share_that_is_worked_out_alone_is_the_share_of_the_whole(lengths, batch, shuffle, mixes, ranks, pad, data):
    """Steps in any sequence, blocks, mixtures, ranks without a sample: every field is the same."""
    mixture = Mixture(lengths) if mixes else None
    blocked = {name: [0] for name, n in lengths.items() if n > 1}
    plan, other = (
        Plan.make(lengths, batch, shuffle=shuffle, window_samples=4, mixture=mixture, blocked=blocked) for _ in "ab"
    )
    world = World(data.draw(st.integers(0, ranks - 1)), ranks)
    first = data.draw(st.integers(0, 2 * plan.epoch_steps(0)))

    for step in [first, first + 1, first + 2, first + 3, first + 1, first]:
        found, whole = plan.bill(step, world=world, pad=pad), other.bill(step)
        meant = whole if ranks == 1 and not pad else other.share(whole, world, pad=pad)
        for name in ("slots", "dataset_idx", "idx", "is_padding"):
            assert getattr(found, name).tolist() == getattr(meant, name).tolist()
        for name in ("batch_id", "step", "epoch", "position", "global_size", "num_samples", "world", "deviations"):
            assert getattr(found, name) == getattr(meant, name)
        assert found.digest == meant.digest


@given(lengths, batches, seeds, shuffles, st.booleans(), st.integers(1, 7), st.data())
def test_where_is_the_inverse_of_bill(lengths, batch, seed, shuffle, drop_last, world_size, data):
    """Law 5: every slot of every step is found again, and nothing else is."""
    plan = make(lengths, batch, seed, drop_last, shuffle=shuffle, window_samples=5)
    stop = 2 * plan.epoch_steps(0) + 1
    step = data.draw(st.integers(0, stop - 1))

    for slot, sample in enumerate(plan.bill(step).samples):
        places = plan.where(sample.dataset, sample.index, 0, stop, world_size=world_size)
        assert [p for p in places if p.step == step] == [
            (plan.locate(step).epoch, step, slot, places_rank(plan, slot, world_size))
        ]
        for place in places:
            assert plan.bill(place.step).samples[place.slot] == sample
            start, end = World(place.rank, world_size).share(plan.global_batch_size)
            assert start <= place.slot < end


def places_rank(plan, slot, world_size):
    """Return the rank whose share holds a slot, the slow way."""
    shares = [World(r, world_size).share(plan.global_batch_size) for r in range(world_size)]
    return next(r for r, (start, stop) in enumerate(shares) if start <= slot < stop)


@given(lengths, batches, batches, seeds, st.booleans(), st.integers(0, 30), st.one_of(st.none(), st.integers(1, 5)))
def test_rebatching_repeats_and_skips_nothing(lengths, batch, new_batch, seed, drop_last, step, chunk):
    """A change of G continues where the old size stopped; ``where`` still inverts ``bill``."""
    plan = make(lengths, batch, seed, drop_last=False, chunk_batches=chunk)
    at = plan.locate(step)
    offset = at.position - at.epoch * plan.epoch_samples
    changed = plan.with_event(Rebatch(step, at.epoch, offset, new_batch, chunk))
    end = changed.epoch_start(at.epoch + 2)

    seen = names(changed, 0, end)

    everything = sorted((d, i) for d, n in enumerate(plan.lengths) for i in range(n))
    per_epoch = len(everything)
    assert names(plan, 0, step) == names(changed, 0, step)
    for epoch in range(at.epoch + 2):
        assert sorted(seen[epoch * per_epoch : (epoch + 1) * per_epoch]) == everything
    for place in changed.where(seen[-1].dataset, seen[-1].index, 0, end):
        assert changed.bill(place.step).samples[place.slot] == seen[-1]
    assert changed.fingerprint == plan.fingerprint


@given(lengths, batches, st.integers(1, 6), st.booleans())
def test_chunks_cut_epochs_without_gaps(lengths, batch, chunk_batches, drop_last):
    """Chunks follow each other step by step; only the last of an epoch is short; none spans two epochs."""
    plan = make(lengths, batch, drop_last=drop_last, chunk_batches=chunk_batches)
    step = 0
    for chunk in range(7):
        steps = plan.chunk_steps(chunk)
        assert plan.chunk_start(chunk) == step
        located = [plan.locate(s) for s in range(step, step + steps)]
        assert {at.chunk for at in located} == {chunk}
        assert [at.chunk_step for at in located] == list(range(steps))
        assert len({at.epoch for at in located}) == 1
        ends_epoch = plan.locate(step + steps).epoch > located[-1].epoch
        assert steps == chunk_batches or (ends_epoch and steps < chunk_batches)
        step += steps


def test_chunks_after_a_rebatch_start_anew():
    """A changed size starts a new chunk; numbers continue."""
    plan = Plan.make(100, 10, chunk_batches=4)
    changed = plan.with_event(Rebatch(5, 0, 50, 5, 3))

    assert [changed.locate(s).chunk for s in range(16)] == [0, 0, 0, 0, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 6]
    assert [changed.chunk_start(c) for c in range(7)] == [0, 4, 5, 8, 11, 14, 15]
    assert changed.locate(15).epoch == 1


@given(st.integers(3, 40), st.integers(1, 9), seeds, st.data())
def test_blocked_samples_are_replaced_and_found(n, batch, seed, data):
    """From its step on a blocked sample never comes; its substitute does; ``where`` knows both."""
    plan = Plan.make({"a": n, "b": 5}, batch, seed=seed)
    indices = tuple(data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=n - 1)))
    at = data.draw(st.integers(0, 10))
    blocked = plan.with_event(Block(at, 0, indices))
    stop = at + 2 * plan.epoch_steps(0)

    for step in range(stop):
        bill = blocked.bill(step)
        if step < at:
            assert bill.samples == plan.bill(step).samples
            continue
        assert not set(bill.idx[bill.dataset_idx == 0].tolist()) & set(indices)
        changed = {d.slot: d for d in bill.deviations}
        for slot, (new, old) in enumerate(zip(bill.samples, plan.bill(step).samples, strict=True)):
            assert (new == old) == (slot not in changed)
            if slot in changed:
                assert changed[slot].index == old.index and changed[slot].substitute == new.index
    for index in range(n):
        found = {(p.step, p.slot) for p in blocked.where("a", index, 0, stop)}
        truth = {(s, slot) for s in range(stop) for slot, x in enumerate(blocked.bill(s).samples) if x == (0, index)}
        assert found == truth


@given(lengths, batches, seeds, shuffles, st.booleans(), st.one_of(st.none(), st.integers(1, 5)))
def test_json_brings_the_same_plan_back(lengths, batch, seed, shuffle, drop_last, chunk):
    """A plan survives JSON with its events, its fingerprint and its bills."""
    plan = make(lengths, batch, seed, drop_last, shuffle=shuffle, chunk_batches=chunk)
    plan = plan.with_event(Rebatch(1, 0, plan.global_batch_size, 2, chunk)) if plan.epoch_steps(0) > 1 else plan

    again = Plan.from_json(plan.to_json())

    assert again.to_json() == plan.to_json() and again.fingerprint == plan.fingerprint
    assert again.bill(3).samples == plan.bill(3).samples and again.bill(3).batch_id == plan.bill(3).batch_id


@given(lengths, batches, seeds)
def test_equal_plans_have_equal_digests_and_others_do_not(lengths, batch, seed):
    """Law 9: order and membership are in the digest."""
    plan, twin = make(lengths, batch, seed), make(lengths, batch, seed)
    bill = plan.bill(0)

    assert bill.digest == twin.bill(0).digest
    moved = bill.replace(idx=bill.idx + 1)
    assert moved.digest != bill.digest
    if len(bill) > 1 and bill.samples[0] != bill.samples[1]:
        order = [1, 0, *range(2, len(bill))]
        assert bill.replace(idx=bill.idx[order], dataset_idx=bill.dataset_idx[order]).digest != bill.digest


def test_a_bill_of_a_trillion_samples_costs_nothing():
    """Any step of any run: under a millisecond, no memory in n, and ``where`` leads back."""
    plan = Plan.make({"a": 4 * 10**11, "b": 6 * 10**11}, 1024, seed=3)
    plan.bill(0)
    tracemalloc.start()
    bill = plan.bill(9 * 10**8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    best = min(_timed(lambda: plan.bill(9 * 10**8)) for _ in range(20))

    assert best < 1e-3 and peak < 1 << 20
    for slot, sample in enumerate(bill.samples):
        assert plan.where(sample.dataset, sample.index, 9 * 10**8, 9 * 10**8 + 1) == [(0, 9 * 10**8, slot, None)]


def _timed(call):
    start = time.process_time()
    call()
    return time.process_time() - start


GOLDEN = ("3658e97d547d6e39", "e0-s41-0c99dca7", 4, 739612011354875187)
GOLDEN_SAMPLES = [(1, 99), (0, 677), (0, 107), (0, 485)]


def test_plan_version_1_is_frozen():
    """Golden plan: JSON, fingerprint, batch id, names and digest of a step."""
    plan = Plan(
        (PlannedDataset("code", 1000, "c0de"), PlannedDataset("prose", 500)),
        4,
        seed=7,
        chunk_batches=10,
        events=(Block(5, 0, (3,)),),
    )
    bill = plan.bill(41)

    assert json.loads(plan.to_json()) == {
        "lading_plan": 1,
        "order_version": 2,
        "datasets": [
            {"name": "code", "length": 1000, "fingerprint": "c0de"},
            {"name": "prose", "length": 500, "fingerprint": ""},
        ],
        "global_batch_size": 4,
        "seed": 7,
        "shuffle": "full",
        "block_samples": None,
        "drop_last": False,
        "chunk_batches": 10,
        "mixture": None,
        "events": [{"kind": "block", "step": 5, "dataset": 0, "indices": [3], "reason": ""}],
    }
    assert (plan.fingerprint, bill.batch_id, bill.chunk, bill.digest) == GOLDEN
    assert bill.samples == GOLDEN_SAMPLES


def with_keys(**keys):
    """Read a plan that has more keys than it needs."""
    return Plan.from_json(json.dumps({**json.loads(Plan.make(9, 4).to_json()), **keys}))


@given(st.integers(3, 60), batches, seeds, st.data())
def test_a_plan_born_with_blocks_is_one_that_is_blocked_at_step_0(n, batch, seed, data):
    """Bills, places and substitutes are those of a block event; the fingerprint is another, and JSON keeps it."""
    blocked = data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=n - 2))
    plain = Plan.make({"corpus": n, "other": 5}, batch, seed=seed)
    born = Plan.make({"corpus": n, "other": 5}, batch, seed=seed, blocked={"corpus": blocked, "other": []})
    event = plain.with_event(Block(0, 0, tuple(sorted(blocked))))

    assert born.blocked == (("corpus", tuple(sorted(blocked))),) and born.blocked_from == 0
    for step in range(2 * born.epoch_steps(0)):
        assert born.bill(step).samples == event.bill(step).samples
        assert born.bill(step).deviations == event.bill(step).deviations
        assert not blocked & {i for d, i in born.bill(step).samples if d == 0}
    for index in range(n):
        assert born.where("corpus", index) == event.where("corpus", index)
    assert born.fingerprint != plain.fingerprint and "blocked" not in json.loads(plain.to_json())
    assert Plan.from_json(born.to_json()) == born
    assert born.differences(plain)[0].startswith("samples blocked from the beginning")


def test_a_block_event_adds_to_what_a_plan_was_born_with():
    """Also after a resume, whose state keeps only what was blocked since."""
    born = Plan.make(20, 4, blocked={"data": [3, 9]})
    later = born.with_event(Block(2, 0, (5,)))

    resumed = born.with_events(later.events_from(4))

    assert set(later.blocked_at(1)[0]) == {3, 9} and set(later.blocked_at(2)[0]) == {3, 5, 9}
    assert resumed.events[0].blocked == ((0, (5,)),)
    assert [resumed.bill(s).samples for s in range(4, 12)] == [later.bill(s).samples for s in range(4, 12)]


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: Plan.make({}, 4), "at least one sample: found no dataset"),
        (lambda: Plan.make({"a": 0}, 4), "at least one sample: found 'a' 0"),
        (lambda: Plan.make(10, 0), "global_batch_size is 0: expected an integer of at least 1"),
        (lambda: Plan.make(10, 4, chunk_batches=-1), "chunk_batches is -1"),
        (lambda: Plan.make(10, 4, shuffle="yes"), "shuffle is 'yes': expected one of 'full', 'none', 'window'"),
        (lambda: Plan.make(10, 4, seed=1.5), "seed is 1.5"),
        (lambda: Plan((PlannedDataset("a", 1), PlannedDataset("a", 2)), 4), "different names"),
        (lambda: Plan.make(3, 4, drop_last=True).bill(0), "nothing would ever be delivered"),
        (lambda: Plan.make(10, 4).bill(-1), "step -1 is negative"),
        (lambda: Plan.make(10, 4).where("b", 0), "no dataset 'b' in the plan: it has 'data'"),
        (lambda: Plan.make(10, 4).where("data", 10), "has no sample 10: expected 0 to 9"),
        (lambda: Plan.make(10, 4).chunk_start(0), "has no chunks"),
        (lambda: Plan.from_json("{"), "the plan: expected JSON"),
        (lambda: Plan.from_json("{}"), "plan version None found, 1 expected"),
        (
            lambda: Plan.from_json('{"lading_plan": 1, "order_version": 1}'),
            "shuffles in another way: order version 1, ",
        ),
        (lambda: Plan.from_json('{"lading_plan": 1, "order_version": 99}'), "order version 99"),
        (lambda: Plan.make(9, 4, blocked={"code": [1]}), "no dataset 'code' in the plan: it has 'data'"),
        (lambda: Plan.make(9, 4, blocked={"data": [1, 9]}), "dataset 'data' has no sample 9: expected 0 to 8"),
        (lambda: Plan.make(9, 4, blocked={"data": ["x"]}), r"blocked\['data'\] holds \['x'\]: expected the indices"),
        (lambda: Plan.make(2, 4, blocked={"data": [0, 1]}), "all 2 samples of dataset 'data' are blocked"),
        (lambda: with_keys(blocked={"data": []}), "blocked.data"),
        (lambda: with_keys(blocked=[3]), "blocked"),
        (lambda: with_keys(mask={"data": [-3]}), r"mask\.data"),
        (lambda: with_keys(mask={"data": "all"}), "mask.data"),
        (lambda: with_keys(colour="red"), "colour"),
        (
            lambda: Plan.make(2, 1).with_event(Block(0, 0, (0, 1))).bill(0),
            "all 2 samples of dataset 'data' are blocked",
        ),
    ],
)
def test_bad_plans_are_refused_with_a_way_out(make_it, message):
    """Each error says what was expected and what was found."""
    with pytest.raises(PlanError, match=message):
        make_it()


def test_differences_are_named_one_by_one():
    """Two plans: every change in words."""
    old = Plan((PlannedDataset("code", 10_000, "aa"), PlannedDataset("prose", 5)), 4, seed=1)
    new = Plan((PlannedDataset("code", 9_998, "aa"), PlannedDataset("web", 5)), 8, seed=2, shuffle="none")

    assert old.differences(new) == [
        "dataset 'prose' is gone",
        "dataset 'web' is new",
        "dataset 'code' 10 000 -> 9 998 samples",
        "seed 1 -> 2",
        "shuffle full -> none",
        "global batch size 4 -> 8",
    ]
    many = Plan(tuple(PlannedDataset(f"dataset number {i}", 5) for i in range(100)), 4)
    assert many.differences(Plan(many.datasets[:-1], 4)) == [
        "datasets (too many to list: 100 -> 99) differ in name, length or content"
    ]


def test_padding_fills_every_share_and_counts_nowhere():
    """21 samples on 4 ranks: the last batch has one padded share and one all padding; 21 counted."""
    plan = Plan.make(21, 8, shuffle="none")

    bills = [plan.bill(2, world=World(r, 4)) for r in range(4)]

    assert [len(b) for b in bills] == [2, 2, 2, 2]
    assert [b.num_samples for b in bills] == [2, 2, 1, 0]
    assert [b.loss_weight for b in bills] == pytest.approx([1.6, 1.6, 0.8, 0.0])
    assert plan.bill(2).num_samples == 5 and len(plan.bill(2)) == 5
    assert len(plan.bill(2, pad=True)) == 8 and plan.bill(2, pad=True).digest == plan.bill(2).digest


def test_the_id_of_a_bill_is_worked_out_when_asked_for():
    """Copies, pickled bills and shares have it as well; no other name is made up."""
    plan = Plan.make({"a": 10, "b": 20}, 4)
    expected = plan.batch_id(0, 3)

    assert plan.bill(3).batch_id == plan.bill(3).replace(chunk=1).batch_id == expected
    assert pickle.loads(pickle.dumps(plan.bill(3))).batch_id == expected
    assert plan.bill(3, world=World(1, 2)).batch_id == expected and expected in repr(plan.bill(3))
    with pytest.raises(AttributeError, match="'Bill' object has no attribute 'batch_idd'"):
        _ = plan.bill(3).batch_idd


def test_a_plan_says_where_weights_and_schedules_go():
    """They are the mixture's."""
    for name in ("weights", "schedule"):
        with pytest.raises(MixtureError, match=rf"Plan.make has no {name}=: pass mixture=lading.Mixture\({name}="):
            Plan.make({"a": 5, "b": 5}, 2, **{name: [1, 1]})


@pytest.mark.parametrize("seed", [-1, 1 << 64, 0.5, "1", True, None])
def test_a_seed_is_not_wrapped(seed):
    """0 to 2^64 - 1, nothing else; the ends are seeds."""
    with pytest.raises(PlanError, match=r"seed is .*: expected an integer from 0 to 2\*\*64 - 1"):
        Plan.make(10, 4, seed=seed)
    with pytest.raises(PlanError, match=r"seed=.*: expected an integer from 0 to 2\*\*64 - 1"):
        ChunkedSampler(10, 4, seed=seed)
    assert Plan.make(10, 4, seed=(1 << 64) - 1).bill(0).num_samples == 4
