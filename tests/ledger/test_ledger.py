"""The ledger: fates, attempts, errors, and what a reader finds of them."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import shutil
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from lading.errors import ConfigError, CorruptLedgerError, LedgerError, ResumeError
from lading.identity import Bill, Deviation, World
from lading.ledger import Ledger, writer
from lading.ledger.description import read_plan
from lading.ledger.log import sha256_of_bytes
from lading.ledger.rows import TOGETHER
from lading.ledger.run_folder import RunFolder
from lading.order import Plan, PlannedDataset, Reweight
from lading.order.mixture.spec import MixtureSpec
from lading.report import open_run

PLAN = Plan.make({"code": 70, "prose": 31}, batch_size=8, seed=3)


def consume(path: Path, steps: range, *, plan: Plan = PLAN, world_size: int = 1, **options) -> None:
    """Deliver and commit steps on all ranks, as one attempt."""
    with contextlib.ExitStack() as stack:
        ledgers = [
            stack.enter_context(Ledger(path, plan, rank=rank, world_size=world_size, **options))
            for rank in range(world_size)
        ]
        for step in steps:
            for rank, ledger in enumerate(ledgers):
                bill = plan.bill(step, world=World(rank, world_size))
                ledger.deliver(bill)
                ledger.commit(bill, update=step, loss=1.0 / (step + 1))


def fates(path: Path) -> list[tuple[int, int, str]]:
    rows = open_run(path).batches.dicts()
    return sorted((row["step"], row["attempt"], row["fate"]) for row in rows)


def test_the_four_fates_are_told_apart(tmp_path: Path):
    """Accumulated and applied, skipped by an overflow, fetched and never used, rolled back."""
    bills = [PLAN.bill(step) for step in range(8)]
    with Ledger(tmp_path, PLAN) as ledger:
        for bill in bills[:6]:
            ledger.deliver(bill)
        ledger.commit(bills[:4], update=0, loss=2.0, lr=0.1)
        ledger.skip(bills[4], "overflow")
    with Ledger(tmp_path, PLAN) as ledger:
        for bill in bills[2:4]:
            ledger.deliver(bill)
            ledger.commit(bill, update=1)

    assert fates(tmp_path) == [
        (0, 0, "applied"),
        (1, 0, "applied"),
        (2, 0, "rolled back"),
        (2, 1, "applied"),
        (3, 0, "rolled back"),
        (3, 1, "applied"),
        (4, 0, "skipped"),
        (5, 0, "delivered"),
    ]
    run = open_run(tmp_path)
    assert run.history["step"] == [0, 1, 2, 3]
    assert run.history["update"] == [0, 0, 1, 1]
    assert run.history.dicts()[0]["metrics"] == {"lr": 0.1}
    assert run.verify().holds


def test_a_skipped_step_is_in_history_with_its_reason(tmp_path: Path):
    """No one used it, and no one wonders where it went."""
    with Ledger(tmp_path, PLAN) as ledger:
        for step in range(3):
            ledger.deliver(PLAN.bill(step))
            if step == 1:
                ledger.skip(PLAN.bill(step), "overflow")
            else:
                ledger.commit(PLAN.bill(step))

    run = open_run(tmp_path)

    assert run.history["fate"] == ["applied", "skipped", "applied"]
    assert run.step(1).reason == "overflow"
    assert run.mix().dicts()[0]["samples"] + run.mix().dicts()[1]["samples"] == 16


def test_a_step_is_applied_when_all_ranks_committed_it(tmp_path: Path):
    """A rank that is missing makes it delivered, not applied."""
    ledgers = [Ledger(tmp_path, PLAN, rank=rank, world_size=2) for rank in range(2)]
    for ledger, rank, last in zip(ledgers, (0, 1), (5, 3), strict=True):
        for step in range(last):
            ledger.commit(PLAN.bill(step, world=World(rank, 2)))
    for ledger in ledgers:
        ledger.close()

    run = open_run(tmp_path)

    assert run.history["step"] == [0, 1, 2]
    assert run.step(3).fate == "delivered"


@settings(max_examples=20)  # each opens and closes several ledgers, with all their syncs
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9), st.integers(1, 2)), min_size=1, max_size=4))
def test_whatever_is_resumed_history_has_each_step_once_and_equals_the_plan(tmp_path_factory, lives):
    """Law 8: any sequence of crashes and resumes, on any number of ranks."""
    path, reached = tmp_path_factory.mktemp("run"), 0
    for share, length, world_size in lives:
        start = max(1, int(share * reached)) if reached else 0  # at 0 it would be a second root
        consume(path, range(start, start + length), world_size=world_size)
        reached = start + length if length else reached

    run = open_run(path) if (path / "run.json").exists() else None

    if run is not None:
        assert run.history["step"] == list(range(reached))
        assert [f"{d:016x}" for d in run.history["digest"]] == [f"{PLAN.bill(s).digest:016x}" for s in range(reached)]
        assert run.verify().holds


def test_equal_plans_have_equal_digests_whatever_the_world_size(tmp_path: Path):
    """Law 9: the ranks' digests add up."""
    for world_size in (1, 4):
        consume(tmp_path / str(world_size), range(20), world_size=world_size)

    one, four = (open_run(tmp_path / str(n)) for n in (1, 4))

    assert one.compare(four).equal
    assert one.verify().digest == four.verify().digest


