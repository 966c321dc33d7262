"""Schedules become stages of integers, in any unit; those that make no sense are refused."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lading.errors import MixtureError
from lading.order.batch_schedule import Duration
from lading.order.dataset import PlannedDataset
from lading.order.mixture.request import Mixture, as_integers
from lading.order.mixture.schedule import Cosine, Function, Linear, Stages, Temperature, as_schedule
from lading.order.mixture.spec import MAX_STAGES, TOTAL, integer_weights, shares
from lading.order.plan import Plan

DATA = (PlannedDataset("code", 100_000, mean_tokens=100), PlannedDataset("prose", 50_000, mean_tokens=1000))
A, B = {"code": 1.0, "prose": 0.0}, {"code": 0.2, "prose": 0.8}


def stages_of(schedule, batch=100, **request):
    """Return (start, share of code) of each stage of a schedule over the two datasets."""
    spec = Mixture(schedule=schedule, **request).planned(DATA, batch)
    return [(start, shares(weights)[0]) for start, weights in spec.stages]


def test_stages_store_the_position_asked_for_in_every_unit():
    """Steps, samples, epochs and tokens all become positions."""
    for when in ("2000ba", 2000, "200_000sp", "2e5sp"):
        assert stages_of([(0, A), (when, B)]) == [(0, 1.0), (200_000, pytest.approx(0.2))]
    assert stages_of([(0, A), ("1.5ep", B)])[1][0] == 225_000
    assert stages_of([(0, A), ("777sp", B)])[1][0] == 777
    # 10 million tokens of code at 100 a sample are 100 000 samples
    assert stages_of([(0, A), ("10_000_000tok", B)])[1][0] == 100_000


def test_steps_count_what_is_delivered():
    """With drop_last an epoch has fewer samples, and what is dropped has no position: a step is where it is."""
    kept = Mixture(schedule=[(0, A), ("20ba", B)]).planned(DATA, 16_000, drop_last=False)
    dropped = Mixture(schedule=[(0, A), ("20ba", B)]).planned(DATA, 16_000, drop_last=True)

    assert kept.stages[1][0] == 2 * 150_000 and dropped.stages[1][0] == 20 * 16_000
    for spec, drop_last in ((kept, False), (dropped, True)):
        plan = Plan(DATA, 16_000, drop_last=drop_last, mixture=spec)
        assert [plan.order.weights_at(plan.locate(s).position)[0] == TOTAL for s in (19, 20)] == [True, False]
    epochs = Mixture(schedule=[(0, A), ("2ep", B)]).planned(DATA, 16_000, drop_last=True)
    assert epochs.stages[1][0] == 2 * 9 * 16_000


def test_tokens_add_up_over_stages():
    """The second stage's tokens are counted at its own mix."""
    found = stages_of([(0, A), ("1_000_000tok", B), ("9_200_000tok", A)])

    samples = 8_200_000 / (0.2 * 100 + 0.8 * 1000)
    assert found[2][0] == pytest.approx(10_000 + samples, abs=1)


def test_linear_and_cosine_go_from_one_end_to_the_other():
    """Shares fall steadily, in as many stages as asked for, and stay at the end."""
    for kind in (Linear, Cosine):
        found = stages_of(kind([(0, A), ("4000ba", B)], pieces=64))
        values = [share for _, share in found]
        assert len(found) == 65 and values == sorted(values, reverse=True)
        assert values[0] > 0.99 and values[-1] == pytest.approx(0.2)
    line, curve = (dict(stages_of(k([(0, A), ("4000ba", B)], pieces=64))) for k in (Linear, Cosine))
    middle = min(line, key=lambda start: abs(start - 200_000))
    assert line[middle] == pytest.approx(0.6, abs=0.02) and curve[middle] == pytest.approx(0.6, abs=0.02)
    early = min(line, key=lambda start: abs(start - 50_000))
    assert curve[early] > line[early] + 0.05


def test_temperature_flattens_the_lengths():
    """Proportional at first, equal at last."""
    found = stages_of(Temperature([(0, 1.0), ("2ep", 100.0)]))

    assert found[0][1] == pytest.approx(2 / 3, abs=0.1) and found[-1][1] == pytest.approx(0.5, abs=0.01)
    spec = Mixture(temperature=2.0).planned(DATA, 10)
    assert shares(spec.stages[0][1])[0] == pytest.approx(2**0.5 / (2**0.5 + 1))


def test_any_callable_is_followed_until_its_end():
    """It is called with the unit of ``until``; a bare one is refused, because it does not say until when."""
    seen = []

    def weights(step):
        seen.append(step)
        return [1000, step]

    found = stages_of(Function(weights, until="3000ba", pieces=10))

    assert found[-1][1] == pytest.approx(1000 / 4000) and len(found) == 11
    assert min(seen) == 150 and max(seen) == 3000
    with pytest.raises(MixtureError, match=r"Wrap it: Function\(callable, until='10000ba'\)"):
        stages_of(lambda step: [1, 1])


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 1)), min_size=1, max_size=6), st.integers(1, 5000))
def test_any_schedule_fits_into_the_stages_of_a_plan(points, pieces):
    """At most 4 096 stages, ascending, each summing to 2**31."""
    times = sorted({t for t, _ in points})
    schedule = Linear([(0, [1, 1]), *((f"{t}sp", [w, 1]) for t, (_, w) in zip(times, points, strict=False))], pieces)

    spec = Mixture(schedule=schedule).planned(DATA, 100)

    assert len(spec.stages) <= MAX_STAGES
    assert all(sum(w) == TOTAL for _, w in spec.stages)


