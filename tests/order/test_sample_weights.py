"""Weights of single samples: how often each comes, in both directions, exactly."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.errors import PlanError
from lading.identity.hashing import fold_int, keys64, text64
from lading.kits.adaptive.chosen import ChosenChunks
from lading.order import permutation
from lading.order.mixture.request import Mixture
from lading.order.plan import Plan
from lading.order.sample_weights import SampleWeights
from lading.runtime import compiled

GOLDEN = Path(__file__).parent / "golden" / "sample_weights.json"
SHUFFLES = ("full", "window", "none")
MIXTURES = {
    "alone": None,
    "restart": Mixture({"a": 0.3, "b": 0.7}),
    "first_exhausted": Mixture({"a": 0.6, "b": 0.4}, stopping="first_exhausted"),
    "scheduled": Mixture(schedule=[(0, [1, 1]), ("5ba", [3, 1])]),
}
weight_lists = st.lists(
    st.one_of(st.just(0.0), st.floats(0, 1e3), st.floats(1e-9, 1e-3), st.sampled_from([1.0, 2.0, 0.5, 1e30, 5e-324])),
    min_size=1,
    max_size=150,
).filter(any)


def plan_of(weights, **fields) -> Plan:
    """Return a plan of a weighted source and a plain one."""
    fields = {"batch_size": 8, "seed": 3, "window_samples": 16} | fields
    return Plan.make({"a": len(weights), "b": 7}, sample_weights={"a": np.array(weights)}, **fields)


def counts_of(plan: Plan, epoch: int, source: int = 0) -> np.ndarray:
    """Return how often each sample of a source comes in an epoch, bill by bill."""
    counts = np.zeros(plan.lengths[source], dtype=int)
    for step in range(plan.epoch_start(epoch), plan.epoch_start(epoch + 1)):
        bill = plan.bill(step)
        np.add.at(counts, bill.idx[bill.dataset_idx == source], 1)
    return counts


def table_of(plan: Plan) -> SampleWeights:
    """Return the weights of the only weighted source."""
    ((_, weights),) = plan.sample_weights
    return weights


@given(weight_lists, st.sampled_from(SHUFFLES), st.integers(0, 5))
def test_every_epoch_has_each_sample_floor_or_ceil_of_its_share(weights, shuffle, seed):
    """Law: counts are within 1 of w·N/Σw and add up to N, in every epoch and under every shuffle."""
    plan, n = plan_of(weights, shuffle=shuffle, seed=seed), len(weights)
    table, exact = table_of(plan), [Fraction(w) for w in weights]
    integers = [int(w) for w in table.integers(np.arange(n))]

    assert sum(integers) == table.total and all((w > 0) == (i > 0) for w, i in zip(weights, integers, strict=True))
    for epoch in range(3):
        found = counts_of(plan, epoch).tolist()
        assert sum(found) == n and counts_of(plan, epoch, source=1).tolist() == [1] * 7
        for count, integer, weight in zip(found, integers, exact, strict=True):
            share = Fraction(integer * n, table.total)
            assert count in (math.floor(share), math.ceil(share))
            assert abs(count - weight * n / sum(exact)) < 1 + Fraction(n, 2**40)


@given(weight_lists, st.sampled_from(SHUFFLES), st.sampled_from(list(MIXTURES)), st.booleans())
def test_where_is_a_full_scan(weights, shuffle, mixture, drop_last):
    """Law: the places that ``where`` works out are those that going through every bill finds."""
    if mixture == "first_exhausted" and len(weights) * 0.4 < 2:
        mixture = "restart"
    plan = plan_of(weights, shuffle=shuffle, mixture=MIXTURES[mixture], drop_last=drop_last, batch_size=3)
    stop = min(plan.epoch_start(3), 60)
    scanned: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for step in range(stop):
        for slot, sample in enumerate(plan.bill(step).samples):
            scanned.setdefault(tuple(sample), []).append((step, slot))

    for dataset, length in enumerate(plan.lengths):
        for index in range(length):
            found = [(place.step, place.slot) for place in plan.where(dataset, index, 0, stop)]
            assert found == scanned.get((dataset, index), [])


@given(weight_lists)
def test_a_pass_of_a_mixture_has_each_sample_floor_or_ceil_of_its_share(weights):
    """In a mixture the pass is what an epoch is elsewhere; the weight of the source stays the mixture's."""
    plan, n = plan_of(weights, mixture=MIXTURES["restart"], batch_size=10), len(weights)
    plain = Plan.make({"a": n, "b": 7}, 10, seed=3, mixture=MIXTURES["restart"])
    drawn: list[int] = []
    for step in range(20 * n):
        bill = plan.bill(step)
        assert bill.dataset_idx.tolist() == plain.bill(step).dataset_idx.tolist()
        drawn += bill.idx[bill.dataset_idx == 0].tolist()

    table = table_of(plan)
    for start in (0, n):
        counts = Counter(drawn[start : start + n])
        for row, integer in enumerate(table.integers(np.arange(n)).tolist()):
            share = Fraction(integer * n, table.total)
            assert counts[row] in (math.floor(share), math.ceil(share))


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_over_many_passes_each_sample_gets_its_share(shuffle):
    """Battery: the mean over 20 000 passes of every count, 300 weights of five magnitudes, all within 5 sigma."""
    rng, n, passes = np.random.default_rng(1), 300, 20_000
    table = SampleWeights.of(10 ** rng.uniform(-3, 2, n), n, {"full": n, "window": 64, "none": 1}[shuffle])
    keys, counts = keys64(7, np.arange(passes)), np.zeros(n)
    for places in np.array_split(np.arange(n), 10):
        rows = table.rows(np.tile(places, passes), np.repeat(keys, len(places)))
        counts += np.bincount(rows, minlength=n)
    expected = table.expected(np.arange(n))
    sigma = np.sqrt((expected % 1) * (1 - expected % 1) / passes)

    z = (counts / passes - expected) / np.maximum(sigma, 1e-9)
    assert np.abs(z).max() < 5 and 0.7 < z.std() < 1.3


