"""The law of adaptive training: any decisions, killed and resumed anywhere, on any number of ranks, replay exactly."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lading import Columns, Mixture, NumpyLoader, Resume, World
from lading.kits.adaptive.chosen import ChosenChunks
from lading.kits.adaptive.curriculum import Curriculum
from lading.kits.adaptive.graded import GradedSamples
from lading.kits.adaptive.policy.chunks import GrowWhileImproving, LearningValue, PaceValidation
from lading.kits.adaptive.policy.mixture import SteerToShares
from lading.loader.chunks import Chunks

LENGTHS = {"code": 70, "prose": 41}
STEPS, GLOBAL = 90, 6
MODES = ("sizes", "pace", "chosen", "aged", "chosen sizes", "weights", "curriculum", "planned", "doubling")
# All at once: samples are blocked at a step; from another on (between passes, where chunks are chosen) batches change.
ALL = ("all weights", "all curriculum", "all chosen")
BLOCKS_AT, BLOCKED, REBATCHED = 17, {"code": (3, 5), "prose": (7,)}, 4
REBATCHES_AT = {"all weights": 31, "all curriculum": 31, "all chosen": 38}
NEW_SCORES = {name: -np.arange(n) for name, n in LENGTHS.items()}
PART = settings().max_examples // 8  # of the profile's examples: each of these is a whole run


def make(mode: str, rank: int, ranks: int, batch: int = GLOBAL) -> NumpyLoader:
    """Return one rank's loader."""
    resize = GrowWhileImproving(factor=1.7, least=1, most=9)
    chunks = {
        "pace": Chunks(3, resize=PaceValidation(least=2, most=8)),
        "chosen": Chunks(2, choose=LearningValue("improvement")),
        "aged": Chunks(2, choose=LearningValue("loss", age_weight=0.3), ahead=0),
        "chosen sizes": Chunks(2, resize=resize, choose=LearningValue(), ahead=2),
        "all chosen": Chunks(2, resize=resize, choose=LearningValue("improvement", age_weight=0.1)),
        "planned": [[0, 2], [4, 5], [9, 3]],
        "doubling": {"first": 1, "double_every": 3, "most": 7},
    }.get(mode, Chunks(4, resize=resize))
    mixture = None
    if "weights" in mode:
        policy = SteerToShares({"code": 1, "prose": 2}, every_steps=5)
        mixture = Mixture([1, 1], policy=policy, lookahead_steps=4)
    if "curriculum" in mode:
        mixture = Curriculum(lambda source: source.columns["x"] % 13, until=30, later=[NEW_SCORES], lookahead_steps=4)
    sources = {name: Columns(x=np.arange(n)) for name, n in LENGTHS.items()}
    options = {"global_batch_size": batch, "world": World(rank, ranks), "seed": 5, "names": False}
    options["on_resume"] = Resume(rebatch=mode in ALL)
    return NumpyLoader(sources, chunk_batches=chunks, mixture=mixture, **options)


def metric(chunk: int, seed: int) -> float:
    """Return what a validation after a chunk measures: falling, with noise; now and then nothing sensible."""
    noise = np.random.default_rng([seed, chunk]).random()
    return math.nan if noise < 0.05 else 3 / (1 + chunk / 9) + noise


