"""What a model learned from, over its generations."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
from tests.report.checkpoint.models import held, plan_of, trained

from lading.errors import ConfigError, LedgerError
from lading.ledger import Ledger
from lading.ledger.waybill.waybill import read_waybill
from lading.report import open_checkpoint
from lading.report.checkpoint.stamp import stamp

A, B, C = (plan_of(seed) for seed in range(3))


@pytest.fixture
def family(tmp_path):
    """Pretrained, tuned twice, merged: a folder with runs/ and models/."""
    models, runs = tmp_path / "models", tmp_path / "runs"
    trained(runs / "a", models / "a", range(5), plan=A)
    trained(runs / "b", models / "b", range(3), plan=B, base=[models / "a"])
    trained(runs / "c", models / "c", range(2), plan=plan_of(2, talk=40), base=[models / "a"])
    (models / "merged").mkdir()
    (models / "merged" / "model.bin").write_bytes(b"b and c")
    stamp(models / "merged", made="merge", parents=[models / "b", models / "c"])
    return tmp_path


def test_a_merge_has_seen_what_three_generations_used(family):
    """Every sample of both datasets, none more."""
    merged = open_checkpoint(family / "models" / "merged")

    corpus = {i for i in range(40) if merged.seen("corpus", i).answer}
    talk = {i for i in range(40) if merged.seen("talk", i).answer}

    assert corpus == held(A, range(5)) | held(B, range(3))
    assert talk == held(plan_of(2, talk=40), range(2))
    assert [member.made for member in merged.family()] == ["merge", "training", "training", "training"]
    assert sum(row["samples"] for row in merged.totals()) == 40
    assert len(merged.history()) == 10


def test_a_run_that_is_missing_makes_answers_unknown_never_no(family, monkeypatch):
    """It is named; what others used is still yes; under `runs=` it is found again, wherever it lies."""
    shutil.move(family / "runs" / "a", family / "archive" / "deep" / "old-name")
    merged = open_checkpoint(family / "models" / "merged")
    only_a = sorted(held(A, range(5)) - held(B, range(3)))[0]
    in_b, nowhere = sorted(held(B, range(3)))[0], sorted(set(range(40)) - held(A, range(5)) - held(B, range(3)))[0]

    assert merged.seen("corpus", only_a).answer is None
    assert "was not found" in merged.seen("corpus", only_a).unknown[0]
    assert merged.seen("corpus", in_b).answer is True
    assert merged.seen("corpus", nowhere).answer is None
    assert {row["from"][:7] for row in merged.totals()} == {"waybill", str(family)[:7]}

    for found in (open_checkpoint(family / "models" / "merged", runs=[family / "archive"]),):
        assert (found.seen("corpus", only_a).answer, found.seen("corpus", nowhere).answer) == (True, False)
    monkeypatch.setenv("LADING_RUNS", str(family / "archive"))
    assert open_checkpoint(family / "models" / "merged").seen("corpus", only_a).answer is True


def test_another_run_under_the_hint_is_not_taken_for_it(family):
    """The id decides, not the path."""
    shutil.rmtree(family / "runs" / "b")
    shutil.copytree(family / "runs" / "a", family / "runs" / "b")

    tuned = open_checkpoint(family / "models" / "b")

    assert "is another run" in tuned.unknown[0]


def test_an_older_copy_of_a_run_is_unknown(family):
    """It does not have the launch, or not the steps."""
    state = {**vars(open_checkpoint(family / "models" / "a").waybill.moment)}
    shutil.copytree(family / "runs" / "a", family / "copy" / "a")
    trained(family / "runs" / "a", family / "models" / "a2", range(5, 8), plan=A, loaded=state)
    shutil.rmtree(family / "runs" / "a")

    again = open_checkpoint(family / "models" / "a2", runs=[family / "copy"])

    assert "does not know launch" in again.unknown[0]
    assert again.seen("corpus", 0).answer in (None, True)


def test_imported_weights_are_unknown(family):
    """Nobody wrote down what they learned from."""
    path = family / "models" / "hub"
    path.mkdir()
    (path / "model.bin").write_bytes(b"from elsewhere")
    stamp(path, made="import")
    trained(family / "runs" / "d", family / "models" / "d", range(2), plan=C, base=[path])

    tuned = open_checkpoint(family / "models" / "d")

    outside = sorted(set(range(40)) - held(C, range(2)))[0]
    assert tuned.seen("corpus", outside).answer is None
    assert "was imported" in tuned.unknown[0]


def test_a_dataset_that_nobody_knows_is_an_error(family):
    """With the names there are."""
    with pytest.raises(ConfigError, match=r"no dataset 'corpse' taught this model.*'corpus', 'talk'"):
        open_checkpoint(family / "models" / "merged").seen("corpse", 1)
    for asked in ({}, {"index": 1, "document": 1}):
        with pytest.raises(ConfigError, match="which sample"):
            open_checkpoint(family / "models" / "merged").seen("corpus", **asked)


def test_a_base_without_a_waybill_is_refused(family):
    """When the ledger is made, with the way out."""
    (family / "bare").mkdir()

    with pytest.raises(LedgerError, match=r"has no waybill.*--made import"):
        trained(family / "runs" / "x", family / "models" / "x", range(1), plan=A, base=[family / "bare"])


def test_checkpoints_of_one_attempt_are_asked_once(tmp_path):
    """A merge of many steps of a run: the latest has the uses of all; one beyond the rows hides nothing."""
    plan, steps = plan_of(3, corpus=400), range(12)
    with Ledger(tmp_path / "run", plan) as ledger:
        ledger.begin(0)
        for step in steps:
            ledger.commit(plan.bill(step), update=step)
            ledger.flush()
            folder = tmp_path / f"step{step}"
            folder.mkdir()
            (folder / "model.bin").write_bytes(b"%d" % step)
            ledger.checkpoint(folder, {**(ledger.mark(step + 1) or {}), "step": step + 1})
    last = read_waybill(tmp_path / "step11")
    far = dataclasses.replace(last, moment=dataclasses.replace(last.moment, step=99))
    (tmp_path / "step11" / "waybill.json").write_bytes(far.to_bytes())
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged" / "model.bin").write_bytes(b"mean")
    stamp(tmp_path / "merged", made="merge", parents=[tmp_path / f"step{step}" for step in steps])
    opened = open_checkpoint(tmp_path / "merged")

    asked = list(opened.runs_asked(unknown := [], widest=True))

    assert [run.evidence.moment.step for run in asked] == [11] and "rows are missing" in unknown[0]
    assert len(list(opened.runs_asked([]))) == 11
    assert opened.seen("corpus", held(plan, range(10, 11)).pop()).answer is True
    assert opened.seen("corpus", held(plan, range(11, 12)).pop()).answer is None


def test_a_waybill_that_claims_endless_pending_steps_is_answered(family):
    """The file may come from anyone: it costs no more than what can wait at a time."""
    tuned = read_waybill(family / "models" / "b")
    endless = dataclasses.replace(tuned, moment=dataclasses.replace(tuned.moment, pending=((0, 1 << 62),)))
    (family / "models" / "b" / "waybill.json").write_bytes(endless.to_bytes())
    opened = open_checkpoint(family / "models" / "b")

    assert not opened.seen("corpus", (held(B, range(3)) - held(A, range(5))).pop()).answer
    assert {row["samples"] for row in opened.totals()} == {20}


def test_a_folder_of_runs_that_is_not_there_is_an_error(family):
    """A mistake in the question is no unknown of the answer."""
    with pytest.raises(ConfigError, match="is no folder"):
        open_checkpoint(family / "models" / "merged", runs=[family / "nowhere"]).family()
