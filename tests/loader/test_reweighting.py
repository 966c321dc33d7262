"""Weights through a loader: planned, changed by hand or by policy, resumed, refused; nothing earlier ever moves."""

from __future__ import annotations

import inspect
import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from tests.launching import read_jsonl, torchrun

from lading.errors import LoaderError, MixtureError, ResumeError
from lading.identity import World
from lading.kits.adaptive.policy.mixture import FollowLosses, SteerToShares
from lading.ledger import BatchTracker, Ledger
from lading.loader.iteration import capped_prefetch_factor, most_ahead
from lading.loader.request import Resume, WorkerRequest
from lading.loader.torch.loader import Loader
from lading.order.mixture.request import Mixture
from lading.order.mixture.spec import integer_weights
from lading.report import open_run
from lading.source.columns import Columns

SCRIPTS = Path(__file__).parent / "scripts"


def sources() -> dict[str, Columns]:
    """Return two datasets of very different size."""
    return {"code": Columns(x=np.arange(5000)), "prose": Columns(x=np.arange(100))}


def make(**options) -> Loader:
    """Make a loader of 128 samples a step that mixes the two 7:3."""
    given = {"weights": {"code": 0.7, "prose": 0.3}, "lookahead_steps": 4, "epoch_samples": 128 * 50, **options}
    mixture = Mixture(**{name: given.pop(name) for name in list(given) if name in Mixture.__dataclass_fields__})
    return Loader(sources(), 128, seed=3, mixture=mixture, **given)


def names(loader: Loader, steps: int | None = None) -> list[list[tuple[int, int]]]:
    """Return the samples of the next steps."""
    found = []
    for _, bill in loader.with_bills():
        found.append(bill.samples)
        if steps is not None and len(found) == steps:
            break
    return found


def test_a_mixture_is_what_the_plan_says():
    """Shares are kept, columns are those of the named samples, and an epoch has the samples asked for."""
    loader = make()
    counts = np.zeros(2)

    for batch, bill in loader.with_bills():
        assert batch["x"].tolist() == bill.idx.tolist()
        counts += np.bincount(bill.dataset_idx, minlength=2)

    assert counts.sum() == 6400 and abs(counts - [4480, 1920]).max() < 2
    assert len(loader) == 50


def test_reweighting_acts_right_after_the_lookahead():
    """After step 9 with a lookahead of 4 it acts at step 14 = s + lookahead + 1; nothing before it moves."""
    loader, untouched = make(), make()
    it = loader.with_bills()
    before = [next(it)[1].samples for _ in range(10)]

    event = loader.reweight({"code": 0.1, "prose": 0.9}, reason="by hand")

    assert event.step == 14 and event.position == 14 * 128
    assert loader.reweight({"code": 1, "prose": 9}) is None, "unchanged weights are no event"
    after = [bill.samples for _, bill in it]
    planned = names(untouched)
    assert before + after[:4] == planned[:14]
    for k, step in enumerate(after[4:]):
        assert sum(s.dataset for s in step) == pytest.approx(0.9 * 128, abs=4), k
    assert [loader.plan.bill(step).samples for step in range(50)] == before + after


@pytest.mark.parametrize("options", [{"num_workers": 2, "prefetch_factor": 50}, {"prefetch": 50}, {"prefetch": 0}])
def test_prefetching_never_passes_a_change(options):
    """Whatever is fetched ahead, delivered equals planned, and all ways deliver the same."""
    loader = make(**options)
    delivered = []

    for _, bill in loader.with_bills():
        delivered.append(bill.samples)
        if bill.step in (3, 11, 12):
            loader.reweight([1, bill.step])

    assert delivered == [loader.plan.bill(step).samples for step in range(50)]
    assert len(loader.plan.events) == 3


def test_prefetching_is_capped_by_the_lookahead():
    """Workers and threads keep at most that many batches on their way; too many workers are refused."""
    plan = make(lookahead_steps=4).plan

    assert capped_prefetch_factor(plan, WorkerRequest(2, 50)) == capped_prefetch_factor(plan, WorkerRequest(2)) == 2
    assert most_ahead(plan) == 3 and most_ahead(make(lookahead_steps=1).plan) == 0
    with pytest.raises(MixtureError, match=r"8 workers prefetch at least 8 batches, lookahead_steps=4 allows fewer"):
        capped_prefetch_factor(plan, WorkerRequest(8))
    assert Loader(sources(), 8).plan.lookahead_steps == 32
    assert Loader(sources(), 8, num_workers=2, prefetch_factor=50).plan.lookahead_steps == 100, "workers raise it"
    assert Loader(sources(), 8, prefetch=50).plan.lookahead_steps == 51


