"""Policies: what they choose, what they remember, and the scheduler that reads a tracker."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from lading.errors import MixtureError
from lading.kits.adaptive.policy.mixture import FollowLosses, SteerToShares
from lading.kits.adaptive.policy.steering import ROUNDING, fastest, steered
from lading.ledger import BatchTracker
from lading.loader.policy import Mix, Policy
from lading.loader.reweighting import mix_at
from lading.loader.torch.loader import Loader
from lading.order.event import Reweight
from lading.order.mixture.request import Mixture, as_integers
from lading.order.mixture.spec import integer_weights
from lading.order.plan import Plan
from lading.source.columns import Columns
from lading.source.tagged import TaggedDataset
from lading.source.weighted_concat import WeightedConcatDataset
from lading.train.scheduler import MixtureScheduler

NAMES = ("code", "prose", "web")


def reweighted(plan: Plan, step: int, weights: dict[str, float], reason: str = "") -> Reweight | None:
    """Return the event that a loader makes of weights before a step."""
    return plan.reweighting(step + plan.lookahead_steps, as_integers(plan.datasets, weights, plan.mixture.unit), reason)


def mix(counts=(100, 100, 100), weights=(0.5, 0.3, 0.2), **fields) -> Mix:
    """Return what a policy may be given."""
    return Mix(10, NAMES, (1000, 1000, 1000), (None, None, None), tuple(counts), tuple(weights), **fields)


def test_shipped_policies_are_policies():
    """They have what the loader asks for, and a state that is JSON."""
    for policy in (FollowLosses(), SteerToShares(dict.fromkeys(NAMES, 1))):
        assert isinstance(policy, Policy)
        assert json.loads(json.dumps(policy.state_dict())) == policy.state_dict()


def test_high_losses_get_more():
    """Shares rise with the loss, against those the run began with; equal losses change nothing."""
    policy = FollowLosses(strength=1.0, floor=0.0)
    assert policy(mix()) is None
    policy.observe(dict.fromkeys(NAMES, 2.0))
    assert policy(mix()) == pytest.approx(dict(zip(NAMES, (0.5, 0.3, 0.2), strict=True)))

    policy = FollowLosses(strength=1.0, floor=0.0, base=dict.fromkeys(NAMES, 1.0), most_change=1.0)
    policy.observe({"code": 1.0, "prose": 2.0, "web": 3.0})

    chosen = policy(mix())
    assert chosen["web"] / chosen["prose"] == pytest.approx(np.e) and chosen["prose"] / chosen["code"] == pytest.approx(
        np.e
    )


def followed(**options) -> dict[str, float]:
    """Return where shares go if a quarter of the data is noise, whose loss never falls, and the rest is learnt."""
    names = ("noise", "code", "prose", "web")
    policy, drawn = FollowLosses(smoothing=0.0, **options), dict.fromkeys(names, 0.0)
    shares = dict.fromkeys(names, 0.25)
    for _ in range(100):
        learnt = {name: 1.0 + 3.0 * np.exp(-samples / 5.0) for name, samples in drawn.items()}
        policy.observe({**learnt, "noise": 5.5})
        asked = Mix(10, names, (1000,) * 4, (None,) * 4, (100,) * 4, tuple(shares.values()))
        shares = policy(asked)
        drawn = {name: drawn[name] + share for name, share in shares.items()}
    return shares


def test_noise_is_not_chased_where_its_loss_is_known_to_stay():
    """Shares follow what is above the reference: noise takes nearly all without it."""
    reached = {"noise": 5.5, "code": 1.0, "prose": 1.0, "web": 1.0}

    assert followed()["noise"] > 0.85
    assert followed(reference=reached)["noise"] < 0.26
    assert followed(floor=0.15)["noise"] < 0.56


def test_a_reference_is_checked():
    """A loss for each dataset that it names; a dataset without one counts as the mean."""
    for wrong in ({}, {"code": "low"}, [1.0], {"code": float("nan")}):
        with pytest.raises(MixtureError, match="expected a loss for each dataset, by name"):
            FollowLosses(reference=wrong)
    policy = FollowLosses(reference={"cod": 1.0})
    policy.observe({"code": 2.0})
    with pytest.raises(MixtureError, match="reference names 'cod': expected datasets of code, prose, web"):
        policy(mix())
    policy = FollowLosses(reference={"code": 1.0}, floor=0.0)
    policy.observe(dict.fromkeys(NAMES, 9.0))
    assert policy(mix()) == pytest.approx(dict(zip(NAMES, (0.5, 0.3, 0.2), strict=True)))


def test_losses_are_smoothed_and_overflows_ignored():
    """One odd step does not turn the mixture over; NaN and inf say nothing."""
    policy = FollowLosses(smoothing=0.5)

    for loss in (4.0, 2.0, float("nan"), float("inf")):
        policy.observe({"code": loss})

    assert policy.losses == {"code": 3.0}


@given(
    st.lists(st.floats(0, 50), min_size=3, max_size=3), st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(any)
)
def test_following_losses_always_gives_weights(losses, base):
    """Whatever the losses: shares, none lost below the floor, none found where there was none."""
    policy = FollowLosses(base=dict(zip(NAMES, base, strict=True)), floor=0.05, strength=3.0, most_change=1.0)
    policy.observe(dict(zip(NAMES, losses, strict=True)))

    chosen = policy(mix())

    assert sum(chosen.values()) == pytest.approx(1)
    assert all((c == 0) == (b == 0) and (b == 0 or c >= 0.049) for c, b in zip(chosen.values(), base, strict=True))
    assert sum(integer_weights(list(chosen.values()))) == 2**31


@given(st.lists(st.integers(0, 10**9), min_size=3, max_size=3), st.floats(0.01, 5))
def test_steering_reaches_its_targets_within_the_horizon(counts, horizon):
    """Drawing by the returned shares over the horizon brings the counts to the targets, if they can be reached."""
    targets = {"code": 0.5, "prose": 0.3, "web": 0.2}

    chosen = steered(mix(counts), list(targets.values()), horizon)

    if sum(counts) == 0:
        assert chosen is None
        return
    assert sum(chosen.values()) == pytest.approx(1) and min(chosen.values()) >= 0
    after = np.array(counts) + np.array(list(chosen.values())) * sum(counts) * horizon
    wanted = np.array(list(targets.values())) * sum(counts) * (1 + horizon)
    if (np.array(counts) <= wanted).all() and np.abs(np.array(counts) - wanted / (1 + horizon)).max() > ROUNDING:
        np.testing.assert_allclose(after, wanted, rtol=1e-6, atol=1e-3)


@st.composite
def mixtures(draw):
    """Weights to begin with, and targets, of two to five sources."""
    number = draw(st.integers(2, 5))
    parts = st.lists(st.integers(1, 20), min_size=number, max_size=number)
    return [np.array(values) / sum(values) for values in (draw(parts), draw(parts))]


limits = st.sampled_from([0.02, 0.05, 0.1, 0.3, 1.0])


@given(mixtures(), st.integers(1, 12), st.integers(0, 30), st.integers(1, 64), limits, st.floats(0.01, 1))
def test_steering_does_not_go_beyond_its_targets(both, every, lookahead, batch, most, horizon):
    """Law: what a source lacks never becomes what it has too many, but for whole samples; and shares get there."""
    weights, targets = both
    lengths, names = {f"s{d}": 1000 for d in range(len(weights))}, [f"s{d}" for d in range(len(weights))]
    policy = SteerToShares(dict(zip(names, targets, strict=True)), every, horizon, most)
    plan = Plan.make(lengths, batch, mixture=Mixture(weights.tolist()), lookahead_steps=lookahead)
    missing, steps = [], range(every, every * 200, every)
    for step in steps:
        counts = np.array(plan.counts(step))
        missing.append(counts.sum() * targets - counts)
        chosen = policy(mix_at(plan, step))
        event = reweighted(plan, step, chosen, policy.reason)
        plan = plan if event is None else plan.with_event(event)
    lacks = np.array(missing)
    side = np.where(np.abs(targets - weights) < 1e-9, 0, np.sign(targets - weights))

    beyond = np.where(side == 0, np.abs(lacks), -side * lacks).max()
    assert beyond <= ROUNDING + 2, "less than two samples from the weights, so much the plan promises"
    worst = np.abs(lacks).max(axis=1) / (batch * np.array(steps))
    assert worst[-1] <= max(0.02, worst[0] / 10, ROUNDING / plan.locate(steps[-1]).position)
    assert policy.reason.startswith("SteerToShares: s0 0.") and f" of {targets[0]:.3g}, s1 " in policy.reason


@given(mixtures(), mixtures(), st.integers(1, 10**6), limits, st.floats(0.01, 1))
def test_steering_stops_what_it_finds_on_the_wrong_way(both, other, drawn, most, horizon):
    """Law: whatever was drawn and is in force, no source goes further beyond than twice what it takes to stop it."""
    shares, targets = both
    counts = np.resize(other[0], len(shares)) / np.resize(other[0], len(shares)).sum() * drawn
    every, batch, names = 10, 20, tuple(f"s{d}" for d in range(len(shares)))
    policy = SteerToShares(dict(zip(names, targets, strict=True)), every, horizon, most)
    blank, speed = Mix(0, names, (9,) * len(names), (None,) * len(names), (), ()), np.abs(shares - targets).max()
    missing = [counts.sum() * targets - counts]
    for _ in range(150):
        chosen = policy(replace(blank, counts=tuple(counts), weights=tuple(shares), batch=batch))
        shares = np.array(list(chosen.values()))
        counts = counts + every * batch * shares
        missing.append(counts.sum() * targets - counts)

    lacks = np.array(missing)
    assert (-np.sign(lacks[0]) * lacks).max() <= every * batch * speed**2 / most + ROUNDING + 1e-6 * drawn
    assert np.abs(lacks[-1]).max() / counts.sum() <= max(0.02, np.abs(lacks[0]).max() / drawn)


@given(st.floats(0, 100), st.floats(0.001, 1))
def test_the_fastest_approach_ends_where_it_should(way, slowing):
    """Slowed down at every choice, it stands still exactly when the way is behind it."""
    speed, behind = fastest(way, slowing), 0.0
    while speed > 0:
        behind, speed = behind + speed, speed - slowing

    assert behind == pytest.approx(way, abs=1e-6)


@given(st.lists(st.floats(0, 20), min_size=3, max_size=3), st.floats(0.01, 1), st.floats(0, 3))
def test_equal_losses_lead_straight_to_shares_that_stay(losses, most, strength):
    """Law: while losses stay as they are no share turns round, and shares that are there are no event."""
    policy = FollowLosses(every_steps=1, strength=strength, most_change=most)
    policy.observe(dict(zip(NAMES, losses, strict=True)))
    plan = Plan.make(dict.fromkeys(NAMES, 100), 8, mixture=Mixture([5, 3, 2]), lookahead_steps=3)
    path = []
    for step in range(1, int(1 / most) + 3):
        event = reweighted(plan, step, policy(mix_at(plan, step)))
        plan = plan if event is None else plan.with_event(event)
        path.append(np.array(mix_at(plan, step).weights))
    moves = np.diff(np.array([[0.5, 0.3, 0.2], *path]), axis=0)

    assert ((moves >= -1e-8).all(axis=0) | (moves <= 1e-8).all(axis=0)).all() and event is None


def test_steering_counts_tokens_where_the_mixture_does():
    """Long documents weigh more."""
    said = Mix(10, ("a", "b"), (9, 9), (100.0, 1000.0), (100, 10), (0.5, 0.5), "tokens")

    assert steered(said, [0.5, 0.5], 1.0) == {"a": 0.5, "b": 0.5}


@given(
    st.lists(st.floats(0, 50), min_size=3, max_size=3),
    st.floats(0.01, 1),
    st.lists(st.integers(1, 100), min_size=3, max_size=3),
)
def test_no_choice_moves_a_share_further_than_allowed(losses, most, weights):
    """Half and half became 1:99 in one step; a limited choice goes on next time, and gets there."""
    in_force = tuple(w / sum(weights) for w in weights)
    policy = FollowLosses(base=dict.fromkeys(NAMES, 1.0), strength=3.0, most_change=most)
    policy.observe(dict(zip(NAMES, losses, strict=True)))
    steered = SteerToShares({"code": 1, "prose": 0, "web": 0}, horizon=0.01, most_change=most)

    for chooser in (policy, steered):
        shares, choices = in_force, 0
        while choices <= 1 / most + 1:
            chosen = tuple(chooser(mix(weights=shares)).values())
            assert max(abs(a - b) for a, b in zip(chosen, shares, strict=True)) <= most + 1e-9
            assert sum(chosen) == pytest.approx(1) and min(chosen) >= 0
            shares, choices = chosen, choices + 1
        wanted = (replace(policy, most_change=1.0) if chooser is policy else replace(steered, most_change=1.0))(mix())
        assert shares == pytest.approx(tuple(wanted.values()), abs=1e-6)


def test_a_choice_says_what_it_was_made_from():
    """The reason is in the event; it stays short, however many datasets there are."""
    policy = FollowLosses()
    policy.observe({f"dataset number {n} of many": n for n in range(100)})

    assert policy.reason.startswith("FollowLosses: dataset number 0 of") and len(policy.reason) < 140
    policy = SteerToShares(dict.fromkeys(NAMES, 1))
    policy(mix((50, 20, 30)))
    assert policy.reason == "SteerToShares: code 0.5 of 0.333, prose 0.2 of 0.333, web 0.3 of 0.333"


def test_policies_refuse_settings_that_make_no_sense():
    """Named with what was expected."""
    for bad in ({"every_steps": 0}, {"every_steps": 2.5}, {"smoothing": "1"}, {"floor": -0.1}, {"strength": -1}):
        with pytest.raises(MixtureError, match="expected every_steps at least 1, smoothing"):
            FollowLosses(**bad)
    with pytest.raises(MixtureError, match="horizon above 0"):
        SteerToShares({"a": 1}, horizon=0)
    with pytest.raises(MixtureError, match=r"most_change=0: expected a share above 0"):
        FollowLosses(most_change=0)
    for made in (lambda: SteerToShares({"a": -1}), lambda: FollowLosses(base={"a": float("nan")})):
        with pytest.raises(MixtureError, match=r"a weight is .*: expected a finite number"):
            made()
    for policy in (SteerToShares({"sea": 1}), FollowLosses(base={"sea": 1})):
        with pytest.raises(MixtureError, match="weights name 'sea'"):  # before anything is trained on
            Loader({"code": Columns(x=np.arange(9))}, 3, mixture=Mixture([1], policy=policy))
    with pytest.raises(MixtureError, match="weights name 'sea'"):
        SteerToShares({"sea": 1})(mix())


def scheduled(steps: int, *, reset_every: int = 0, resume_at: int | None = None) -> tuple[list, list]:
    """Run a loop in which a tracker's counts steer the loader; return samples and events."""

    def parts():
        data = {"code": Columns(x=np.arange(900)), "prose": Columns(x=np.arange(90))}
        tracker = BatchTracker()
        loader = Loader(data, 64, mixture=Mixture([9, 1], lookahead_steps=2, epoch_samples=64 * steps), tracker=tracker)
        return loader, tracker, MixtureScheduler(loader, tracker, SteerToShares({"code": 1, "prose": 1}, every_steps=5))

    loader, tracker, scheduler = parts()
    seen, it = [], loader.with_bills()
    for step in range(steps):
        seen.append(next(it)[1].samples)
        scheduler.step()
        if reset_every and step % reset_every == 0:
            tracker.reset()
        if step == resume_at:
            states = json.loads(json.dumps([loader.state_dict(), scheduler.state_dict()]))
            loader, tracker, scheduler = parts()
            loader.load_state_dict(states[0])
            scheduler.load_state_dict(states[1])
            it = loader.with_bills()
    return seen, list(loader.plan.events)


