"""Files that are old or new and never a mixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from lading.runtime.files import Journal, built_aside, create_aside, write_aside, written_aside


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path):
    """An error halfway through is as if nothing had been written."""
    path = tmp_path / "run.json"
    write_aside(path, b"old")

    with pytest.raises(ValueError), written_aside(path) as file:  # noqa: PT012  (the error comes halfway)
        file.write(b"half of the ne")
        raise ValueError

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_of_two_creators_one_wins(tmp_path: Path):
    """The second creation changes nothing and says so."""
    path = tmp_path / "run.json"

    assert create_aside(path, b"first")
    assert not create_aside(path, b"second")
    assert path.read_bytes() == b"first"


def test_journal_gives_back_what_was_appended(tmp_path: Path):
    """Lines come back in order, with any JSON value."""
    journal = Journal(tmp_path / "events.jsonl")
    journal.append({"event": "attempt", "step": 3, "name": "ünïcode", "share": 0.1})
    journal.append({"event": "block", "samples": [[0, 1]]})

    assert [v["event"] for v in journal.values()] == ["attempt", "block"]
    assert journal.values()[0] == {"event": "attempt", "step": 3, "name": "ünïcode", "share": 0.1}


def test_a_torn_line_is_no_damage_and_swallows_nothing(tmp_path: Path):
    """A line cut off by a crash is marked torn; the next one stands on its own."""
    journal = Journal(tmp_path / "events.jsonl")
    journal.append({"event": "a"})
    with open(journal.path, "ab") as file:
        file.write(b'{"crc":12,"event":"b')
    journal.append({"event": "c"})

    assert [line.torn for line in journal.lines()] == [False, True, False]
    assert [v["event"] for v in journal.values()] == ["a", "c"]


def test_an_altered_line_is_told_from_a_torn_one(tmp_path: Path):
    """A changed digit fails the line's CRC."""
    journal = Journal(tmp_path / "events.jsonl")
    journal.append({"event": "attempt", "step": 3})
    journal.path.write_bytes(journal.path.read_bytes().replace(b'"step":3', b'"step":4'))

    (line,) = journal.lines()

    assert line.value is None
    assert not line.torn


def test_a_journal_line_that_is_no_object_is_damaged(tmp_path):
    """Valid JSON of another kind; it ended every question with a TypeError."""
    journal = Journal(tmp_path / "events.jsonl")
    journal.append({"a": 1})
    with open(journal.path, "ab") as file:
        file.write(b'["crc"]\n5\n')

    assert [line.value for line in journal.lines()] == [{"a": 1}, None, None]


def test_a_folder_that_is_there_is_replaced_only_when_asked(tmp_path: Path):
    """Otherwise the build fails at its end and the old one stays, whole; nothing is left beside it."""
    for content, replace in ((b"old", False), (b"new", True)):
        with built_aside(tmp_path / "made", replace=replace) as aside:
            (aside / "file").write_bytes(content)
    assert (tmp_path / "made" / "file").read_bytes() == b"new"

    with pytest.raises(FileExistsError, match="exists already"), built_aside(tmp_path / "made") as aside:
        (aside / "file").write_bytes(b"third")

    assert (tmp_path / "made" / "file").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