def test_going_back_in_one_process_without_a_state_is_a_replay(tmp_path: Path):
    """Nothing is undone: history has both uses, and verify says so."""
    with Ledger(tmp_path, PLAN) as ledger:
        for step in [0, 1, 2, 3, 1, 2]:
            ledger.deliver(PLAN.bill(step))
            ledger.commit(PLAN.bill(step))
        assert ledger.attempt == 1

    run = open_run(tmp_path)
    assert [f for _, _, f in fates(tmp_path)].count("applied") == 6
    assert run.history["step"] == [0, 1, 2, 3, 1, 2]
    assert run.history["attempt"] == [0, 0, 0, 0, 1, 1]
    assert run.verify().holds
    assert "went back to step 1 without loading a state" in run.verify().findings[0].message


def test_going_back_in_one_process_with_a_state_is_a_resume(tmp_path: Path):
    """A state loaded without a restart rolls back as a restart does."""
    with Ledger(tmp_path, PLAN) as ledger:
        for step in [0, 1, 2, 3]:
            ledger.commit(PLAN.bill(step))
        ledger.begin(1, loaded={**ledger.mark(), "step": 1})
        for step in [1, 2]:
            ledger.commit(PLAN.bill(step))
        assert ledger.attempt == 1

    assert [f for _, _, f in fates(tmp_path)].count("rolled back") == 3
    assert open_run(tmp_path).history["attempt"] == [0, 1, 1]


def test_batches_looked_at_and_fetched_again_are_no_new_attempt(tmp_path: Path):
    """A sanity check or a broken-off iteration used nothing, so nothing is rolled back."""
    with Ledger(tmp_path, PLAN) as ledger:
        for step in [0, 1]:
            ledger.deliver(PLAN.bill(step))
        ledger.flush()
        for step in [0, 1, 2]:
            ledger.deliver(PLAN.bill(step))
            ledger.commit(PLAN.bill(step))

    assert fates(tmp_path) == [(0, 0, "applied"), (1, 0, "applied"), (2, 0, "applied")]


def test_what_was_flushed_as_delivered_is_settled_later(tmp_path: Path):
    """A flush between delivery and commit leaves one row, the later one."""
    ledger = Ledger(tmp_path, PLAN, part_rows={"batches": 2})
    for step in range(6):
        ledger.deliver(PLAN.bill(step))
        ledger.flush()
        ledger.commit(PLAN.bill(step))
    ledger.flush()

    assert [f for _, _, f in fates(tmp_path)] == ["applied"] * 6
    ledger.close()
    assert [f for _, _, f in fates(tmp_path)] == ["applied"] * 6
    assert open_run(tmp_path).verify().holds


def test_a_second_fate_is_refused(tmp_path: Path):
    """A batch is applied or skipped once."""
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.deliver(PLAN.bill(0))
        ledger.commit(PLAN.bill(0))

        with pytest.raises(LedgerError, match="step 0 cannot become skipped: its fate was recorded before"):
            ledger.skip(PLAN.bill(0), "overflow")


def test_another_plan_is_refused_with_every_difference(tmp_path: Path):
    """The record would mix two orders."""
    consume(tmp_path, range(2))
    other = Plan.make({"code": 70, "prose": 30}, batch_size=8, seed=4)

    with pytest.raises(ResumeError, match=r"differs .* in 2 places: dataset 'prose' 31 -> 30 samples, seed 3 -> 4"):
        consume(tmp_path, range(2, 4), plan=other)

    consume(tmp_path, range(2, 4), plan=other, allow_changed_plan=True)
    run = open_run(tmp_path)
    assert run.verify().holds
    assert run.step(3).expected == f"{other.bill(3).digest:016x}"


