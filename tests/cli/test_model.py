"""``lading model``: answers, exit codes, JSON."""

from __future__ import annotations

import json
import shutil

import pytest
from tests.cli.calling import call
from tests.report.checkpoint.models import held, plan_of, trained

from lading import Loader, PackedRows, build_tokens
from lading.order.packing.rules import PackingRules
from lading.report import open_run

PLAN, TUNING = plan_of(0), plan_of(1, talk=40)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Pretrained and tuned, in the working folder."""
    monkeypatch.chdir(tmp_path)
    trained(tmp_path / "runs" / "a", tmp_path / "base", range(5), plan=PLAN)
    trained(tmp_path / "runs" / "b", tmp_path / "tuned", range(3), plan=TUNING, base=[tmp_path / "base"])
    return tmp_path


def test_show_draws_the_family_and_counts(folder, capsys):
    """For people, and for programs."""
    code, out, _ = call(capsys, "model", "show", "tuned")
    assert code == 0
    assert "tuned: run" in out and "└" in out and "corpus" in out and "talk" in out

    code, out, _ = call(capsys, "model", "show", "tuned", "--json")
    found = json.loads(out)
    assert [row["samples"] for row in found["totals"]] == [12, 20]
    assert [member["made"] for member in found["family"]] == ["training", "training"]


def test_seen_says_yes_no_and_unknown(folder, capsys):
    """In one word, with every use."""
    used = sorted(held(PLAN, range(5)))[0]
    unused = sorted(set(range(40)) - held(PLAN, range(5)))[0]
    assert call(capsys, "model", "seen", "tuned", "corpus", used)[1].startswith("yes: 1 use")
    assert call(capsys, "model", "seen", "tuned", "corpus", unused)[:2] == (0, "no: 0 uses\n")

    shutil.move(folder / "runs" / "a", folder / "moved")
    assert call(capsys, "model", "seen", "tuned", "corpus", unused)[1].startswith("unknown: 0 uses")
    assert call(capsys, "model", "seen", "tuned", "corpus", used, "--runs", "moved")[1].startswith("yes")
    code, _, err = call(capsys, "model", "seen", "tuned", "corpus")
    assert (code, "--document" in err) == (2, True)


def test_check_exits_with_1_where_a_file_was_changed(folder, capsys):
    """0 where one was added; 2 without a waybill."""
    (folder / "tuned" / "added").write_text("x")
    code, out, _ = call(capsys, "model", "check", "tuned")
    assert (code, out.splitlines()[0]) == (0, "holds: 1 file as written")
    assert "Not covered, added later: added" in out

    (folder / "tuned" / "model.bin").write_text("other")
    code, out, _ = call(capsys, "model", "check", "tuned", "--json")
    assert (code, json.loads(out)["holds"]) == (1, False)
    assert call(capsys, "model", "check", "runs")[0] == 2


def test_stamp_makes_a_merge(folder, capsys):
    """From the checkpoints that went into it."""
    (folder / "merged").mkdir()
    (folder / "merged" / "w").write_text("w")

    code, out, _ = call(capsys, "model", "stamp", "merged", "--from", "base", "--from", "tuned", "--made", "merge")

    assert (code, "merge, 1 file" in out) == (0, True)
    assert call(capsys, "model", "check", "merged")[0] == 0


def test_a_claim_is_made_checked_and_proven_from(folder, capsys):
    """Key, claim, proof: exit code 1 where somebody else is trusted, or a sample cannot be asked about."""
    assert call(capsys, "key", "new", "mine")[0] == 0
    assert call(capsys, "key", "new", "other")[0] == 0
    code, out, _ = call(capsys, "model", "attest", "tuned", "--key", "mine")
    assert (code, "claimed of 1 file and 2 runs" in out) == (0, True)
    assert call(capsys, "model", "claims", "tuned", "--trust", "mine.pub")[:2] == (
        0,
        "hold: 2 claims by keys you trust\n",
    )
    code, out, _ = call(capsys, "model", "claims", "tuned", "--trust", "other.pub")
    assert (code, "no claim about these files is by a trusted key" in out) == (1, True)

    used = sorted(held(PLAN, range(5)))[0]
    assert "was used (1 use)" in call(capsys, "model", "prove", "tuned", "corpus", used, "-o", "proof.json")[1]
    code, out, _ = call(capsys, "check-proof", "proof.json", "--trust", "mine.pub")
    assert (code, out.startswith(f"used: sample {used} of 'corpus', 1 use")) == (0, True)
    assert call(capsys, "check-proof", "proof.json", "--trust", "other.pub")[0] == 1
    assert call(capsys, "check-proof", "nothing.json", "--trust", "mine.pub")[0] == 2
    assert call(capsys, "model", "attest", "tuned", "--key", "mine.pub")[0] == 2


@pytest.fixture
def named(tmp_path, monkeypatch):
    """A model of a store's documents and one of their packed rows, with claims."""
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"text": f"{n} " + "word " * 9, "url": f"https://example.org/{n}"}) for n in range(20)]
    (tmp_path / "web.jsonl").write_text("\n".join(lines))
    store = build_tokens(tmp_path / "web.jsonl", tmp_path / "web", id="url")
    for name, source in {"plain": store, "packed": PackedRows(store, PackingRules(64, "best_fit", "split"))}.items():
        plan = Loader({name: source}, batch_size=2, collate_fn=list).plan
        trained(tmp_path / "runs" / name, tmp_path / f"of-{name}", range(2), plan=plan)
    return store


