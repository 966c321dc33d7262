"""Laws of a model: over any tree of runs `seen` is what the test trained, and nothing trained later changes it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings, strategies as st
from tests.report.runs import leave

from lading.identity import World
from lading.ledger import Ledger
from lading.order import Plan
from lading.report import open_checkpoint
from lading.report.checkpoint.stamp import stamp

Use = tuple[str, int, int]  # folder of the run, attempt, step


@dataclass(frozen=True)
class Model:
    """A checkpoint, and what the test knows that it learned from."""

    path: Path
    state: dict[str, Any] | None
    run: str | None
    uses: frozenset[Use]


GENERATION = st.tuples(
    st.sampled_from(["new", "resume", "fork", "base", "merge", "resume", "base"]),
    st.lists(st.integers(0, 99), min_size=1, max_size=4),  # which of the models so far
    st.integers(1, 2),  # ranks
    st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.booleans()), min_size=1, max_size=3),  # updates
    st.booleans(),  # saved inside an accumulation
    st.booleans(),  # killed
)


class World4:
    """Everything that was trained: runs, checkpoints, models."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.models, self.plans = folder, [], {}

    def grow(self, kind: str, chosen: list[int], ranks: int, updates: list[Any], inside: bool, killed: bool) -> None:
        """Train or merge one more model."""
        parents = [self.models[c % len(self.models)] for c in chosen] if self.models else []
        if kind == "merge" and parents:
            self._merge(parents)
            return
        parent = next((p for p in parents if p.state is not None), None)
        kind = kind if parent is not None and kind != "merge" else "new"
        run = parent.run if kind == "resume" else f"run{len(self.plans)}"
        before = frozenset() if kind == "new" else parent.uses
        if kind == "base":
            before = frozenset(u for p in parents for u in p.uses)
        plan = self._plan(run, self.plans[parent.run] if kind == "fork" else None)
        base = [p.path for p in parents] if kind == "base" else []
        loaded = parent.state if kind in ("resume", "fork") else None
        self._train(run, plan, loaded, base, before, ranks, updates, inside, killed)

    def _plan(self, run: str, same: Plan | None) -> Plan:
        fresh = Plan.make({"code": 23, "prose": 11}, batch_size=4, seed=len(self.plans))
        return self.plans.setdefault(run, same or fresh)

    def _merge(self, parents: list[Model]) -> None:
        path = self._weights()
        stamp(path, made="merge", parents=[p.path for p in parents])
        self.models.append(Model(path, None, None, frozenset(u for p in parents for u in p.uses)))

    def _weights(self) -> Path:
        path = self.folder / f"model{len(self.models)}"
        path.mkdir()
        (path / "weights.bin").write_bytes(b"%d" % len(self.models))
        return path

    def _train(self, run, plan, loaded, base, before, ranks, updates, inside, killed) -> None:
        step = 0 if loaded is None else loaded["step"]
        ledgers = [
            Ledger(self.folder / "runs" / run, plan, rank=rank, world_size=ranks, base=base) for rank in range(ranks)
        ]
        for ledger in ledgers:
            ledger.begin(step, loaded=loaded)
        uses = set(before)
        for number, (batches, skipped, goes_back) in enumerate(updates):
            if goes_back and number:
                step = max(0, step - 1)
                for ledger in ledgers:
                    ledger.begin(step)
            bills = [[plan.bill(s, world=World(r, ranks)) for s in range(step, step + batches)] for r in range(ranks)]
            for rank, ledger in enumerate(ledgers):
                ledger.deliver(bills[rank][0])
            if inside and batches > 1:
                self._save(ledgers, run, step + 1, uses)
            for rank, ledger in enumerate(ledgers):
                for bill in bills[rank][1:]:
                    ledger.deliver(bill)
                ledger.skip(bills[rank], "overflow") if skipped else ledger.commit(bills[rank], update=number)
            if not skipped:
                uses |= {(run, ledgers[0].attempt, s) for s in range(step, step + batches)}
            step += batches
            if number == len(updates) - 1 or goes_back:
                self._save(ledgers, run, step, uses)
        for ledger in ledgers:
            ledger.flush()
            ledger._waybills.settle(wait=True)
            leave(ledger) if killed else ledger.close()

    def _save(self, ledgers: list[Ledger], run: str, step: int, uses: set[Use]) -> None:
        path = self._weights()
        for ledger in ledgers:
            ledger.flush()
            state = {**(ledger.mark(step) or {}), "step": step}
            ledger.checkpoint(path, state)
        self.models.append(Model(path, state, run, frozenset(uses)))

    def check(self, model: Model) -> None:
        """Ask a checkpoint and compare with what the test knows."""
        opened = open_checkpoint(model.path, runs=[self.folder / "runs"])
        ids = {m.run: str(p.name) for p, m in opened.relatives.moments}
        found = {(ids[row["run"]], row["attempt"], row["step"]) for row in opened.history()}
        assert found == model.uses
        assert not opened.unknown
        for dataset, index in ((0, 0), (0, 7), (0, 22), (1, 3), (1, 10)):
            seen = opened.seen(["code", "prose"][dataset], index) if model.uses else None
            held = [
                (run, attempt, step)
                for run, attempt, step in model.uses
                for d, i in self.plans[run].bill(step).samples
                if (d, i) == (dataset, index)
            ]
            if seen is not None:
                assert sorted((ids[u["run"]], u["attempt"], u["step"]) for u in seen.uses) == sorted(held)
                assert seen.answer is bool(held)
        total = sum(row["samples"] for row in opened.totals())
        assert total == sum(len(self.plans[run].bill(step).samples) for run, _, step in model.uses)


@pytest.mark.filterwarnings("ignore:.*a second root.*:UserWarning")
# Each opens several ledgers, with all their syncs: a failure is shown as it was found.
@settings(max_examples=12, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(GENERATION, min_size=2, max_size=6))
def test_a_model_has_seen_what_its_family_was_trained_on(tmp_path_factory: pytest.TempPathFactory, generations):
    """Laws 1 and 2: resume, fork, base, merges of 1 to 4, 2 to 6 generations; later training changes no answer."""
    world = World4(tmp_path_factory.mktemp("family"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for generation in generations:
            known = len(world.models)
            world.grow(*generation)
            for model in world.models[known:]:
                world.check(model)

        for model in world.models:
            world.check(model)
