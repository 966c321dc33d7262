"""Orders that adapt, as docs/order-format.md has them, on top of the reader: chosen chunks and curricula."""

from __future__ import annotations

import base64
import functools
import json
import random
import zlib
from typing import Any

import numpy as np
import pytest
from tests.vectors import reader

from lading.kits.adaptive.chosen import Choose, ChosenChunks
from lading.kits.adaptive.curriculum import Curriculum
from lading.kits.adaptive.graded import GradedSamples
from lading.kits.adaptive.levels import Levels
from lading.order import Plan
from lading.order.mixture.spec import integer_weights

LENGTHS = {"a": 37, "b": 60}
E = sum(LENGTHS.values())


def flat(plan: Plan, step: int) -> tuple[int, list[int]]:
    """Return the position of a step and its rows, counted over all sources."""
    bill = plan.bill(step)
    return bill.position, (np.array([0, LENGTHS["a"]])[bill.dataset_idx] + bill.idx).tolist()


@pytest.mark.parametrize("seed", range(6))
def test_chosen_chunks_are_as_the_page_says(seed):
    """Each place of two passes."""
    rng = random.Random(seed)
    fields: dict[str, Any] = {"seed": seed, "drop_last": bool(seed % 2), "shuffle": "none" if seed == 4 else "full"}
    plan = Plan.make(LENGTHS, 4, chunk_batches=rng.randint(1, 6), adaptation=ChosenChunks(), **fields)
    while (step := plan.undecided_from(0)) is not None and step < plan.epoch_start(2):
        plan = plan.with_event(Choose(step, rng.choice(plan.order.remaining(plan.locate(step).epoch))))
    c = plan.chunk_batches * 4
    places = {(plan.locate(e.step).epoch, plan.locate(e.step).offset // c): e.chosen for e in plan.events}

    def row(place: int) -> int:
        epoch, x = divmod(place, E)
        rest = E // c * c
        chunk, inside, size = (E // c, x - rest, E - rest) if x >= rest else (places[epoch, x // c], x % c, c)
        key = reader.key64(seed, "chosen", epoch, chunk)
        return chunk * c + (inside if seed == 4 else reader.permute(size, key, inside))

    for step in range(plan.epoch_start(2)):
        position, rows = flat(plan, step)
        assert [row(position + slot) for slot in range(len(rows))] == rows


@pytest.mark.parametrize("seed", range(6))
def test_curricula_are_mixtures_of_levels_as_the_page_says(seed):
    """Growing pools, then everything; other scores from the second epoch on."""
    rng = np.random.default_rng(seed)
    batch, drop_last, scores = 2 + seed, bool(seed % 2), rng.random(E)
    spec = Curriculum([], start=0.2, until=("2ep", 150)[seed % 2]).planned(scores, batch, drop_last)
    fields: dict[str, Any] = {"shuffle": ("full", "none", "window")[seed % 3], "window_samples": 5}
    plan = Plan.make(LENGTHS, batch, seed=seed, drop_last=drop_last, adaptation=GradedSamples(spec), **fields)
    levels = Levels.of(scores[::-1], spec.levels.sizes.tolist())
    plan = plan.with_event(plan.adaptation.rescoring(plan, plan.epoch_start(1), levels))
    written = json.loads(plan.to_json())
    eras = [(0, written["curriculum"]["levels"]), *((e["position"], e["levels"]) for e in written["events"])]
    orders = [era(written, seed, start, levels["zlib"]) for start, levels in eras]

    for step in range(40):
        position, rows = flat(plan, step)
        assert [
            next(o for o in reversed(orders) if o[0] <= place)[1](place)
            for place in range(position, position + len(rows))
        ] == rows


def era(written: dict[str, Any], seed: int, start: int, packed: str) -> Any:
    """Return the start of an era and what gives the row at a place of the run."""
    levels = zlib.decompress(base64.b64decode(packed))
    members = [[row for row, level in enumerate(levels) if level == k] for k in range(max(levels) + 1)]
    stages: list[Any] = []
    for position, pool in written["curriculum"]["stages"]:
        growing = [len(m) if k < pool else 0 for k, m in enumerate(members)]
        weights = [*growing, 0] if pool < len(members) else [0] * len(members) + [1]
        stages = [*([] if position <= start else stages), [max(position - start, 0), list(integer_weights(weights))]]
    lengths = [*map(len, members), E]
    mixture = {"mixture_version": 2, "epoch_samples": E, "stages": stages, "stopping": "restart", "unit": "samples"}
    changed = {"datasets": [{"name": str(k), "length": n} for k, n in enumerate(lengths)], "mixture": mixture}
    changed |= {"seed": reader.key64(seed, "curriculum", start)}
    text = json.dumps({**{k: v for k, v in written.items() if k not in ("curriculum", "events")}, **changed})
    order = reader.Plan(text, [], {})
    bill = functools.cache(order.bill)

    def row(place: int) -> int:
        step = 0
        while not 0 <= place - start - order.at(step)[3] < order.at(step)[4]:
            step += 1
        level, index = bill(step)["samples"][place - start - order.at(step)[3]]
        return index if level == len(members) else members[level][index]

    return start, row
