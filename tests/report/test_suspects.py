"""Which samples of a step stand out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tests.report.runs import record

from lading.order import Plan
from lading.report import open_run
from lading.report.suspects import ranked


def row(slot: int, earlier: int = 0, length: int | None = None, loss: float | None = None) -> dict[str, Any]:
    """Return what is known of a sample."""
    return {"slot": slot, "earlier": earlier, "length": length, "loss": loss}


def test_samples_are_ranked_by_their_own_loss_first():
    """Then by earlier uses, then by length; a loss that is no number stands above all."""
    rows = [row(0, loss=1.0), row(1, loss=9.0), row(2, earlier=7), row(3, loss=math.nan), row(4, length=900)]

    assert [found["slot"] for found in ranked(rows)] == [3, 1, 0, 2, 4]


def test_a_first_use_among_repeats_stands_out():
    """And a repeat among first uses."""
    assert ranked([row(0, 3), row(1, 3), row(2, 0), row(3, 3)])[0]["slot"] == 2
    assert ranked([row(0), row(1), row(2, 1), row(3)])[0]["slot"] == 2


def test_a_step_says_how_its_samples_stand_out(tmp_path: Path):
    """The third epoch of a run that was blocked from a sample: its substitute was used more often than the others."""
    plan = Plan.make({"a": 24}, batch_size=8)
    mark = record(tmp_path, range(3), plan=plan)
    first = plan.bill(0).samples[0]
    open_run(tmp_path).block(f"a:{first.index}")
    record(tmp_path, range(3, 9), plan=plan, loaded=mark)
    run = open_run(tmp_path)

    last = [run.explain(step) for step in (6, 7, 8)]

    said = {found["index"]: found["stands_out"] for step in last for found in step.exposures}
    assert first.index not in said
    assert [word for word in said.values() if word] in (["used 3 times before"], ["used 4 times before"])
    assert all(step.ranked[0]["stands_out"] or not any(step.exposures["stands_out"]) for step in last)


def test_lengths_are_said_where_the_sources_are_at_hand(tmp_path: Path):
    """A sample of more than twice the usual length is long, one of less than half is short."""
    plan = Plan.make({"a": 24}, batch_size=8)
    record(tmp_path, range(3), plan=plan)
    held = [sample.index for sample in plan.bill(1).samples]
    lengths = dict.fromkeys(held, 100) | {held[2]: 900, held[5]: 10}

    found = open_run(tmp_path).explain(1, lengths=lambda _, index: lengths[index])

    assert found.exposures["stands_out"] == [None, None, "long", None, None, "short", None, None]
    assert found.ranked[0]["index"] == held[2]
