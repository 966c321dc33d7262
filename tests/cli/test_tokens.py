"""lading tokens build, pack, show and check; lading where --document."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lading.cli import main
from lading.ledger import Ledger
from lading.loader import Loader
from lading.order.packing.rules import PackingRules
from lading.source.tokens.packed import PackedRows


@pytest.fixture
def lading(capsys):
    """Run the command; give exit code, output and errors."""

    def run(*arguments):
        with pytest.raises(SystemExit) as left:
            main(list(map(str, arguments)))
        captured = capsys.readouterr()
        return left.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def store(tmp_path, lading):
    """A byte store of 40 documents, built by the command."""
    random = np.random.default_rng(0)
    lines = [json.dumps({"text": "x" * int(n)}) for n in random.integers(1, 60, 40)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    code, _, errors = lading("tokens", "build", tmp_path / "a.jsonl", "--out", tmp_path / "tokens")
    assert code == 0, errors
    return tmp_path / "tokens"


def test_build_and_show(store, lading):
    """Numbers for people and for programs."""
    code, out, _ = lading("tokens", "show", store, "--json")
    facts = json.loads(out)

    assert code == 0 and facts["documents"] == 40 and facts["tokenizer"] == "byte" and facts["packings"] == []
    assert "vocab size" in lading("tokens", "show", store)[1]


def test_pack_saves_an_index_that_show_finds(store, lading):
    """The density is notified; a document longer than a row is wrong use, and named."""
    wrong, _, errors = lading("tokens", "pack", store, "--row-length", 32)
    code, out, _ = lading("tokens", "pack", store, "--row-length", 32, "--overflow", "split", "--json")
    facts = json.loads(out)

    assert wrong == 2 and "tokens but a row holds 32" in errors
    assert code == 0 and facts["density"] > 0.9 and facts["algorithm"] == "best_fit"
    assert json.loads(lading("tokens", "show", store, "--json")[1])["packings"] == [facts]
    assert "rows of 32, best_fit, split, density" in lading("tokens", "show", store)[1]


def test_check_tells_what_is_wrong(store, lading):
    """0 it holds, 1 it does not, 2 wrong use."""
    assert lading("tokens", "check", store)[0] == 0
    tokens = np.memmap(store / "tokens.bin", "<u2", "r+")
    tokens[3] = 999
    tokens.flush()

    code, out, _ = lading("tokens", "check", store, "--json")

    assert code == 1 and "holds token 999, but the vocabulary has 257" in json.loads(out)["error"]
    missing, _, errors = lading("tokens", "show", store / "nowhere")
    assert missing == 2 and "no token store at" in errors


def test_where_finds_every_step_that_held_a_part_of_a_document(store, lading, tmp_path):
    """The run knows where its packing index lies; another place can be given."""
    rows = PackedRows(store, PackingRules(32, "best_fit", "split"))
    loader = Loader({"corpus": rows}, batch_size=4, seed=1)
    loader.tracker = ledger = Ledger(tmp_path / "run", loader.plan)
    document = int(np.argmax(rows.tokens.lengths()))  # longer than a row
    held = []
    for batch, bill in loader.with_bills():
        ledger.commit(bill, loss=1.0)
        if (batch["document_idx"] == document + 1).any():
            held.append(bill.step)
    ledger.close()

    code, out, errors = lading("where", tmp_path / "run", "corpus", "--document", document, "--json")

    assert code == 0, errors
    found = json.loads(out)
    assert sorted({row["step"] for row in found}) == held and len(found) == len(rows.rows_of_document(document)) >= 2
    assert {row["fate"] for row in found} == {"applied"} and all("–" in row["tokens"] for row in found)
    assert lading("where", tmp_path / "run", "corpus", "--document", 10_000)[0] == 2

    moved = rows.index.path + "-moved"
    (store / f"packing-{rows.index.fingerprint}").rename(moved)
    lost, _, errors = lading("where", tmp_path / "run", "corpus", "--document", document)
    assert lost == 2 and "had its packing index at" in errors and "Pass --store corpus=PATH" in errors
    assert lading("where", tmp_path / "run", "corpus", "--document", document, "--store", f"corpus={moved}")[0] == 0


def test_tasks_wait_for_each_other_and_the_last_one_joins(tmp_path, lading, monkeypatch):
    """What is missing is said; --join does it by hand; two ways to share a job are one too many."""
    monkeypatch.setattr("lading.source.tokens.inputs._LEAST_BLOCK", 64)
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(f"words of {name} " * 20)
    build = ("tokens", "build", tmp_path / "*.txt", "--out", tmp_path / "out")

    first = lading(*build, "--task", "0/2")
    early = lading(*build, "--join")
    last = lading(*build, "--task", "1/2", "--json")

    assert first[0] == 0 and "waits for" in first[1] and "2 of 2 blocks" in first[2]
    assert early[0] == 2 and "lacks 2 of 4 blocks (1, 3)" in early[2]
    assert json.loads(last[1])["documents"] == 4
    assert lading(*build, "--overwrite", "--task", "0/2", "--on", "ray")[0] == 2
    assert lading(*build, "--workers", 2)[0] == 2  # it exists


def test_import_makes_stores_of_files_that_hold_tokens(tmp_path, lading):
    """A stream and a Megatron dataset give the same store; an unknown format or type is wrong use."""
    from lading.kits.formats import write_megatron

    np.array([5, 6, 99, 7, 99], np.uint16).tofile(tmp_path / "train.bin")
    write_megatron([[5, 6, 99], [7, 99]], tmp_path / "data")
    given = ("--vocab-size", 100, "--eod", 99, "--json")

    made = {}
    for name, path in {"nanogpt": tmp_path / "train.bin", "megatron": tmp_path / "data"}.items():
        code, out, errors = lading("tokens", "import", path, "--format", name, "--out", tmp_path / name, *given)
        assert code == 0, errors
        made[name] = json.loads(out)

    assert made["nanogpt"]["content"] == made["megatron"]["content"] and made["nanogpt"]["documents"] == 2
    for wrong in (("--format", "tfrecord"), ("--format", "nanogpt", "--dtype", "float32"), ("--format", "mds")):
        assert lading("tokens", "import", tmp_path, *wrong, "--out", tmp_path / "x", *given)[0] == 2