def test_a_planned_run_is_not_continued_without_a_plan(tmp_path: Path):
    """Two kinds of evidence in one run would answer no question."""
    consume(tmp_path, range(2))

    with pytest.raises(ResumeError, match="is a planned run, and now a run without a plan is to continue it"):
        Ledger(tmp_path).deliver(PLAN.bill(2))


def test_names_are_kept_where_nothing_predicts_them(tmp_path: Path):
    """An observed run answers the same questions from the names."""
    with Ledger(tmp_path, names=["code", "prose"]) as ledger:
        for step in range(30):
            ledger.commit(PLAN.bill(step), loss=0.5)

    run = open_run(tmp_path)
    sample = PLAN.bill(5).samples[2]
    seen = run.where(sample.dataset, sample.index).dicts()

    assert [row["step"] for row in seen] == [p.step for p in PLAN.where(sample.dataset, sample.index, 0, 30)]
    assert [tuple(r) for r in PLAN.bill(5).samples] == [(r["dataset"], r["index"]) for r in run.step(5).samples]
    assert run.verify().holds
    assert run.plan is None


def test_observed_and_planned_runs_hold_the_same(tmp_path: Path):
    """Digests do not care which kind of evidence a run keeps."""
    consume(tmp_path / "planned", range(10))
    with Ledger(tmp_path / "observed", names=PLAN.names) as ledger:
        for step in range(10):
            ledger.commit(PLAN.bill(step))

    assert open_run(tmp_path / "planned").compare(tmp_path / "observed").equal


def test_padding_rows_are_in_no_digest_and_no_names(tmp_path: Path):
    """The last batch of an epoch is short; its padding never counts."""
    steps = PLAN.epoch_steps(0)
    consume(tmp_path, range(steps), world_size=3, record="names")

    run = open_run(tmp_path)

    assert run.verify().holds
    assert sum(run.history["samples"]) == 101
    assert len(run.sql("SELECT * FROM samples WHERE step = 0")) == 8


def test_exceptions_are_kept_by_name(tmp_path: Path):
    """A skipped and a substituted sample: verify knows them, where and step show them."""
    bill = PLAN.bill(4)
    skipped, bad = bill.samples[1], bill.samples[6]
    substitute = next(i for i in range(70) if i not in bill.idx)
    idx, padding = bill.idx.copy(), bill.is_padding.copy()
    idx[6], padding[1] = substitute, True
    changed = bill.replace(
        idx=idx,
        is_padding=padding,
        deviations=(
            Deviation(1, "skipped", skipped.dataset, skipped.index, None, "unreadable"),
            Deviation(6, "substituted", bad.dataset, bad.index, substitute, "unreadable"),
        ),
    )
    with Ledger(tmp_path, PLAN) as ledger:
        for step in range(8):
            ledger.commit(changed if step == 4 else PLAN.bill(step))

    run = open_run(tmp_path)

    assert run.verify().holds
    for sample in (skipped, bad):
        assert [r["fate"] for r in run.where(sample.dataset, sample.index) if r["step"] == 4] == ["bad"], sample
    (row,) = [r for r in run.where(bad.dataset, substitute) if r["step"] == 4]
    assert row["note"] == f"in place of {bad.index} (unreadable)"
    assert [e["event"] for e in run.events].count("bad sample") == 2
    assert sum(r["samples"] for r in run.mix()) == 63


def test_plan_events_are_followed_and_undone_with_their_attempt(tmp_path: Path):
    """A reweighting made after the checkpoint that a run resumes from never happened."""
    datasets = (PlannedDataset("a", 9000), PlannedDataset("b", 9000))
    plan = Plan(datasets, 256, seed=1, mixture=MixtureSpec(18_000, ((0, (2**30, 2**30)),)))
    event = Reweight(step=10, position=8192, weights=(2**31 - 2**28, 2**28))
    with Ledger(tmp_path, plan) as ledger:
        for step in range(10):
            ledger.commit(plan.bill(step))
        ledger.event(event)
        changed = plan.with_event(event)
        for step in range(10, 60):
            ledger.commit(changed.bill(step))
    assert open_run(tmp_path).verify().holds
    assert open_run(tmp_path).plan == changed

    consume(tmp_path, range(8, 60), plan=plan)

    run = open_run(tmp_path)
    assert run.verify().holds
    assert run.plan == plan


