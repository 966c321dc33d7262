"""Books of rollouts: conservation at every flush, over any tree of resumes, after any kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from lading import Plan, Rollout, RolloutBooks, RolloutGroup, World, open_run
from lading.errors import ConfigError, LedgerError, ResumeError
from lading.report.verify.rollouts import check_rollouts
from lading.report.verify.verdict import Verdict
from lading.runtime.blocks.progress import silent

SCRIPT = Path(__file__).parent / "scripts" / "loop.py"
SIZE = 3


def plan(**options):
    """Return an order of 30 prompts, 4 a step."""
    return Plan.make({"math": 20, "code": 10}, batch_size=4, **options)


def books_of(run, **options):
    """Return books of a run."""
    return RolloutBooks(run, plan(), group_size=SIZE, **options)


def group(prompt, count=SIZE, policy=0, **options):
    """Return a group of some rollouts of a prompt."""
    rollouts = [Rollout(list(range(place + 1)), reward=place, seconds=0.5) for place in range(count)]
    return RolloutGroup(prompt.group, rollouts, policy, **options)


def recorded(run):
    """Return the fate and the updates of every rollout, as a fresh reader finds them; the record must hold."""
    opened = open_run(run)
    verdict = opened.verify(allow_empty=True)
    assert verdict.holds, verdict
    uses = opened.rollout_history.uses
    return {
        row["rollout"]: (row["fate"], uses["update"][uses["rollout"] == row["rollout"]].tolist())
        for row in opened.rollouts().dicts()
    }


class Model:
    """What the test itself remembers of a run."""

    def __init__(self):
        self.fates, self.waiting, self.drawn, self.update = {}, [], [], 0

    def copy(self):
        """Return it as it is now."""
        other = Model()
        other.fates = {number: (fate, list(updates)) for number, (fate, updates) in self.fates.items()}
        other.waiting, other.drawn, other.update = list(self.waiting), list(self.drawn), self.update
        return other

    def open(self):
        """Return the rollouts that nothing was decided about."""
        return [number for number, (fate, _) in self.fates.items() if fate == "open"]


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["draw", "made", "use", "reuse", "drop", "look", "save", "resume"]), st.integers(0, 99)),
    min_size=5,
    max_size=30,
)


@settings(
    max_examples=15,
    phases=[Phase.explicit, Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(OPERATIONS)
def test_every_rollout_is_accounted_for_over_any_tree_of_resumes(tmp_path_factory, operations):
    """Laws 1 and 3: at every flush the reader finds each rollout once, with the fate the test remembers."""
    run = tmp_path_factory.mktemp("run") / "r"
    books, model, saved = books_of(run), Model(), []
    books.begin()
    for what, number in operations:
        if what == "draw":
            again = model.waiting and books._redrawn
            found = [prompt.group for prompt in books.draw(number % 3 + 1)]
            model.waiting += [g for g in found if g not in model.waiting]
            new = [g for g in found if g not in model.drawn]
            assert again or new == found
            model.drawn += new
            assert model.drawn == list(range(len(model.drawn)))  # the plan's order, none skipped
        elif what == "made" and model.waiting:
            chosen = model.waiting.pop(number % len(model.waiting))
            made = RolloutGroup(chosen, [Rollout(number)] * (number % SIZE + 1), model.update)
            for rollout in books.made([made]):
                assert rollout not in model.fates
                model.fates[rollout] = ("open", [])
        elif what in ("use", "reuse"):
            reused = [r for r, (fate, _) in model.fates.items() if what == "reuse" and fate == "applied"]
            chosen = [r for r in model.open() if r % 2 == number % 2] + reused
            if chosen:
                books.used(chosen, model.update)
                for rollout in chosen:
                    model.fates[rollout] = ("applied", [*model.fates[rollout][1], model.update])
                model.update += 1
        elif what == "drop" and model.open():
            chosen, reason = model.open()[: number % 3 + 1], ["stale", "length"][number % 2]
            books.drop(chosen, reason)
            model.fates.update(dict.fromkeys(chosen, ("stale" if reason == "stale" else "filtered", [])))
        elif what == "look":
            books.flush()
            assert recorded(run) == model.fates
        elif what == "save":
            saved.append((json.dumps(books.state()), model.copy()))
        elif what == "resume" and saved:
            books.close()
            state, before = saved[number % len(saved)]
            books, model = books_of(run), before.copy()
            books.load(json.loads(state))
            assert books.open_rollouts() == sorted(model.open())
            prompt = books.draw(1)[0]  # an attempt that recorded nothing is none
            model.waiting = [g for g in model.waiting if g != prompt.group]
            model.drawn += [prompt.group] * (prompt.group not in model.drawn)
            model.fates[books.made([RolloutGroup(prompt.group, [Rollout(1)], model.update)])[0]] = ("open", [])
    books.close()
    assert recorded(run) == model.fates


def test_a_killed_loop_resumes_to_the_same_uses(tmp_path):
    """kill -9 at any moment: the record holds, and after the last resume the uses are the uninterrupted run's."""
    whole = subprocess.run([sys.executable, SCRIPT, tmp_path / "whole", "30"], check=False)
    assert whole.returncode == 0
    for delay in (0.0, 0.3):
        process = subprocess.Popen([sys.executable, SCRIPT, tmp_path / "run", "30", "0.03"], stdout=subprocess.PIPE)
        process.stdout.readline()  # it trains
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        opened = open_run(tmp_path / "run")
        assert opened.verify(allow_empty=True).holds
        assert "open" not in opened.rollouts()["fate"]  # nobody is there who could decide: lost, unless a resume has it
    assert subprocess.run([sys.executable, SCRIPT, tmp_path / "run", "30"], check=False).returncode == 0

    ended, uninterrupted = recorded(tmp_path / "run"), recorded(tmp_path / "whole")
    assert ended == uninterrupted
    assert {fate for fate, _ in ended.values()} >= {"applied", "stale", "filtered"}