@pytest.mark.needs("torch")
def test_a_document_is_seen_and_proven_by_its_name(named, capsys):
    """By id or number; a proof about packed rows names those that hold it; what no store has is unknown."""
    assert call(capsys, "key", "new", "mine")[0] == 0
    for name in ("plain", "packed"):
        assert call(capsys, "model", "attest", f"of-{name}", "--key", "mine", "--runs", "runs")[0] == 0
    used = open_run("runs/plain").step(0).samples["index"][0]
    prove = ("--runs", "runs", "-o", "proof.json")

    seen = call(capsys, "model", "seen", "of-plain", "plain", "--id", named.name(used), "--runs", "runs")
    by_name = call(capsys, "model", "prove", "of-plain", "plain", "--id", named.name(used), *prove)
    code, _, why = call(capsys, "model", "prove", "of-packed", "packed", "--id", named.name(used), *prove)

    assert seen[0] == 0 and seen[1].startswith("yes: 1 use")
    assert by_name[:2] == (0, f"proof.json: sample {used} of 'plain' was used (1 use)\n")
    assert by_name == call(capsys, "model", "prove", "of-plain", "plain", "--document", used, *prove)
    assert by_name == call(capsys, "model", "prove", "of-plain", "plain", used, "-o", "proof.json")
    rows = [row["index"] for row in open_run("runs/packed").documents.rows_of(0, used)]
    assert code == 2 and f"packed rows {', '.join(map(str, rows))}, and a proof is about one row" in why
    assert call(capsys, "model", "prove", "of-packed", "packed", rows[0], "-o", "proof.json")[0] == 0
    assert call(capsys, "model", "seen", "of-plain", "plain", "--id", "nobody", "--runs", "runs")[1].startswith(
        "unknown"
    )
    assert call(capsys, "model", "prove", "of-plain", "plain", "--id", "nobody", *prove)[0] == 2
    assert "which sample?" in call(capsys, "model", "prove", "of-plain", "plain", 1, "--id", "x", *prove)[2]


@pytest.mark.needs("torch")
def test_a_store_that_moved_is_said_where_it_lies(named, capsys):
    """Unknown, with the option that helps, which works as it is written."""
    shutil.move("web", "moved")
    asked = ("model", "seen", "of-packed", "packed", "--runs", "runs", "--id", "https://example.org/3")

    lost = call(capsys, *asked)[1]
    found = call(capsys, *asked, "--store", "packed=moved")[1]

    assert lost.startswith("unknown: 0 uses") and "--store packed=PATH" in lost
    assert found.startswith(("yes", "no")) and found == call(capsys, *asked, "--packing", "moved")[1]
    assert call(capsys, "model", "prove", "of-plain", "plain", "--id", "https://example.org/3", "-o", "x.json")[0] == 2


def test_a_page_about_training_data_is_written(folder, capsys):
    """For both purposes; without sources everything is not declared."""
    (folder / "sources.yaml").write_text("datasets: {corpus: {licence: MIT}}")
    code, out, _ = call(
        capsys, "model", "summary", "tuned", "--sources", "sources.yaml", "--for", "ai-act", "-o", "a.md"
    )
    assert (code, out.startswith("a.md: 'not declared' is there")) == (0, True)
    assert "licence: MIT" in (folder / "a.md").read_text()
    assert call(capsys, "model", "summary", "tuned", "-o", "card.md")[0] == 0
    assert "MIT" not in (folder / "card.md").read_text()
    assert call(capsys, "model", "summary", "tuned", "--for", "nobody", "-o", "x.md")[0] == 2


def test_a_place_that_cannot_be_written_is_a_sentence(folder, capsys):
    """No folder, no room, not ours: one line and exit code 2, whatever the command."""
    code, out, err = call(capsys, "model", "summary", "tuned", "-o", "nowhere/card.md")

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "No such file or directory. Give a place that is there" in err and "nowhere/" in err
