"""The shuffle without a table: a bijection, its inverse, its quality, its frozen values."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.errors import PlanError
from lading.order import permutation
from lading.order.permutation import Permutation, permute, side, unpermute
from lading.runtime import compiled

sizes = st.integers(1, 3000)
keys = st.integers(0, 2**64 - 1)


@pytest.fixture(params=["compiled", "plain"])
def way(request, monkeypatch):
    """Run a test with the compiled kernel and with plain NumPy."""
    if request.param == "compiled" and not compiled.enabled():
        pytest.skip("Numba is not installed")
    monkeypatch.setattr(permutation.compiled, "enabled", lambda: request.param == "compiled")
    return request.param


@given(sizes, keys)
def test_every_element_comes_once_and_leads_back(n, key):
    """A permutation is a bijection, and ``inverse`` is its inverse."""
    shuffled = Permutation(n, key)

    elements = shuffled(np.arange(n))

    assert sorted(elements.tolist()) == list(range(n))
    assert (shuffled.inverse(elements) == np.arange(n)).all()


@given(st.integers(1, 2**63), keys, st.integers(0, 2**63 - 1))
def test_inverse_holds_at_any_size(n, key, position):
    """Any n to 2**63 has random access in both directions."""
    shuffled = Permutation(n, key)
    positions = np.array([position % n, 0, n - 1])

    elements = shuffled(positions)

    assert ((elements >= 0) & (elements.astype(np.uint64) < n)).all()
    assert (shuffled.inverse(elements) == positions).all()


@given(st.lists(st.tuples(st.integers(1, 2**63), keys), min_size=1, max_size=20), st.integers(0, 2**63 - 1))
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


GOLDEN_10 = [1, 3, 4, 9, 6, 0, 5, 8, 2, 7]
GOLDEN_TRILLION = [46363147125, 857615412469, 748691029439, 638506277164, 57163977395]
GOLDEN_MAX = [5465741406796257153, 3140870301521255483]


def test_order_version_1_is_frozen(way):
    """Golden values: a change here changes every order ever planned, so it needs a new ORDER_VERSION."""
    assert permutation.ORDER_VERSION == 1
    assert Permutation(10, (0, 0))(range(10)).tolist() == GOLDEN_10
    assert Permutation(10**12, (42, 3))(np.arange(5) * 10**11).tolist() == GOLDEN_TRILLION
    assert Permutation(2**63, (1,))([0, 2**62]).tolist() == GOLDEN_MAX


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_small_permutations_are_all_equally_likely(n):
    """Over many keys every arrangement comes as often as any other (chi-square within 5 sigma)."""
    trials = 400 * math.factorial(n)
    seen = Counter(tuple(Permutation(n, k)(range(n)).tolist()) for k in range(trials))

    expected = trials / math.factorial(n)
    chi2 = sum((seen[p] - expected) ** 2 / expected for p in itertools.permutations(range(n)))
    degrees = math.factorial(n) - 1
    assert chi2 < degrees + 5 * math.sqrt(2 * degrees) + 5


def _statistics(y: np.ndarray, n: int, batch: int = 64) -> tuple[float, float, float]:
    """Return z-scores of batch means (variance ratio), serial correlation and the low bit."""
    u = (y - (n - 1) / 2) / math.sqrt((n**2 - 1) / 12)
    means = u[: len(u) // batch * batch].reshape(-1, batch).mean(axis=1)
    ratio = means.var() * batch / (1 - batch / n)
    means_z = (ratio - 1) * math.sqrt(len(means) / 2)
    serial_z = float((u[:-1] * u[1:]).mean()) * math.sqrt(len(u))
    low = y & 1
    runs_z = float(((low[:-1] == low[1:]).mean() - 0.5) * 2) * math.sqrt(len(y))
    return means_z, serial_z, runs_z


@pytest.mark.parametrize("n", [1000, 4096, 10_007, 100_000, 1 << 17])
def test_shuffles_as_well_as_numpy(n):
    """Batch means, serial correlation and low bits look random over 40 keys."""
    scores = np.array([_statistics(Permutation(n, ("quality", k))(np.arange(n)), n) for k in range(40)])

    # The mean of 40 z-scores has standard deviation 0.16, their spread is about 1.
    assert (np.abs(scores.mean(axis=0)) < 0.8).all(), scores.mean(axis=0)
    assert (scores.std(axis=0) < 1.5).all(), scores.std(axis=0)


@pytest.mark.parametrize("bad", ["lcg", "multiply_only"])
def test_the_quality_test_can_fail(bad):
    """A bare LCG and a 5-round multiply-only network do not pass it."""
    n, x = 1 << 14, np.arange(1 << 14)
    rows = []
    for k in range(40):
        if bad == "lcg":
            y = (x * (4 * k + 5) + 12345 + k) % n
        else:
            left, right = x >> 7, x & 127
            for r in range(5):
                left, right = right, left ^ ((right * (2 * k + 2 * r + 3)) & 127)
            y = left << 7 | right
        rows.append(_statistics(y, n))
    scores = np.array(rows)

    assert (np.abs(scores.mean(axis=0)) > 0.8).any() or (scores.std(axis=0) > 1.5).any()


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
