"""Rows that are on disk before their part is closed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from lading.errors import LedgerError
from lading.ledger import tail as module
from lading.ledger.packed import RowBytes, layout
from lading.ledger.schema import rows_table
from lading.ledger.tail import HEADER_BYTES, TailWriter, read_tail

LAUNCH = "5a" * 32


def rows(first: int, count: int = 3) -> RowBytes:
    packing = layout("samples")
    return packing.of_rows([packing.pack((step, 0, 0, step, None)) for step in range(first, first + count)])


def written(path: Path, records: int, *, synced: bool = True) -> Path:
    tail = TailWriter(path, generation=4, launch=LAUNCH)
    for record in range(records):
        tail.append({"samples": rows(3 * record)})
    if synced:
        tail.sync()
    tail.close()
    return path


def steps_of(path: Path) -> list[int]:
    return rows_table("samples", read_tail(path).rows["samples"])["step"].to_pylist()


def test_records_come_back_in_order(tmp_path: Path):
    """What was appended is what is read."""
    tail = read_tail(written(tmp_path / "tail", 4))

    assert tail.generation == 4
    assert [some.first_step for some in tail.rows["samples"]] == [0, 3, 6, 9]
    assert not tail.damaged
    assert tail.missing == 0


def test_a_missing_tail_is_empty(tmp_path: Path):
    """A rank that has written nothing has an empty tail."""
    assert read_tail(tmp_path / "tail").generation is None
    assert not read_tail(tmp_path / "tail").damaged


@given(cut=st.integers(1, 4000))
def test_wherever_a_tail_is_cut_the_records_before_stay_readable(tmp_path_factory: pytest.TempPathFactory, cut: int):
    """A cut tail gives whole records only, and knows that bytes are missing."""
    path = written(tmp_path_factory.mktemp("cut") / "tail", 3)
    content = path.read_bytes()
    kept = max(HEADER_BYTES, len(content) - cut)
    path.write_bytes(content[:kept])

    tail = read_tail(path)

    assert steps_of(path) == list(range(len(steps_of(path))))
    assert len(steps_of(path)) % 3 == 0
    assert tail.missing == len(content) - kept
    assert not tail.unsynced


def test_a_half_written_record_is_left_out_silently(tmp_path: Path):
    """What a crash cut off before the header knew of it is no damage."""
    path = written(tmp_path / "tail", 2)
    whole = path.read_bytes()
    extra = written(tmp_path / "other", 3).read_bytes()[len(whole) : len(whole) + 50]
    path.write_bytes(whole + extra)

    assert steps_of(path) == [0, 1, 2, 3, 4, 5]
    assert read_tail(path).missing == 0
    assert not read_tail(path).damaged


@given(place=st.integers(0, 10_000))
def test_a_flipped_bit_spoils_one_record_at_the_most(tmp_path_factory: pytest.TempPathFactory, place: int):
    """The other records are still read, and the damage is known."""
    path = written(tmp_path_factory.mktemp("flip") / "tail", 3)
    content = bytearray(path.read_bytes())
    place = HEADER_BYTES + place % (len(content) - HEADER_BYTES)
    content[place] ^= 0x10
    path.write_bytes(bytes(content))

    tail = read_tail(path)

    assert len(tail.rows["samples"]) == 2
    assert len(tail.damaged) == 1


def test_bytes_that_never_reached_the_disk_are_told_apart(tmp_path: Path):
    """After a power cut the header may speak of bytes that were written but not synced."""
    path = written(tmp_path / "tail", 3, synced=False)
    path.write_bytes(path.read_bytes()[:-10])

    assert read_tail(path).missing == 10
    assert read_tail(path).unsynced


def test_a_damaged_header_does_not_hide_the_records(tmp_path: Path):
    """Records carry their own CRCs."""
    path = written(tmp_path / "tail", 2)
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(bytes(content))

    tail = read_tail(path)

    assert tail.generation is None
    assert tail.damaged[0][0] == 0
    assert steps_of(path) == [0, 1, 2, 3, 4, 5]


def test_a_torn_length_falls_back_to_the_other_one(tmp_path: Path):
    """The lengths are written in two places in turn: a crash spoils one at the most."""
    path = written(tmp_path / "tail", 3)
    whole = path.read_bytes()
    for place in (64, 96):
        content = bytearray(whole)
        content[place + 8] ^= 0xFF
        path.write_bytes(bytes(content))

        tail = read_tail(path)

        assert steps_of(path) == list(range(9))
        assert tail.torn
        assert not tail.damaged


def records_of(path: Path) -> list[bytes]:
    content = path.read_bytes()
    places = [HEADER_BYTES]
    while (place := content.find(b"LREC", places[-1] + 1)) > 0:
        places.append(place)
    return [content[a:b] for a, b in zip(places, [*places[1:], len(content)], strict=True)]


@pytest.mark.parametrize("order", [[0, 2], [0, 1, 1, 2], [1, 0, 2], [0, 2, 1], [1, 2], [0, 0, 2]])
def test_a_record_that_is_gone_doubled_or_moved_is_known(tmp_path: Path, order: list[int]):
    """Records are numbered and chained."""
    path = written(tmp_path / "tail", 3)
    records = records_of(path)
    path.write_bytes(path.read_bytes()[:HEADER_BYTES] + b"".join(records[i] for i in order))

    tail = read_tail(path)

    assert tail.damaged
    assert len(steps_of(path)) == len(set(steps_of(path)))


def test_a_record_of_another_tail_is_known(tmp_path: Path):
    """The chain begins with the header: generation and launch."""
    path, other = written(tmp_path / "tail", 2), tmp_path / "other"
    tail = TailWriter(other, generation=5, launch=LAUNCH)
    tail.append({"samples": rows(0)})
    tail.close()
    path.write_bytes(path.read_bytes()[:HEADER_BYTES] + records_of(other)[0] + records_of(path)[1])

    assert read_tail(path).damaged


def test_a_tail_that_is_deleted_or_replaced_is_known_at_the_next_sync(tmp_path: Path):
    """What is written to a file without a name is lost."""
    for spoil in (Path.unlink, lambda path: path.replace(path.with_name("moved"))):
        tail = TailWriter(tmp_path / "tail", generation=0, launch=LAUNCH)
        tail.append({"samples": rows(0)})
        spoil(tmp_path / "tail")

        with pytest.raises(LedgerError, match="was deleted or replaced while the run was writing it"):
            tail.sync()
        tail.close()


def test_a_record_that_did_not_fit_leaves_nothing(tmp_path: Path, monkeypatch):
    """A disk that fills up in the middle of a record: the file is as long as before, and can be written on."""
    tail = TailWriter(tmp_path / "tail", generation=4, launch=LAUNCH)
    tail.append({"samples": rows(0)})
    size = (tmp_path / "tail").stat().st_size
    with monkeypatch.context() as full:
        full.setattr(module, "_write_all", lambda file, content, offset: filled_up(file, content, offset))
        with pytest.raises(OSError, match="No space left"):
            tail.append({"samples": rows(3)})

    assert (tmp_path / "tail").stat().st_size == size
    tail.append({"samples": rows(6)})
    tail.close()
    assert steps_of(tmp_path / "tail") == [0, 1, 2, 6, 7, 8]


def filled_up(file: int, content: bytes, offset: int) -> None:
    os.pwrite(file, content[: len(content) // 2], offset)
    raise OSError(28, "No space left on device")
