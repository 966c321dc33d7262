"""The split tree: exact inverses, the kernel equal to the reference, shares within two draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.errors import MixtureError
from lading.order.mixture.spec import TOTAL, integer_weights
from lading.order.mixture.tree import (
    MAX_ROUND,
    CompiledTree,
    PlainTree,
    build_tree,
    place_of,
    round_of,
    rounds_of,
    slots_by_place,
)
from lading.runtime import compiled

with_kernels = pytest.mark.skipif(not compiled.enabled(), reason="nothing is compiled here")

kinds = st.one_of(st.just(0.0), st.floats(1e-6, 1), st.sampled_from([1e-6, 0.5, 1.0]))
mixtures = st.one_of(
    st.lists(kinds, min_size=1, max_size=50).filter(any),
    st.integers(1, 200).map(lambda n: [0.5, *[0.5 / n] * n]),  # one heavy dataset and many equal ones
).map(integer_weights)
KEY = np.uint64(99)
far_positions = st.one_of(
    st.integers(0, 5000), *(st.integers(2**k - 2000, 2**k + 2000) for k in (31, 40, 59)), st.integers(0, 2**59)
)


def residuals_of(weights: tuple[int, ...], seed: int) -> list[int]:
    """Return residuals such as stages leave behind: a draw or two per dataset, adding up to zero."""
    rng = np.random.default_rng(seed)
    owed = rng.integers(-TOTAL, TOTAL, len(weights)).tolist()
    return [o - sum(owed) // len(owed) for o in owed]


@given(mixtures, far_positions, st.booleans())
def test_position_undoes_draw(weights, position, carry):
    """Every position has one dataset and draw number, and they lead back to it."""
    tree = build_tree(weights, residuals_of(weights, 3) if carry else [0] * len(weights))

    dataset, draw = tree.draw(position)

    assert weights[dataset] > 0
    assert tree.position(dataset, draw) == position
    assert tree.counts(position, len(weights))[dataset] == draw


@given(mixtures, far_positions)
def test_shares_are_kept_within_two_draws(weights, position):
    """The bound of the proof, against the integers, at any position."""
    counts = build_tree(weights, [0] * len(weights)).counts(position, len(weights))

    assert sum(counts) == position
    assert all(abs(c * TOTAL - w * position) < 2 * TOTAL for c, w in zip(counts, weights, strict=True))


@given(mixtures, st.lists(st.integers(0, 3000), min_size=2, max_size=10))
def test_counts_never_fall(weights, positions):
    """A later position has drawn at least as much of everything."""
    tree = build_tree(weights, residuals_of(weights, 5))

    counts = np.array([tree.counts(p, len(weights)) for p in sorted(positions)])

    assert (np.diff(counts, axis=0) >= 0).all()


@given(mixtures, far_positions, st.booleans())
@with_kernels
def test_kernel_and_reference_agree_to_the_last_bit(weights, position, carry):
    """Trees, counts, rounds in both orders and inverses of the compiled twin are those of the reference."""
    residuals = residuals_of(weights, 7) if carry else [0] * len(weights)
    plain, fast = PlainTree(weights, residuals), CompiledTree(weights, residuals)
    reference = zip(plain.tree.weights, plain.tree.lefts, plain.tree.phases, plain.tree.children, strict=True)
    assert fast.table.nodes() == [(*numbers, *children) for *numbers, children in reference]

    np.testing.assert_array_equal(plain.counts(position), fast.counts(position))
    sizes = np.array([1, 40, 7 + position % 500, 3], dtype=np.int64)
    starts = position + 11 + np.cumsum(sizes) - sizes
    ours, theirs = (t.rounds(11, starts, sizes, KEY) for t in (plain, fast))
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_array_equal(ours[1], theirs[1])
    in_order = [t.in_order(position, 40) for t in (plain, fast)]
    np.testing.assert_array_equal(in_order[0][0], in_order[1][0])
    np.testing.assert_array_equal(in_order[0][1], in_order[1][1])
    d = int(ours[0][-1])
    draws = ours[1][ours[0] == d][-3:]
    u = plain.positions(d, draws)
    np.testing.assert_array_equal(u, fast.positions(d, draws))
    number = np.searchsorted(starts, u + 11, side="right") - 1
    for tree in (plain, fast):
        found = tree.places(d, draws, 11, (starts[number], sizes[number]), KEY)
        np.testing.assert_array_equal(found - starts[0], np.flatnonzero(ours[0] == d)[-3:])


def test_one_dataset_has_no_node():
    """Draw number = position."""
    tree = build_tree((0, TOTAL, 0), [0, 0, 0])

    assert tree.weights == () and tree.draw(10**15) == (1, 10**15) and tree.position(1, 77) == 77


@with_kernels
def test_few_and_many_datasets_are_walked_alike():
    """The kernel has two walks; where most datasets receive nothing of a round it skips them."""
    weights = integer_weights((np.random.default_rng(0).random(6000) ** 4 + 1e-9).tolist())
    tree, size = CompiledTree(weights, [0] * 6000), 1000

    for lo in (0, 10**12):
        few = tree.rounds(0, np.array([lo]), np.array([size]), KEY)
        every = tree.rounds(0, np.array([lo, lo + size]), np.array([size, MAX_ROUND]), KEY)  # the largest round decides

        np.testing.assert_array_equal(few[0], every[0][:size])
        np.testing.assert_array_equal(few[1], every[1][:size])


def test_depth_of_the_worst_tree_fits_the_kernels_stack():
    """Fibonacci weights make the deepest Huffman tree there is."""
    fibonacci = [1, 1]
    while sum(fibonacci) + fibonacci[-1] + fibonacci[-2] < TOTAL:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    weights = (*fibonacci[:-1], fibonacci[-1] + TOTAL - sum(fibonacci))
    plain = PlainTree(weights, [0] * len(weights))

    assert len(weights) > 40 and sum(weights) == TOTAL
    if compiled.enabled():
        rounds = np.array([10**15]), np.array([MAX_ROUND])
        ours, theirs = (t.rounds(0, *rounds, KEY) for t in (plain, CompiledTree(weights, [0] * len(weights))))
        np.testing.assert_array_equal(ours[1], theirs[1])


@given(mixtures, st.integers(0, 2**59))
def test_carry_is_what_was_planned_minus_what_was_drawn(weights, length):
    """In exact integers; wrapping 64-bit arithmetic gives the same."""
    drawn = build_tree(weights, [0] * len(weights)).counts(length, len(weights))

    exact = [w * length - TOTAL * n for w, n in zip(weights, drawn, strict=True)]  # planned minus drawn

    w, n = np.array(weights, dtype=np.int64), np.array(drawn, dtype=np.int64)
    assert exact == (w * np.int64(length) - n * np.int64(TOTAL)).tolist()
    assert sum(exact) == 0


def test_a_phase_that_leaves_64_bits_is_refused():
    """The check that guards the kernels' arithmetic, on both sides."""
    owed = [1 << 62, -(1 << 62)]
    for kind in (PlainTree, *([CompiledTree] if compiled.enabled() else [])):
        with pytest.raises(MixtureError, match="owes more draws than 64-bit"):
            kind((TOTAL // 2, TOTAL // 2), owed)


@given(st.integers(0, 2**64 - 1), st.integers(1, MAX_ROUND), st.data())
def test_places_of_a_round_are_a_permutation(key, size, data):
    """Forward sorts, inverse chooses and counts; the kernel sorts by buckets and finds the same."""
    slots = slots_by_place(key, size)
    first = data.draw(st.integers(0, size - 1))
    number = data.draw(st.integers(1, size - first))

    assert sorted(slots.tolist()) == list(range(size))
    mine = np.flatnonzero((slots >= first) & (slots < first + number))  # the places of a label, in order
    for k in {0, number // 2, number - 1}:
        assert place_of(key, size, first, number, k) == mine[k]
    if compiled.enabled():
        trees = [kind((TOTAL // 2, TOTAL // 2), [0, 0]) for kind in (PlainTree, CompiledTree)]
        asked = 0, np.array([0]), np.array([size]), np.uint64(key)
        ours, theirs = (tree.rounds(*asked) for tree in trees)
        np.testing.assert_array_equal(ours[0], theirs[0])
        draws, rounds = np.arange((ours[0] == 0).sum()), (np.zeros(size, np.int64), np.full(size, size))
        rounds = tuple(column[: len(draws)] for column in rounds)
        ours, theirs = (tree.places(0, draws, 0, rounds, np.uint64(key)) for tree in trees)
        np.testing.assert_array_equal(ours, theirs)


@given(st.lists(st.integers(1, 20_000), min_size=1, max_size=6), st.integers(0, 2**40))
def test_rounds_cut_steps_without_gaps(sizes, start):
    """A step of more than 4 096 samples has the fewest rounds of nearly equal size; each position finds its own."""
    steps = np.array(sizes, dtype=np.int64)
    begins = start + np.cumsum(steps) - steps

    lows, lengths = rounds_of(begins, steps)

    np.testing.assert_array_equal(lows, start + np.cumsum(lengths) - lengths)
    assert lengths.sum() == steps.sum() and lengths.max() <= MAX_ROUND
    assert len(lows) == sum(-(-size // MAX_ROUND) for size in sizes)
    for k, (low, length) in enumerate(zip(lows.tolist(), lengths.tolist(), strict=True)):
        step = int(np.searchsorted(begins, low, side="right")) - 1
        for position in (low, low + length - 1):
            assert round_of(int(begins[step]), int(steps[step]), position) == (low, length), k


def test_weights_near_nothing_are_inverted_in_big_integers():
    """A position beyond 64 bits is still exact in the reference."""
    weights = integer_weights([1e-12, 1])

    assert weights[0] == 1
    assert build_tree(weights, [0, 0]).position(0, 10**12) == 10**12 * TOTAL + TOTAL // 2


@with_kernels
@pytest.mark.parametrize("size", [1, 2, 3, 21, 500])
def test_places_one_by_one_and_all_at_once_agree(size):
    """The inverse has two ways: choose one key, or sort a round of which many draws are asked for."""
    trees = [kind((TOTAL // 4, TOTAL // 4, TOTAL // 2), [0, 0, 0]) for kind in (PlainTree, CompiledTree)]
    labels, draws = trees[0].rounds(0, np.array([0]), np.array([size]), KEY)

    for dataset in set(labels.tolist()):
        mine = np.sort(draws[labels == dataset])
        rounds = np.zeros(len(mine), np.int64), np.full(len(mine), size)
        plain, together = (tree.places(dataset, mine, 0, rounds, KEY).tolist() for tree in trees)
        alone = [
            trees[1].places(dataset, mine[k : k + 1], 0, (rounds[0][:1], rounds[1][:1]), KEY)[0]
            for k in range(len(mine))
        ]

        assert plain == together == alone
