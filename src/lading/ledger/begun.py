"""A rank began, and how it ended: ``begun/<rank>.json``, which no other file of the rank can be lost without.

    opening       the rank is about to make its folder and tail; it has recorded nothing
    running       it has a tail. Replaced whenever a part is closed: lines and SHA-256 of the manifest
    closed        it ended in order
    interrupted   it was broken off in order, by Ctrl-C; everything it recorded is in parts
    failed        it ended by an exception; everything it recorded is in parts
    died          it was killed, and a compaction made parts of everything it had recorded

A process that claims an attempt first leaves ``claim-<random>.json`` here, so that
a launch in the log without any file here means that files are gone. A rank that
may not join leaves ``refused.json``: the ranks that began end with its sentence.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lading.errors import CorruptLedgerError
from lading.ledger.launch import ATTEMPT, MOST_RANKS, PROCESS, RUN, TIME
from lading.ledger.limits import now_seconds, readable
from lading.ledger.log import sha256_of_bytes
from lading.ledger.run_folder import RankFolder, RunFolder
from lading.runtime.fields import COUNT, LONGEST_TEXT, SHA256, Fields, FieldTable, Origin, optional, row_of
from lading.runtime.files import create_aside, json_bytes, sync_folder, write_aside
from lading.runtime.json import known
from lading.runtime.processes import is_running, process_identity

STATES = ("opening", "running", "closed", "interrupted", "failed", "died")
OPENING, RUNNING, CLOSED, INTERRUPTED, FAILED, DIED = STATES
ENDS = (CLOSED, INTERRUPTED, FAILED, DIED)
REFUSED = "refused.json"
NO_MANIFEST = sha256_of_bytes(b"")
_LATELY_SECONDS = 60.0


@dataclass(frozen=True)
class Begun:
    """What one rank says of itself.

    Attributes:
        run: Id of the run.
        attempt: Number of the attempt.
        rank: Which rank.
        launch: SHA-256 of the attempt's launch record.
        state: One of ``STATES``.
        lines: Lines of its manifest.
        manifest: SHA-256 of these lines.
        host: Its machine.
        process: Id and start time of its process.
        time: Seconds since 1970, when this was written.
        compacting: Lines and SHA-256 of the manifest that a compaction is about to put in place of this one.
        rows: Rows of all its tables, once it has ended or was found dead (see ``lading.ledger.seal``).
        rows_sha256: Their SHA-256, whatever files they are in.
    """

    run: str
    attempt: int
    rank: int
    launch: str
    state: str
    lines: int
    manifest: str
    host: str
    process: tuple[int, int]
    time: float
    compacting: tuple[int, str] | None = None
    rows: int | None = None
    rows_sha256: str | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the rank's files are closed: by itself, or after its death."""
        return self.state in ENDS

    @property
    def ended_in_order(self) -> bool:
        """Whether the rank closed its files itself."""
        return self.state in (CLOSED, INTERRUPTED, FAILED)

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return json_bytes({**self._fields(), "check": self._check()})

    def is_in(self, path: Path) -> bool:
        """Say whether a file says this: the check of what it says is its own."""
        try:
            return self._check().encode() in path.read_bytes()
        except OSError:
            return False

    def _fields(self) -> dict[str, Any]:
        return known(vars(self))

    def _check(self) -> str:
        return sha256_of_bytes(json.dumps(self._fields(), sort_keys=True, separators=(",", ":")).encode())


def new_begun(run_id: str, attempt: int, rank: int, launch: str) -> Begun:
    """Return what this process says when it is about to open a rank."""
    host, process = socket.gethostname(), process_identity(os.getpid())
    return Begun(run_id, attempt, rank, launch, OPENING, 0, NO_MANIFEST, host, process, now_seconds())


def write_begun(folder: RankFolder, begun: Begun) -> None:
    """Replace the file of a rank."""
    write_aside(folder.begun, begun.to_bytes())