def test_two_ranks_share_the_prompts_and_a_group(tmp_path):
    """Each rank draws its own prompts; a group may have rollouts of both; a step counts when both committed it."""
    ranks = [books_of(tmp_path / "run", world=World(rank, 2)) for rank in range(2)]
    drawn = [books.draw(4) for books in ranks]
    numbers = [books.made([group(p, 2) for p in prompts]) for books, prompts in zip(ranks, drawn, strict=True)]
    numbers[1] += ranks[1].made([group(drawn[0][0], 1, first=2)])
    for books, mine in zip(ranks, numbers, strict=True):
        books.used(mine, 0)
    for books in ranks:
        books.close()

    opened = open_run(tmp_path / "run")
    assert opened.verify().holds
    assert sorted(p.group for prompts in drawn for p in prompts) == list(range(8))
    assert opened.rollouts()["fate"] == ["applied"] * 17
    assert sorted(opened.step(0).samples["slot"]) == sorted(set(opened.step(0).samples["slot"]))


def test_a_step_that_only_one_rank_committed_used_nothing(tmp_path):
    """What one rank committed and the other not is open: the update was not made."""
    ranks = [books_of(tmp_path / "run", world=World(rank, 2)) for rank in range(2)]
    numbers = [books.made([group(books.draw(1)[0])]) for books in ranks]
    ranks[0].used(numbers[0], 0)
    for books in ranks:
        books.close()

    assert open_run(tmp_path / "run").rollouts()["fate"] == ["open"] * 6