def test_a_closed_ledger_takes_nothing_more(tmp_path: Path):
    """The error says how to continue."""
    ledger = Ledger(tmp_path, PLAN)
    ledger.commit(PLAN.bill(0))
    ledger.close()
    ledger.close()

    with pytest.raises(LedgerError, match=r"is closed\. Open a new Ledger"):
        ledger.deliver(PLAN.bill(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"record": "everything"}, "record is 'everything': expected one of 'digest', 'names', 'content'"),
        ({"on_error": "ignore"}, "on_error is 'ignore': expected 'raise' or 'warn'"),
        ({"flush_every": "soon"}, "flush_every is 'soon': expected a number of steps"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options, message):
    """Each error says what was expected."""
    with pytest.raises(ConfigError, match=message):
        Ledger(tmp_path, PLAN, **options)


def test_a_digest_without_a_plan_is_refused(tmp_path: Path):
    """No one could say what it stands for."""
    with pytest.raises(ConfigError, match="record='digest' needs a plan"):
        Ledger(tmp_path, record="digest").deliver(PLAN.bill(0))


def test_a_jump_ahead_is_noted_and_no_fault(tmp_path: Path):
    """Steps that the loader passed over on purpose are distinguished from lost ones."""
    with Ledger(tmp_path, PLAN) as ledger:
        for step in [0, 1, 10, 11]:
            ledger.commit(PLAN.bill(step))

    verdict = open_run(tmp_path).verify()

    assert verdict.holds
    assert "steps 2 to 9 were passed over by the loader" in [f.message for f in verdict.findings]


WRITER = """
import sys, time
from lading.ledger import Ledger
from lading.order import Plan

plan = Plan.make({"code": 70, "prose": 31}, batch_size=8, seed=3)
with Ledger(sys.argv[1], plan, part_rows={"batches": 25}, flush_every=5) as ledger:
    for step in range(400):
        ledger.commit(plan.bill(step), loss=1.0)
        if step % 5 == 0:
            ledger.flush()
        time.sleep(0.002)
print("done")
"""


@pytest.mark.launch
def test_a_run_can_be_read_while_another_process_writes_it(tmp_path: Path):
    """A reader sees what was flushed, always whole, and the writer comes to its end regardless."""
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    seen: list[int] = []
    with subprocess.Popen(
        command, env={**os.environ, "LADING_COMPILED": "0"}, stdout=subprocess.PIPE, text=True
    ) as writer:
        while writer.poll() is None:
            if (tmp_path / "run.json").exists():
                run = open_run(tmp_path)
                steps, verdict = run.history["step"], run.verify()
                assert steps == list(range(len(steps)))
                assert verdict.holds, verdict.faults
                seen.append(len(steps))
        assert writer.communicate()[0] == "done\n"

    assert seen == sorted(seen)
    assert len(set(seen)) > 2
    assert len(open_run(tmp_path).history) == 400


def test_a_ledger_that_nobody_closes_is_closed(tmp_path: Path):
    """At the latest when the process ends, or when no one has it any more."""
    ledger = Ledger(tmp_path, PLAN)
    ledger.commit(PLAN.bill(0))
    ledger.deliver(PLAN.bill(1))
    del ledger
    gc.collect()

    assert fates(tmp_path) == [(0, 0, "applied"), (1, 0, "delivered")]
    assert next(iter(open_run(tmp_path).evidence.attempts.values())).ranks[0].closed