def read_begun(path: Path) -> Begun:
    """Read what a rank says of itself."""
    origin = Origin(path, CorruptLedgerError, "Restore it from a copy; the other ranks stay readable.")
    fields = origin.record(origin.read(1 << 16))
    values = fields.each(_FIELDS)
    check = values.pop("check")
    begun = Begun(**values)
    if check != begun._check():
        origin.refuse("check", "the SHA-256 of the other fields", "another")
    if (begun.rows is None) != (begun.rows_sha256 is None) or (begun.has_ended and begun.rows is None):
        origin.refuse("rows", "the number and the SHA-256 of the rows of a rank that ended", "not both")
    return begun


def begun_if_readable(path: Path) -> Begun | None:
    """Read what a rank says of itself; None where that cannot be read."""
    try:
        return read_begun(path)
    except CorruptLedgerError:
        return None


_LINES = partial(Fields.integer, low=0, high=10**9)
_REFUSAL: FieldTable = {"rank": Fields.value, "text": Fields.text}
_FIELDS: FieldTable = {
    "run": RUN,
    "attempt": ATTEMPT,
    "rank": partial(Fields.integer, low=0, high=MOST_RANKS),
    "launch": SHA256,
    "state": partial(Fields.text, choices=STATES),
    "lines": _LINES,
    "manifest": SHA256,
    "host": Fields.text,
    "process": PROCESS,
    "time": TIME,
    "compacting": optional(row_of(_LINES, SHA256)),
    "rows": optional(COUNT),
    "rows_sha256": optional(SHA256),
    "check": SHA256,
}


def leave_claim(run: RunFolder, begun: Begun) -> Path:
    """Leave a claim in an attempt's folder; it becomes the rank's own when the launch is in the log, or is removed."""
    folder = run.begun(begun.attempt)
    folder.mkdir(parents=True, exist_ok=True)
    for parent in (folder.parent, run.ledger, run.path):
        sync_folder(parent)
    path = folder / f"claim-{secrets.token_hex(8)}.json"
    write_aside(path, begun.to_bytes())
    return path


def leave_refusal(run: RunFolder, attempt: int, rank: int, text: str) -> None:
    """Let the ranks of an attempt know why one of them may not join it; the first refusal stays."""
    with contextlib.suppress(OSError):  # the rank itself fails with the sentence, whatever the disk does
        create_aside(run.begun(attempt) / REFUSED, json_bytes({"rank": rank, "text": readable(text, LONGEST_TEXT)}))


def read_refusal(folder: Path) -> str | None:
    """Return why a rank of an attempt was refused, or None: of the attempt whose ``begun`` folder it is."""
    path = folder / REFUSED
    if not path.exists():
        return None
    origin = Origin(path, CorruptLedgerError)
    return str(origin.record(origin.read(1 << 16)).each(_REFUSAL)["text"])


def is_alive(host: str, process: tuple[int, int]) -> bool | None:
    """Say whether a process of this machine lives; None for other machines."""
    if host != socket.gethostname():
        return None
    return process[1] != 0 and is_running(*process)


def changed_lately(folder: RankFolder, seconds: float = _LATELY_SECONDS) -> bool:
    """Say whether a rank wrote something lately, as far as this machine's clock can say."""
    return written_lately(folder.begun, folder.tail, seconds=seconds)


def written_lately(*paths: Path, seconds: float = _LATELY_SECONDS) -> bool:
    """Say whether one of some files was written lately, as far as this machine's clock can say."""
    times = [path.stat().st_mtime for path in paths if path.exists()]
    return any(time.time() - changed < seconds for changed in times)


def lives(folder: RankFolder, begun: Begun) -> bool:
    """Say whether a rank that began still runs: its process lives; on another machine, whether it wrote lately."""
    if begun.has_ended:
        return False
    alive = is_alive(begun.host, begun.process)
    return changed_lately(folder) if alive is None else alive
