"""The shuffle without a table: a bijection, its inverse, its quality, its frozen values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.order import shuffle_battery as battery

from lading.errors import PlanError
from lading.order import permutation
from lading.order.permutation import Permutation, permute, side, unpermute
from lading.runtime import compiled

sizes = st.one_of(st.integers(1, 130), st.integers(1, 3000))
any_size = st.one_of(st.integers(1, 130), st.integers(2**16 - 40, 2**16 + 40), st.integers(1, 2**63))
keys = st.integers(0, 2**64 - 1)
few_keys = st.one_of(keys, st.integers(0, 2))  # rows that share a table


@pytest.fixture(params=["compiled", "plain"])
def way(request, monkeypatch):
    """Run a test with the compiled kernel and with plain NumPy."""
    if request.param == "compiled" and not compiled.enabled():
        pytest.skip("nothing is compiled here")
    monkeypatch.setattr(permutation.compiled, "enabled", lambda: request.param == "compiled")
    return request.param


@given(sizes, keys)
def test_every_element_comes_once_and_leads_back(n, key):
    """A permutation is a bijection, and ``inverse`` is its inverse."""
    shuffled = Permutation(n, key)

    elements = shuffled(np.arange(n))

    assert sorted(elements.tolist()) == list(range(n))
    assert (shuffled.inverse(elements) == np.arange(n)).all()


@given(any_size, keys, st.integers(0, 2**63 - 1))
def test_inverse_holds_at_any_size(n, key, position):
    """Any n to 2**63 has random access in both directions."""
    shuffled = Permutation(n, key)
    positions = np.array([position % n, 0, n - 1])

    elements = shuffled(positions)

    assert ((elements >= 0) & (elements.astype(np.uint64) < n)).all()
    assert (shuffled.inverse(elements) == positions).all()


@pytest.mark.skipif(not compiled.enabled(), reason="nothing is compiled here")
@given(st.lists(st.tuples(any_size, few_keys), min_size=1, max_size=20), st.integers(0, 2**63 - 1))
def test_kernel_and_reference_agree_to_the_last_bit(rows, position):
    """Compiled and plain versions give the same elements, each row with its own n and key."""
    n = np.array([row[0] for row in rows], dtype=np.uint64)
    key = np.array([row[1] for row in rows], dtype=np.uint64)
    x = np.uint64(position) % n
    real = compiled.enabled
    results = []
    try:
        for enabled in (True, False):
            permutation.compiled.enabled = lambda enabled=enabled: enabled
            y = permute(n, key, x)
            results.append((y, unpermute(n, key, y)))
    finally:
        permutation.compiled.enabled = real

    assert (results[0][0] == results[1][0]).all()
    assert (results[0][1].astype(np.uint64) == x).all()
    assert (results[1][1].astype(np.uint64) == x).all()


@pytest.mark.parametrize("n", [2**32 - 1, 10**12, 2**50 + 7, 2**51 - 1, 2**51, 2**51 + 1, 2**54 + 1, 2**60 + 1])
def test_positions_beside_a_multiple_of_the_side_are_cut_exactly(n, monkeypatch):
    """The kernel divides doubles where they are exact: just below a whole number is not that number."""
    width = int(side(np.array([n], np.uint64))[0])
    multiples = np.linspace(1, n // width - 1, 2000).astype(np.uint64) * np.uint64(width)
    positions = np.concatenate([multiples - np.uint64(1), multiples, multiples + np.uint64(1)])
    results = []
    for enabled in (compiled.enabled(), False):
        monkeypatch.setattr(permutation.compiled, "enabled", lambda enabled=enabled: enabled)
        results.append(permute(np.array([n], np.uint64), np.array([5], np.uint64), positions))

    assert (results[0] == results[1]).all()


GOLDEN_10 = [9, 3, 0, 5, 6, 8, 4, 1, 7, 2]
GOLDEN_100 = [16, 32, 36, 52, 38, 21, 30, 78, 89, 59]
GOLDEN_TRILLION = [899280539034, 712991077896, 563092713121, 535465795627, 388102951074]
GOLDEN_MAX = [8646095635420212589, 8038621552080237837]


def test_order_version_2_is_frozen(way):
    """Golden values: a change here changes every order ever planned, so it needs a new ORDER_VERSION."""
    assert permutation.ORDER_VERSION == 2
    assert Permutation(10, (0, 0))(range(10)).tolist() == GOLDEN_10
    assert Permutation(100, (0, 0))(range(10)).tolist() == GOLDEN_100
    assert Permutation(10**12, (42, 3))(np.arange(5) * 10**11).tolist() == GOLDEN_TRILLION
    assert Permutation(2**63, (1,))([0, 2**62]).tolist() == GOLDEN_MAX


LIMIT = 5.0  # z-scores: of the 5 000 that all of these tests look at, chance makes one as large in 350 runs
ONE_BY_ONE = (64, 65, 81, 100, 101, 144, 196, 256, 400, 1000)
LARGE = (1024, 4096, 10_007, 65_536, 65_537, 100_000)
BIASED = (5, 9, 25, 36, 49, 64, 100)  # where the order of version 1 was measurably wrong


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 25, 36, 64, 65, 100, 1000, 70_000])
def test_shuffles_as_well_as_chance(n):
    """Positions, pairs, orders, signs, distances, seeds and sizes look random over few keys; test-all has many."""
    found = battery.scores(battery.planned, n, battery.by_seed(max(10_000_000 // max(n, 1000), 200)))

    assert abs(battery.worst(found)[1]) < LIMIT, battery.worst(found)


@pytest.mark.parametrize("shuffle", [battery.lcg, battery.multiply_only])
def test_the_battery_can_fail(shuffle):
    """A bare LCG and a 5-round multiply-only network do not pass it."""
    assert abs(battery.worst(battery.scores(shuffle, 1 << 14, battery.by_seed(400)))[1]) > LIMIT


@pytest.mark.parametrize(("n", "what"), [(9, "distances at lag 3"), (25, "distances at lag 5"), (1000, "next n")])
def test_the_battery_finds_what_was_wrong_with_version_1(n, what):
    """Eight rounds are biased for few elements, and n was no part of the key: few keys show it."""
    found = battery.scores(battery.of_version_1, n, battery.by_seed(20_000 if n < 100 else 1000))

    assert abs(found[what]) > LIMIT


@pytest.mark.slow
@pytest.mark.timeout(3600)  # minutes of CPU, more on a busy machine
@pytest.mark.parametrize("first", range(1, 65, 8))
def test_small_shuffles_are_as_good_as_chance_over_many_keys(first):
    """Every n to 64, 400 000 seeds."""
    worst = [
        (n, battery.worst(battery.scores(battery.planned, n, battery.by_seed(400_000))))
        for n in range(first, first + 8)
    ]

    print(worst)  # shown by pytest -s
    assert max(abs(z) for _, (_, z) in worst) < LIMIT, worst


@pytest.mark.slow
@pytest.mark.timeout(3600)  # minutes of CPU, more on a busy machine
@pytest.mark.parametrize("n", [*ONE_BY_ONE, *LARGE])
@pytest.mark.parametrize("keys", [battery.by_seed, battery.by_epoch])
def test_shuffles_are_as_good_as_chance_over_many_keys(n, keys):
    """400 000 seeds below n = 1 024, or as many epochs where that is quick; fewer above."""
    number = 400_000 if n < 1024 else 60_000_000 // n
    if keys is battery.by_epoch and 100 < n < 1024:
        number //= 10
    found = battery.scores(battery.planned, n, keys(number))

    print(n, battery.worst(found))
    assert abs(battery.worst(found)[1]) < LIMIT, battery.worst(found)


@pytest.mark.slow
@pytest.mark.timeout(3600)  # minutes of CPU, more on a busy machine
@pytest.mark.parametrize("n", BIASED)
def test_the_order_of_version_1_fails_where_numpys_passes(n):
    """The control passes the battery that the old order fails: it looks at shuffles, not at their making."""
    keys = battery.by_seed(400_000)
    old, control = (battery.worst(battery.scores(way, n, keys)) for way in (battery.of_version_1, battery.numpys))

    print(n, "version 1", old, "NumPy", control)
    assert abs(old[1]) > 2 * LIMIT, old
    assert abs(control[1]) < LIMIT, control


@pytest.mark.parametrize("n", [10, 50, 100, 5000, 50_000])
def test_sizes_close_to_each_other_have_orders_of_their_own(n):
    """A dataset that grew is shuffled anew: about one sample stays in its place."""
    key, places = (7, 0), np.arange(n)

    same = np.count_nonzero(Permutation(n, key)(places) == Permutation(n + n // 10, key)(places))

    assert same < 8


@given(st.integers(1, 2**63))
def test_side_is_the_exact_square_root(n):
    """The square is the smallest that holds n, also where floats are too coarse."""
    for values in ([n], [n, n]):
        a = int(side(np.array(values, dtype=np.uint64))[0])
        assert a * a >= n and (a - 1) ** 2 < n


def test_positions_outside_are_refused(way):
    """A position past the end or below 0 is named."""
    with pytest.raises(PlanError, match="10 is not in a permutation of 10 elements"):
        Permutation(10, 1)([3, 10])
    with pytest.raises(PlanError, match="-1 is not in a permutation of 10"):
        Permutation(10, 1)([-1])
    with pytest.raises(PlanError, match="impossible"):
        Permutation(2**63 + 1, 1)


def test_nothing_in_nothing_out(way):
    """Empty input gives empty output; shapes are kept."""
    assert Permutation(10, 1)([]).shape == (0,)
    assert Permutation(0, 1)([]).shape == (0,)
    assert Permutation(10, 1)(3).shape == ()
