"""Law 8 on disk: whatever tree of crashes, resumes and replays, history is what the newest model was trained on."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.report.runs import leave

from lading.identity import World
from lading.ledger import Ledger
from lading.order import Plan
from lading.report import open_run

PLAN = Plan.make({"code": 70, "prose": 31}, batch_size=8, seed=3)

# One life of a process: which checkpoint it resumes from (None: the script is run again), with how many ranks, how many
# updates of how many batches, whether it goes back without a state in between, and whether it is killed.
LIVES = st.lists(
    st.tuples(
        st.none() | st.integers(0, 50),
        st.integers(1, 2),
        st.integers(0, 4),
        st.integers(1, 3),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


class Training:
    """A run of several lives; the model is the list of (attempt, step) that its updates used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.states: list[tuple[dict[str, Any], list[tuple[int, int]], list[tuple[int, int]]]] = []
        self.newest: list[tuple[int, int]] = []
        self.unused: list[tuple[int, int]] = []

    def live(self, chosen: int | None, ranks: int, updates: int, batches: int, goes_back: bool, killed: bool) -> None:
        """Resume, train, take states (also inside an accumulation), end or be killed."""
        loaded, model, unused = None, [], []
        if chosen is not None and self.states:
            loaded, model, unused = self.states[chosen % len(self.states)]
        model, unused = list(model), list(unused)
        step = 0 if loaded is None else loaded["step"]
        ledgers = [Ledger(self.path, PLAN, rank=rank, world_size=ranks) for rank in range(ranks)]
        for ledger in ledgers:
            ledger.begin(step, loaded=loaded)
        for update in range(updates):
            if goes_back and update == updates - 1:
                step = max(0, step - 2)
                for ledger in ledgers:
                    ledger.begin(step)
            step = self._update(ledgers, step, batches, model, unused)
        for ledger in ledgers:
            ledger.flush()
            leave(ledger) if killed else ledger.close()
        if updates:
            self.newest, self.unused = model, unused

    def _update(self, ledgers: list[Ledger], step: int, batches: int, model: list[Any], unused: list[Any]) -> int:
        steps = range(step, step + batches)
        for number, this in enumerate(steps):
            if number == 1:  # inside the accumulation
                self._save(ledgers, this, model, [*unused, (ledgers[0].attempt or 0, step)])
            for rank, ledger in enumerate(ledgers):
                ledger.deliver(PLAN.bill(this, world=World(rank, len(ledgers))))
        for rank, ledger in enumerate(ledgers):
            ledger.commit([PLAN.bill(s, world=World(rank, len(ledgers))) for s in steps], update=len(model))
        model += [(ledgers[0].attempt or 0, this) for this in steps]
        self._save(ledgers, steps.stop, model, unused)
        return steps.stop

    def _save(self, ledgers: list[Ledger], step: int, model: list[Any], unused: list[Any]) -> None:
        marks = []
        for ledger in ledgers:
            ledger.flush()
            marks.append(ledger.mark(step))
        assert all(mark == marks[0] for mark in marks)
        self.states.append(({**(marks[0] or {}), "step": step}, list(model), list(unused)))


@pytest.mark.filterwarnings("ignore:.*a second root.*:UserWarning")
@settings(max_examples=20)  # each opens several ledgers, with all their syncs
@given(LIVES)
def test_history_is_what_the_newest_model_was_trained_on(tmp_path_factory: pytest.TempPathFactory, lives):
    """Update by update; what a checkpoint left pending is there as used by no update."""
    training = Training(tmp_path_factory.mktemp("run"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for life in lives:
            training.live(*life)

    run = open_run(training.path) if (training.path / "run.json").exists() else None

    if run is not None:
        rows = run.history.dicts()
        applied = [(row["attempt"], row["step"]) for row in rows if row["fate"] == "applied"]
        assert applied == training.newest
        assert [(row["attempt"], row["step"]) for row in rows if row["fate"] == "skipped"] == training.unused
        verdict = run.verify(allow_empty=True)
        assert verdict.holds, verdict.faults
        assert all(row["digest"] == PLAN.bill(row["step"]).digest for row in rows)