@given(st.integers(0, 40), st.integers(0, 9))
@settings(max_examples=15)
def test_resuming_anywhere_goes_on_as_if_nothing_had_happened(stop, every):
    """Law 3 with reweightings and a policy: the state carries the events and the policy's memory."""
    policy = {"policy": SteerToShares({"code": 1, "prose": 1}, every_steps=every)} if every else {}
    whole, first = make(**policy), make(**policy)
    expected = []
    for _, bill in whole.with_bills():
        expected.append(bill.samples)
        if not every and bill.step % 9 == 5:
            whole.reweight([1, 1 + bill.step])
    seen = []
    for _, bill in first.with_bills():
        seen.append(bill.samples)
        if not every and bill.step % 9 == 5:
            first.reweight([1, 1 + bill.step])
        if bill.step == stop:
            break
    state = json.loads(json.dumps(first.state_dict()))

    second = make(**policy)
    second.load_state_dict(state)
    for _, bill in second.with_bills():
        seen.append(bill.samples)
        if not every and bill.step % 9 == 5:
            second.reweight([1, 1 + bill.step])

    assert seen == expected
    later = {event for event in second.plan.events if event.kind == "reweight"}
    assert later <= {*whole.plan.events}, "those that had acted are one base"


def test_a_policy_on_counts_reaches_its_shares():
    """Mixed 7:3, steered towards 1:1 of everything drawn."""
    loader = make(policy=SteerToShares({"code": 1, "prose": 1}, every_steps=5), epoch_samples=128 * 200)

    drawn = np.bincount([s.dataset for step in names(loader) for s in step])

    assert drawn[0] / drawn.sum() == pytest.approx(0.5, abs=0.01)
    assert loader.plan.events[0].reason == "SteerToShares: code 0.7 of 0.5, prose 0.3 of 0.5"
    assert len(loader.plan.events) < 15, "shares that are there are no event"


def test_a_policy_on_losses_is_fed_by_the_loop_and_remembered():
    """What was observed lives in the loader's state; the shares follow."""
    loader = make(policy=FollowLosses(every_steps=4, strength=2.0))
    for _, _bill in loader.with_bills():
        loader.policy.observe({"code": 1.0, "prose": 3.0})
        if loader.step == 20:
            break

    state = loader.state_dict()

    other = make(policy=FollowLosses(every_steps=4, strength=2.0))
    other.load_state_dict(state)
    assert other.policy.losses == {"code": 1.0, "prose": 3.0}
    assert other.policy.base == pytest.approx({"code": 0.7, "prose": 0.3})
    assert other.plan.order.weights_at(10**6)[1] > integer_weights([0.7, 0.3])[1] * 2


def test_a_policy_without_weights_begins_with_the_lengths():
    """There is a mixture to steer, proportional at first."""
    loader = Loader(sources(), 64, mixture=Mixture(policy=SteerToShares({"code": 1, "prose": 1})))

    assert loader.plan.mixture.stages[0][1] == integer_weights([5000, 100])


def test_a_policy_is_asked_once_for_a_step():
    """Looking at batches asks no one; an epoch begun again asks no one twice; each rank is notified the same counts."""
    asked = []

    class Noting(SteerToShares):
        def __call__(self, mix):
            asked.append((mix.step, mix.counts))
            return super().__call__(mix)

    loader = make(policy=Noting({"code": 1, "prose": 1}, every_steps=2))
    with loader.peeking():
        names(loader, 4)
    assert asked == []
    names(loader, 5)
    names(loader, 7)
    assert [step for step, _ in asked] == [2, 4, 6]
    assert all(sum(counts) == step * 128 for step, counts in asked)


