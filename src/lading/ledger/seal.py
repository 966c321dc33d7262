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
import hashlib
import json
import os
import socket
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from lading.errors import CorruptLedgerError, LadingError
from lading.ledger.begun import DIED, OPENING, Begun, begun_if_readable, lives, read_begun, write_begun
from lading.ledger.description import KnownRun
from lading.ledger.launch import Launch, Seal
from lading.ledger.limits import now_seconds
from lading.ledger.log import Log, append, read_log
from lading.ledger.manifest import read_manifest
from lading.ledger.run_folder import RankFolder, RunFolder
from lading.ledger.tail import read_tail
from lading.runtime.files import alone
from lading.runtime.paths import local_path
from lading.runtime.processes import process_identity

NOTHING = Seal("0" * 64, 0)
_PEERS_SECONDS = 2.0
_LOOK_SECONDS = 0.02

Ranks = tuple[int, int, int]


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


def next_seal(log: Log, begun: Mapping[tuple[int, int], Begun]) -> Seal | None:
    """Return the seal that would come next; the newest where no rank has ended since, None where there is none.

    Args:
        log: The log.
        begun: What the ranks that are in no seal say of themselves (``unsealed``).
    """
    before, ended = newest_seal(log), sorted(key for key, one in begun.items() if one.rows is not None)
    if not ended:
        return before if log.seals else None
    stop = max(log.launches) + 1
    left = _without(_outside(before, log.launches, stop), [(attempt, rank, rank + 1) for attempt, rank in ended])
    return Seal(_chained(before, [_line(begun[key]) for key in ended]), stop, tuple(left))


def unsealed(run: RunFolder, log: Log) -> dict[tuple[int, int], Begun]:
    """Return what the ranks that are in no seal say of themselves, by attempt and rank, as far as it can be read."""
    wanted = _outside(newest_seal(log), log.launches, max(log.launches, default=-1) + 1)
    found: dict[tuple[int, int], Begun | None] = {}
    for folder in (folder for attempt in dict.fromkeys(ranks[0] for ranks in wanted) for folder in run.ranks(attempt)):
        if any(attempt == folder.attempt and first <= folder.rank < stop for attempt, first, stop in wanted):
            found[folder.attempt, folder.rank] = begun_if_readable(folder.begun)
    return {key: begun for key, begun in found.items() if begun is not None}


def added(before: Seal, seal: Seal, launches: Mapping[int, Launch]) -> Iterator[tuple[int, int]]:
    """Yield attempt and rank of what a seal adds to the one before."""
    for attempt, first, stop in _without(_outside(before, launches, seal.stop), seal.open):
        yield from ((attempt, rank) for rank in range(first, stop))


def is_next(before: Seal, seal: Seal, begun: list[Begun]) -> bool:
    """Say whether a seal is that of the one before and what some ranks, which it adds, say of themselves."""
    return seal.sha256 == (_chained(before, [_line(one) for one in begun]) if begun else before.sha256)


def _outside(seal: Seal, launches: Mapping[int, Launch], stop: int) -> list[Ranks]:
    """Return the ranks of attempts below a number that a seal does not hold, as attempt, first rank, stop."""
    fresh = (launches[attempt] for attempt in sorted(launches) if seal.stop <= attempt < stop)
    return [*sorted(seal.open), *((launch.attempt, 0, launch.world_size) for launch in fresh)]


def _without(ranks: Iterable[Ranks], others: Iterable[Ranks]) -> Iterator[Ranks]:
    """Yield ranks that are not among others."""
    holes: dict[int, list[tuple[int, int]]] = {}
    for attempt, first, stop in sorted(others):
        holes.setdefault(attempt, []).append((first, stop))
    for attempt, at, end in ranks:
        mine = holes.get(attempt, [])
        inside = slice(max(bisect_left(mine, (at, 0)) - 1, 0), bisect_left(mine, (end, 0)))  # there may be a thousand
        for first, stop in [*mine[inside], (end, end)]:
            if at < min(first, end):
                yield attempt, at, min(first, end)
            at = max(at, stop)


def _chained(before: Seal, lines: list[str]) -> str:
    return hashlib.sha256("".join([before.sha256, "\n", *lines]).encode()).hexdigest()


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
    found = False
    for problem in hash_dead(run, read_log(run, description_sha256)):
        found = found or problem is None
        yield
    if found:
        append_seal(run, description_sha256)


def hash_dead(run: RunFolder, log: Log) -> Iterator[str | None]:
    """Let ``begun`` of each dead rank that is in no seal say what it stored; yield what is wrong with one, or None."""
    for (attempt, rank), begun in unsealed(run, log).items():
        folder = run.rank(attempt, rank)
        if begun.rows is None and not lives(folder, begun):
            yield _hash_rank(run, folder)


def _hash_rank(run: RunFolder, folder: RankFolder) -> str | None:
    with alone(run.path) as ours:  # a compaction writes the same file
        if not ours:
            return f"another process compacts or seals {run.path}: {folder.path} is not sealed. Wait for it."
        try:
            begun = read_begun(folder.begun)
            if begun.rows is None:
                rows, sha256 = _stored(folder, begun)
                write_begun(folder, replace(begun, rows=rows, rows_sha256=sha256))
        except CorruptLedgerError as error:
            return str(error)
    return None


def _stored(folder: RankFolder, begun: Begun) -> tuple[int, str]:
    """Return number and SHA-256 of the rows that a dead rank stored, as they lie."""
    from lading.ledger.parts import live_tables, stored_rows  # here: where nobody died no Arrow is opened

    manifest, tail = read_manifest(folder), read_tail(folder.tail)
    is_known = len(manifest.lines) >= begun.lines and manifest.sha256(begun.lines) == begun.manifest
    if manifest.problems or not is_known:
        raise CorruptLedgerError(f"{folder.manifest} is not what {folder.begun} knows of it; not sealed.")
    if begun.state != OPENING and (not tail.present or tail.damaged or (tail.missing and not tail.unsynced)):
        raise CorruptLedgerError(f"{folder.tail} is damaged or gone; not sealed.")
    return stored_rows(folder, len(manifest.parts), live_tables(manifest, tail))


def append_seal(run: RunFolder, description_sha256: str) -> int:
    """Append a seal of the ranks that ended since the newest; return how many it adds."""
    while True:
        log = read_log(run, description_sha256)
        begun = unsealed(run, log)
        found = None if log.problems else next_seal(log, begun)
        if found is None or found == newest_seal(log):
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