def test_schedules_that_go_back_in_time_are_refused():
    """Also across units, and when time stands still."""
    for late in ([("200ba", B), ("100ba", A)], [("200ba", B), ("5000sp", A)], [("200ba", B), ("200ba", A)]):
        with pytest.raises(MixtureError, match="the schedule goes back in time"):
            stages_of([(0, A), *late])


@pytest.mark.parametrize("when", ["2000", "ba", "-5ba", -5, 1.5, None, "10xx", True])
def test_points_that_are_no_points_are_refused(when):
    """The error lists the units."""
    with pytest.raises(MixtureError, match=r"is no point in a run: expected a number with one of the units ba"):
        Duration.parse(when)


def test_schedules_that_make_no_sense_are_refused():
    """Each with a sentence that says what to do."""
    with pytest.raises(MixtureError, match="expected its first point at 0"):
        stages_of([("5ba", A)])
    with pytest.raises(MixtureError, match="expected a pair"):
        stages_of([(0, A), ("5ba",)])
    with pytest.raises(MixtureError, match="weights name 'cdoe'"):
        stages_of([(0, {"cdoe": 1, "prose": 1})])
    with pytest.raises(MixtureError, match="were both given: expected one of them"):
        stages_of([(0, A), ("5ba", B)], weights=A)
    with pytest.raises(MixtureError, match=r"temperature= and schedule= were both given"):
        stages_of([(0, A)], temperature=2.0)
    with pytest.raises(MixtureError, match="a schedule cannot be used with stopping='all_exhausted'"):
        stages_of([(0, A)], stopping="all_exhausted")
    with pytest.raises(MixtureError, match="expected kind"):
        as_schedule({"kind": "sine", "points": []})
    with pytest.raises(MixtureError, match="expected 1 to 4096 stages"):
        stages_of([(f"{k * 3000}sp" if k else 0, [1, k + 1]) for k in range(5000)])
    unknown = (PlannedDataset("a", 10), PlannedDataset("b", 10))
    with pytest.raises(MixtureError, match="the mean tokens per sample are not known"):
        Mixture(schedule=[(0, [1, 1]), ("5tok", [1, 2])]).planned(unknown, 10)
    with pytest.raises(MixtureError, match="'b' is empty but has a weight"):
        Mixture(weights=[1, 1]).planned((PlannedDataset("a", 10), PlannedDataset("b", 0)), 10)
    with pytest.raises(MixtureError, match="epoch_samples=5 cannot be used with stopping='first_exhausted'"):
        Mixture(weights=A, stopping="first_exhausted", epoch_samples=5).planned(DATA, 10)


def test_weights_may_stand_before_a_schedule_that_begins_later():
    """``weights`` is then the first stage."""
    assert stages_of([("2000ba", B)], weights=A) == stages_of([(0, A), ("2000ba", B)])


def test_schedules_come_from_configurations():
    """A mapping with a kind is the same as the class."""
    points = [[0, A], ["4000ba", B]]

    assert stages_of({"kind": "linear", "points": points}) == stages_of(Linear(points))
    assert as_schedule(points) == Stages(points)


def test_a_line_has_no_more_stages_than_steps():
    """Pieces shorter than a step would only override each other."""
    found = stages_of(Linear([(0, A), ("10ba", B)]))

    assert [start for start, _ in found] == [k * 100 for k in range(11)]
    assert [share for _, share in found] == pytest.approx([*(1 - 0.8 * (k + 0.5) / 10 for k in range(10)), 0.2])


def test_stages_that_meet_at_one_step_are_one():
    """The later word holds, from the first step at or after it."""
    spec = Mixture(schedule=[(0, A), ("3sp", B), ("7sp", [1, 1])]).planned(DATA, 100)
    plan = Plan(DATA, 100, mixture=spec)

    assert [shares(plan.order.weights_at(p))[0] for p in (0, 99, 100)] == [1.0, 1.0, 0.5]


def test_weights_at_run_time_are_turned_as_the_plans_were():
    """The same units and the same checks."""
    assert as_integers(DATA, {"prose": 1, "code": 1}, "tokens") == integer_weights([10, 1])
    with pytest.raises(MixtureError, match="say nothing about 'prose'"):
        as_integers(DATA, {"code": 1}, "samples")


def test_tokens_mixed_one_to_one_are_within_two_percent():
    """Documents of 1:10 length, half of the tokens each, over a million tokens."""
    spec = Mixture(weights=[1, 1], unit="tokens").planned(DATA, 64)
    plan = Plan(DATA, 64, mixture=spec)
    tokens = {"code": 0, "prose": 0}
    step = 0

    while sum(tokens.values()) < 10**6:
        for d, n in plan.bill(step).counts().items():
            tokens[DATA[d].name] += n * int(DATA[d].mean_tokens)
        step += 1

    assert tokens["code"] / tokens["prose"] == pytest.approx(1, rel=0.02)
