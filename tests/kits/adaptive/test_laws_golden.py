"""Plans, events and states of runs that adapt: what is written stays byte for byte as it was.

The fingerprint of the order version is left out: it changes with the permutation, not with what adapts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lading import Chunks, Curriculum, GrowWhileImproving, LearningValue, NumpyLoader
from lading.order.plan import Plan

GOLDEN = Path(__file__).parent / "golden" / "adaptive.json"
SCORES = np.linspace(1, 0, 24)


def written(loader: NumpyLoader) -> dict[str, Any]:
    """Return everything that is written of a loader, order versions left out."""
    plan, state = json.loads(loader.plan.to_json()), loader.state_dict()
    summary = json.loads(state["summary"])
    del plan["order_version"], summary["order_version"]
    kept = {name: state[name] for name in ("events", "policy", "epoch", "position", "step")}
    return {"plan": json.dumps(plan), "summary": json.dumps(summary), **kept, "repr": _words(repr(loader.plan))}


def _words(text: str) -> str:
    return text.rpartition(", ")[0]  # what comes last is the fingerprint


def graded() -> NumpyLoader:
    """Return a loader of a curriculum whose scores change, in its second epoch."""
    curriculum = Curriculum(SCORES, until="2ep", later=[SCORES[::-1]], lookahead_steps=1)
    loader = NumpyLoader(np.arange(24), 4, mixture=curriculum)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    loader.rescore(SCORES[::-1], "a try")
    list(batches)
    next(iter(loader))
    return loader


def chosen() -> NumpyLoader:
    """Return a loader whose chunks are chosen and resized, in the middle of its second pass."""
    chunks = Chunks(2, resize=GrowWhileImproving(most=4), choose=LearningValue())
    loader = NumpyLoader({"a": np.arange(24), "b": np.arange(9)}, 3, chunk_batches=chunks)
    for number in range(7):
        list(loader)
        loader.validated(10.0 - number, loss=float(number % 3))
    next(iter(loader))
    return loader


def sized() -> NumpyLoader:
    """Return a loader whose chunk sizes are planned."""
    loader = NumpyLoader(np.arange(40), 4, chunk_batches=[[0, 2], [2, 3]], seed=3)
    for _ in range(3):
        list(loader)
    return loader


def resumed(make: Any) -> NumpyLoader:
    """Return a loader that resumed where another was: what happened before is one base."""
    before = make()
    after = NumpyLoader(
        before.sources,
        before.engine.request.batch_size,
        mixture=before.mixture,
        chunk_batches=before.chunk_batches,
        seed=before.seed,
    )
    after.load_state_dict(before.state_dict())
    return after


CASES = {
    "graded": graded,
    "chosen": chosen,
    "sized": sized,
    "graded, resumed": lambda: resumed(graded),
    "chosen, resumed": lambda: resumed(chosen),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_written_of_a_run_that_adapts_stays_as_it_was(case: str) -> None:
    """Keys, their order and every value, of plan, events, state and policies."""
    assert written(CASES[case]()) == json.loads(GOLDEN.read_text())[case]


@pytest.mark.parametrize("case", CASES)
def test_a_plan_that_adapts_is_read_back(case: str) -> None:
    """JSON both ways, events included."""
    plan = CASES[case]().plan

    assert Plan.from_json(plan.to_json()) == plan
    assert Plan.from_json(plan.to_json()).to_json() == plan.to_json()


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({case: written(make()) for case, make in CASES.items()}, indent=1) + "\n")