@pytest.mark.launch
def test_a_process_that_ends_by_an_exception_keeps_its_last_steps(tmp_path: Path):
    """Nothing was flushed or closed by hand; the steps and the traceback are there."""
    code = """
import sys
from lading.ledger import Ledger
from lading.order import Plan

plan = Plan.make({"code": 70, "prose": 31}, batch_size=8, seed=3)
ledger = Ledger(sys.argv[1], plan)
for step in range(7):
    ledger.commit(plan.bill(step))
raise RuntimeError("out of memory")
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code, str(tmp_path)], capture_output=True, text=True)

    assert done.stderr.endswith("RuntimeError: out of memory\n")
    assert open_run(tmp_path).history["step"] == list(range(7))
    assert open_run(tmp_path).verify().holds


def test_batches_that_nobody_ever_commits_do_not_fill_the_memory(tmp_path: Path):
    """A ledger that is only a tracker writes them as delivered and forgets them."""
    with Ledger(tmp_path, PLAN) as ledger:
        for step in range(5000):
            ledger.deliver(PLAN.bill(step))
        with pytest.raises(LedgerError, match="step 3 cannot become applied"):
            ledger.commit(PLAN.bill(3))
        ledger.commit(PLAN.bill(4999))

    run = open_run(tmp_path)
    assert len(run.batches) == 5000
    assert run.sql("SELECT count(*) AS n FROM batches WHERE fate = 'delivered'")["n"] == [4999]


class OnDevice(torch.Tensor):
    """A tensor that says it is not in the CPU's memory: there is no other device here."""

    is_cpu = False


@pytest.mark.parametrize("kind", [torch.Tensor, OnDevice])
def test_a_loss_is_what_it_was_at_the_commit(tmp_path: Path, kind: type[torch.Tensor]):
    """A running loss that is set back afterwards changed the record; so did losses of rows."""
    running, rows, array = torch.zeros(()).as_subclass(kind), torch.zeros(8).as_subclass(kind), np.zeros(())
    with Ledger(tmp_path, PLAN) as ledger:
        for step in range(4):
            running += step
            rows += 1
            array += 2
            ledger.commit(PLAN.bill(step), loss=running, row_losses=rows, norm=array)
            running.zero_()
        rows.zero_()
        array.fill(-1)

    found = open_run(tmp_path).history.dicts()
    assert [(row["loss"], row["metrics"]["norm"]) for row in found] == [(s, 2 * s + 2) for s in range(4)]
    assert open_run(tmp_path).step(3).samples.dicts()[0]["loss"] == 4


class Meter:
    """An average that goes on, and an array of a device that is neither torch's nor JAX's, are like this."""

    value = 0.0

    def __float__(self) -> float:
        return self.value


def test_a_number_that_changes_later_is_what_it_was_at_the_commit(tmp_path: Path):
    """Whatever becomes a float: the thread that writes it read it when it was another."""
    meter = Meter()
    with Ledger(tmp_path, PLAN) as ledger:
        for step in range(4):
            meter.value = float(step)
            ledger.commit(PLAN.bill(step), loss=meter, average=meter)
            meter.value = -1.0

    found = open_run(tmp_path).history.dicts()
    assert [(row["loss"], row["metrics"]["average"]) for row in found] == [(s, s) for s in range(4)]


@pytest.mark.parametrize("settle", [Ledger.commit, lambda ledger, bill: ledger.skip(bill, "overflow")])
def test_a_bill_of_another_loader_is_refused_and_leaves_no_trace(tmp_path: Path, settle):
    """Two loaders in one loop, and the wrong bill: history would name samples that the model never got."""
    other = Plan.make({"code": 70, "prose": 31}, batch_size=8, seed=4)
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.deliver(PLAN.bill(0))
        with pytest.raises(LedgerError, match=r"step 0 cannot become .* delivered as batch .*, and this is batch"):
            settle(ledger, other.bill(0))
        settle(ledger, pickle.loads(pickle.dumps(PLAN.bill(0))))

    assert open_run(tmp_path).verify().holds and len(open_run(tmp_path).batches) == 1


def test_tensors_are_read_in_the_background(tmp_path: Path):
    """A loss may be a tensor with a graph; only its value is kept."""
    weight = torch.ones((), requires_grad=True)
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.commit(PLAN.bill(0), loss=weight * 3, grad_norm=torch.tensor(2.0))

    record = open_run(tmp_path).step(0)

    assert record.loss == 3.0
    assert record.metrics == {"grad_norm": 2.0}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"metrics": {"lr": 1.0}}, r"metrics of a commit is dict: expected a number"),
        ({"lr": "fast"}, r"lr of a commit is str: expected a number"),
        ({"loss": np.ones(2)}, r"loss of a commit is ndarray\[2\]: expected a number"),
        ({"loss": 10**400}, r"loss of a commit is int: expected a number"),
        ({"update": "third"}, r"update of a commit is 'third': expected the number"),
        ({"update": -1}, r"update of a commit is -1: expected the number"),
    ],
)
def test_a_bad_value_is_refused_at_the_call_by_name(tmp_path: Path, values, message):
    """Not later, in the writer, as a disk that cannot be written."""
    with Ledger(tmp_path, PLAN) as ledger:
        with pytest.raises(LedgerError, match=message):
            ledger.commit(PLAN.bill(0), **values)
        ledger.commit(PLAN.bill(0), loss=np.float32(2), lr=np.int64(3), done=True, again=np.ones((1, 1)))

    assert open_run(tmp_path).step(0).metrics == {"lr": 3.0, "done": 1.0, "again": 1.0}