class Run:
    """Lives of a run: what each step had, and the state after each of them."""

    def __init__(self, mode: str, seed: int) -> None:
        self.mode, self.seed = mode, seed
        self.steps: list[tuple] = []
        self.states: list[str] = []
        self.early: dict[int, str] = {}  # by step: taken at the end of a chunk before it was validated
        self.plan, self.kinds = None, set()

    def live(self, ranks: int, until: int, *, early: bool = False) -> None:
        """Continue on some ranks up to a step, from the state that was taken last, or right before its validation."""
        border = REBATCHES_AT.get(self.mode, 0)
        if len(self.states) < border < until:
            self.live(ranks, border, early=early)
        batch = REBATCHED if len(self.states) >= border > 0 else GLOBAL
        loaders = [make(self.mode, rank, ranks, batch) for rank in range(ranks)]
        self._resume(loaders, early=early and len(self.states) != border)
        while loaders[0].step < until:
            iterations = [loader.with_bills() for loader in loaders]
            for shares in zip(*iterations, strict=True):
                self._note(loaders, [bill for _, bill in shares])
                if loaders[0].step == until:
                    break
        self.plan = loaders[0].plan

    def _resume(self, loaders: list, *, early: bool) -> None:
        """Load the state that was taken last; of a run that has none, the state of another loader before its first."""
        step = len(self.states)
        early = early and step in self.early
        fresh = json.dumps(make(self.mode, 0, 1).state_dict())
        state = self.early[step] if early else self.states[-1] if self.states else fresh
        for loader in loaders:
            loader.load_state_dict(json.loads(state))
        if early:
            self._decide(loaders)

    def _decide(self, loaders: list) -> None:
        """What a training loop does at the end of a step: report a validation, rescore, block."""
        step = loaders[0].step
        if loaders[0].plan.locate(step).chunk_step == 0:
            chunk = loaders[0].plan.locate(step - 1).chunk if step > loaders[0].plan.first_step else self.steps[-1][1]
            for loader in loaders:
                loader.validated(metric(chunk, self.seed), loss=metric(chunk, self.seed + 1))
        for loader in loaders:
            if "curriculum" in self.mode and step == 26:
                loader.rescore(NEW_SCORES, "turned round")
            for name, indices in BLOCKED.items() if self.mode in ALL and step == BLOCKS_AT else ():
                loader.block(name, indices, "broken")

    def _note(self, loaders: list, bills: list) -> None:
        step, chunk = bills[0].step, bills[0].chunk
        names = [s for bill in bills for s, pad in zip(bill.samples, bill.is_padding, strict=False) if not pad]
        self.steps.append((step, chunk, bills[0].batch_id, sorted(names)))
        if loaders[0].plan.locate(loaders[0].step).chunk_step == 0:
            self.early[loaders[0].step] = json.dumps(loaders[-1].state_dict())
        self._decide(loaders)
        self.kinds |= {event.kind for event in loaders[0].plan.events}
        states = [json.dumps(loader.state_dict()) for loader in loaders]
        assert len(set(states)) == 1, "the same on every rank"
        self.states.append(states[0])


@pytest.fixture(scope="module", params=[*MODES, *ALL])
def whole(request) -> Run:
    """A run that was never interrupted."""
    run = Run(request.param, 1)
    run.live(1, STEPS)
    return run


@given(st.lists(st.tuples(st.integers(1, STEPS), st.integers(1, 7), st.booleans()), max_size=4))
@settings(max_examples=max(PART, 1))
def test_killed_and_resumed_anywhere_it_replays_exactly(whole, lives):
    """Other ranks, other lives, lost steps done again: the same samples, chunks and states from the first step on."""
    run = Run(whole.mode, whole.seed)
    for number, (until, ranks, early) in enumerate([*lives, (STEPS, 2, False)]):
        lost = 7 * number % 5  # what came after the last checkpoint is done again
        del run.states[max(len(run.states) - lost, 0) :], run.steps[len(run.states) :]
        run.live(ranks, max(until, len(run.states)), early=early)

    assert run.steps == whole.steps
    assert run.states[-1] == whole.states[-1]


def test_every_step_can_be_resumed_at(whole):
    """Before the first batch, inside a chunk, at its end before and after the validation: the steps after it follow."""
    for step in range(STEPS):
        run = Run(whole.mode, whole.seed)
        run.states, run.steps, run.early = whole.states[:step], whole.steps[:step], whole.early
        run.live(1 if step % 4 else 3, min(step + 4, STEPS), early=step % 2 == 0)
        assert run.steps == whole.steps[: len(run.steps)] and run.states == whole.states[: len(run.states)]


def originals(bill) -> list[tuple[int, int]]:
    """Return the samples that a step would have without blocked ones."""
    found = list(bill.samples)
    for deviation in bill.deviations:
        found[deviation.slot] = (deviation.dataset, deviation.index)
    return [tuple(sample) for sample in found]