def test_what_cannot_be_is_refused_by_name(tmp_path):
    """A number twice, an unknown one, another policy, an update before its policy, two fates, nothing at all."""
    books = books_of(tmp_path / "run")
    first, second = books.draw(2)
    made = books.made([group(first, 2, policy=3)])

    for wrong, says in (
        (lambda: books.made([group(first, 1, policy=3)]), "rollout 0 was reported before"),
        (lambda: books.made([group(first, 1, policy=4, first=2)]), "made by policy 3 and is now reported by policy 4"),
        (lambda: books.made([group(second), group(first, 2, policy=3)]), "rollout 0 was reported before"),
        (lambda: books.made([RolloutGroup(second.group, [])]), "at least one"),
        (lambda: books.made([group(second, 2, first=2)]), "group_size is 3"),
        (lambda: books.made([RolloutGroup(29, [Rollout(1)])]), "was never drawn"),
        (lambda: books.used(made, 2), "update 2 cannot use rollout 0: a policy of 3 updates made it"),
        (lambda: books.used([5], 3), "rollout 5 is not known"),
        (lambda: books.used([0, 0], 3), "rollout 0 is there twice"),
        (lambda: books.used(["0"], 3), "is an integer"),
        (lambda: books.used(made, None), "expected the number of the update"),
        (lambda: books.load({}), "have begun"),
    ):
        with pytest.raises(LedgerError, match=says):
            wrong()
    books.drop(made[:1], "error")
    with pytest.raises(LedgerError, match="rollout 0 is filtered already and cannot be used"):
        books.used(made, 3)
    books.used(made[1:], 3)
    with pytest.raises(LedgerError, match="rollout 1 is applied already and cannot be dropped"):
        books.drop(made[1:], "stale")
    assert books.made([group(second)]) == [3, 4, 5]  # the refused call left nothing behind
    books.close()
    assert recorded(tmp_path / "run")[0] == ("filtered", [])
    with pytest.raises(ConfigError, match="group_size is 0"):
        RolloutBooks(tmp_path / "other", plan(), group_size=0)


def test_states_of_others_are_refused_by_name(tmp_path):
    """Another plan, group size, rank or version, and damage."""
    books = books_of(tmp_path / "run")
    books.made([group(p) for p in books.draw(2)])
    state = books.state()
    books.close()

    for change, says in (
        (lambda: RolloutBooks(tmp_path / "run", plan(seed=4), group_size=SIZE).load(state), "seed 0 -> 4"),
        (lambda: RolloutBooks(tmp_path / "run", plan(), group_size=4).load(state), "group_size was 3 and is 4"),
        (lambda: books_of(tmp_path / "run", world=World(0, 2)).load(state), "rank 0 of 1, this is rank 0 of 2"),
        (lambda: books_of(tmp_path / "run").load({**state, "version": 9}), "version: expected 1"),
        (lambda: books_of(tmp_path / "run").load({**state, "groups": "{"}), "expected JSON"),
        (
            lambda: books_of(tmp_path / "run").load({**state, "groups": state["groups"].replace("ooo", "oxo")}),
            "letters",
        ),
        (lambda: books_of(tmp_path / "run").load({**state, "rows": '{"uses":[]}'}), "only the fields"),
        (lambda: books_of(tmp_path / "run").load({"version": 1}), "rank"),
    ):
        with pytest.raises(ResumeError, match=says):
            change()


def test_prompts_of_a_stream_are_counted(tmp_path):
    """No plan: names are kept, the count goes on after a resume, and there is no frontier."""
    books = RolloutBooks(tmp_path / "run", group_size=2)
    bill = books.used(books.made([RolloutGroup(p.group, [Rollout(5)]) for p in books.draw(3)]), 0)
    state = books.state()
    books.close()
    assert open_run(tmp_path / "run").step(bill.batch_id).step == bill.step
    books = RolloutBooks(tmp_path / "run", group_size=2)
    books.load(state)

    assert [p.index for p in books.draw(2)] == [3, 4]
    with pytest.raises(LedgerError, match="without a plan of the prompts"):
        books_of(tmp_path / "run", world=World()).load(
            {**state, "groups": state["groups"].replace('"size":2', '"size":3')}
        )
    books.close()