def test_the_ledger_and_the_tracker_hear_of_a_change(tmp_path):
    """A reweighting is an event of the run; the tracker counts what came of it."""
    tracker = BatchTracker()
    loader = make()
    with Ledger(tmp_path / "run", loader.plan) as ledger:
        loader.tracker = [tracker, ledger]
        for _, bill in loader.with_bills():
            if bill.step == 5:
                loader.reweight([0, 1], reason="no more code")
        ledger.flush()

    (found,) = open_run(tmp_path / "run").plan.events
    assert found.kind == "reweight" and found.reason == "no more code" and found.step == 10
    assert sum(tracker.n_samples_per_dataset.values()) == 6400
    assert tracker.n_samples_per_dataset[1] > 4000


BAD = [
    ({"code": -1, "prose": 1}, "a weight is -1"),
    ({"code": float("nan"), "prose": 1}, "a weight is nan"),
    ({"code": 0, "prose": 0}, "all weights are zero"),
    ({"cdoe": 1, "prose": 1}, "weights name 'cdoe'"),
    ({"code": 1}, "say nothing about 'prose'"),
    ([1, 2, 3], "3 weights were given for 2 datasets"),
]


@pytest.mark.parametrize(("weights", "message"), BAD)
def test_bad_weights_leave_no_trace(weights, message):
    """The error says what was wrong, and the run continues as if no one had asked."""
    loader = make()
    names(loader, 3)
    state = loader.state_dict()

    with pytest.raises(MixtureError, match=message):
        loader.reweight(weights)
    with pytest.raises(MixtureError, match=message):
        make(weights=weights).plan  # noqa: B018

    assert loader.state_dict() == state


def test_what_cannot_be_reweighted_is_refused():
    """Runs without weights, epochs that end by themselves, arguments that belong to weights."""
    with pytest.raises(MixtureError, match="this run has no weights that could change"):
        Loader(sources(), 8).reweight([1, 1])
    with pytest.raises(MixtureError, match="a reweighting cannot be used with stopping='first_exhausted'"):
        Loader(sources(), 8, mixture=Mixture([1, 1], stopping="first_exhausted")).reweight([1, 1])
    with pytest.raises(MixtureError, match="are about weights, and there are none"):
        Loader(sources(), 8, mixture=Mixture(stopping="first_exhausted")).plan  # noqa: B018
    with pytest.raises(MixtureError, match="weights= and mixture= were both given: expected one"):
        Loader(sources(), 8, weights=[1, 1], mixture=Mixture(weights=[1, 1])).plan  # noqa: B018
    with pytest.raises(MixtureError, match="expected a callable with every_steps"):
        Loader(sources(), 8, mixture=Mixture([1, 1], policy="greedy"))
    loader = make()
    event = loader.reweight([1, 1])
    names(loader, 6)
    with pytest.raises(LoaderError, match="would change steps already yielded"):
        loader.add_event(event)


def test_a_resume_with_another_mixture_or_policy_is_refused():
    """Changed weights would repeat or miss samples; another policy would not understand the state."""
    policy = SteerToShares({"code": 1, "prose": 1}, every_steps=2)
    loader = make(policy=policy)
    names(loader, 3)
    state = loader.state_dict()

    with pytest.raises(ResumeError, match="weights or schedule"):
        make(policy=policy, weights=[1, 1]).load_state_dict(state)
    with pytest.raises(ResumeError, match="saved with the policy SteerToShares, this loader has FollowLosses"):
        make(policy=FollowLosses()).load_state_dict(state)
    with pytest.raises(ResumeError, match="the state: policy: expected JSON"):
        make(policy=policy).load_state_dict({**state, "policy": "{"})


def test_epochs_end_by_themselves():
    """``first_exhausted``: the epoch ends before anything repeats; every epoch differs."""
    loader = Loader(sources(), 16, mixture=Mixture([1, 1], stopping="first_exhausted"))

    first, second = names(loader), names(loader)

    seen = [s for step in first for s in step]
    assert len(seen) == len(set(seen)) == loader.plan.epoch_samples and 199 <= len(seen) <= 201
    assert first != second


def test_schedules_and_token_weights_reach_the_plan():
    """Stages in steps, and shares of tokens through each source's mean."""
    loader = make(
        weights=None,
        schedule=[(0, [1, 1]), ("20ba", [9, 1])],
        unit="tokens",
        mean_tokens={"code": 10.0, "prose": 30.0},
    )

    assert [start for start, _ in loader.plan.mixture.stages] == [0, 20 * 128]
    assert loader.plan.mixture.stages[0][1] == integer_weights([3, 1])
    assert loader.plan.datasets[1].mean_tokens == 30.0


