"""The laws of the weighted order: shares, inverses, stages that carry, and nothing earlier ever changes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.errors import MixtureError
from lading.order.event import Reweight
from lading.order.mixture.order import Mixed
from lading.order.mixture.rounds import BLOCK
from lading.order.mixture.spec import MixtureSpec
from lading.order.mixture.stopping import stream_end
from lading.order.mixture.tree import PlainTree
from lading.order.mixture.weights import TOTAL, integer_weights
from lading.order.plan import Plan
from lading.order.shuffle import BlockShuffle
from lading.runtime import compiled

shuffles = st.sampled_from(["full", "block", "none"])
kinds = st.one_of(st.just(0.0), st.floats(1e-6, 1), st.sampled_from([1e-6, 0.5, 1.0]))


@st.composite
def stagings(draw, most: int = 4):
    """Draw lengths and stages of 1 to 50 datasets, one of them heavy among equals now and then."""
    num = draw(st.integers(1, 50))
    sizes = st.sampled_from([1, 2, 10, 1000, 10**6, 10**12])
    lengths = draw(st.lists(sizes, min_size=num, max_size=num))
    one = st.one_of(
        st.lists(kinds, min_size=num, max_size=num).filter(any), st.just([0.5, *[0.5 / max(num - 1, 1)] * (num - 1)])
    )
    weights = [integer_weights(w) for w in draw(st.lists(one, min_size=1, max_size=most))]
    gaps = draw(st.lists(st.integers(1, 8), min_size=len(weights) - 1, max_size=len(weights) - 1))
    starts = np.cumsum([0, *gaps]) * BLOCK
    return tuple(lengths), tuple(zip(starts.tolist(), weights, strict=True))


def mixed(lengths, stages, events=(), **options) -> Mixed:
    """Make the order of a mixture that never ends."""
    return Mixed(lengths, 7, MixtureSpec(10**6, tuple(stages)), events, **options)


@given(stagings(), st.integers(0, 40_000), shuffles)
def test_positions_undo_samples(staging, start, shuffle):
    """``positions`` lists exactly the places that hold a sample."""
    order = mixed(*staging, shuffle=shuffle)
    stop = start + 2000

    datasets, indices = order.samples(start, stop)

    for k in (0, 999, 1999):
        d, i = int(datasets[k]), int(indices[k])
        expected = start + np.flatnonzero((datasets == d) & (indices == i))
        np.testing.assert_array_equal(order.positions(d, i, start, stop), expected)


@given(stagings(), st.sampled_from([2**31, 2**40, 2**59]), shuffles)
def test_far_positions_agree_with_the_reference(staging, far, shuffle):
    """Plain integers and the kernel give the same samples and the same inverse, however far."""
    fast, plain = mixed(*staging, shuffle=shuffle), mixed(*staging, make_tree=PlainTree, shuffle=shuffle)

    ours, reference = fast.samples(far - 700, far + 700), plain.samples(far - 700, far + 700)

    np.testing.assert_array_equal(ours[0], reference[0])
    np.testing.assert_array_equal(ours[1], reference[1])
    d, i = int(ours[0][700]), int(ours[1][700])
    assert far in fast.positions(d, i, far - 300, far + 300)
    np.testing.assert_array_equal(
        fast.positions(d, i, far - 300, far + 300), plain.positions(d, i, far - 300, far + 300)
    )


def deviations(order: Mixed, start: int, end: int) -> float:
    """Return the largest distance from a dataset's share at the ends of blocks, counted from ``start``."""
    weights, before = np.array(order.weights_at(start)) / TOTAL, np.array(order.counts(start))
    drawn = [np.array(order.counts(b)) - before for b in range(start, end + 1, BLOCK)]
    return max(float(np.abs(n - weights * k * BLOCK).max()) for k, n in enumerate(drawn))


@given(stagings(most=1))
def test_shares_hold_at_every_block(staging):
    """Law 6: within two samples of its share at the end of every block."""
    assert deviations(mixed(*staging), 0, 20 * BLOCK) < 2


@given(stagings(most=6))
def test_shares_hold_at_every_block_since_the_last_change(staging):
    """Law 6 with residuals carried: within two; up to five where a weight had dropped to almost nothing."""
    lengths, stages = staging
    order = mixed(lengths, stages)
    ends = [*(start for start, _ in stages[1:]), stages[-1][0] + 6 * BLOCK]
    is_tame = all(w == 0 or w * len(lengths) >= 0.1 * TOTAL for _, weights in stages for w in weights)

    for (start, _), end in zip(stages, ends, strict=True):
        assert deviations(order, start, end) < (2 if is_tame else 5)
    planned = sum(np.array(w, dtype=float) / TOTAL * (e - s) for (s, w), e in zip(stages, ends, strict=True))
    drift = np.abs(np.array(order.counts(ends[-1])) - planned).max()
    assert drift < (2 if is_tame else 5)  # stages do not add up their deviations


