"""The weighted order: inverses, stages that carry, epochs that end by themselves, and nothing earlier ever changes."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.errors import MixtureError, PlanError
from lading.identity.hashing import key64
from lading.order.clock import Batching, Clock
from lading.order.event import Reweight
from lading.order.mixture import tree
from lading.order.mixture.order import Mixed, Passes, stream_end, timeline
from lading.order.mixture.spec import MixtureSpec, integer_weights
from lading.order.mixture.tree import PlainTree
from lading.order.permutation import permute
from lading.order.plan import Plan
from lading.order.shuffle import permute_windows
from lading.runtime import compiled

shuffles = st.sampled_from(["full", "window", "none"])
kinds = st.one_of(st.just(0.0), st.floats(1e-6, 1), st.sampled_from([1e-6, 0.5, 1.0]))
batches = st.sampled_from([1, 2, 7, 32, 100, 1000, 5000])


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
    gaps = draw(st.lists(st.integers(1, 3000), min_size=len(weights) - 1, max_size=len(weights) - 1))
    starts = np.cumsum([0, *gaps])
    return tuple(lengths), tuple(zip(starts.tolist(), weights, strict=True))


def mixed(lengths, stages, events=(), batch=32, shuffle="full", window_samples=4096, plain=False) -> Mixed:
    """Make the order of a mixture that never ends, in steps of one size."""
    spec = MixtureSpec(10**6, tuple(stages))
    clock = Clock(spec.epoch_samples, Batching(((0, batch),)), gapless=True)
    passes = Passes(lengths, 7, shuffle, window_samples)
    with patch.object(tree, "tree_class", lambda: PlainTree) if plain else nullcontext():
        return Mixed(passes, spec, clock, timeline(spec, events))


def ending(lengths, weights, stopping, batch=32, drop_last=False, seed=3) -> Mixed:
    """Make the order of a mixture whose epochs end by themselves."""
    spec = MixtureSpec(stream_end(lengths, weights, stopping), ((0, weights),), stopping)
    return Mixed(Passes(lengths, seed), spec, Clock(spec.epoch_samples, Batching(((0, batch),), drop_last)))


def equal(ours, theirs) -> None:
    """Compare two pairs of columns."""
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_array_equal(ours[1], theirs[1])


@given(stagings(), st.integers(0, 40_000), shuffles, batches)
def test_positions_undo_samples(staging, start, shuffle, batch):
    """``positions`` lists exactly the places that hold a sample, wherever one begins to look."""
    order = mixed(*staging, shuffle=shuffle, batch=batch)
    stop = start + 2000

    datasets, indices = order.samples(start, stop)

    for k in (0, 999, 1999):
        d, i = int(datasets[k]), int(indices[k])
        expected = start + np.flatnonzero((datasets == d) & (indices == i))
        np.testing.assert_array_equal(order.positions(d, i, start, stop), expected)


@given(stagings(), st.sampled_from([2**31, 2**40, 2**59]), shuffles, batches)
def test_far_positions_agree_with_the_reference(staging, far, shuffle, batch):
    """Plain integers and the kernel give the same samples and the same inverse, however far."""
    fast = mixed(*staging, shuffle=shuffle, batch=batch)
    plain = mixed(*staging, shuffle=shuffle, batch=batch, plain=True)

    ours = fast.samples(far - 300, far + 300)

    equal(ours, plain.samples(far - 300, far + 300))
    d, i = int(ours[0][300]), int(ours[1][300])
    assert far in fast.positions(d, i, far - 100, far + 100)
    np.testing.assert_array_equal(
        fast.positions(d, i, far - 100, far + 100), plain.positions(d, i, far - 100, far + 100)
    )
    assert fast.counts(far) == plain.counts(far)


@given(
    stagings(), st.integers(0, 300), st.sampled_from([*(7, 21, 100, 1000, 4096), *(5000, 20_000)]), shuffles, st.data()
)
def test_slots_of_a_step_are_those_of_the_whole_step(staging, step, batch, shuffle, data):
    """A rank works out its own slots only, compiled or plain: byte for byte those of the whole step."""
    fast = mixed(*staging, batch=batch, shuffle=shuffle)
    at = fast.clock.locate(step)
    datasets, indices = fast.step_samples(at.position, at.size)
    first = data.draw(st.integers(0, at.size - 1))
    stop = data.draw(st.one_of(st.integers(first + 1, at.size), st.just(min(first + 8, at.size))))

    equal(fast.step_samples(at.position, at.size, first, stop), (datasets[first:stop], indices[first:stop]))
    if batch <= 1000:
        plain = mixed(*staging, batch=batch, shuffle=shuffle, plain=True)
        equal(plain.step_samples(at.position, at.size, first, stop), (datasets[first:stop], indices[first:stop]))


@given(stagings(), st.integers(0, 300), batches)
def test_a_step_alone_is_the_step_among_others(staging, step, batch):
    """One round at a time or many in one call: the same samples."""
    order = mixed(*staging, batch=batch)
    at = order.clock.locate(step)

    equal(order.step_samples(at.position, at.size), order.samples(at.position, at.position + at.size))


@given(stagings(), st.integers(1, 300), batches)
def test_a_reweighting_changes_nothing_before_it(staging, step, batch):
    """Law 7: earlier positions stay, whatever comes later; the event is one more stage."""
    lengths, stages = staging
    before = mixed(lengths, stages, batch=batch)
    position = step * batch
    event = Reweight(step, position, integer_weights([1.0] * len(lengths)))

    after = mixed(lengths, stages, [event], batch)

    start = max(position - 3000, 0)
    equal(before.samples(start, position), after.samples(start, position))
    assert after.weights_at(position) == event.weights
    as_stage = mixed(lengths, sorted({**dict(stages), position: event.weights}.items()), batch=batch)
    for order in (as_stage, before.extended(event)):
        equal(after.samples(start, start + 9000), order.samples(start, start + 9000))


@given(stagings(most=2), st.lists(st.integers(0, 3), min_size=1, max_size=15), st.randoms(use_true_random=False))
def test_any_number_of_reweightings(staging, gaps, random):
    """Each leaves all before it alone, one by one or all at once, plain or compiled."""
    lengths, stages = staging
    order, step, events = mixed(lengths, stages), 0, []
    for gap in gaps:
        step += gap
        weights = integer_weights([random.choice([0.0, 1e-6, 0.5, random.random()]) for _ in lengths[1:]] + [1.0])
        events.append(Reweight(step, step * 32, weights))
        before, order = order, order.extended(events[-1])
        equal(before.samples(0, step * 32), order.samples(0, step * 32))

    end = (step + 5) * 32
    for other in (mixed(lengths, stages, events), mixed(lengths, stages, events, plain=True)):
        equal(order.samples(0, end), other.samples(0, end))


@given(stagings(most=3), st.integers(1, 200), batches)
def test_a_stage_that_changes_nothing_changes_nothing(staging, step, batch):
    """The strong test of the carry: the same weights again give the same draws."""
    lengths, stages = staging
    once = mixed(lengths, stages, batch=batch)
    position = step * batch

    twice = mixed(lengths, stages, [Reweight(step, position, once.weights_at(position))], batch)

    for start in (0, position, 2**40):
        equal(once.samples(start, start + 3000), twice.samples(start, start + 3000))


def test_a_stage_acts_at_the_first_step_at_or_after_its_position():
    """A stage in the middle of a step waits for its end; of two that meet at one border the later holds."""
    first, second, third = (integer_weights(w) for w in ([1, 0], [0, 1], [1, 1]))

    order = mixed((100, 100), [(0, first), (64, second), (97, first), (120, third)])

    assert [order.weights_at(p) for p in (0, 63, 64, 127, 128)] == [first, first, second, second, third]


@given(stagings())
def test_an_appended_dataset_changes_nothing_while_it_has_no_weight(staging):
    """Numbers of datasets are names: a new one at the end does not disturb the others."""
    lengths, stages = staging
    wider = mixed((*lengths, 50), [(start, (*weights, 0)) for start, weights in stages])

    equal(mixed(lengths, stages).samples(0, 9000), wider.samples(0, 9000))


@given(stagings())
def test_a_weight_of_zero_is_never_drawn(staging):
    """In every stage, only datasets with a weight appear."""
    order = mixed(*staging)

    for stage in order.stream.stages:
        drawn = np.unique(order.samples(stage.start, stage.start + 32)[0])
        assert (stage.weights[drawn] > 0).all()


@given(stagings(), st.integers(0, 20_000), batches, shuffles)
def test_counts_are_those_of_the_samples(staging, position, batch, shuffle):
    """Counted without looking, inside steps too."""
    order = mixed(*staging, batch=batch, shuffle=shuffle)

    counted = np.bincount(order.samples(0, position)[0], minlength=len(staging[0]))

    assert order.counts(position) == counted.tolist()


@given(st.lists(st.integers(1, 300), min_size=1, max_size=8), st.data(), st.sampled_from([1, 10, 64]), st.booleans())
def test_first_exhausted_ends_right_before_the_first_repeat(lengths, data, batch, drop_last):
    """The epoch holds no sample twice, and one more draw would need a second pass; dropped tails included."""
    weights = integer_weights(data.draw(st.lists(st.floats(0.05, 1), min_size=len(lengths), max_size=len(lengths))))
    end = stream_end(lengths, weights, "first_exhausted")
    order = ending(lengths, weights, "first_exhausted", min(batch, end), drop_last)

    for epoch in (0, 5):
        datasets, indices = order.samples(epoch * end, (epoch + 1) * end)
        assert len({*zip(datasets.tolist(), indices.tolist(), strict=True)}) == end
        for k in (0, end // 2, end - 1):
            found = order.positions(int(datasets[k]), int(indices[k]), epoch * end, (epoch + 1) * end)
            assert found.tolist() == [epoch * end + k]
    overrun = PlainTree(weights, [0] * len(weights)).counts(end + 1)
    assert any(overrun > np.array(lengths))
    assert order.counts(3 * end) == [3 * c for c in order.counts(end)]
    datasets = order.samples(2 * end, 3 * end)[0]
    for inside in (1, end // 2, end - 1):
        expected = np.bincount(datasets[:inside], minlength=len(lengths)) + 2 * np.array(order.counts(end))
        assert order.counts(2 * end + inside) == expected.tolist()


@given(st.lists(st.integers(1, 500), min_size=1, max_size=5), st.data())
def test_all_exhausted_ends_when_everything_was_seen(lengths, data):
    """Every sample of every dataset appears, and one draw less would miss one."""
    weights = integer_weights(data.draw(st.lists(st.floats(0.1, 1), min_size=len(lengths), max_size=len(lengths))))
    end = stream_end(lengths, weights, "all_exhausted")
    order = ending(lengths, weights, "all_exhausted")

    datasets, indices = order.samples(end, 2 * end)

    assert all(len(np.unique(indices[datasets == d])) == n for d, n in enumerate(lengths))
    assert (PlainTree(weights, [0] * len(weights)).counts(end - 1) < np.array(lengths)).any()


def test_epochs_of_a_finite_mixture_differ():
    """The epoch is in every key: another order, another choice of samples."""
    order = ending((100, 900), integer_weights([0.5, 0.5]), "first_exhausted")

    first, second = order.samples(0, 201), order.samples(201, 402)

    assert not np.array_equal(first[0], second[0])
    assert set(first[1][first[0] == 1].tolist()) != set(second[1][second[0] == 1].tolist())
    np.testing.assert_array_equal(np.unique(first[1][first[0] == 0]), np.arange(100))


@pytest.mark.parametrize("drop_last", [False, True])
def test_positions_of_a_finite_mixture_span_epochs(drop_last):
    """A sample that appears once an epoch is found in every epoch asked for, in dropped tails too."""
    order = ending((100, 900), integer_weights([1, 1]), "first_exhausted", drop_last=drop_last)

    found = order.positions(0, 42, 150, 1000)

    parts = [(150, 201), *((e * 201, (e + 1) * 201) for e in range(1, 4)), (804, 1000)]
    columns = [np.concatenate(c) for c in zip(*(order.samples(a, b) for a, b in parts), strict=True)]
    inside = 150 + np.flatnonzero((columns[0] == 0) & (columns[1] == 42))
    np.testing.assert_array_equal(found, inside)
    assert len(inside) >= 4


def test_without_shuffling_every_dataset_keeps_its_order():
    """Indices of a dataset rise, and the datasets are evenly interleaved."""
    order = mixed((10**6, 10**6), [(0, integer_weights([0.75, 0.25]))], shuffle="none")

    datasets, indices = order.samples(0, 5000)

    for d in (0, 1):
        assert (np.diff(indices[datasets == d]) == 1).all()
    assert abs(np.convolve(datasets == 1, np.ones(8), "valid") - 2).max() <= 1


@pytest.mark.parametrize("shuffle", ["full", "window"])
def test_the_draws_of_a_dataset_are_its_shuffled_pass(shuffle):
    """In order of the positions: the first samples of a dataset are the first of the shuffle with its key."""
    order = mixed((1000, 10_000), [(0, integer_weights([1, 9]))], shuffle=shuffle, window_samples=64)

    datasets, indices = order.samples(0, 8000)

    for d, n in ((0, 1000), (1, 10_000)):
        mine = indices[datasets == d]
        length, places = np.array([n]), np.arange(len(mine))
        key = np.array([key64(7, d, 0)], dtype=np.uint64)
        expected = permute_windows(length, key, places, 64) if shuffle == "window" else permute(length, key, places)
        np.testing.assert_array_equal(mine, expected)


def test_mixtures_that_make_no_sense_are_refused():
    """Stages out of order, wrong sums, empty datasets, reweighted epochs that end by themselves."""
    half = integer_weights([1, 1])
    with pytest.raises(MixtureError, match="each after the one before"):
        MixtureSpec(10, ((0, half), (2048, half), (1024, half)))
    with pytest.raises(MixtureError, match="expected 1 to 4096 stages, the first at 0"):
        MixtureSpec(10, ((5, half),))
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
        timeline(finite, [Reweight(0, 1024, half)])
    with pytest.raises(MixtureError, match=r"planned for epochs of 21 samples.*ends after 41"):
        Mixed(Passes((20, 100), 0), finite, Clock(21, Batching(((0, 4),))))
    with pytest.raises(MixtureError, match="the reweighting at step 5 has 3 weights"):
        mixed((5, 5), [(0, half)], [Reweight(5, 5, (1, 2, 3))])
    with pytest.raises(MixtureError, match="the reweighting at step 5 has 2 weights that sum to 3"):
        mixed((5, 5), [(0, half)]).extended(Reweight(5, 5, (1, 2)))


def test_an_end_beyond_2_to_the_60_is_refused():
    """A tiny weight on a long dataset would take longer than anybody can count."""
    with pytest.raises(MixtureError, match="Raise the smallest weight"):
        stream_end([10**12, 10], integer_weights([1e-12, 1]), "all_exhausted")


def test_spec_and_order_survive_json_and_pickle():
    """What a plan stores comes back equal."""
    spec = MixtureSpec(100, ((0, integer_weights([1, 2])), (1024, integer_weights([2, 1]))))

    assert MixtureSpec.from_dict(spec.to_dict()) == spec
    order = mixed((10, 20), spec.stages, shuffle="none")
    again = pickle.loads(pickle.dumps(order))
    np.testing.assert_array_equal(again.samples(0, 99)[1], order.samples(0, 99)[1])


def test_a_mixture_of_version_1_is_refused():
    """Its samples would come in another order; the sentence says so."""
    plan = Plan.make({"a": 10, "b": 10}, 4, mixture=MixtureSpec(20, ((0, integer_weights([1, 2])),)))
    text = plan.to_json()

    assert '"mixture_version": 2' in text and '"order_version": 2' in text
    for old in (
        text.replace('"mixture_version": 2, ', ""),
        text.replace('"mixture_version": 2', '"mixture_version": 1'),
    ):
        with pytest.raises(PlanError, match="mixture has version 1, this Lading computes 2"):
            Plan.from_json(old)


@pytest.mark.skipif(not compiled.enabled(), reason="nothing is compiled here")
def test_memory_does_not_grow_with_the_data():
    """No table is kept: 10**15 samples need what 10 need."""
    import sys

    small, large = (mixed((n, n), [(0, integer_weights([1, 2]))]) for n in (10, 10**15))

    assert sum(map(sys.getsizeof, vars(small).values())) == sum(map(sys.getsizeof, vars(large).values()))


def test_the_order_is_frozen():
    """Golden: a change here changes every mixture ever planned, and needs a new mixture or order version."""
    weights, lengths = integer_weights([0.5, 0.3, 0.2]), (1000, 10, 10**9)
    running = mixed(lengths, [(0, weights), (2048, integer_weights([0, 1, 1e-3]))])
    finite = ending(lengths, weights, "first_exhausted", batch=10, seed=7)
    large = mixed(lengths, [(0, weights)], batch=10_000)

    def names(order: Mixed, start: int) -> list[tuple[int, int]]:
        return [(int(d), int(i)) for d, i in zip(*order.samples(start, start + 6), strict=True)]

    assert names(running, 0) == GOLDEN[0]
    assert names(running, 10**15) == GOLDEN[1]
    assert finite.epoch_samples == 34
    assert names(finite, 3 * 34 + 28) == GOLDEN[2]
    assert names(large, 3 * 10_000 + 3331) == GOLDEN[3]


GOLDEN = [
    [(1, 8), (1, 3), (0, 266), (0, 911), (1, 1), (2, 535076620)],
    [(1, 0), (1, 9), (1, 4), (1, 8), (1, 3), (1, 7)],
    [(1, 3), (0, 180), (1, 0), (2, 562117072), (0, 556), (0, 247)],
    [(0, 188), (2, 480201797), (0, 101), (0, 471), (0, 682), (2, 238479662)],
]
