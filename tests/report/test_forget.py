"""Forgetting: what is asked for, refused and named; the laws are in tests/train."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.cli.calling import call

from lading import NumpyLoader, PackedRows, Windows, build_tokens, open_checkpoint, open_run, track
from lading.errors import ConfigError, LadingError, ResumeError
from lading.ledger import Ledger
from lading.order import Plan
from lading.order.event import Mask
from lading.order.packing.rules import PackingRules
from lading.report.checkpoint.stamp import stamp
from lading.source.tokens.trace_index import index_tokens

RULES = PackingRules(48, "best_fit", "split")


def corpus(path: Path, copies: int = 1) -> PackedRows:
    """60 short documents; number 7 is there ``copies`` times, at the end."""
    rng = np.random.default_rng(5)
    texts = ["".join(rng.choice(list("abcdefgh "), rng.integers(8, 30))) for _ in range(60)]
    texts += [f"x{texts[7]}y"] * (copies - 1)
    (path / "web.jsonl").write_text("\n".join(json.dumps({"text": t, "url": f"u/{n}"}) for n, t in enumerate(texts)))
    return PackedRows(build_tokens(path / "web.jsonl", path / "web", id="url"), RULES)


def trained(
    path: Path, rows: Any, steps: int, state: Any = None, *, every: int = 3, record: str = "content", **options: Any
) -> list[Any]:
    """Train on so many steps, and save a checkpoint every few; return what was delivered."""
    loader = NumpyLoader({"web": rows}, batch_size=3, seed=2, **options)
    ledger = loader.tracker = Ledger(path / "run", loader.plan, record=record)
    if state is not None:
        loader.load_state_dict(json.loads((state / "state.json").read_text()))
    seen = []
    while loader.engine.step < steps:
        for batch, bill in loader.with_bills():
            seen.append({name: column.copy() for name, column in batch.items()})
            ledger.commit(bill, update=bill.step, loss=1.0)
            if (bill.step + 1) % every == 0:
                saved = path / f"checkpoint-{bill.step + 1}"
                saved.mkdir(exist_ok=True)
                (saved / "state.json").write_text(json.dumps(loader.state_dict()))
                ledger.checkpoint(saved, loader.state_dict())
            if bill.step + 1 == steps:
                break
    ledger.close()
    return seen


def first_use(path: Path, document: int, number: int = 0) -> int:
    """The first step that used a row with a document."""
    run = open_run(path / "run")
    rows = [row["index"] for row in run.documents.rows_of(number, document)]
    return min(use["step"] for row in rows for use in run.where(number, row))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_masked_rows_are_padding_where_the_document_was_and_else_the_same(tmp_path_factory, data):
    """Law: targets, inputs, segments and owners are 0 over the span; positions, shapes and neighbours stay."""
    lengths = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=12))
    path = tmp_path_factory.mktemp("mask")
    (path / "a.jsonl").write_text("\n".join(json.dumps({"text": "ab" * n}) for n in lengths))
    store = build_tokens(path / "a.jsonl", path / "store")
    if not store.num_tokens:
        return
    rows = PackedRows(store, PackingRules(data.draw(st.integers(8, 24)), "best_fit", "split"))
    documents = data.draw(st.sets(st.integers(0, len(lengths) - 1)))
    every = np.arange(len(rows))

    whole, masked = rows.take(every), rows.without(sorted(documents)).take(every)

    hidden = np.isin(whole["document_idx"] - 1, list(documents))
    for name, column in masked.items():
        expected = whole[name] if name.endswith("position") else np.where(hidden, 0, whole[name])
        np.testing.assert_array_equal(column, expected, name)


def test_masked_windows_hide_the_document_on_both_sides(tmp_path):
    """Inputs are 0 and targets ignored over the span: also the input after the target's span."""
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in ("abcd", "efg", "hijklmn")))
    store = build_tokens(tmp_path / "a.jsonl", tmp_path / "store")
    windows = Windows(store.path / "tokens.bin", 5, dtype=store.tokens.dtype)

    inputs, targets = windows.without([1]).take(np.arange(2))

    assert bytes(inputs[0].astype(np.uint8)) == b"abcd\0"
    assert targets[0].tolist() == [98, 99, 100, -100, -100]
    assert (inputs[1][:2] == 0).all()
    assert targets[1].tolist() == [-100, *b"hijk"][:5]
    with pytest.raises(LadingError, match="no token store"):
        Windows(np.arange(9), 4).without([0])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.sets(st.integers(0, 50), min_size=1), st.integers(0, 20))
