"""The format of a waybill: what is written is read again, and whatever else the bytes are is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from lading.errors import CorruptLedgerError, LedgerError
from lading.ledger.waybill.waybill import (
    MOST_BYTES,
    CoveredFile,
    Moment,
    Total,
    Waybill,
    checkpoint_path,
    read_waybill,
    waybill_from,
    waybill_path,
)
from lading.runtime.fields import Origin

ORIGIN = Origin("waybill.json", CorruptLedgerError)
MOMENT = Moment("ab" * 16, "cd" * 32, 3, 600, 599, "ef" * 32, None, ((4, 6),))
SAMPLE = Waybill(
    "training",
    {"model.safetensors": CoveredFile(7, "12" * 32), "sub/.metadata": CoveredFile(0, "34" * 32)},
    MOMENT,
    (),
    "runs/7",
    {"code": Total(12, 0.5), "prose": Total(3, None, 99)},
)


def altered(**changes) -> bytes:
    """Return the sample with fields changed; None takes one out."""
    values = {**json.loads(SAMPLE.to_bytes()), **changes}
    return json.dumps({name: value for name, value in values.items() if value is not None}).encode()


def test_what_is_written_is_read_again():
    """Every field, and its SHA-256 is that of the bytes."""
    content = SAMPLE.to_bytes()

    found = waybill_from(content, ORIGIN)

    assert found.to_bytes() == content
    assert (found.moment, found.files, found.totals) == (MOMENT, SAMPLE.files, SAMPLE.totals)
    assert len(found.sha256) == 64


def test_a_thousand_shards_take_the_room_that_is_promised():
    """64 kB, 160 bytes a file and 100 a dataset."""
    files = {f"pytorch_model-{n:05d}-of-01000.safetensors": CoveredFile(5 * 10**9, "12" * 32) for n in range(1000)}
    totals = {f"corpus-{n:03d}": Total(10**12, 1.2345678901234567) for n in range(200)}

    size = len(Waybill("training", files, MOMENT, (), "runs/7", totals).to_bytes())

    assert size <= 65_536 + 160 * 1000 + 100 * 200


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (altered(waybill=2), "version 1"),
        (altered(made="magic"), "training, merge, conversion, import"),
        (altered(made="merge"), "of a checkpoint that was trained"),
        (altered(run=None), "only the fields"),
        (altered(step=-1), "step: expected an integer from 0"),
        (altered(files={"../model": {"size": 1, "sha256": "12" * 32}}), "relative path"),
        (altered(files={"/etc/passwd": {"size": 1, "sha256": "12" * 32}}), "relative path"),
        (altered(files={"a//b": {"size": 1, "sha256": "12" * 32}}), "relative path"),
        (altered(files={"a\x1b[2J": {"size": 1, "sha256": "12" * 32}}), "relative path"),
        (altered(files={"a": {"size": 1, "sha256": "12"}}), "64 hexadecimal digits"),
        (altered(parents=[{"waybill": "x"}]), "64 hexadecimal digits"),
        (altered(extra=1), "only the fields"),
        (b'{"waybill": 1, "waybill": 1}', "twice"),
        (b"[" * 100_000, "JSON"),
        (b"\xff\xfe", "JSON"),
    ],
)
def test_what_is_no_waybill_is_refused(content, words):
    """By file, place, and what was expected."""
    with pytest.raises(CorruptLedgerError, match=words):
        waybill_from(content, ORIGIN)


def test_a_merge_without_parents_is_refused():
    """Nothing is made from nothing."""
    with pytest.raises(CorruptLedgerError, match="what the merge was made from"):
        waybill_from(Waybill("merge", SAMPLE.files).to_bytes(), ORIGIN)


def test_a_waybill_that_is_too_large_is_refused(tmp_path):
    """Before it is parsed."""
    (tmp_path / "waybill.json").write_bytes(b" " * (MOST_BYTES + 1))

    with pytest.raises(CorruptLedgerError, match="at most 16777216 bytes"):
        read_waybill(tmp_path)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_waybill_or_an_error_of_ours(content):
    """Nothing else is raised."""
    with pytest.raises(CorruptLedgerError):
        waybill_from(content, ORIGIN)


def test_a_checkpoint_without_one_says_how_to_make_one(tmp_path):
    """The error names the file and the command."""
    with pytest.raises(LedgerError, match=r"has no waybill.*lading model stamp"):
        read_waybill(tmp_path)
    with pytest.raises(LedgerError, match="there is no checkpoint"):
        checkpoint_path(tmp_path / "none")


def test_a_waybill_means_its_checkpoint_and_a_link_its_target(tmp_path):
    """Whichever of them is given."""
    file, link = tmp_path / "best.ckpt", tmp_path / "last.ckpt"
    file.write_bytes(b"weights")
    link.symlink_to(file.name)
    beside = Path(f"{file}.waybill.json")
    beside.write_bytes(Waybill("import", {"best.ckpt": CoveredFile(7, "12" * 32)}).to_bytes())

    assert checkpoint_path(beside) == file
    assert waybill_path(link) == beside
    assert read_waybill(link).made == "import"