@given(stagings(), st.integers(1, 30))
def test_a_reweighting_changes_nothing_before_it(staging, block):
    """Law 7: earlier positions stay, whatever comes later; the event is one more stage."""
    lengths, stages = staging
    before = mixed(lengths, stages)
    event = Reweight(0, block * BLOCK, integer_weights([1.0] * len(lengths)))

    after = mixed(lengths, stages, [event])

    start = max(block * BLOCK - 3000, 0)
    for ours, theirs in zip(before.samples(start, block * BLOCK), after.samples(start, block * BLOCK), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert after.weights_at(block * BLOCK) == event.weights
    as_stage = mixed(lengths, sorted({**dict(stages), event.position: event.weights}.items()))
    for order in (as_stage, before.extended(event)):
        for ours, theirs in zip(after.samples(start, start + 9000), order.samples(start, start + 9000), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@given(stagings(most=2), st.lists(st.integers(0, 3), min_size=1, max_size=15), st.randoms(use_true_random=False))
def test_any_number_of_reweightings(staging, gaps, random):
    """Each leaves all before it alone, one by one or all at once, plain or compiled; shares stay near."""
    lengths, stages = staging
    order, position, events = mixed(lengths, stages), 0, []
    for gap in gaps:
        position += gap * BLOCK
        weights = integer_weights([random.choice([0.0, 1e-6, 0.5, random.random()]) for _ in lengths[1:]] + [1.0])
        events.append(Reweight(0, position, weights))
        before, order = order, order.extended(events[-1])
        for ours, theirs in zip(before.samples(0, position), order.samples(0, position), strict=True):
            np.testing.assert_array_equal(ours, theirs)

    end = position + 3 * BLOCK
    for other in (mixed(lengths, stages, events), mixed(lengths, stages, events, make_tree=PlainTree)):
        for ours, theirs in zip(order.samples(0, end), other.samples(0, end), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    last = order.stream.stages[-1].start
    assert deviations(order, last, last + 5 * BLOCK) < 5


@given(stagings(most=3), st.integers(1, 20))
def test_a_stage_that_changes_nothing_changes_nothing(staging, block):
    """The strong test of the carry: the same weights again give the same draws."""
    lengths, stages = staging
    once = mixed(lengths, stages)

    twice = mixed(lengths, stages, [Reweight(0, block * BLOCK, once.weights_at(block * BLOCK))])

    for start in (0, block * BLOCK, 2**40):
        for ours, theirs in zip(once.samples(start, start + 3000), twice.samples(start, start + 3000), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@given(stagings())
def test_an_appended_dataset_changes_nothing_while_it_has_no_weight(staging):
    """Numbers of datasets are names: a new one at the end does not disturb the others."""
    lengths, stages = staging
    wider = mixed((*lengths, 50), [(start, (*weights, 0)) for start, weights in stages])

    for ours, theirs in zip(mixed(lengths, stages).samples(0, 9000), wider.samples(0, 9000), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@given(stagings())
def test_a_weight_of_zero_is_never_drawn(staging):
    """In every stage, only datasets with a weight appear."""
    lengths, stages = staging
    order = mixed(lengths, stages)

    for start, weights in stages:
        assert all(weights[d] > 0 for d in np.unique(order.samples(start, start + BLOCK)[0]).tolist())


@given(stagings(), st.integers(0, 20_000))
def test_counts_are_those_of_the_samples(staging, position):
    """Counted without looking, inside blocks too."""
    order = mixed(*staging)

    counted = np.bincount(order.samples(0, position)[0], minlength=len(staging[0]))

    assert order.counts(position) == counted.tolist()


@given(st.lists(st.integers(1, 400), min_size=1, max_size=8), st.data())
def test_each_pass_shows_every_sample_once(lengths, data):
    """Draws of a dataset are passes: nothing repeats before the pass is over, and passes differ."""
    weights = integer_weights(data.draw(st.lists(st.floats(0.05, 1), min_size=len(lengths), max_size=len(lengths))))
    order = mixed(tuple(lengths), [(0, weights)], shuffle=data.draw(shuffles), block_samples=7)

    # Whole blocks: inside one, neighbouring passes of a short dataset may be shuffled together.
    datasets, indices = order.samples(0, 8 * BLOCK)

    for d, n in enumerate(lengths):
        seen = np.bincount(indices[datasets == d], minlength=n)
        assert seen.max() - seen.min() <= 1


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=8), st.data())
def test_first_exhausted_ends_right_before_the_first_repeat(lengths, data):
    """The epoch holds no sample twice, and one more draw would need a second pass."""
    weights = integer_weights(data.draw(st.lists(st.floats(0.05, 1), min_size=len(lengths), max_size=len(lengths))))
    end = stream_end(lengths, weights, "first_exhausted")
    order = Mixed(lengths, 3, MixtureSpec(end, ((0, weights),), "first_exhausted"))

    for epoch in (0, 5):
        datasets, indices = order.samples(epoch * end, (epoch + 1) * end)
        assert len({*zip(datasets.tolist(), indices.tolist(), strict=True)}) == end
        assert order.positions(int(datasets[0]), int(indices[0]), epoch * end, (epoch + 1) * end).tolist() == [
            epoch * end
        ]
    overrun = PlainTree(weights, [0] * len(weights)).counts(end + 1)
    assert any(overrun > np.array(lengths))
    assert order.counts(3 * end) == [3 * c for c in order.counts(end)]


@given(st.lists(st.integers(1, 500), min_size=1, max_size=5), st.data())
def test_all_exhausted_ends_when_everything_was_seen(lengths, data):
    """Every sample of every dataset appears, and one draw less would miss one."""
    weights = integer_weights(data.draw(st.lists(st.floats(0.1, 1), min_size=len(lengths), max_size=len(lengths))))
    end = stream_end(lengths, weights, "all_exhausted")
    order = Mixed(lengths, 3, MixtureSpec(end, ((0, weights),), "all_exhausted"))

    datasets, indices = order.samples(end, 2 * end)

    assert all(len(np.unique(indices[datasets == d])) == n for d, n in enumerate(lengths))
    assert (PlainTree(weights, [0] * len(weights)).counts(end - 1) < np.array(lengths)).any()


def test_epochs_of_a_finite_mixture_differ():
    """The epoch is in every key: another order, another choice of samples."""
    weights = integer_weights([0.5, 0.5])
    order = Mixed((100, 900), 3, MixtureSpec(201, ((0, weights),), "first_exhausted"))

    first, second = order.samples(0, 201), order.samples(201, 402)

    assert not np.array_equal(first[0], second[0])
    assert set(first[1][first[0] == 1].tolist()) != set(second[1][second[0] == 1].tolist())
    np.testing.assert_array_equal(np.unique(first[1][first[0] == 0]), np.arange(100))


def test_positions_of_a_finite_mixture_span_epochs():
    """A sample that appears once an epoch is found in every epoch asked for."""
    order = Mixed((100, 900), 3, MixtureSpec(201, ((0, integer_weights([1, 1])),), "first_exhausted"))

    found = order.positions(0, 42, 150, 1000)

    inside = [q for q in range(150, 1000) if tuple(int(c[0]) for c in order.samples(q, q + 1)) == (0, 42)]
    assert found.tolist() == inside and len(inside) >= 4


def test_without_shuffling_every_dataset_keeps_its_order():
    """Indices of a dataset rise, and the datasets are evenly interleaved."""
    order = mixed((10**6, 10**6), [(0, integer_weights([0.75, 0.25]))], shuffle="none")

    datasets, indices = order.samples(0, 5000)

    for d in (0, 1):
        assert (np.diff(indices[datasets == d]) == 1).all()
    assert abs(np.convolve(datasets == 1, np.ones(8), "valid") - 2).max() <= 1


def test_block_shuffled_passes_are_those_of_a_block_shuffle():
    """Neighbours stay together: the draws of a dataset are those of ``BlockShuffle`` with its key."""
    order = mixed((1000, 10_000), [(0, integer_weights([1, 9]))], shuffle="block", block_samples=64)

    datasets, draws = order.stream.block(5, order._blocks_key(0))
    _, indices = order.samples(5 * BLOCK, 6 * BLOCK)

    for d, n in ((0, 1000), (1, 10_000)):
        mine = draws[datasets == d]
        expected = BlockShuffle(n, 64, (7, d, 0)).elements(mine[mine < n])
        np.testing.assert_array_equal(indices[datasets == d][mine < n], expected)


def test_mixtures_that_make_no_sense_are_refused():
    """Stages out of order, unaligned starts, wrong sums, empty datasets, reweighted epochs that end by themselves."""
    half = integer_weights([1, 1])
    with pytest.raises(MixtureError, match="each after the one before"):
        MixtureSpec(10, ((0, half), (2048, half), (1024, half)))
    with pytest.raises(MixtureError, match="multiples of 1024"):
        MixtureSpec(10, ((0, half), (1000, half)))
    with pytest.raises(MixtureError, match="that sum to 3"):
        MixtureSpec(10, ((0, (1, 2)),))
    with pytest.raises(MixtureError, match="stopping='never': expected one of restart"):
        MixtureSpec(10, ((0, half),), "never")
    with pytest.raises(MixtureError, match="a schedule cannot be used with stopping='first_exhausted'"):
        MixtureSpec(10, ((0, half), (1024, half)), "first_exhausted")
    with pytest.raises(MixtureError, match="dataset 1 is empty but has a weight"):
        mixed((5, 0), [(0, half)])
    with pytest.raises(MixtureError, match="2 weights were planned for 3 datasets"):
        mixed((5, 5, 5), [(0, half)])
    finite = MixtureSpec(21, ((0, half),), "first_exhausted")
    with pytest.raises(MixtureError, match="a reweighting cannot be used with stopping='first_exhausted'"):
        Mixed((10, 100), 0, finite, [Reweight(0, 1024, half)])
    with pytest.raises(MixtureError, match=r"planned for epochs of 21 samples.*ends after 41"):
        Mixed((20, 100), 0, finite)
    with pytest.raises(MixtureError, match="a reweighting at position 5 has 2 weights"):
        mixed((5, 5), [(0, half)], [Reweight(0, 5, half)])


def test_an_end_beyond_2_to_the_60_is_refused():
    """A tiny weight on a long dataset would take longer than anybody can count."""
    with pytest.raises(MixtureError, match="Raise the smallest weight"):
        stream_end([10**12, 10], integer_weights([1e-12, 1]), "all_exhausted")


def test_spec_and_order_survive_json_and_pickle():
    """What a plan stores comes back equal."""
    spec = MixtureSpec(100, ((0, integer_weights([1, 2])), (1024, integer_weights([2, 1]))), lookahead_steps=4)

    assert MixtureSpec.from_dict(spec.to_dict()) == spec
    order = Mixed((10, 20), 1, spec, shuffle="none")
    again = pickle.loads(pickle.dumps(order))
    np.testing.assert_array_equal(again.samples(0, 99)[1], order.samples(0, 99)[1])


@given(stagings(most=3), st.integers(1, 300), st.booleans())
def test_a_plan_finds_what_its_bills_hold(staging, batch, drop_last):
    """Laws 4 and 5 through a plan: bills of a mixture, and where a sample stands in them."""
    lengths, stages = staging
    plan = Plan.make(
        {f"d{i}": n for i, n in enumerate(lengths)},
        batch,
        seed=1,
        drop_last=drop_last,
        mixture=MixtureSpec(1500, stages),
    )
    step = plan.epoch_start(2) + 1

    bill = plan.bill(step)

    sample = bill.samples[-1]
    places = plan.where(sample.dataset, sample.index, step, step + 1)
    assert [p.slot for p in places] == [k for k, s in enumerate(bill.samples) if s == sample]
    assert Plan.from_json(plan.to_json()).bill(step).digest == bill.digest


@pytest.mark.skipif(not compiled.enabled(), reason="Numba is not installed or switched off")
def test_memory_does_not_grow_with_the_data():
    """No table is kept: 10**15 samples need what 10 need."""
    import sys

    small, large = (mixed((n, n), [(0, integer_weights([1, 2]))]) for n in (10, 10**15))

    assert sum(map(sys.getsizeof, vars(small).values())) == sum(map(sys.getsizeof, vars(large).values()))


def test_the_order_is_frozen():
    """Golden: a change here changes every mixture ever planned, and needs a new ``ORDER_VERSION``."""
    weights, lengths = integer_weights([0.5, 0.3, 0.2]), (1000, 10, 10**9)
    spec = MixtureSpec(5000, ((0, weights), (2048, integer_weights([0, 1, 1e-3]))))
    end = stream_end(lengths, weights, "first_exhausted")
    running, ending = Mixed(lengths, 7, spec), Mixed(lengths, 7, MixtureSpec(end, ((0, weights),), "first_exhausted"))

    def names(order: Mixed, start: int) -> list[tuple[int, int]]:
        return [(int(d), int(i)) for d, i in zip(*order.samples(start, start + 6), strict=True)]

    assert names(running, 0) == [(0, 323), (0, 815), (0, 251), (1, 1), (2, 640070556), (2, 347114413)]
    assert names(running, 10**15) == [(1, 7), (1, 6), (1, 3), (1, 4), (1, 4), (1, 2)]
    assert end == 34
    assert names(ending, 3 * end) == [(0, 864), (2, 36071302), (1, 8), (0, 391), (0, 443), (2, 975659378)]