def test_classes_that_come_in_turn_are_not_found_again_and_again():
    """Points at even distances would meet one class of ten in an epoch; the fixed shuffle of the table prevents it."""
    weights = np.ones(10_000)
    weights[:1000] = 81.0  # nine tenths of the mass, so that the others come every tenth time

    counts = counts_of(plan_of(weights, batch_size=1000), 0)[1000:]

    by_class = counts.reshape(-1, 10).sum(axis=0)
    assert counts.sum() == pytest.approx(1000, abs=1) and by_class.min() > 60 and by_class.max() < 145


def test_a_weight_of_zero_never_comes_and_takes_no_place():
    """Not planned, and not as a substitute of a blocked sample either."""
    weights = np.array([0.0, 1.0] * 20)
    plan = plan_of(weights, blocked={"a": list(range(1, 39, 2))})

    for epoch in range(3):
        assert set(np.flatnonzero(counts_of(plan, epoch))) == {39}
    with pytest.raises(PlanError, match="all 40 samples of dataset 'a' are blocked"):
        plan_of(weights, blocked={"a": list(range(1, 40, 2))})


def test_blocked_samples_are_found_where_their_substitutes_come():
    """``where`` stays the inverse of ``bill`` with weights and blocks together."""
    plan = plan_of(np.arange(30.0), blocked={"a": [29, 3, 0]})
    scanned = Counter(tuple(s) for step in range(plan.epoch_start(2)) for s in plan.bill(step).samples)

    for index in range(30):
        assert len(plan.where("a", index, 0, plan.epoch_start(2))) == scanned[0, index]
    assert scanned[0, 29] == 0


def test_the_integers_are_exact_and_scale_free():
    """Powers of two and equal weights are exact; the same weights times 8 are the same integers."""
    rng = np.random.default_rng(0)
    weights = rng.random(1000)

    assert SampleWeights.of(weights, 1000, 1) == SampleWeights.of(weights * 8, 1000, 1)
    assert SampleWeights.of([3, 3, 3], 3, 1).expected(np.arange(3)).tolist() == [1, 1, 1]
    huge, tiny = SampleWeights.of([1e300, 1e-300, 0], 3, 1), SampleWeights.of([5e-324, 5e-324], 2, 1)
    assert huge.integers(np.arange(3)).tolist()[1:] == [1, 0] and 2**59 < huge.total < 2**63
    assert tiny.expected(np.arange(2)).tolist() == [1, 1]


@given(st.integers(1, 2**62), st.integers(0, 2**64 - 1))
def test_a_phase_is_the_high_half_of_a_product(total, key):
    """Against big integers."""
    table = SampleWeights(total, "", 1)

    hashed = fold_int(key, text64("phase"))
    assert table._phases(np.array([key], np.uint64)).tolist() == [hashed * total >> 64]