def test_bills_places_and_passes_are_those_of_the_plan(whole):
    """The plan of the run that was never interrupted: `where` inverts `bill`, passes are complete."""
    plan = whole.plan
    first = plan.first_step  # a run that was resumed with other batches knows what came since
    bills = [plan.bill(step) for step in range(first, STEPS)]

    assert [sorted(b.samples) for b in bills] == [names for *_, names in whole.steps[first:]]
    assert [b.chunk for b in bills] == [chunk for _, chunk, *_ in whole.steps[first:]]
    for d, length in enumerate(LENGTHS.values()):
        for index in range(length):
            scan = [(b.step, int(s)) for b in bills for s in np.flatnonzero((b.dataset_idx == d) & (b.idx == index))]
            assert [(p.step, p.slot) for p in plan.where(d, index, first, STEPS)] == scan
    if plan.mixture is None and not isinstance(plan.adaptation, GradedSamples):
        for epoch in range(plan.locate(first).epoch, plan.locate(STEPS - 1).epoch):
            samples = [s for b in bills if b.epoch == epoch for s in originals(b)]
            assert len(samples) == len(set(samples)) == sum(LENGTHS.values())


KINDS = {
    "planned": set(),
    "doubling": set(),
    "chosen": {"choose"},
    "aged": {"choose"},
    "chosen sizes": {"choose", "rebatch"},
    "weights": {"reweight", "rebatch"},
    "curriculum": {"rebatch", "rescore"},
    "all weights": {"reweight", "rebatch", "block"},
    "all curriculum": {"rebatch", "rescore", "block"},
    "all chosen": {"choose", "rebatch", "block"},
}


def test_decisions_were_made_and_states_stay_small(whole):
    """The bound of a state: 2 kB, 48 bytes a dataset, 8 a blocked sample, and a bit a chunk of the running pass."""
    assert whole.kinds - {"base"} == KINDS.get(whole.mode, {"rebatch"})
    asked = [event for event in whole.plan.events if event.kind != "base"]
    assert all(event.reason for event in asked if event.step != REBATCHES_AT.get(whole.mode)), (
        "but for the resume's own"
    )
    chunks = (
        whole.plan.epoch_steps(whole.plan.locate(STEPS).epoch) if isinstance(whole.plan.adaptation, ChosenChunks) else 0
    )
    blocked = sum(map(len, BLOCKED.values())) if whole.mode in ALL else 0
    most = 2048 + 48 * len(LENGTHS) + 8 * blocked + math.ceil(chunks / 8 * 4 / 3)
    assert max(map(len, whole.states)) <= most


@pytest.mark.parametrize("signal", ["loss", "improvement"])
def test_a_state_does_not_grow_with_the_chunks(signal):
    """A thousand chunks, three passes, new sizes all the time: 2 kB, 48 bytes a dataset, a bit a chunk."""
    chunks = Chunks(1, resize=GrowWhileImproving(most=2), choose=LearningValue(signal, age_weight=0.001))
    loader = NumpyLoader(np.arange(1000), 1, chunk_batches=chunks)

    largest = 0
    while loader.epoch < 2:
        for _ in loader:
            pass
        loader.validated(metric(loader.chunk, 3), loss=metric(loader.chunk, 4))
        largest = max(largest, len(json.dumps(loader.state_dict()))) if loader.step % 17 == 0 else largest

    assert largest <= 2048 + 48 + math.ceil(1000 / 8 * 4 / 3)


def test_sizes_and_chunks_change_nothing_but_borders_and_order(whole):
    """Sizes: the samples of every step are those without them. Chosen: each pass has the same samples."""
    if whole.mode in ("sizes", "pace", "planned", "doubling"):  # without blocks and other batches
        sources = {name: Columns(x=np.arange(n)) for name, n in LENGTHS.items()}
        plain = NumpyLoader(sources, global_batch_size=GLOBAL, seed=5).plan
        assert [sorted(plain.bill(s).samples) for s in range(STEPS)] == [names for *_, names in whole.steps]
    numbers = [chunk for _, chunk, *_ in whole.steps]
    assert all(b - a in (0, 1) for a, b in itertools.pairwise(numbers)) and numbers[-1] > 5