@pytest.mark.parametrize("bills", [None, [None], "ab", 3])
def test_what_is_no_bill_is_refused(tmp_path: Path, bills):
    """With the way to get one."""
    with Ledger(tmp_path, PLAN) as ledger, pytest.raises(LedgerError, match="for a bill: expected a Bill"):
        ledger.commit(bills)


def test_a_bill_of_a_foreign_loader_needs_no_plan(tmp_path: Path):
    """Bills made by hand are enough."""
    with Ledger(tmp_path) as ledger:
        for step in range(3):
            bill = Bill(
                f"b{step}",
                step,
                0,
                None,
                4 * step,
                np.arange(4),
                np.zeros(4, np.int32),
                np.arange(4) + 4 * step,
                np.zeros(4, bool),
                4,
            )
            ledger.commit(bill)

    assert open_run(tmp_path).where(0, 9).dicts()[0]["step"] == 2


def test_a_repeated_step_forgets_the_later_ones(tmp_path: Path):
    """Steps fetched ahead, then an earlier one again: what was pending after it was not used, and is not open."""
    bills = [PLAN.bill(step) for step in range(5)]
    with Ledger(tmp_path, PLAN) as ledger:
        for bill in (*bills[:4], bills[1]):
            ledger.deliver(bill)
        open_now = [ledger.is_open(bill) for bill in bills[:4]]
        ledger.commit(bills[0], update=0)
        ledger.commit(bills[1], update=1)

    assert open_now == [True, True, False, False]
    assert fates(tmp_path) == [(0, 0, "applied"), (1, 0, "applied")]


def test_a_rerun_from_step_0_is_a_second_root_and_says_so(tmp_path: Path):
    """Nothing is undone; what was recorded before is left behind, and shown on request."""
    consume(tmp_path, range(6))

    with pytest.warns(UserWarning, match=r"holds 1 attempt already, .*a second root\. Nothing is undone.*To resume"):
        consume(tmp_path, range(3))

    run = open_run(tmp_path)
    assert run.history["attempt"] == [1] * 3
    assert {row["fate"] for row in run.batches if row["attempt"] == 0} == {"left behind"}
    assert (0, "left behind") in {(use["attempt"], use["fate"]) for use in run.where(*PLAN.bill(4).ids[0])}
    assert open_run(tmp_path, attempt=0).history["step"] == list(range(6))
    assert run.verify().holds


@pytest.mark.parametrize(("error", "state"), [(KeyboardInterrupt, "interrupted"), (ZeroDivisionError, "failed")])
def test_an_attempt_that_is_broken_off_is_not_ended(tmp_path: Path, error: type[BaseException], state: str):
    """Ctrl-C and exceptions are told from the end of training, and from each other."""
    from lading.report.summary import summarise

    with contextlib.suppress(error), Ledger(tmp_path, PLAN) as ledger:
        ledger.commit(PLAN.bill(0))
        raise error

    assert [a["state"] for a in summarise(open_run(tmp_path)).attempts] == [state]
    assert open_run(tmp_path).verify().holds