def test_a_blocked_prompt_is_replayed_as_if_it_had_never_been_there(tmp_path):
    """Law 7: blocked by hand and resumed before its first use equals a plan that was born without it."""
    from lading.report.block import block

    books = books_of(tmp_path / "run")
    books.used(books.made([group(p) for p in books.draw(4)]), 0)
    state = books.state()
    bad = books.draw(3)[2]
    books.close()
    block(open_run(tmp_path / "run"), [f"{bad.dataset}:{bad.index}"], "wrong answer")
    control = RolloutBooks(tmp_path / "control", plan(blocked={bad.dataset: [bad.index]}), group_size=SIZE)
    control.draw(4)

    again = books_of(tmp_path / "run")
    again.load(state)
    drawn, never = again.draw(26), control.draw(26)
    kept = again.state()
    again.close()
    control.close()
    third = books_of(tmp_path / "run")
    third.load(kept)

    assert drawn == never
    assert bad not in drawn
    assert third.draw(26) == drawn  # drawn and not made: they come again, and stay as they were
    third.close()


def changed(opened, table, **columns):
    """Return what verify says where columns of a table were changed."""
    history = opened.rollout_history
    vars(history)[table] = {**getattr(history, table), **columns}
    verdict = Verdict()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("lading.report.verify.rollouts.RolloutHistory", lambda *_: history)
        check_rollouts(opened.evidence, verdict, silent)
    return " ".join(finding.message for finding in verdict.findings)


def test_verify_names_what_does_not_add_up(tmp_path):
    """Each rule of conservation has a record that breaks it."""
    books = books_of(tmp_path / "run")
    numbers = books.made([group(p, policy=0) for p in books.draw(3)])
    books.used(numbers[:4], 0)
    books.drop(numbers[4:6], "stale")
    books.close()

    def says(table, column, place, value):
        opened = open_run(tmp_path / "run")
        values = getattr(opened.rollout_history, table)[column].copy()
        values[place] = value
        return changed(opened, table, **{column: values})

    assert changed(open_run(tmp_path / "run"), "made") == ""
    assert "rollout 1 is in history twice" in says("made", "rollout", 2, 1)
    assert "rollout 99 was used, and nobody made it" in says("uses", "rollout", 0, 99)
    assert "rollout 99 was dropped, and nobody made it" in says("fates", "rollout", 0, 99)
    assert "rollout 1 was decided twice" in says("fates", "rollout", 0, 1)
    assert "rollout 1 is in a step twice" in says("uses", "rollout", 0, 1)
    assert "before its policy" in says("made", "policy", slice(0, 3), 7)
    assert "group 0 has more than one policy" in says("made", "policy", 0, 7)
    assert "group 0 has more than one prompt" in says("made", "index", 0, 7)
    assert "step 0 used 4 rollouts, and 3 uses" in changed(
        open_run(tmp_path / "run"),
        "uses",
        **{n: v[1:] for n, v in open_run(tmp_path / "run").rollout_history.uses.items()},
    )


def test_content_tells_rollouts_apart(tmp_path):
    """Equal token ids have equal hashes, whatever holds them; other ids have others."""
    same = [Rollout([1, 2]).counted, Rollout(np.array([1, 2], dtype=np.int32)).counted]

    assert same[0] == same[1]
    assert Rollout([2, 1]).counted[1] != same[0][1]
    assert Rollout(2).counted == (2, None, None, None, None)
    with pytest.raises(LedgerError, match="shape"):
        _ = Rollout([[1], [2]]).counted


def test_a_list_changed_after_it_was_delivered_is_recorded_as_it_was(tmp_path):
    """The caller's list stays the caller's: what goes into the loss next does not change what went before."""
    with books_of(tmp_path / "run") as books:
        numbers = books.made([group(prompt) for prompt in books.draw(1)])
        given, weights = list(numbers), [1.0] * len(numbers)
        bill = books.deliver(given, weights)
        given.reverse(), weights.clear()
        books.commit([bill], loss=1.0)

    assert recorded(tmp_path / "run") == {number: ("applied", [0]) for number in numbers}
