"""The run's log: launches, seals, blocks and more, one record a file, each with the SHA-256 of the one before.

    run.json ◀─sha256─ 000000.json ◀─sha256─ 000001.json ◀─ ... ◀─ newest ◀─sha256─ head.json

A record is made by creating its number: of two processes that try, one succeeds
and the other takes the next number. ``head.json`` is replaced afterwards and
may be behind; a head that is ahead of the log, or a gap, means that a record is gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lading.errors import CorruptLedgerError, LedgerError
from lading.identity import SampleId
from lading.ledger.launch import (
    ATTEMPT,
    LAUNCH,
    MOST_STEPS,
    STEP,
    TIME,
    Launch,
    Range,
    Seal,
    launch_from,
    ranges,
    seal_from,
)
from lading.ledger.limits import LONGEST_REASON, now_seconds
from lading.ledger.run_folder import RunFolder
from lading.runtime.fields import COUNT, SHA256, Fields, FieldTable, Origin, nullable, optional
from lading.runtime.files import create_aside, json_bytes, write_aside

_WAY_OUT = "Restore it from a copy; the other files stay readable."
_MOST_BYTES = 1 << 26


@dataclass(frozen=True)
class BlockRequest:
    """Samples that were blocked by hand: from the first step of the next attempt on.

    Attributes:
        samples: Which.
        reason: Why.
        time: Seconds since 1970.
    """

    samples: tuple[SampleId, ...]
    reason: str
    time: float


@dataclass(frozen=True)
class ForgetRequest:
    """Samples and documents that a model must not have learned from.

    Attributes:
        samples: The samples.
        documents: Number of the dataset and number of the document in it, of each document.
        reason: Why.
        step: The first step that used any of them; None: none did.
        time: Seconds since 1970.
    """

    samples: tuple[SampleId, ...]
    documents: tuple[SampleId, ...]
    reason: str
    step: int | None
    time: float


@dataclass(frozen=True)
class CheckpointRecord:
    """A checkpoint that was saved, with its waybill.

    Attributes:
        where: Where it was put, a hint.
        waybill: SHA-256 of its waybill.
        attempt: The attempt that saved it.
        step: The next step of the loader when it was saved.
        update: The last optimizer update in it; None where updates are not numbered.
        time: Seconds since 1970.
        pending: Ranges of earlier steps that waited for their update.
    """

    where: str
    waybill: str
    attempt: int
    step: int
    update: int | None
    time: float
    pending: tuple[Range, ...] = ()


@dataclass(frozen=True)
class Problem:
    """Something wrong with a file of a run.

    Attributes:
        file: Which.
        text: What is wrong, as a sentence without the file's name.
    """

    file: Path
    text: str


@dataclass
class Log:
    """What the log of a run says.

    Attributes:
        launches: The launches that can be read, by attempt.
        blocks: The blocks, in order.
        seals: The seals, in order, by the number of their record, a launch or a ``seal``.
        forgets: What is to be forgotten, in order.
        checkpoints: The checkpoints, in order.
        next_number: Number of the next record.
        newest: SHA-256 of the newest record; of ``run.json`` where there is none.
        head: Number and SHA-256 that ``head.json`` has; None where it cannot be read.
        problems: What is wrong with the files of the log.
    """

    launches: dict[int, Launch] = field(default_factory=dict)
    blocks: list[BlockRequest] = field(default_factory=list)
    seals: dict[int, Seal] = field(default_factory=dict)
    forgets: list[ForgetRequest] = field(default_factory=list)
    checkpoints: list[CheckpointRecord] = field(default_factory=list)
    next_number: int = 0
    newest: str = ""
    head: tuple[int, str] | None = None
    problems: list[Problem] = field(default_factory=list)

    def by_hash(self, sha256: str) -> Launch | None:
        """Return the launch whose record has a SHA-256."""
        return next((launch for launch in self.launches.values() if launch.sha256 == sha256), None)


def sha256_of_bytes(content: bytes) -> str:
    """Return the SHA-256 of bytes, as hex."""
    return hashlib.sha256(content).hexdigest()


def read_log(run: RunFolder, description_sha256: str, known: Log | None = None) -> Log:
    """Read the log of a run and check its chain; what is wrong is in ``problems``.

    Args:
        run: The run.
        description_sha256: SHA-256 of its description, which the first record continues.
        known: The log as this process read it before: only what was added since is read, into the same object.
    """
    log = Log(newest=description_sha256) if known is None or known.problems else known
    log.head = _read_head(run, log)  # before the records: another process may add one, and the head must not be ahead
    numbers = run.records()
    if log.head is None and numbers and not log.problems:
        log.problems.append(Problem(run.head, "is missing"))
    first, stop = log.next_number, numbers[-1] + 1 if numbers else 0
    if stop < first:  # records are gone
        return read_log(run, description_sha256)
    hashes: dict[int, str] = {first - 1: log.newest}
    previous: dict[int, str] = {}
    for number in range(first, stop):
        path = run.record(number)
        try:
            content = Origin(path, CorruptLedgerError, _WAY_OUT).read(_MOST_BYTES)
            hashes[number] = sha256_of_bytes(content)
            previous[number] = _read_record(path, content, number, hashes[number], log)
        except CorruptLedgerError as error:
            text = "is missing" if number not in numbers else f"cannot be read ({error})"
            log.problems.append(Problem(path, text))
    log.next_number = stop
    log.newest = hashes.get(stop - 1, description_sha256)
    _check_chain(run, log, hashes, previous)
    if not log.problems and sorted(log.launches) != list(range(len(log.launches))):
        log.problems.append(Problem(run.log, f"has launches of attempts {sorted(log.launches)}: a number is skipped"))
    return log


def _read_head(run: RunFolder, log: Log) -> tuple[int, str] | None:
    origin = Origin(run.head, CorruptLedgerError, _WAY_OUT)
    if not run.head.exists():
        return None
    try:
        number, sha256 = origin.record(origin.read(1 << 12)).each(_HEAD).values()
        return number, sha256
    except CorruptLedgerError as error:
        log.problems.append(Problem(run.head, f"cannot be read ({error})"))
        return None


def _read_record(path: Path, content: bytes, number: int, sha256: str, log: Log) -> str:
    """Take a record into the log; return the SHA-256 it knows of the one before."""
    fields = Origin(path, CorruptLedgerError, _WAY_OUT).record(content)
    kind = fields.text("type", choices=TYPES)
    values = fields.each({**_EVERY, **_FIELDS[kind]})
    found, _, previous = map(values.pop, _EVERY)
    if found != number:
        fields.refuse("number", str(number))
    if kind == "launch":
        launch = launch_from(fields, values, sha256)
        if launch.attempt in log.launches:
            fields.refuse("attempt", f"a number after {max(log.launches)}")
        log.launches[launch.attempt] = launch
        if launch.seal is not None:
            log.seals[number] = launch.seal
    elif kind == "seal":
        log.seals[number] = values["seal"]
    elif kind == "block":
        log.blocks.append(BlockRequest(**values))
    elif kind == "forget":
        log.forgets.append(ForgetRequest(**values))
    elif kind == "checkpoint":
        log.checkpoints.append(CheckpointRecord(**values))
    return str(previous)  # a compaction changed no answer: that it took place is all there is to know


def _samples(fields: Fields, key: str) -> tuple[SampleId, ...]:
    items = fields.items(key)
    return tuple(SampleId(*items.integers(i, low=0, high=MOST_STEPS, least=2, most=2)) for i in items)


_REASON = partial(Fields.text, longest=LONGEST_REASON)
_HEAD: FieldTable = {"number": partial(Fields.integer, low=-1, high=10**9), "sha256": SHA256}
_EVERY: FieldTable = {"number": COUNT, "type": Fields.text, "previous": SHA256}
_FIELDS: dict[str, FieldTable] = {
    "launch": LAUNCH,
    "seal": {"time": TIME, "seal": seal_from},
    "block": {"time": TIME, "samples": _samples, "reason": _REASON},
    "compact": {"time": TIME, "closed": COUNT, "merged": COUNT, "files": COUNT},
    "forget": {
        "time": TIME,
        "samples": _samples,
        "documents": _samples,
        "reason": _REASON,
        "step": nullable(STEP),
    },
    "checkpoint": {
        "time": TIME,
        "where": Fields.text,
        "waybill": SHA256,
        "attempt": ATTEMPT,
        "step": STEP,
        "update": nullable(COUNT),
        "pending": optional(ranges, ()),
    },
}
TYPES = tuple(_FIELDS)


def _check_chain(run: RunFolder, log: Log, hashes: dict[int, str], previous: dict[int, str]) -> None:
    """Compare every file with what the next one knows of it, from the newest to the oldest."""
    head, last = log.head, log.next_number - 1
    doubted: set[int] = set()
    if head is not None and head[0] > last:
        log.problems.append(Problem(run.record(head[0]), f"is missing: {run.head} knows it"))
    elif head is not None and head[0] in hashes and hashes[head[0]] != head[1]:
        doubted.add(head[0])
        path = run.record(head[0]) if head[0] >= 0 else run.description
        log.problems.append(Problem(path, f"was altered, or {run.head} was: they do not agree on its SHA-256"))
    for number in sorted(previous, reverse=True):
        before = number - 1
        if before in hashes and hashes[before] != previous[number] and number not in doubted:
            doubted.add(before)
            path = run.record(before) if before >= 0 else run.description
            log.problems.append(Problem(path, f"was altered: {run.record(number)} knows another SHA-256 of it"))


def append(run: RunFolder, log: Log, kind: str, fields: dict[str, Any]) -> str | None:
    """Create the next record; return its SHA-256, or None where another process was first.

    Args:
        run: The run.
        log: Its log as it was read.
        kind: One of ``TYPES``.
        fields: What the record says.
    """
    content = record_bytes(log, kind, fields)
    _check_readable(run.record(log.next_number), content, log.next_number, kind)
    if not create_aside(run.record(log.next_number), content):
        return None
    raise_head(run)
    return sha256_of_bytes(content)


def _check_readable(path: Path, content: bytes, number: int, kind: str) -> None:
    """Refuse a record that no reader would take: in the log it would break the run for ever."""
    try:
        _read_record(path, content, number, "", Log())
    except CorruptLedgerError as error:
        raise LedgerError(f"this {kind} cannot be recorded, and nothing is: {error}") from error


def record_bytes(log: Log, kind: str, fields: dict[str, Any]) -> bytes:
    """Return the content of the record that would come next."""
    return json_bytes({"number": log.next_number, "type": kind, "previous": log.newest, **fields})


def begin_log(run: RunFolder, description_sha256: str) -> None:
    """Make the folder and the head of a log, before its first record."""
    if run.head.exists():
        return
    run.log.mkdir(exist_ok=True)  # on disk before the first record: a claim comes first, and syncs the run
    create_aside(run.head, json_bytes({"number": -1, "sha256": description_sha256}))


def raise_head(run: RunFolder) -> None:
    """Let the head know the newest record; repeated where another record came meanwhile."""
    written = -1
    while (newest := run.records()[-1]) != written:
        content = run.record(newest).read_bytes()
        write_aside(run.head, json_bytes({"number": newest, "sha256": sha256_of_bytes(content)}))
        written = newest


def repeat_until_first(run: RunFolder, read: Callable[[], Log], kind: str, fields: dict[str, Any]) -> str:
    """Append a record, whoever else does so at the same time."""
    while True:
        sha256 = append(run, read(), kind, {"time": now_seconds(), **fields})
        if sha256 is not None:
            return sha256
