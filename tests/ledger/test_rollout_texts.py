"""Texts of rollouts: kept only where it is asked for, beside the ledger."""

from __future__ import annotations

import json
import shutil

import pytest
from tests.cli.calling import lading

from lading import Ledger, Plan, Rollout, RolloutBooks, RolloutGroup, open_run
from lading.errors import LedgerError
from lading.ledger.rollout_texts import read_texts


def books_of(run, **options):
    """Return books of ten prompts, two rollouts each."""
    return RolloutBooks(run, Plan.make({"math": 10}, batch_size=2), group_size=2, **options)


def say(books, words, **options):
    """Report rollouts that say some words, of the next prompt, and use them."""
    prompt = books.draw()[0]
    made = [Rollout([len(word), ord(word[0])], text=word) for word in words]
    numbers = books.made([RolloutGroup(prompt.group, made, 0)])
    books.used(numbers, 0, loss=1.0)
    return prompt, numbers


def test_what_rollouts_say_is_kept_where_it_is_asked_for(tmp_path, capsys):
    """Far end: the command line shows the texts of a prompt, whatever characters they have."""
    words = ["käse \u2028\n", "two\ud83d"]
    with books_of(tmp_path / "run", keep_texts=True) as books:
        prompt, numbers = say(books, words)
    with books_of(tmp_path / "silent") as books:
        say(books, words)

    answers = []
    for name in ("run", "silent"):
        assert lading("rollouts", tmp_path / name, "--prompt", "math", prompt.index, "--json") == 0
        answers.append(json.loads(capsys.readouterr().out))

    assert open_run(tmp_path / "run").rollout_texts("math", prompt.index) == dict(zip(numbers, words, strict=True))
    assert [row["text"] for row in answers[0]] == words
    assert not (tmp_path / "silent" / "texts").exists()
    assert "text" not in answers[1][0]


def test_what_was_rolled_back_says_nothing_of_what_came_instead(tmp_path):
    """The same number made anew by a resume has its own text."""
    with books_of(tmp_path / "run", keep_texts=True) as books:
        state = books.state()
        prompt, numbers = say(books, ["first", "other"])
    with books_of(tmp_path / "run", keep_texts=True) as books:
        books.load(state)
        assert say(books, ["second", "other"]) == (prompt, numbers)

    assert open_run(tmp_path / "run").rollout_texts("math", prompt.index) == {numbers[0]: "second", numbers[1]: "other"}


def test_texts_can_be_deleted_or_damaged_and_the_run_holds(tmp_path):
    """They are no evidence: a line that is cut is passed over, and without them verify says what it said."""
    with books_of(tmp_path / "run", keep_texts=True) as books:
        prompt, numbers = say(books, ["one", "two"])
    path = tmp_path / "run" / "texts" / "00000.jsonl"
    path.write_bytes(path.read_bytes()[:-5] + b"\n[1]\n")

    assert open_run(tmp_path / "run").rollout_texts("math", prompt.index) == {numbers[0]: "one"}
    shutil.rmtree(path.parent)
    assert open_run(tmp_path / "run").verify().holds
    assert read_texts(tmp_path / "run", [(numbers[0], None)]) == {}


def test_a_rollout_without_a_text_is_refused_before_anything_is_recorded(tmp_path):
    """Where texts are kept each rollout has one."""
    with books_of(tmp_path / "run", keep_texts=True) as books:
        prompt = books.draw()[0]
        with pytest.raises(LedgerError, match=r"without its text: expected Rollout\(tokens, text=\.\.\.\)"):
            books.made([RolloutGroup(prompt.group, [Rollout(3)], 0)])

        assert books.open_rollouts() == []


@pytest.mark.parametrize("on_error", ["raise", "warn"])
def test_a_folder_that_cannot_be_written_records_all_or_nothing(tmp_path, on_error):
    """Without room for texts rollouts are refused as a whole, or (``warn``) recorded without their texts."""
    plan = Plan.make({"math": 10}, batch_size=2)
    ledger = Ledger(tmp_path / "run", names=plan.names, on_error=on_error)
    with RolloutBooks(ledger, plan, group_size=2, keep_texts=True) as books:
        prompt = books.draw()[0]
        (tmp_path / "run" / "texts").write_text("in the way")
        group = RolloutGroup(prompt.group, [Rollout([1], text="one")], 0)
        text = "cannot be written"
        with pytest.raises(LedgerError, match=text) if on_error == "raise" else pytest.warns(UserWarning, match=text):
            books.made([group])

        assert len(books.open_rollouts()) == (on_error == "warn")
        (tmp_path / "run" / "texts").unlink()
        if on_error == "raise":
            books.made([group])
    assert len(open_run(tmp_path / "run").rollouts()) == 1