def test_a_plan_keeps_its_masks_in_json_and_over_a_resume(first, second, documents, step):
    """Law: from the file, and from the events that a state keeps, the same documents are masked at every step."""
    plan = Plan.make({"a": 30, "b": 20}, 4, masked={"a": [3]})
    plan = plan.with_event(Mask(first, 1, tuple(sorted(documents)))).with_event(Mask(second, 0, (7,), "why"))

    again, resumed = Plan.from_json(plan.to_json()), plan.with_events(plan.events_from(step))

    assert again == plan
    for later in range(step, 25):
        assert again.masked_at(later) == plan.masked_at(later) == resumed.masked_at(later)
        assert plan.bill(later).masked == plan.masked_at(later)
    assert plan.bill(5).digest == Plan.make({"a": 30, "b": 20}, 4).bill(5).digest


def test_forget_and_replay_delivers_what_a_run_that_never_had_it_delivers(tmp_path, capsys):
    """Worker processes too; the tainted state is refused by name, where and trace say forgotten."""
    rows = corpus(tmp_path)
    trained(tmp_path, rows, 24)
    step = first_use(tmp_path, 7)
    found = open_run(tmp_path / "run").forget(documents=["web:7"], reason="request 17")
    clean = Path(found.clean["where"])

    assert found.recorded
    assert (found.first_step, found.clean["step"]) == (step, step // 3 * 3)
    assert [Path(t["where"]).name for t in found.tainted] == [f"checkpoint-{s}" for s in range(3, 25, 3) if s > step]
    with pytest.raises(ResumeError, match=rf"tainted.*request 17.*checkpoint-{step // 3 * 3} \(step"):
        trained(tmp_path, rows, 27, tmp_path / "checkpoint-24")
    again = trained(tmp_path, rows, 24, clean, num_workers=2)
    (tmp_path / "control").mkdir()
    control = trained(tmp_path / "control", rows, 24, masked={"web": [7]})
    for one, other in zip(again, control[found.clean["step"] :], strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], name)
    run = open_run(tmp_path / "run")
    assert not any((batch["document_idx"] == 8).any() for batch in again)
    index_tokens(tmp_path / "web")
    text = bytes(rows.tokens[7].astype(np.uint8)).decode()
    assert [p.uses for p in run.trace(text).spans[0].places if p.document == 7] == [()]
    assert run.verify().holds
    assert open_checkpoint(tmp_path / "checkpoint-24", runs=[tmp_path]).seen("web", document=7).answer is False
    _, out, _ = call(capsys, "where", tmp_path / "run", "web", "--document", 7)
    assert "forgotten" in out


def test_states_saved_during_the_replay_are_clean(tmp_path):
    """A kill during the replay: it is resumed from what the replay saved, and nothing is masked twice."""
    rows = corpus(tmp_path)
    trained(tmp_path, rows, 18)
    found = open_run(tmp_path / "run").forget(documents=["web:7"])
    trained(tmp_path, rows, found.clean["step"] + 4, Path(found.clean["where"]))
    middle = tmp_path / f"checkpoint-{found.clean['step'] + 3}"

    trained(tmp_path, rows, 21, middle)

    launches = open_run(tmp_path / "run").evidence.log.launches
    assert [len([e for e in launch.events if e["kind"] == "mask"]) for launch in launches.values()][1:] == [1, 0]


@pytest.mark.parametrize("order", [(7, 11), (11, 7), (7, 11, "at once")])
def test_one_after_the_other_in_any_order_or_at_once_is_the_same(tmp_path, order):
    """Law 4, at the rows that are delivered."""
    rows = corpus(tmp_path)
    trained(tmp_path, rows, 15)
    if "at once" in order:
        found = open_run(tmp_path / "run").forget(documents=["web:7", "web:11"])
    else:
        open_run(tmp_path / "run").forget(documents=[f"web:{order[0]}"])
        found = open_run(tmp_path / "run").forget(documents=[f"web:{order[1]}"])
    clean = [Path(c["where"]) for c in [found.clean] if c is not None]

    again = trained(tmp_path, rows, 15, *clean)

    (tmp_path / "control").mkdir()
    control = trained(tmp_path / "control", rows, 15, masked={"web": [7, 11]})
    for one, other in zip(again, control[15 - len(again) :], strict=True):
        np.testing.assert_array_equal(one["targets"], other["targets"])


