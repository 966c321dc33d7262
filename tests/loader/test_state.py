"""States: small whatever happened, refused field by field, and never a bare KeyError whatever they hold."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading import Columns, Mixture, NumpyLoader, Plan, Resume
from lading.errors import LadingError, ResumeError
from lading.kits.adaptive.curriculum import Curriculum
from lading.kits.adaptive.policy.chunks import LearningValue
from lading.kits.adaptive.policy.mixture import SteerToShares
from lading.loader.chunks import Chunks
from lading.order.decided import KINDS

LENGTHS = {"code": 300, "prose": 80}


def make(**options):
    """A loader of two datasets."""
    sources = {name: Columns(x=np.arange(n)) for name, n in LENGTHS.items()}
    given = {"batch_size": 8, "mixture": Mixture([3, 1], epoch_samples=400), "seed": 3, **options}
    return NumpyLoader(given.pop("sources", sources), **given)


def after(loader, steps):
    """Return the state after some steps."""
    batches = iter(loader)
    for _ in range(steps):
        next(batches)
    return loader.state_dict()


# One change for every field of a plan but its events, which a state brings itself.
CHANGES = {
    "datasets": ({"sources": {"code": Columns(x=np.arange(301)), "prose": Columns(x=np.arange(80))}}, "300 -> 301"),
    "global_batch_size": ({"batch_size": 4}, "global batches of 8 samples, this loader makes 4"),
    "batch_schedule": ({"batch_size": None, "batch_schedule": [(0, 8), ("9ba", 16)]}, "global batches of 8 samples"),
    "seed": ({"seed": 4}, "seed 3 -> 4"),
    "shuffle": ({"shuffle": False}, "shuffle full -> none"),
    "window_samples": ({"shuffle": "window", "window_samples": 64}, "window size 32 -> 64"),
    "drop_last": ({"drop_last": True}, "drop_last False -> True"),
    "mixture": ({"mixture": Mixture([1, 1], epoch_samples=400)}, "weights or schedule"),
    "chunk_schedule": ({"chunk_batches": [[0, 7], [3, 9]]}, r"planned chunk sizes None -> \[\[0, 7\], \[3, 9\]\]"),
    "chosen_chunks": (
        {"mixture": None, "chunk_batches": Chunks(5, choose=LearningValue())},
        "chosen chunks None -> True",
    ),
    "curriculum": ({"mixture": Curriculum("x")}, "scores or pace of the curriculum"),
    "sample_weights": ({"sample_weights": {"code": np.arange(300.0)}}, "sample weights"),
    "blocked": ({"blocked": {"code": [3, 9]}}, "samples blocked from the beginning"),
    "masked": ({"masked": {"code": [3, 9]}}, "documents masked from the beginning"),
}
FREE = {"events", "lookahead_steps", "chunk_batches"}  # carried by the state, or free to change


def test_every_field_of_a_plan_is_refused_or_known_to_be_free():
    """A new field, and a new kind of adaptation, must be put into one of the two lists."""
    assert {*CHANGES, *FREE, "adaptation"} == {*(field.name for field in dataclasses.fields(Plan)), *KINDS}


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_field_is_refused(field):
    """By name, with what it was and is."""
    changes, message = CHANGES[field]
    base = {"shuffle": "window", "window_samples": 32} if field == "window_samples" else {}
    state = after(make(**base), 5)

    with pytest.raises(ResumeError, match=message):
        make(**changes).load_state_dict(state)


def test_a_changed_chunk_size_and_lookahead_are_free():
    """They change no order."""
    state = after(make(), 5)
    rest = make(chunk_batches=7, mixture=Mixture([3, 1], epoch_samples=400, lookahead_steps=3))

    rest.load_state_dict(state)

    assert [bill.samples for _, bill in rest.with_bills()] == [make().plan.bill(step).samples for step in range(5, 12)]


def test_the_lookahead_of_a_run_is_kept():
    """A policy that resumes with fewer workers acts where it would have acted."""
    state = after(make(num_workers=2, prefetch_factor=30), 3)
    resumed = make()
    resumed.load_state_dict(state)

    assert state["lookahead_steps"] == resumed.plan.lookahead_steps == 60


def test_a_state_of_many_datasets_is_as_small_as_said():
    """2 kB, 48 bytes a dataset and 8 bytes a blocked sample: 500 datasets, reweighted, are more than 2 kB."""
    sources = {f"dataset {d}": list(range(10)) for d in range(500)}
    loader = NumpyLoader(sources, 50, mixture=Mixture([1.0] * 500, lookahead_steps=1))
    loader.block("dataset 7", list(range(8)))
    for number, _ in enumerate(loader):
        loader.reweight(np.random.default_rng(number).random(500).tolist())
        if number == 20:
            break

    size = len(json.dumps(loader.state_dict()))

    assert 2048 < size <= 2048 + 48 * 500 + 8 * 8


def test_a_state_does_not_grow_with_the_past():
    """2 kB, 48 bytes a dataset and 8 bytes a blocked sample, after thousands of changes."""
    rng = np.random.default_rng(0)
    loader = make(mixture=Mixture([3, 1], epoch_samples=10**6, lookahead_steps=1))
    blocked = sorted(rng.choice(300, 50, replace=False).tolist())
    loader.block("code", blocked)
    batches = loader.with_bills()
    for _ in range(2000):
        next(batches)
        loader.reweight([1, float(rng.random())])
    state = loader.state_dict()
    resumed = make(mixture=Mixture([3, 1], epoch_samples=10**6, lookahead_steps=1))
    resumed.load_state_dict(json.loads(json.dumps(state)))

    assert len(json.dumps(state)) <= 2048 + 48 * 2 + 8 * len(blocked)
    assert [next(batches)[1].samples for _ in range(50)] == [
        bill.samples for (_, bill), _ in zip(resumed.with_bills(), range(50), strict=False)
    ]


def test_unchanged_weights_are_no_event():
    """A policy that repeats itself leaves no trace."""
    loader = make()

    assert loader.reweight([3, 1]) is None and loader.reweight([6, 2]) is None and loader.plan.events == ()


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.binary(max_size=5),
)


def damaged_json(text, junk, data):
    """Return a JSON text with one value somewhere replaced."""
    value = json.loads(text)
    places = []

    def walk(node, path):
        places.append(path)
        for key, inner in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
            walk(inner, (*path, key))

    walk(value, ())
    path = data.draw(st.sampled_from(places))
    if not path:
        return json.dumps(junk, default=str)
    node = value
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = junk
    return json.dumps(value, default=str)


STEERED = Mixture([3, 1], epoch_samples=400, policy=SteerToShares({"code": 1, "prose": 1}, every_steps=2))


@functools.cache
def steered_state():
    """Return a state with events, blocked samples and a policy."""
    loader = make(mixture=STEERED)
    loader.block("code", [3, 4])
    return after(loader, 7)


@given(st.data(), JUNK)
def test_whatever_a_state_holds_it_is_loaded_or_refused_by_name(data, junk):
    """Any field replaced by anything: a LadingError, or a loader that yields."""
    state = dict(steered_state())
    key = data.draw(st.sampled_from(sorted(state)))
    inner = key in ("summary", "events", "policy") and data.draw(st.booleans())
    state[key] = damaged_json(state[key], junk, data) if inner else junk
    fresh = make(mixture=STEERED)

    with contextlib.suppress(LadingError):
        fresh.load_state_dict(state, Resume(rebatch=True))
        next(iter(fresh))


def test_a_state_of_another_shuffle_is_refused_with_a_sentence():
    """Order version 1: the same seed gives other samples now; the override is named, and works."""
    state = after(make(), 3)
    old = {**state, "summary": state["summary"].replace('"order_version":2', '"order_version":1')}

    with pytest.raises(ResumeError, match=r"the state was made by a Lading that shuffles in another way.*changed_plan"):
        make().load_state_dict(old)
    resumed = make()
    resumed.load_state_dict(old, Resume(changed_plan=True))
    assert resumed.step == 3


def test_a_dataset_that_grew_is_refused_with_what_would_happen():
    """n is part of the key, so the rest of the epoch is another order."""
    state = after(make(), 3)
    grown = {"code": Columns(x=np.arange(310)), "prose": Columns(x=np.arange(80))}

    with pytest.raises(ResumeError, match=r"300 -> 310 samples\. Samples of this epoch would repeat or be missed\."):
        make(sources=grown).load_state_dict(state)