BAD = {
    "negative": ([1, -1, 1], "that of sample 1 is -1.0"),
    "nan": ([1, 1, math.nan], "that of sample 2 is nan"),
    "infinite": ([math.inf, 1, 1], "that of sample 0 is inf"),
    "all zero": ([0, 0, 0], "all are 0: nothing would ever be drawn"),
    "length": ([1, 1], r"expected 3 finite numbers, one for each sample, found shape \(2,\)"),
    "two dimensions": ([[1, 1, 1]], r"shape \(1, 3\)"),
    "texts": (["x", "y", "z"], "expected 3 finite numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_are_no_weights_is_refused_by_name(case):
    """The source, the sample and what was expected are in the sentence."""
    weights, message = BAD[case]

    with pytest.raises(PlanError, match=f"sample_weights of 'a'.*{message}"):
        Plan.make({"a": 3}, 1, sample_weights={"a": weights})


def test_other_sources_and_adaptations_are_refused_by_name():
    """A name that is none, and what says itself which samples come."""
    with pytest.raises(PlanError, match="sample_weights name 'c', but the sources are 'a', 'b'"):
        Plan.make({"a": 3, "b": 3}, 1, sample_weights={"c": [1, 1, 1]})
    with pytest.raises(PlanError, match="sample_weights and chosen chunks were both given"):
        Plan.make({"a": 3}, 1, chunk_batches=1, adaptation=ChosenChunks(), sample_weights={"a": [1, 1, 1]})


def test_simulate_says_how_often_samples_come():
    """Counted exactly, tails left out; coverage and repeats follow."""
    weights = np.repeat([0.0, 0.5, 4.0], [10, 40, 10])
    plan = plan_of(weights, drop_last=True, batch_size=9)

    found = plan.simulate(epochs=4)

    seen = Counter(tuple(s) for step in range(plan.epoch_start(4)) for s in plan.bill(step).samples)
    times = Counter(seen[0, index] for index in range(60))
    assert found.times == {"a": dict(sorted(times.items()))} and times[0] >= 10
    assert found.coverage["a"] == pytest.approx(1 - times[0] / 60)
    assert found.repeats == sum(seen.values()) - len(seen)


def test_coverage_of_very_many_draws_is_estimated(monkeypatch):
    """Close to what counting finds."""
    plan = plan_of(10 ** np.random.default_rng(0).uniform(-3, 0, 2000), batch_size=100)
    counted = plan.simulate(epochs=5)
    monkeypatch.setattr("lading.order.simulation.COUNTED_DRAWS", 10)

    estimated = plan.simulate(epochs=5)

    assert estimated.times == {} and estimated.coverage["a"] == pytest.approx(counted.coverage["a"], abs=0.03)


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_json_names_the_weights_and_a_file_beside_it_has_them(tmp_path, shuffle):
    """Without the file the plan says what is missing; with another it is refused."""
    plan = plan_of(np.arange(100.0), shuffle=shuffle)
    table, path = table_of(plan), tmp_path / table_of(plan).file_name
    path.write_bytes(b"".join(table.content()))

    again = Plan.from_json(plan.to_json(), beside=tmp_path)
    alone = Plan.from_json(plan.to_json())

    assert again.sample_weights == plan.sample_weights == alone.sample_weights and len(plan.to_json()) < 1000
    assert again.fingerprint == plan.fingerprint == alone.fingerprint
    assert [again.bill(s).digest for s in range(20)] == [plan.bill(s).digest for s in range(20)]
    with pytest.raises(PlanError, match="which are not here: its JSON only names them"):
        alone.bill(0)
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    with pytest.raises(PlanError, match="holds other sample weights than its plan follows"):
        Plan.from_json(plan.to_json(), beside=tmp_path).bill(0)
    path.unlink()
    with pytest.raises(PlanError, match="cannot be read"):
        Plan.from_json(plan.to_json(), beside=tmp_path).bill(0)


def test_another_shuffle_keeps_the_weights():
    """A plan that is made anew with another shuffle has the same integers in a table of another order."""
    plan = plan_of(np.arange(100.0))

    for shuffle in SHUFFLES:
        made, changed = plan_of(np.arange(100.0), shuffle=shuffle), replace(plan, shuffle=shuffle)
        assert made == changed and made.bill(3).digest == changed.bill(3).digest
    assert plan.differences(plan_of(np.arange(1, 101.0)))[0].startswith("sample weights (fingerprint)")


@pytest.fixture(params=["compiled", "plain"])
def both(request, monkeypatch):
    """Run a test with the compiled kernels and with plain NumPy."""
    if request.param == "compiled" and not compiled.enabled():
        pytest.skip("nothing is compiled here")
    monkeypatch.setattr(permutation.compiled, "enabled", lambda: request.param == "compiled")


def golden_cases() -> list[dict[str, object]]:
    """Return what is frozen: fingerprints, bills and places of plans with weights of samples."""
    cases = []
    weights = [(7 * i % 11) / 4 for i in range(90)]
    for shuffle in SHUFFLES:
        for name, mixture in MIXTURES.items():
            plan = plan_of(weights, shuffle=shuffle, mixture=mixture)
            steps = [0, 1, 12, 13, 40]
            cases.append(
                {
                    "case": f"{shuffle}, {name}",
                    "fingerprint": plan.fingerprint,
                    "bills": [[list(sample) for sample in plan.bill(step).samples] for step in steps],
                    "where": [list(place[:3]) for place in plan.where("a", 19, 0, 60)],
                }
            )
    return cases


def test_orders_by_weight_are_frozen(both):
    """Written when weights of samples came, with ORDER_VERSION 2; compiled and plain alike."""
    assert golden_cases() == json.loads(GOLDEN.read_text())