def test_nothing_forgotten_changes_nothing(tmp_path):
    """Law 7: a document that no step used; a dry run; one that is forgotten already."""
    rows = corpus(tmp_path)
    trained(tmp_path, rows, 6)
    run = open_run(tmp_path / "run")
    unused = next(d for d in range(60) if not any(len(run.where(0, r["index"])) for r in run.documents.rows_of(0, d)))

    dry = run.forget(documents=["web:7"], dry_run=True)
    never = run.forget(documents=[f"web:{unused}"])
    again = open_run(tmp_path / "run").forget(documents=[f"web:{unused}"])

    assert (dry.recorded, never.recorded, again.recorded) == (False, True, False)
    assert (never.first_step, never.replay_steps, never.tainted) == (None, 0, [])
    assert "nothing has to be replayed" in never.notes[0]
    trained(tmp_path, rows, 9, tmp_path / "checkpoint-6")


def test_by_row_and_by_sample_substitutes_come(tmp_path):
    """The row is blocked, its substitute comes, where says forgotten."""
    rows = corpus(tmp_path)
    trained(tmp_path, rows, 12)
    run = open_run(tmp_path / "run")
    row = run.documents.rows_of(0, 7)[0]["index"]

    found = run.forget(documents=["web:7"], by="row")
    second = open_run(tmp_path / "run").forget(samples=[f"web:{row}"])

    assert found.samples == [{"dataset": "web", "index": row}]
    assert not second.recorded
    assert open_run(tmp_path / "run").where("web", row)["fate"][-1] == "forgotten"
    state = None if found.clean is None else Path(found.clean["where"])
    again = trained(tmp_path, rows, 12, state)
    assert not any((batch["idx"] == row).any() for batch in again)


def test_documents_that_share_text_are_found_and_confirmed(tmp_path):
    """A copy inside another document is forgotten with it; a closure above 1 % wants a yes."""
    rows = corpus(tmp_path, copies=2)
    trained(tmp_path, rows, 12)
    index_tokens(tmp_path / "web")
    run, size = open_run(tmp_path / "run"), len(rows.tokens[7])

    with pytest.raises(ConfigError, match="2 of 61 documents of dataset 'web' share that text, more than 1 %"):
        run.forget(documents=["web:7"], shared_tokens=size)
    found = run.forget(documents=["u/7"], shared_tokens=size, yes=True, dry_run=True)

    assert [(d["document"], d["asked"]) for d in found.documents] == [(7, True), (60, False)]


def test_models_made_of_a_tainted_checkpoint_are_named(tmp_path):
    """A fine-tuned one and a merge, by waybills; one made of a clean checkpoint is not."""
    rows = corpus(tmp_path)
    trained(tmp_path, rows, 18)
    step = first_use(tmp_path, 7)
    bad, good = tmp_path / "checkpoint-18", tmp_path / f"checkpoint-{step // 3 * 3}"
    for name, parents in (("merged", [bad, good]), ("copied", [good])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_bytes(b"w")
        stamp(tmp_path / name, made="merge" if len(parents) > 1 else "conversion", parents=parents)
    ledger = Ledger(tmp_path / "tuning", base=bad)
    loader = NumpyLoader(np.arange(8), batch_size=2, tracker=ledger)
    next(iter(loader))
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "weights").write_bytes(b"w")
    ledger.checkpoint(tmp_path / "tuned", loader.state_dict())
    ledger.close()

    found = open_run(tmp_path / "run").forget(documents=["web:7"], dry_run=True)

    assert [Path(where).name for where in found.derived] == ["merged", "tuned"]