def test_a_tracker_steers_the_sampling():
    """Document 000: plug the mapping in, get sampling probabilities out, applied on the fly."""
    seen, events = scheduled(100)

    drawn = np.bincount([s.dataset for step in seen for s in step])
    assert drawn[1] / drawn.sum() == pytest.approx(0.5, abs=0.02)
    assert events[0].step == 7 and "tracked counts" in events[0].reason


def test_resets_and_resumes_do_not_disturb_the_scheduler():
    """A tracker that is emptied every few steps, and a run that is stopped, choose the same."""
    whole = scheduled(40)

    assert scheduled(40, reset_every=3) == whole
    samples, events = scheduled(40, resume_at=17)
    assert samples == whole[0]
    assert events[1:] == whole[1][-len(events) + 1 :]  # a state keeps what resuming needs, not the past


def test_losses_of_parts_move_the_weight_of_their_source():
    """Weights are of sources: a source's loss is that of its datasets, by their rows."""
    policy = FollowLosses(strength=1.0, floor=0.0, base=dict.fromkeys(NAMES, 1.0), most_change=1.0)
    policy.observe({"code[0]": 1.0, "code[1]": 5.0, "prose": 2.0, "web": 2.0})
    datasets = ({"code[0]": 0.75, "code[1]": 0.25}, {"prose": 1.0}, {"web": 1.0})

    assert policy(mix(datasets=datasets)) == pytest.approx(dict.fromkeys(NAMES, 1 / 3))


