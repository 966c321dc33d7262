"""Adaptive runs with a ledger: decisions and validations are recorded, verified, asked for, and survive a kill."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from tests.cli.calling import lading

from lading import Chunks, Columns, Curriculum, Ledger, Mixture, NumpyLoader, Plan, Resume, World, open_run
from lading.errors import ConfigError, LadingError, LoaderError, MixtureError, PlanError, ResumeError
from lading.kits.adaptive.graded import GradedSamples
from lading.kits.adaptive.policy.chunks import GrowWhileImproving, LearningValue, PaceValidation
from lading.kits.web.render.page import page
from lading.loader.policy import Trained

HOSTILE = "<script>\x1b[2J"


class Suspicious(GrowWhileImproving):
    """A policy whose reason is not to be trusted."""

    def __call__(self, trained):
        size = super().__call__(trained)
        self.reason = HOSTILE
        return size


def make(mode: str) -> NumpyLoader:
    """Return a loader that adapts."""
    sources = {"code": Columns(x=np.arange(60.0)), "prose": Columns(x=np.arange(40.0))}
    if mode == "curriculum":
        return NumpyLoader(
            sources, 5, chunk_batches=4, mixture=Curriculum("x", until=10, later=[SCORES], lookahead_steps=2)
        )
    resize = Suspicious(most=8) if mode == "sizes" else None
    return NumpyLoader(sources, 5, chunk_batches=Chunks(3, resize=resize, choose=None if resize else LearningValue()))


SCORES = {"code": lambda source: -source.columns["x"], "prose": np.arange(40)}


def train(loader: NumpyLoader, ledger: Ledger, until: int, validation_state: dict | None = None) -> list[dict]:
    """Train up to a step, validating after each chunk, and return the states of both loaders."""
    loader.tracker = ledger
    validation = NumpyLoader(np.arange(30), 5, chunk_batches=2, shuffle=False)
    if validation_state is not None:
        validation.load_state_dict(validation_state)
    while loader.step < until:
        for _, bill in loader.with_bills():
            ledger.commit(bill, loss=1.0 / (1 + bill.step))
            if loader.step == until:
                break
        else:
            list(validation)
            loader.validated(2.0 / (1 + loader.step), loss=float(bill.idx.mean()), on=validation.last_chunk())
        if isinstance(loader.plan.adaptation, GradedSamples) and loader.epoch == 1:
            loader.rescore(SCORES, "turned round")
    return json.loads(json.dumps([loader.state_dict(), validation.state_dict()]))


@pytest.mark.parametrize("mode", ["sizes", "chosen", "curriculum"])
def test_a_killed_adaptive_run_verifies_and_tells_its_decisions(mode, tmp_path, capsys):
    """Two attempts, the second from inside a chunk: verify holds, every question is answered, decisions are told."""
    loader = make(mode)
    with Ledger(tmp_path / "run", loader.plan) as ledger:
        state, validation_state = train(loader, ledger, 31)
    resumed = make(mode)
    resumed.load_state_dict(state)
    with Ledger(tmp_path / "run", resumed.plan) as ledger:
        train(resumed, ledger, 66, validation_state)

    run = open_run(tmp_path / "run")

    assert run.verify().holds, run.verify()
    untouched = make(mode)
    with Ledger(tmp_path / "whole", untouched.plan) as ledger:
        train(untouched, ledger, 66)
    whole = open_run(tmp_path / "whole")
    for step in (0, 17, 33, 65):
        assert run.step(step).samples.dicts() == whole.step(step).samples.dicts()
    assert run.decisions().dicts() == whole.decisions().dicts()
    kinds = set(run.decisions()["kind"])
    assert kinds == {"validated", {"sizes": "rebatch", "chosen": "choose", "curriculum": "rescore"}[mode]}
    found = run.explain(60)
    assert found.decisions["decided"] and "on steps" in " ".join(map(str, run.decisions()["decided"]))
    for args in (["explain", str(run.path), "60"], ["mix", str(run.path), "--by", "chunk"]):
        code, output = lading(*args), capsys.readouterr().out
        assert code == 0 and "decision" in output and "\x1b[2J" not in output, output
    assert "Decisions while it ran" in page(run) and "<script>\x1b" not in page(run)
    assert Plan.from_json(run.plan.to_json()).bill(65).digest == resumed.plan.bill(65).digest


def _trained_on(loader: NumpyLoader) -> None:
    list(loader)
    loader.validated(1.0)


def _loaded(loader: NumpyLoader, state: dict) -> NumpyLoader:
    loader.load_state_dict(state)
    return loader


def test_new_scores_have_to_be_given_again():
    """A state has their SHA-256 only; without them the resume says so, with them it goes on."""
    loader = make("curriculum")
    while loader.step < 50:
        for _ in loader:
            pass
        loader.rescore(SCORES)
    state = loader.state_dict()
    assert loader.plan.events and loader.rescore(SCORES) is None, "the same scores are no event"
    forgetful = make("curriculum")
    object.__setattr__(forgetful.engine.request.mixture, "later", ())

    with pytest.raises(LadingError, match=r"not here: a state keeps only their name.*later="):
        _loaded(forgetful, state).plan.bill(loader.step)
    again = make("curriculum")
    again.load_state_dict(state)
    assert again.plan.bill(55).digest == loader.plan.bill(55).digest
    with pytest.raises(LoaderError, match="no curriculum to rescore"):
        make("chosen").rescore(SCORES)


def test_new_scores_act_after_what_may_be_prefetched():
    """An epoch has 20 steps: two before its end the next one may be on its way already, with two steps of lookahead."""
    for stop, acts_at in ((17, 20), (18, 20), (19, 40)):
        loader = make("curriculum")
        while loader.step < stop:
            for _ in loader:
                if loader.step == stop:
                    break
        assert loader.rescore(SCORES).step == acts_at


def test_scores_come_from_columns_functions_files_and_arrays(tmp_path):
    """All the same order; wrong ones are refused by name."""
    values = np.random.default_rng(0).random(30)
    np.save(tmp_path / "losses.npy", values)
    ways = ("x", lambda source: source.columns["x"], tmp_path / "losses.npy", str(tmp_path / "losses.npy"), values)

    plans = [NumpyLoader(Columns(x=values), 3, mixture=Curriculum(way)).plan for way in ways]
    listed = NumpyLoader([{"x": v} for v in values.tolist()], 3, mixture=Curriculum("x")).plan

    assert len({plan.fingerprint for plan in plans}) == 1
    assert [listed.bill(s).samples for s in range(20)] == [plans[0].bill(s).samples for s in range(20)]
    two = {"a": Columns(x=values), "b": Columns(x=values)}
    for sources, scores, message in (
        (two, values, "one array of scores for 2 sources"),
        (two, {"a": values}, "scores are given for a: expected a, b"),
        (values, values[:3], r"'data': expected 30 finite numbers"),
        (values, "nothing.npy", "cannot be read"),
        (Columns(x=values), "y", "expected one number for each sample"),
    ):
        with pytest.raises(PlanError, match=message):
            _ = NumpyLoader(sources, 3, mixture=Curriculum(scores)).plan


def test_policies_and_sizes_that_make_no_sense_are_refused():
    """In the constructor, by name."""
    for bad in (
        0,
        "3",
        [],
        [[1, 2]],
        [[0, 2], [0, 3]],
        [[0, 0]],
        {"first": 2},
        {"first": 4, "double_every": 1, "most": 2},
    ):
        with pytest.raises(PlanError, match=r"chunk"):
            NumpyLoader(np.arange(9), 2, chunk_batches=bad)
    with pytest.raises(PlanError, match="planned and a policy was given, too"):
        Chunks([[0, 2], [3, 4]], resize=GrowWhileImproving())
    with pytest.raises(PlanError, match="expected size, resize, choose and ahead"):
        Chunks.of({"size": 3, "grow": True})
    with pytest.raises(ConfigError, match=r"resize: policy 'grow': expected one of grow_while_improving"):
        Chunks.of({"size": 3, "resize": {"policy": "grow"}})
    with pytest.raises(ConfigError, match=r"learning_value does not take speed"):
        Chunks.of({"size": 3, "choose": {"policy": "learning_value", "speed": 3}})
    for made in (
        lambda: GrowWhileImproving(factor=1),
        lambda: GrowWhileImproving(mode="up"),
        lambda: PaceValidation(slow=1, fast=0.5),
        lambda: LearningValue("luck"),
        lambda: LearningValue(age_weight="1"),
        lambda: GrowWhileImproving(factor="2"),
        lambda: GrowWhileImproving(least=1.5),
        lambda: GrowWhileImproving(least_gain=float("nan")),
        lambda: Chunks(3, resize=lambda trained: 3),
        lambda: Chunks(3, choose=GrowWhileImproving()),
        lambda: Chunks(3, resize=GrowWhileImproving),
        lambda: Curriculum([1], start="0.2"),
    ):
        with pytest.raises(PlanError, match="expected"):
            made()
    loader = NumpyLoader(np.arange(40), 2, chunk_batches=Chunks(3, resize=GrowWhileImproving()))
    next(iter(loader))
    with pytest.raises(LoaderError, match=r"validated\(\) belongs to the end of a chunk"):
        loader.validated(1.0)


class Answers:
    """A policy that answers what it is made with, or raises it."""

    every_steps = 1

    def __init__(self, answer):
        self.answer = answer

    def __call__(self, *seen):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def observe(self, *seen):
        pass

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize("answer", [float("nan"), float("inf"), -1, 0, 2.5, "3", True, [2]])
def test_an_answer_that_makes_no_sense_changes_nothing(answer):
    """Sizes, chunks and weights: named with what was expected; the next answer counts as if nothing had been said."""
    loader = NumpyLoader(np.arange(40), 4, chunk_batches=Chunks(3, resize=Answers(answer)))
    list(loader)
    with pytest.raises(LoaderError, match=r"Answers chose chunks of .* batches: expected an integer of at least 1"):
        loader.validated(1.0)
    loader.engine.request.chunks.resize.answer = np.int64(5)
    assert loader.validated(1.0)[0].chunk_batches == 5 and len(list(loader)) == 5
    with pytest.raises(LoaderError, match=r"Answers chose chunk .*: expected one of"):
        list(NumpyLoader(np.arange(40), 4, chunk_batches=Chunks(3, choose=Answers("x" if answer == 0 else answer))))
    weights = NumpyLoader({"a": np.arange(9), "b": np.arange(9)}, 2, mixture=Mixture([1, 1], policy=Answers(answer)))
    with pytest.raises(MixtureError, match="expected"):
        list(weights)


def test_what_a_policy_raises_is_raised_and_names_it():
    """As it is, with a note; what it saw is forgotten, so that the call can be made again."""
    for chunks in (Chunks(3, resize=Answers(KeyError("mine"))), Chunks(3, choose=Answers(KeyError("mine")))):
        loader = NumpyLoader(np.arange(40), 4, chunk_batches=chunks)
        with pytest.raises(KeyError) as caught:
            _trained_on(loader)
        assert caught.value.__notes__ == [f"raised by the policy Answers, asked before step {loader.step}"]
    loader = NumpyLoader(np.arange(40), 4, chunk_batches=Chunks(3, resize=Answers(KeyError("mine"))))
    list(loader)
    for _ in range(2):
        with pytest.raises(KeyError):
            loader.validated(1.0)
    assert loader.engine.notes.observers[-1].last_step == -1


def test_measurements_that_make_no_sense_are_refused():
    """By name; NaN and infinity say nothing; arrays of one number are numbers. A refused call is not recorded."""
    loader = NumpyLoader(np.arange(40), 4, chunk_batches=Chunks(3, resize=GrowWhileImproving()))
    recorded = []

    class Notes:
        update = flush = lambda *seen: None
        validated = staticmethod(lambda step, fields: recorded.append((step, fields["metric"])))

    loader.tracker = Notes()
    next(iter(loader))
    with pytest.raises(LoaderError, match="belongs to the end of a chunk"):
        loader.validated(1.0)
    list(loader)
    for bad in ({"metric": "3"}, {"metric": [1, 2]}, {"loss": 1j}, {"on": "here"}, {"on": [1]}):
        with pytest.raises(LoaderError, match=f"{next(iter(bad))}=.*: expected a (number|mapping)"):
            loader.validated(**bad)
    assert recorded == []
    loader.validated(np.array(2.0), loss=float("nan"))
    assert recorded == [(3, 2.0)]


def test_a_state_that_is_no_json_is_refused_by_name():
    """Where it is taken, not where it is loaded."""

    class Forgetful(GrowWhileImproving):
        def state_dict(self):
            return {"best": object()}

    loader = NumpyLoader(np.arange(40), 4, chunk_batches=Chunks(3, resize=Forgetful()))
    with pytest.raises(LoaderError, match="the state of a policy is no JSON"):
        loader.state_dict()


def test_policies_say_what_their_formula_says():
    """Growing, shrinking, limits, the best so far; fast and slow; NaN says nothing."""
    grow = GrowWhileImproving(factor=3, least=2, most=20, mode="max", least_gain=0.1)
    sizes, size = [], 10
    for metric in (1.0, 2.0, 2.1, float("nan"), 0.1, 0.1, 3.0):
        size = grow(Trained(0, 0, size, metric)) or size
        sizes.append(size)
    assert sizes == [10, 20, 7, 7, 2, 2, 6] and grow.best == 3.0

    pace = PaceValidation(fast=0.1, slow=0.01, smoothing=0, factor=2, least=4, most=16)
    assert [pace(Trained(0, 0, 8, m)) for m in (1.0, 2.0, 2.1, 2.1, 0.0, 5.0)] == [None, 4, None, 16, 4, 4]

    noisy = PaceValidation(fast=0.15, slow=0.01, least=1)
    sizes = [noisy(Trained(0, 0, 8, metric)) for metric in [1.0, 1.5] * 9]
    assert set(sizes[7:]) <= {None, 16}, "noise asks for no smaller validation, which would be noisier still"

    value = LearningValue("improvement", age_weight=0.0)
    for number, loss in ((0, 3.0), (1, 3.0), (2, 3.0), (0, 2.9), (1, 1.0), (2, 2.0)):
        value.observe(number, 3, Trained(0, number, 5, loss=loss))
    assert value([0, 1, 2], 3, 9) == 1 and value([0, 2], 3, 9) == 2 and value.reason == "improvement: value 1"


def test_a_state_of_another_policy_is_refused():
    """By name, as for policies of weights; damaged states too."""
    loader = make("chosen")
    for _ in loader:
        pass
    loader.validated(1.0)
    state = loader.state_dict()
    for broken in ('{"kind":"Other","state":{}}', '{"kind":"LearningValue","state":{"groups":[1]}}', "3"):
        damaged = dict(state)
        policy = json.loads(state["policy"])
        policy["chunks"]["choose"] = json.loads(broken)
        damaged["policy"] = json.dumps(policy)
        with pytest.raises(ResumeError):
            make("chosen").load_state_dict(damaged)


@pytest.mark.parametrize("chunks", [Chunks(3, choose=LearningValue()), Chunks(3, resize=GrowWhileImproving())])
def test_a_state_between_a_chunk_and_its_validation_is_whole(chunks):
    """The validation that is due comes after the resume, and policies hear of the chunk that ended before it."""

    def fresh():
        return NumpyLoader(np.arange(60), 4, chunk_batches=copy.deepcopy(chunks))

    loader = fresh()
    for metric in (3.0, 2.0, 1.0):
        list(loader)
        state = json.loads(json.dumps(loader.state_dict()))
        events = loader.validated(metric, loss=metric)
    after = loader.state_dict()

    other = fresh()
    other.load_state_dict(state)
    assert json.loads(json.dumps(other.state_dict())) == state
    assert other.validated(1.0, loss=1.0) == events and other.state_dict() == after
    assert other.validated(1.0, loss=1.0) == ()


def test_a_state_before_a_batch_has_what_policies_knew_then():
    """Taken after the validation, from before the last batch: it is reported again, and decided again."""
    loader = NumpyLoader(np.arange(60), 4, chunk_batches=Chunks(3, resize=GrowWhileImproving()))
    for metric in (3.0, 2.0):
        bills = [bill for _, bill in loader.with_bills()]
        loader.validated(metric)

    other = NumpyLoader(np.arange(60), 4, chunk_batches=Chunks(3, resize=GrowWhileImproving()))
    other.load_state_dict(loader.state_dict(before=bills[-1]))
    assert [bill.step for _, bill in other.with_bills()] == [bills[-1].step]
    (event,) = other.validated(2.0)
    assert event == loader.plan.events[0]
    list(loader)
    loader.validated(1.0)
    with pytest.raises(LoaderError, match="heard of two chunks since step 5"):
        loader.state_dict(before=bills[-1])


def test_another_batch_size_inside_a_pass_of_chosen_chunks_is_refused():
    """More ranks with the same global batch are fine."""
    chunks = Chunks(3, choose=LearningValue())
    loader = NumpyLoader(np.arange(100), 4, chunk_batches=chunks)
    for _ in loader:
        pass
    state = loader.state_dict()

    with pytest.raises(ResumeError, match="chooses its chunks and is inside a pass"):
        NumpyLoader(np.arange(100), 5, chunk_batches=chunks, on_resume=Resume(rebatch=True)).load_state_dict(state)
    while loader.plan.locate(loader.step).offset:
        list(loader)
    for batch in (2, 8, 25):
        larger = NumpyLoader(
            np.arange(100), batch, chunk_batches=Chunks(3, choose=LearningValue()), on_resume=Resume(rebatch=True)
        )
        larger.load_state_dict(loader.state_dict())
        seen = []
        while larger.plan.locate(larger.step).epoch == 1:
            assert larger.chunk == loader.chunk + len(seen) // (3 * batch), "chunks are counted on"
            seen += [sample.index for _, bill in larger.with_bills() for sample in bill.samples]
        assert sorted(seen) == list(range(100)), "what was chosen ahead is chosen anew"
    other = NumpyLoader(
        np.arange(100), global_batch_size=4, chunk_batches=Chunks(3, choose=LearningValue()), world=World(1, 3)
    )
    other.load_state_dict(state)
    assert other.plan.bill(3).digest == loader.plan.bill(3).digest
