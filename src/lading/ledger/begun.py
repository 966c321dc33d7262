"""A rank began, and how it ended: ``begun/<rank>.json``, which no other file of the rank can be lost without.

    opening       the rank is about to make its folder and tail; it has recorded nothing
    running       it has a tail. Replaced whenever a part is closed: lines and SHA-256 of the manifest
    closed        it ended in order
    interrupted   it ended by an exception or Ctrl-C; everything it recorded is in parts
    sealed        it died, and a compaction made parts of everything it had recorded

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
from pathlib import Path
from typing import Any

from lading.errors import CorruptLedgerError
from lading.ledger.launch import MOST_ATTEMPTS, MOST_RANKS
from lading.ledger.limits import now_seconds, readable
from lading.ledger.log import sha256_of_bytes
from lading.ledger.run_folder import RankFolder, RunFolder
from lading.runtime.fields import LONGEST_TEXT, Fields, Origin
from lading.runtime.files import create_aside, json_bytes, sync_folder, write_aside
from lading.runtime.processes import is_running, process_identity

OPENING, RUNNING, CLOSED, INTERRUPTED, SEALED = STATES = ("opening", "running", "closed", "interrupted", "sealed")
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
        state: ``opening``, ``running``, ``closed``, ``interrupted`` or ``sealed``.
        lines: Lines of its manifest.
        manifest: SHA-256 of these lines.
        host: Its machine.
        process: Id and start time of its process.
        time: Seconds since 1970, when this was written.
        compacting: Lines and SHA-256 of the manifest that a compaction is about to put in place of this one.
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

    @property
    def has_ended(self) -> bool:
        """Whether the rank's files are closed: by itself, or after its death."""
        return self.state in (CLOSED, INTERRUPTED, SEALED)

    @property
    def ended_in_order(self) -> bool:
        """Whether the rank closed its files itself."""
        return self.state in (CLOSED, INTERRUPTED)

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return json_bytes({**self._fields(), "check": self._check()})

    def _fields(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "compacting" or value is not None}

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
    begun = Begun(
        run=fields.hexadecimal("run", digits=32),
        attempt=fields.integer("attempt", low=0, high=MOST_ATTEMPTS),
        rank=fields.integer("rank", low=0, high=MOST_RANKS),
        launch=fields.hexadecimal("launch", digits=64),
        state=fields.text("state", choices=STATES),
        lines=fields.integer("lines", low=0, high=10**9),
        manifest=fields.hexadecimal("manifest", digits=64),
        host=fields.text("host"),
        process=(fields.integers("process", low=0, least=2, most=2)[0], fields.integers("process")[1]),
        time=fields.number("time", low=0, high=1e12),
        compacting=_compacting(fields),
    )
    if fields.hexadecimal("check", digits=64) != begun._check():
        origin.refuse("check", "the SHA-256 of the other fields", "another")
    return begun


def _compacting(fields: Fields) -> tuple[int, str] | None:
    items = fields.maybe(Fields.items, "compacting", least=2, most=2)
    return None if items is None else (items.integer(0, low=0, high=10**9), items.hexadecimal(1, digits=64))


def leave_claim(run: RunFolder, begun: Begun) -> Path:
    """Leave a claim in an attempt's folder; whoever claims removes it when the rank began, or another was first."""
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
    fields = Origin(path, CorruptLedgerError).record(Origin(path, CorruptLedgerError).read(1 << 16))
    fields.only("rank", "text")
    return fields.text("text")


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