def test_rollouts_their_uses_and_fates_go_through_tails_and_parts(tmp_path: Path):
    """The tables are kept by the same machinery as batches; a word that is none is named and left out."""
    size = len(PLAN.bill(0).slots)
    tables = {
        "rollouts": [(0, i, i // 4, 1, 7, 1, 90, -5, 0.5, None, 1.5, 1000 + i) for i in range(size + 2)],
        "uses": [(0, i, i, 2, 1.0) for i in range(size)],
        "fates": [(1, size, "stale", "late", 2000), (1, size + 1, "filtered", "zero_advantage", 2000)],
    }
    ledger = Ledger(tmp_path, PLAN, part_rows={"rollouts": 4})
    ledger.commit(PLAN.bill(0))
    for name, rows in tables.items():
        ledger._writer.put(writer.Rows.add, name, rows[:5])
    ledger.flush()
    for name, rows in tables.items():
        ledger._writer.put(writer.Rows.add, name, rows[5:])
    ledger.close()

    evidence = open_run(tmp_path).evidence
    for name, rows in tables.items():
        found = evidence.rows([0, 1], name).drop_columns(["attempt", "rank"]).to_pydict()
        found["time"] = [round(t.timestamp() * 1000) for t in found["time"]] if "time" in found else None
        assert [column for column in found.values() if column] == [list(c) for c in zip(*rows, strict=True)]
    assert open_run(tmp_path).verify().holds

    other = Ledger(tmp_path / "other", PLAN)
    other.commit(PLAN.bill(0))
    other._writer.put(writer.Rows.add, "fates", [(1, 6, "eaten", None, 2000)])
    with pytest.raises(LedgerError, match="has fate 'eaten'"):
        other.close()


@pytest.mark.parametrize("wrong", [-1, 1 << 40, "many"])
def test_one_rollout_that_cannot_be_recorded_does_not_take_its_block_with_it(tmp_path: Path, wrong: object):
    """It is named, whether no row holds it or no reader takes it; the others of the block are there."""
    ledger = Ledger(tmp_path, PLAN)
    ledger.begin(0)
    columns = 0, [0, 1, 2], 0, 0, 5, 0, [3, wrong, 4], None, 0.5, None, 1.5, 1000
    ledger.record_columns("rollouts", [(3, columns)])
    with pytest.raises(LedgerError, match="step 0 in 'rollouts' is left out"):
        ledger.flush()
    ledger.close()

    assert open_run(tmp_path).rollouts()["rollout"] == [0, 2]


def test_a_second_writer_is_refused_unless_it_forks(tmp_path: Path):
    """Two processes that write one run at once: the second one hears of it."""
    with Ledger(tmp_path, PLAN) as first, Ledger(tmp_path, PLAN, fork=True) as fork:
        first.commit(PLAN.bill(0))
        second = Ledger(tmp_path, PLAN)
        with pytest.raises(LedgerError, match=r"rank 0 of attempt 0 is running: process \d+"):
            second.begin(1, loaded={**first.mark(), "step": 1})
        fork.begin(1, loaded={**first.mark(), "step": 1})
        fork.commit(PLAN.bill(1))
        first.commit(PLAN.bill(1))

    assert open_run(tmp_path).history["attempt"] == [0, 1]
    assert open_run(tmp_path, attempt=0).history["attempt"] == [0, 0]


def test_a_checkpoint_inside_an_accumulation_leaves_its_steps_unused(tmp_path: Path):
    """The pending batches were used by no update of the resumed run, though the run that died used them."""
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.commit([PLAN.bill(0), PLAN.bill(1)], update=0)
        for step in (2, 3):
            ledger.deliver(PLAN.bill(step))
        ledger.flush()
        state = {**ledger.mark(4), "step": 4}
        for step in (4, 5):
            ledger.deliver(PLAN.bill(step))
        ledger.commit([PLAN.bill(s) for s in (2, 3, 4, 5)], update=1)
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.begin(4, loaded=state)
        ledger.commit([PLAN.bill(4), PLAN.bill(5)], update=1)

    run = open_run(tmp_path)
    verdict = run.verify()

    assert run.history["fate"] == ["applied", "applied", "skipped", "skipped", "applied", "applied"]
    assert run.step(2).reason == "pending at the checkpoint"
    assert verdict.unused == [2, 3]
    assert verdict.holds
    assert open_run(tmp_path, attempt=0).history["fate"] == ["applied"] * 6
    assert sum(row["samples"] for row in run.mix()) == 4 * 8


def test_a_state_after_the_update_has_nothing_pending(tmp_path: Path):
    """The newest state before a step counts."""
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.deliver(PLAN.bill(0))
        ledger.mark(1)
        ledger.commit(PLAN.bill(0))
        state = {**ledger.mark(1), "step": 1}
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.begin(1, loaded=state)
        ledger.commit(PLAN.bill(1))

    assert open_run(tmp_path).history["fate"] == ["applied"] * 2


def test_a_loader_moved_back_without_a_state_marks_its_replay(tmp_path: Path):
    """A state taken before the replay's first batch must not undo what was used."""
    with Ledger(tmp_path, PLAN) as ledger:
        for step in range(5):
            ledger.commit(PLAN.bill(step))
        state = {**ledger.mark(2), "step": 2}
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.begin(2, loaded=state)
        ledger.commit(PLAN.bill(2))

    assert open_run(tmp_path).history["step"] == [0, 1, 2, 3, 4, 2]


def test_a_folder_deleted_while_the_run_goes_on_is_reported(tmp_path: Path):
    """At the next flush, and so before the next checkpoint."""
    ledger = Ledger(tmp_path, PLAN)
    ledger.commit(PLAN.bill(0))
    ledger.flush()
    shutil.rmtree(tmp_path / "ledger")
    ledger.commit(PLAN.bill(1))

    with pytest.raises(LedgerError, match="tail was deleted or replaced while the run was writing it"):
        ledger.flush()
    with pytest.raises(LedgerError, match="was deleted or replaced"):
        ledger.close()


def test_another_record_is_refused(tmp_path: Path):
    """One run has one kind of evidence; without record= it is the run's."""
    consume(tmp_path, range(2), record="names")

    with pytest.raises(ResumeError, match="records 'names', and record='digest' was given"):
        consume(tmp_path, range(2, 4), record="digest")
    consume(tmp_path, range(2, 4))
    assert len(open_run(tmp_path).sql("SELECT * FROM samples")) == 32


def test_a_foreign_state_begins_a_new_folder_and_is_noted(tmp_path: Path):
    """And is refused in a folder that has attempts."""
    with Ledger(tmp_path / "a", PLAN) as ledger:
        ledger.commit(PLAN.bill(0))
        state = {**ledger.mark(), "step": 1}
    with Ledger(tmp_path / "b", PLAN) as ledger:
        ledger.begin(1, loaded=state)
        ledger.commit(PLAN.bill(1))

    verdict = open_run(tmp_path / "b").verify()

    assert verdict.holds
    assert f"steps before 1 are in run {state['run']}" in verdict.findings[0].message
    with pytest.raises(ResumeError, match="its history would mix two runs"):
        Ledger(tmp_path / "b", PLAN).begin(1, loaded=state)


def test_a_copy_that_went_its_own_way_is_recognised(tmp_path: Path):
    """The run's id is the same, the launch is not; on request it is recorded, and verify calls it a fault."""
    consume(tmp_path / "a", range(3))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with Ledger(tmp_path / "a", PLAN) as ledger:
        ledger.begin(3, loaded={"run": "", "attempt": -1, "launch": "", "step": 3})
        ledger.commit(PLAN.bill(3))
        state = {**ledger.mark(), "step": 4}

    with pytest.raises(ResumeError, match=r"of this run, which .*b does not know: it has 0"):
        Ledger(tmp_path / "b", PLAN).begin(4, loaded=state)
    with Ledger(tmp_path / "b", PLAN, allow_unknown_parent=True) as ledger:
        ledger.begin(4, loaded=state)
        ledger.commit(PLAN.bill(4))

    verdict = open_run(tmp_path / "b").verify()
    assert not verdict.holds
    assert "steps before 4 are unknown" in verdict.faults[0].message


def test_few_bills_of_settled_batches_wait(tmp_path, monkeypatch):
    """Python's collector would visit them again and again, 30 us a batch once: rows are made of TOGETHER at once."""
    monkeypatch.setattr(writer, "_TURN_SECONDS", 60.0)
    plan, bills = Plan.make({"a": 5000}, batch_size=4), []
    with Ledger(tmp_path, plan) as ledger:
        for step in range(1000):
            bill = plan.bill(step)
            bills.append(weakref.ref(bill))
            ledger.deliver(bill)
            ledger.commit(bill, loss=1.0, lr=0.1)
        del bill
        assert sum(bill() is not None for bill in bills) == 1000 % TOGETHER

    assert open_run(tmp_path).step(999).fate == "applied"


def test_a_plan_file_of_another_shuffle_is_refused_with_a_sentence(tmp_path: Path):
    """Order version 1 is no damage: the sentence says what it is."""
    run, text = RunFolder(tmp_path), PLAN.to_json().replace('"order_version": 2', '"order_version": 1')
    path = run.plan("0123456789abcdef")
    path.parent.mkdir()
    path.write_text(text)

    with pytest.raises(LedgerError, match="shuffles in another way: order version 1, this one computes 2") as caught:
        read_plan(run, "0123456789abcdef", sha256_of_bytes(text.encode()))
    assert not isinstance(caught.value, CorruptLedgerError)
