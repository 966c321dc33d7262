"""Which attempt owns which steps, and what an attempt continues."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from lading.errors import ResumeError
from lading.ledger.launch import Launch, Parent
from lading.ledger.lineage import Ancestry, AncestryRules, lineage, pending_of, root_of
from lading.ledger.log import Log

RUN, OTHER = "ab" * 16, "cd" * 16


def sha(attempt: int) -> str:
    return f"{attempt:064x}"


def launched(attempt: int, start: int, kind: str = "root", parent: tuple[int, int] | None = None) -> Launch:
    known = None if parent is None else Parent(RUN, sha(parent[0]), *parent)
    return Launch(attempt, kind, known, start, 1, "t", None, None, (), (), "h", (1, 1), "0", 0.0, sha256=sha(attempt))


def log_of(*launches: Launch) -> Log:
    return Log({launch.attempt: launch for launch in launches})


def state(attempt: int, step: int, run: str = RUN) -> dict[str, Any]:
    return {"run": run, "attempt": attempt, "launch": sha(attempt), "step": step}


NOTHING = {"run": "", "attempt": -1, "launch": "", "step": 7}


def decide(log: Log, step: int, loaded=None, *, whole: dict[int, int] | None = None, **options) -> Ancestry:
    rules = AncestryRules(RUN, log, "runs/7", lambda launch: (whole or {}).get(launch.attempt), **options)
    return rules.decide(step, loaded)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30), st.booleans()), min_size=1, max_size=10), st.data())
def test_the_steps_of_a_line_are_those_that_were_trained_on(attempts, data):
    """Law 8 on a model: every attempt is trained on from a state of any earlier one, or goes back without one."""
    launches: dict[int, Launch] = {}
    models: dict[int, list[list[tuple[int, int]]]] = {}  # what the model was trained on after each step of an attempt
    for number, (share, length, replays) in enumerate(attempts):
        parent = data.draw(st.integers(0, number - 1)) if number else None
        if parent is None:
            launches[number], trained = launched(number, 0), []
        elif replays:
            start = int(share * (launches[parent].start_step + len(models[parent]) - 1))
            launches[number], trained = launched(number, start, "replay", (parent, start)), models[parent][-1]
        else:
            taken = int(share * (len(models[parent]) - 1))
            step = launches[parent].start_step + taken
            launches[number], trained = launched(number, step, "resume", (parent, step)), models[parent][taken]
        start = launches[number].start_step
        models[number] = [trained + [(number, s) for s in range(start, start + n)] for n in range(length + 1)]

    for leaf in launches:
        rows = [(n, launches[n].start_step + i) for n in launches for i in range(len(models[n]) - 1)]
        spans = lineage(launches, leaf)
        history = [row for span in spans for row in rows if row[0] == span.attempt and row[1] in span]
        assert history == models[leaf][-1]
        assert [span.attempt for span in spans] == sorted({span.attempt for span in spans})


def test_spans_touch_and_never_overlap_without_a_replay():
    """Each step has one owner."""
    launches = log_of(
        launched(0, 0), launched(1, 90, "resume", (0, 90)), launched(2, 70, "resume", (0, 70)), launched(3, 0)
    ).launches

    assert [(s.attempt, s.start, s.stop) for s in lineage(launches, 2)] == [(0, 0, 70), (2, 70, None)]
    assert all(a.stop == b.start for a, b in itertools.pairwise(lineage(launches, 1)))
    assert [root_of(launches[n], launches) for n in range(4)] == [0, 0, 0, 3]


@pytest.mark.parametrize(
    ("step", "loaded", "kind", "parent"),
    [
        (0, None, "root", None),
        (0, {**NOTHING, "step": 0}, "root", None),
        (7, NOTHING, "root", None),
        (7, state(4, 7, OTHER), "root", (OTHER, 4, 7)),
    ],
)
def test_what_begins_in_an_empty_folder(step: int, loaded, kind: str, parent):
    """A root, whatever was loaded; another run's state is named."""
    found = decide(log_of(), step, loaded)

    assert found.kind == kind
    assert (found.parent and (found.parent.run, found.parent.attempt, found.parent.step)) == parent


@pytest.mark.parametrize(
    ("step", "loaded", "kind", "parent"),
    [
        (0, None, "root", None),
        (7, NOTHING, "inferred", (0, 7)),
        (35, None, "inferred", (1, 35)),
        (45, None, "inferred", (0, 45)),
        (70, None, "inferred", (1, 70)),
        (30, state(0, 30), "resume", (0, 30)),
        (42, state(0, 42), "resume", (0, 42)),
        (33, state(1, 33), "resume", (1, 33)),
    ],
)
def test_what_begins_in_a_folder_with_attempts(step: int, loaded, kind: str, parent):
    """Attempt 0 has steps 0..59, attempt 1 resumed from it at 30 and has 30..39."""
    log = log_of(launched(0, 0), launched(1, 30, "resume", (0, 30)))

    found = decide(log, step, loaded, whole={0: 59, 1: 39})

    assert found.kind == kind
    assert (found.parent and (found.parent.attempt, found.parent.step)) == parent


@pytest.mark.parametrize(
    ("loaded", "message"),
    [
        (state(4, 7, OTHER), f"was taken in run {OTHER}, and runs/7 is run {RUN}"),
        (state(4, 7), r"attempt 4 with launch 00000000 of this run, which runs/7 does not know: it has 0 \(00000000\)"),
        ({**state(0, 7), "attempt": 1}, "which runs/7 does not know"),
        (state(1, 7), "at step 7 of attempt 1, which began at step 30: expected a step from there on"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(loaded, message: str):
    """Both sides are named, and the way out."""
    log = log_of(launched(0, 0), launched(1, 30, "resume", (0, 30)))

    with pytest.raises(ResumeError, match=message):
        decide(log, 7, loaded)


def test_an_unknown_parent_is_recorded_on_request():
    """The steps before are then unknown."""
    found = decide(log_of(launched(0, 0)), 7, state(4, 7), allow_unknown=True)

    assert found.kind == "unknown"
    assert found.parent is not None
    assert (found.parent.attempt, found.parent.step) == (4, 7)


def test_an_attempt_continues_no_later_one():
    """A hostile log may say so; following it would never end."""
    launches = {0: launched(0, 5, "resume", (1, 5)), 1: launched(1, 5, "resume", (0, 5))}

    assert root_of(launches[1], launches) == 0
    assert [span.attempt for span in lineage(launches, 1)] == [0, 1]


def test_what_waited_at_a_checkpoint_is_of_the_parent_that_owns_it():
    """The child names ranges; steps that a later resume took from the parent are not its own any more."""
    first = launched(0, 0)
    second = replace(launched(1, 8, "resume", (0, 8)), pending=((5, 8), (11, 13)))
    third = replace(launched(2, 9, "resume", (1, 9)), pending=((3, 4), (8, 9)))
    launches = log_of(first, second, third).launches
    resumed = [(0, 5), (0, 6), (0, 7), (1, 8)]

    assert pending_of(launches, lineage(launches, 2)) == resumed
    assert pending_of(launches, lineage(launches, 2, 12), [(9, 10), (11, 14)]) == [*resumed, (2, 9), (2, 11)]
    assert pending_of(launches, lineage(launches, 0)) == []
