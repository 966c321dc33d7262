"""The seal: what the ranks that ended had recorded. A head, or a state, commits to all that was sealed before it.

    begun of attempt 0 ─▶ a line a rank ─▶ seal 0            in the launch of attempt 1, or in a record ``seal``
    begun of attempt 1 ─▶ a line a rank ─▶ seal 1 = SHA-256(seal 0, lines) ...

A rank that ends says in its ``begun`` what it stored. One that died is hashed as it
lies, by whoever comes first: the next attempt's writer, ``lading seal``, a compaction.
A launch carries the newest seal, and looks only at ranks that are in none. Ranks that
run, and ranks that never began, stay open until they end.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lading.errors import CorruptLedgerError, LadingError
from lading.ledger.begun import DIED, OPENING, Begun, begun_if_readable, lives, read_begun, write_begun
from lading.ledger.description import KnownRun
from lading.ledger.launch import Launch, Seal, as_ranges
from lading.ledger.limits import now_seconds
from lading.ledger.log import Log, append, read_log, sha256_of_bytes
from lading.ledger.manifest import read_manifest
from lading.ledger.run_folder import RankFolder, RunFolder
from lading.ledger.tail import read_tail
from lading.runtime.files import alone
from lading.runtime.paths import local_path
from lading.runtime.processes import process_identity

NOTHING = Seal("0" * 64, 0)
_PEERS_SECONDS = 2.0
_LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Sealing:
    """What ``seal`` did.

    Attributes:
        seal: The newest seal; None where no rank has ended.
        ranks: Ranks that it added.
        running: Ranks that run, and stay open.
        damaged: Ranks that stay open because their files are not what was written, as sentences.
    """

    seal: str | None
    ranks: int
    running: int
    damaged: tuple[str, ...]


def newest_seal(log: Log) -> Seal:
    """Return the newest seal of a log."""
    return log.seals[max(log.seals)] if log.seals else NOTHING


def sealed_by(log: Log) -> str | None:
    """Return the SHA-256 of the newest seal of a log; None where there is none."""
    return newest_seal(log).sha256 if log.seals else None


def next_seal(before: Seal, launches: Mapping[int, Launch], begun: Mapping[tuple[int, int], Begun]) -> Seal:
    """Return the seal that comes after one; the same where none of the ranks that are not in it has ended since."""
    ended = {key: one for key, one in sorted(begun.items()) if one.rows is not None}
    if not ended:
        return before
    new = [(attempt, 0, launches[attempt].world_size) for attempt in sorted(launches) if attempt >= before.stop]
    left: list[tuple[int, int, int]] = []
    for attempt, first, stop in (span for span in (*before.open, *new) if span[0] in launches):
        is_open = [rank for rank in range(first, stop) if (attempt, rank) not in ended]
        left += [(attempt, start, end) for start, end in as_ranges(is_open)]
    lines = "".join([before.sha256, "\n", *map(_line, ended.values())])
    return Seal(sha256_of_bytes(lines.encode()), max(launches) + 1, tuple(left))


def unheld(seal: Seal, launches: Mapping[int, Launch]) -> list[int]:
    """Return the attempts with ranks that a seal does not hold."""
    still_open = {attempt for attempt, _, _ in seal.open}
    return [attempt for attempt in sorted(launches) if attempt >= seal.stop or attempt in still_open]


def unsealed(run: RunFolder, log: Log) -> dict[tuple[int, int], Begun]:
    """Return what the ranks that are in no seal say of themselves, by attempt and rank, as far as it can be read."""
    newest, found = newest_seal(log), dict[tuple[int, int], Begun]()
    for folder in (folder for attempt in unheld(newest, log.launches) for folder in run.ranks(attempt)):
        key, is_one = (folder.attempt, folder.rank), folder.rank < log.launches[folder.attempt].world_size
        if is_one and not newest.holds(*key) and (begun := begun_if_readable(folder.begun)) is not None:
            found[key] = begun
    return found


def _line(begun: Begun) -> str:
    """Return what a seal holds of a rank; a compaction of a dead one does not change it."""
    state = begun.state if begun.ended_in_order else DIED
    process, host = " ".join(map(str, begun.process)), json.dumps(begun.host, ensure_ascii=False)
    who = f"{round(begun.time * 1000)} {process} {host}"
    return f"{begun.attempt} {begun.rank} {state} {begun.rows} {begun.rows_sha256} {who}\n"


def seal(path: str | os.PathLike[str]) -> Sealing:
    """Seal what the ranks of a run stored that have ended or died; those that run stay open."""
    run = RunFolder(local_path(path))
    known = KnownRun(run)
    if known.log().problems:
        raise CorruptLedgerError(f"{run.log} is damaged. Run `lading verify` to see what is wrong, and restore it.")
    damaged = tuple(text for text in hash_dead(run, known.log()) if text is not None)
    ranks = append_seal(run, known.description.sha256)
    running = sum(lives(run.rank(*key), begun) for key, begun in unsealed(run, known.log()).items())
    return Sealing(sealed_by(known.log()), ranks, running, damaged)


def seal_dead(run: RunFolder, description_sha256: str) -> Iterator[None]:
    """Hash the dead ranks that are in no seal, one at each turn, and seal them: for a thread that has other work."""
    is_news = False
    for problem in hash_dead(run, read_log(run, description_sha256)):
        is_news |= problem is None
        yield
    if is_news:
        append_seal(run, description_sha256)


def hash_dead(run: RunFolder, log: Log) -> Iterator[str | None]:
    """Let ``begun`` of each dead rank that is in no seal say what it stored; yield what is wrong with one, or None."""
    for key, begun in unsealed(run, log).items():
        if begun.rows is None and not lives(run.rank(*key), begun):
            try:
                with alone(run.path) as ours:  # a compaction writes the same file
                    _hash_rank(run.rank(*key), ours)
                yield None
            except CorruptLedgerError as error:
                yield str(error)


def _hash_rank(folder: RankFolder, ours: bool) -> None:
    from lading.ledger.parts import live_tables, stored_rows  # here: where nobody died no Arrow is opened

    if not ours:
        raise CorruptLedgerError(f"another process compacts or seals {folder.path}: it is not sealed. Wait for it.")
    begun, manifest, tail = read_begun(folder.begun), read_manifest(folder), read_tail(folder.tail)
    if begun.rows is not None:
        return
    if manifest.problems or len(manifest.lines) < begun.lines or manifest.sha256(begun.lines) != begun.manifest:
        raise CorruptLedgerError(f"{folder.manifest} is not what {folder.begun} knows of it; not sealed.")
    if begun.state != OPENING and (not tail.present or tail.damaged or (tail.missing and not tail.unsynced)):
        raise CorruptLedgerError(f"{folder.tail} is damaged or gone; not sealed.")
    rows, sha256 = stored_rows(folder, len(manifest.parts), live_tables(manifest, tail))
    write_begun(folder, replace(begun, rows=rows, rows_sha256=sha256))


def append_seal(run: RunFolder, description_sha256: str) -> int:
    """Append a seal of the ranks that ended since the newest; return how many it adds."""
    while True:
        log = read_log(run, description_sha256)
        before, begun = newest_seal(log), unsealed(run, log)
        found = next_seal(before, log.launches, begun)
        if log.problems or found == before:
            return 0
        if append(run, log, "seal", {"time": now_seconds(), "seal": vars(found)}) is not None:
            return sum(one.rows is not None for one in begun.values())


def seal_own(run: RunFolder, description_sha256: str, launch: Launch) -> None:
    """Seal an attempt whose ranks have all ended; not where one takes more than 2 s, or the disk is full."""
    deadline = time.monotonic() + _PEERS_SECONDS
    for rank in range(launch.world_size):
        path = run.rank(launch.attempt, rank).begun
        while (begun := begun_if_readable(path)) is None or not begun.has_ended:
            if time.monotonic() > deadline or (begun is not None and _is_here(begun)):
                return
            time.sleep(_LOOK_SECONDS)
    with contextlib.suppress(OSError, LadingError):  # the rows are safe: `lading seal` does the same
        append_seal(run, description_sha256)


def _is_here(begun: Begun) -> bool:
    """Say whether a rank is this very process, which waits and does not end."""
    return (begun.host, begun.process) == (socket.gethostname(), process_identity(os.getpid()))