class Documents:
    """Documents of very different lengths, which know their mean."""

    def __init__(self, number: int, mean: int) -> None:
        self.lengths = np.random.default_rng(mean).integers(mean // 2, mean * 3 // 2, number)
        self.mean_tokens = float(self.lengths.mean())

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> np.ndarray:
        return np.zeros(self.lengths[index], dtype=np.int32)


def test_documents_of_unequal_length_are_mixed_by_tokens():
    """1:10 in length, 1:1 in tokens, within 2 % over a million tokens really delivered."""
    loader = Loader(
        {"short": Documents(3000, 60), "long": Documents(300, 600)},
        64,
        mixture=Mixture({"short": 1, "long": 1}, unit="tokens", epoch_samples=10**5),
        collate_fn=list,
    )
    tokens = np.zeros(2)

    for batch, bill in loader.with_bills():
        np.add.at(tokens, bill.dataset_idx, [len(document) for document in batch])
        if tokens.sum() > 10**6:
            break

    assert tokens[0] / tokens[1] == pytest.approx(1, rel=0.02)


def test_a_rebatched_run_keeps_its_schedule():
    """A schedule in steps means the steps the run began with, also after the batch size changed."""
    schedule = {"weights": None, "schedule": [(0, [1, 1]), ("20ba", [9, 1])]}
    loader = make(**schedule)
    names(loader, 4)
    other = Loader(
        sources(),
        64,
        seed=3,
        mixture=Mixture(lookahead_steps=4, epoch_samples=6400, schedule=schedule["schedule"]),
    )

    other.load_state_dict(loader.state_dict(), Resume(rebatch=True))

    assert other.plan.mixture == loader.plan.mixture
    seen = [s for step in names(other) for s in step]
    planned = [s for step in range(4, 50) for s in loader.plan.bill(step).samples]
    for dataset in (0, 1):  # steps of another size are shuffled differently; the draws of a dataset are the same
        assert [s for s in seen if s.dataset == dataset] == [s for s in planned if s.dataset == dataset]


def test_state_stays_small_and_flat():
    """Under 2 kB without events; the same keys with and without a policy."""
    plain, steered = make(), make(policy=FollowLosses())

    assert plain.state_dict().keys() == steered.state_dict().keys()
    assert len(json.dumps(steered.state_dict())) < 2000


@pytest.mark.launch
def test_two_ranks_killed_and_one_goes_on(tmp_path):
    """2 ranks with 2 workers and a policy on counts, kill -9, the rest on 1 rank: the sequence of a single process."""
    killed = torchrun(SCRIPTS / "steered.py", 2, tmp_path, 33, "-", check=False)
    assert killed.returncode != 0
    states = [(tmp_path / f"state-{rank}.json").read_text() for rank in range(2)]
    assert states[0] == states[1] and json.loads(states[0])["events"] != "[]"
    torchrun(SCRIPTS / "steered.py", 1, tmp_path, 999, tmp_path / "state-1.json")

    steps: dict[int, list] = {}
    for ranks, rank in ((2, 0), (2, 1), (1, 0)):
        for number, samples in read_jsonl(tmp_path / f"names-{ranks}-{rank}.jsonl"):
            if ranks == 1 or number < 33:
                steps.setdefault(number, []).extend(map(tuple, samples))
    script = runpy.run_path(str(SCRIPTS / "steered.py"), run_name="script")
    alone = {bill.step: bill.samples for _, bill in script["steered_loader"](world=World(0, 1)).with_bills()}
    assert steps == alone and len(alone) == script["STEPS"]


def test_torch_sees_a_dataloader_with_its_arguments():
    """Frameworks that rebuild a loader read every argument back from an attribute; 19 of them are our own."""
    loader = make(policy=FollowLosses(), mean_tokens={"code": 2.0, "prose": 3.0})
    names = set(inspect.signature(Loader).parameters)
    torchs = {*inspect.signature(torch.utils.data.DataLoader).parameters}

    assert isinstance(loader, torch.utils.data.DataLoader)
    assert [name for name in names if not hasattr(loader, name)] == []
    assert len(names - torchs - {"sources"}) <= 19, "sources is torch's dataset by another name"
    assert torchs <= names