def test_tracked_datasets_count_for_their_source():
    """A tracker counts datasets 0, 1 and 7; the scheduler weighs the two sources they come from."""
    first = WeightedConcatDataset([[{"x": 1}] * 30, [{"x": 2}] * 10], [1, 3])
    data = {"both": first, "one": TaggedDataset([{"x": 3}] * 40, dataset_idx=7)}
    tracker = BatchTracker()
    loader = Loader(data, 8, mixture=Mixture([3, 1], epoch_samples=160), tracker=tracker)
    scheduler = MixtureScheduler(loader, tracker, SteerToShares({"both": 1, "one": 1}, every_steps=50))

    for _ in loader:
        scheduler.step()

    assert set(tracker.n_samples_per_dataset) == {0, 1, 7}
    assert scheduler.counts.tolist() == loader.plan.counts(20)
    assert scheduler.probabilities == {"both": 0.75, "one": 0.25}


def test_the_scheduler_tells_the_probabilities():
    """Those in force from where a change would act; step returns the new ones, or None."""
    data = {"code": Columns(x=np.arange(90)), "prose": Columns(x=np.arange(90))}
    tracker = BatchTracker()
    loader = Loader(data, 8, weights=[3, 1], tracker=tracker)
    scheduler = MixtureScheduler(loader, tracker, FollowLosses(every_steps=2, floor=0.0, most_change=1.0))
    it = iter(loader)

    assert scheduler.probabilities == {"code": 0.75, "prose": 0.25}
    next(it)
    assert scheduler.step({"code": 1.0, "prose": 2.0}) is None
    next(it)
    chosen = scheduler.step({"code": 1.0, "prose": 2.0})
    assert chosen["prose"] > 0.4 and scheduler.probabilities == pytest.approx(chosen, abs=1e-8)


def test_a_plain_dataloader_has_no_mixture_to_adjust():
    """A sentence that says what to make instead."""
    loader = torch.utils.data.DataLoader(torch.arange(8), batch_size=2)

    with pytest.raises(MixtureError, match=r"found a DataLoader, whose order is its sampler's\. Make .*Loader"):
        MixtureScheduler(loader, BatchTracker(), SteerToShares({"a": 1}))
