"""From a request to a plan: what identifies a source, and which plan is made once."""

from __future__ import annotations

import numpy as np

from lading.identity import World
from lading.loader import NumpyLoader, planning
from lading.loader.planning import describe
from lading.runtime.blocks import run as blocks
from lading.source.columns import Columns
from lading.source.reader import reader_of


def test_a_full_fingerprint_is_the_same_for_any_number_of_workers(monkeypatch):
    """Blocks of samples are hashed by whoever is there, and folded in order."""
    for module in (blocks, planning):
        monkeypatch.setattr(module, "start_method", lambda: "fork")  # whatever else is loaded
    monkeypatch.setattr(planning, "_CHUNK", 64)
    source = Columns(x=np.arange(200))
    reader = reader_of(source, "data")

    one, three = describe(reader, "full"), describe(reader, "full", workers=3)
    changed = Columns(x=np.where(source.columns["x"] == 70, -1, source.columns["x"]))

    assert one == three != describe(reader_of(changed, "data"), "full", workers=2)
    loaders = [NumpyLoader(source, batch_size=64, fingerprint="full", num_workers=n) for n in (0, 2)]
    assert loaders[0].plan.fingerprint == loaders[1].plan.fingerprint


def test_the_plan_that_was_tried_is_the_plan_unless_something_changed():
    """A source that grew since, or another number of ranks, is planned anew."""
    source, tries = list(range(6)), []
    for world, grows in ((World(), False), (World(), True), (World(0, 2), False)):
        loader = NumpyLoader(source, 2, world=world)
        source += [0] * grows
        tries.append((loader.plan is loader.engine._trial.plan, loader.plan.lengths, loader.plan.global_batch_size))

    assert tries == [(True, (6,), 2), (False, (7,), 2), (False, (7,), 4)]
