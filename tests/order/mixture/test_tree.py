"""The split tree: exact inverses, the kernel equal to the reference, shares within two draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.errors import MixtureError
from lading.order.mixture.rounds import BLOCK, place_of, slots_by_place
from lading.order.mixture.tree import CompiledTree, PlainTree, build_tree, carried
from lading.order.mixture.weights import TOTAL, integer_weights
from lading.runtime import compiled

with_kernels = pytest.mark.skipif(not compiled.enabled(), reason="Numba is not installed or switched off")

kinds = st.one_of(st.just(0.0), st.floats(1e-6, 1), st.sampled_from([1e-6, 0.5, 1.0]))
mixtures = st.one_of(
    st.lists(kinds, min_size=1, max_size=50).filter(any),
    st.integers(1, 200).map(lambda n: [0.5, *[0.5 / n] * n]),  # one heavy dataset and many equal ones
).map(integer_weights)
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
    """Trees, counts, blocks in both orders and inverses of the compiled twin are those of the reference."""
    residuals = residuals_of(weights, 7) if carry else [0] * len(weights)
    plain, fast = PlainTree(weights, residuals), CompiledTree(weights, residuals)
    table = fast.nodes
    assert [tuple(r) for r in table[:, :3].tolist()] == list(
        zip(plain.tree.weights, plain.tree.lefts, plain.tree.phases, strict=True)
    )
    assert [tuple(r) for r in table[:, 3:5].tolist()] == list(plain.tree.children)

    lo, size, already = position - position % BLOCK, BLOCK - position % 3, np.arange(len(weights), dtype=np.int64)
    np.testing.assert_array_equal(plain.counts(position), fast.counts(position))
    for key in (None, position + 1):
        ours, theirs = (t.block(lo, size, already, key) for t in (plain, fast))
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_array_equal(ours[1], theirs[1])
        d = int(ours[0][0])
        draws = (ours[1] - already[ours[0]])[ours[0] == d][:3]
        for tree in (plain, fast):
            found = tree.positions(d, draws, BLOCK, BLOCK + lo + size, 99 if key else None)
            np.testing.assert_array_equal(
                found, plain.positions(d, draws, BLOCK, BLOCK + lo + size, 99 if key else None)
            )


def test_one_dataset_has_no_node():
    """Draw number = position."""
    tree = build_tree((0, TOTAL, 0), [0, 0, 0])

    assert tree.weights == () and tree.draw(10**15) == (1, 10**15) and tree.position(1, 77) == 77


@with_kernels
def test_few_and_many_datasets_are_walked_alike():
    """The kernel has two walks; above some thousand datasets it takes the one that skips what receives nothing."""
    from lading.order.mixture import kernels

    weights = integer_weights((np.random.default_rng(0).random(6000) ** 4 + 1e-9).tolist())
    tree, already = CompiledTree(weights, [0] * 6000), np.arange(6000, dtype=np.int64)
    columns = [(np.empty(BLOCK, dtype=np.int32), np.empty(BLOCK, dtype=np.int64)) for _ in range(2)]

    for lo in (0, 10**9 * BLOCK):
        kernels.draws(tree.nodes, tree.root, tree.leaves, lo, BLOCK, already, *columns[0])
        kernels.few_draws(tree.nodes, tree.root, lo, BLOCK, already, *columns[1])

        np.testing.assert_array_equal(columns[0][0], columns[1][0])
        np.testing.assert_array_equal(columns[0][1], columns[1][1])


def test_depth_of_the_worst_tree_fits_the_kernels_stack():
    """Fibonacci weights make the deepest Huffman tree there is."""
    fibonacci = [1, 1]
    while sum(fibonacci) + fibonacci[-1] + fibonacci[-2] < TOTAL:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    weights = (*fibonacci[:-1], fibonacci[-1] + TOTAL - sum(fibonacci))
    plain = PlainTree(weights, [0] * len(weights))

    assert len(weights) > 40 and sum(weights) == TOTAL
    if compiled.enabled():
        already = np.zeros(len(weights), dtype=np.int64)
        ours, theirs = (t.block(10**15, BLOCK, already, 5) for t in (plain, CompiledTree(weights, [0] * len(weights))))
        np.testing.assert_array_equal(ours[1], theirs[1])


@given(mixtures, st.integers(0, 2**59))
def test_carry_is_what_was_planned_minus_what_was_drawn(weights, length):
    """In exact integers; wrapping 64-bit arithmetic gives the same."""
    drawn = build_tree(weights, [0] * len(weights)).counts(length, len(weights))

    exact = carried([0] * len(weights), weights, length, drawn)

    w, n = np.array(weights, dtype=np.int64), np.array(drawn, dtype=np.int64)
    assert exact == (w * np.int64(length) - n * np.int64(TOTAL)).tolist()
    assert sum(exact) == 0


def test_a_phase_that_leaves_64_bits_is_refused():
    """The check that guards the kernels' arithmetic, on both sides."""
    owed = [1 << 62, -(1 << 62)]
    for kind in (PlainTree, *([CompiledTree] if compiled.enabled() else [])):
        with pytest.raises(MixtureError, match="owes more draws than 64-bit"):
            kind((TOTAL // 2, TOTAL // 2), owed)


@given(st.integers(0, 2**64 - 1), st.integers(1, BLOCK))
def test_places_of_a_block_are_a_permutation(key, size):
    """Forward sorts, inverse counts; the kernel sorts by buckets and finds the same."""
    slots = slots_by_place(key, size)

    assert sorted(slots.tolist()) == list(range(size))
    assert place_of(key, size, int(slots[size // 2])) == size // 2
    if compiled.enabled():
        from lading.order.mixture import kernels

        np.testing.assert_array_equal(slots, kernels.slots_by_place(np.uint64(key), size))
        assert kernels.place_of(np.uint64(key), size, slots[0]) == 0


def test_weights_near_nothing_are_inverted_in_big_integers():
    """A position beyond 64 bits is still exact in the reference."""
    weights = integer_weights([1e-12, 1])

    assert weights[0] == 1
    assert build_tree(weights, [0, 0]).position(0, 10**12) == 10**12 * TOTAL + TOTAL // 2