def test_wrong_requests_are_refused_in_words(tmp_path):
    """Nothing asked, not in the corpus, a whole dataset, a store that is gone, a run whose order is not ours."""
    rows = corpus(tmp_path)
    trained(tmp_path, rows, 6)
    run = open_run(tmp_path / "run")
    for asked, message in (
        ({}, "what is to be forgotten"),
        ({"documents": ["web:999"]}, "document 999 does not exist"),
        ({"documents": ["u/999"]}, "it is not in the corpus"),
        ({"documents": ["web:7"], "by": "page"}, "expected 'document' or 'row'"),
        ({"documents": [f"web:{n}" for n in range(60)]}, "all 60 documents"),
        ({"samples": [f"web:0-{len(rows) - 1}"]}, "are blocked"),
        ({"samples": [f"web:{len(rows)}"]}, "is outside the dataset"),
    ):
        with pytest.raises(LadingError, match=message):
            run.forget(**asked)
    (tmp_path / "web").rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"had its packing index at .*--store web=PATH"):
        open_run(tmp_path / "run").forget(documents=["web:7"])
    found = open_run(tmp_path / "run", stores={"web": str(tmp_path / "elsewhere")}).forget(
        documents=["web:7"], dry_run=True
    )
    assert found.documents[0]["id"] == "u/7"


def test_a_run_without_waybills_says_what_is_needed(tmp_path):
    """The replay is of everything, and the way to a shorter one is named."""
    rows = corpus(tmp_path)
    trained(tmp_path, rows, 8, every=100)

    found = open_run(tmp_path / "run").forget(samples=["step:3"], dry_run=True)

    assert (found.clean, found.replay_steps, found.share) == (None, 8, 1.0)
    assert "lading model stamp" in found.notes[0]


def test_a_tracked_run_gets_the_list_and_no_replay(tmp_path):
    """Names are known, the order is not ours."""
    torch = pytest.importorskip("torch")
    loader = torch.utils.data.DataLoader(torch.arange(12), batch_size=3)
    ledger = Ledger(tmp_path / "run")
    for _, bill in track(loader, tracker=ledger).with_bills():
        ledger.commit(bill, loss=1.0)
    ledger.close()

    with pytest.raises(ConfigError, match=r"order of this run was not Lading's.*steps 1;"):
        open_run(tmp_path / "run").forget(samples=["0:4"])


def test_a_run_that_goes_on_is_not_asked_to_forget(tmp_path):
    """It would use the document after the request, and its states would be called clean."""
    loader = NumpyLoader({"web": corpus(tmp_path)}, batch_size=3, seed=2)
    ledger = loader.tracker = Ledger(tmp_path / "run", loader.plan)
    next(iter(loader))
    ledger.flush()
    run = open_run(tmp_path / "run")

    with pytest.raises(ConfigError, match=r"attempt 0 of this run is running.*End it, then ask again; --dry-run"):
        run.forget(documents=["web:7"])

    assert not run.forget(documents=["web:7"], dry_run=True).recorded
    ledger.close()
    assert open_run(tmp_path / "run").forget(documents=["web:7"]).recorded


def test_a_model_in_memory_that_had_it_is_refused_however_it_goes_on(tmp_path):
    """The process that trained it continues, or goes back without loading a state: nothing is undone."""
    loader = NumpyLoader({"web": corpus(tmp_path)}, batch_size=3, seed=2)
    loader.tracker = ledger = Ledger(tmp_path / "run", loader.plan)
    for _, bill in loader.with_bills():
        ledger.commit(bill, loss=1.0)
    ledger.close()
    open_run(tmp_path / "run").forget(documents=["web:7"])

    for epoch, what in ((1, "the loaded state"), (0, "what this process trained, attempt 0, is tainted")):
        loader.set_epoch(epoch)
        loader.tracker = Ledger(tmp_path / "run", loader.plan)
        with pytest.raises(ResumeError, match=what):
            next(iter(loader))


def test_a_loader_that_does_not_follow_the_ledger_is_refused(tmp_path):
    """Bills that are only committed would name what must be forgotten; a plan that was born without it may go on."""
    rows = corpus(tmp_path)
    trained(tmp_path, rows, 6)
    open_run(tmp_path / "run").forget(documents=["web:7"])
    loader = NumpyLoader({"web": rows}, batch_size=3, seed=2)
    ledger = Ledger(tmp_path / "run", loader.plan)
    _, bill = next(loader.with_bills())

    with pytest.raises(ResumeError, match=r"must be forgotten.*loader\.tracker = ledger"):
        ledger.commit(bill, loss=1.0)
