"""Make Parquet of the tails of dead ranks and merge small parts, so that any engine that reads Parquet sees all rows.

    tail, part 0, 1, 2 ...  ──▶ merged parts, under new numbers
                            ──▶ begun knows the new manifest besides the old one
                            ──▶ the manifest is replaced: this is the moment
                            ──▶ begun knows the new one alone; tail and old parts are removed

At every moment one manifest is there that ``begun`` knows, and every file that it names. A process that dies before
the moment leaves files that no manifest names, one that dies after it old ones: the next compaction removes both.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from lading.errors import CorruptLedgerError, LedgerError
from lading.ledger.begun import DIED, OPENING, Begun, lives, read_begun, write_begun
from lading.ledger.description import read_description
from lading.ledger.log import read_log, repeat_until_first, sha256_of_bytes
from lading.ledger.manifest import LedgerPart, Manifest, read_manifest
from lading.ledger.parts import live_tables, pieces_of, read_closed, settled_rows, write_part
from lading.ledger.row_hash import RowsHash, rows_hash
from lading.ledger.run_folder import RankFolder, RunFolder
from lading.ledger.seal import append_seal
from lading.ledger.tables import FORMATS, TABLES
from lading.ledger.tail import read_tail
from lading.runtime.blocks.progress import Progress, silent
from lading.runtime.files import alone, clean_up, journal_line, sync_folder, write_aside
from lading.runtime.paths import local_path

MERGED_ROWS = {name: max(1 << 20, 4 * found.part_rows) for name, found in FORMATS.items()}

Tables = dict[str, pa.Table]


@dataclass(frozen=True)
class Compaction:
    """What a compaction did.

    Attributes:
        ranks: Ranks (of all attempts) that were looked at.
        closed: Ranks whose tail became Parquet.
        merged: Ranks whose parts were merged.
        files_before: Parquet files there were.
        files_after: Parquet files there are.
        running: Ranks that were left alone because they run.
        damaged: Ranks that were left alone because their files are not what was written, as sentences.
    """

    ranks: int
    closed: int
    merged: int
    files_before: int
    files_after: int
    running: int
    damaged: tuple[str, ...]


def compact(path: str | os.PathLike[str], progress: Progress = silent) -> Compaction:
    """Make Parquet of the tails of dead ranks and merge small parts; what the run says stays the same.

    Killed at any moment, nothing is lost, and the next call completes it. Ranks that run are left alone.

    Args:
        path: Folder of the run.
        progress: Called with the share that is done and a sentence.
    """
    run = RunFolder(local_path(path))
    description = read_description(run)
    if read_log(run, description.sha256).problems:
        raise CorruptLedgerError(f"{run.log} is damaged. Run `lading verify` to see what is wrong, and restore it.")
    with alone(run.path) as ours:
        if not ours:
            raise LedgerError(f"another process compacts {run.path}. Wait for it.")
        clean_up(run.log)
        found = _compacted(run, progress)
        if found.closed or found.merged:
            fields = {"closed": found.closed, "merged": found.merged, "files": found.files_after}
            repeat_until_first(run, lambda: read_log(run, description.sha256), "compact", fields)
            append_seal(run, description.sha256)
    return found


def _compacted(run: RunFolder, progress: Progress) -> Compaction:
    """Do it, rank by rank."""
    attempts, counts, damaged = run.attempts(), Counter[str](), []
    for attempt in attempts:
        clean_up(run.begun(attempt))  # once: a folder of all ranks, read for each of them, is ranks squared
    folders = [folder for attempt in attempts for folder in run.ranks(attempt)]
    for number, folder in enumerate(folders):
        progress(number / len(folders), f"attempt {folder.attempt}, rank {folder.rank}")
        try:
            counts.update(_of_rank(folder))
        except CorruptLedgerError as error:
            damaged.append(str(error))
    progress(1.0, "done")
    named = {name: counts[name] for name in ("closed", "merged", "files_before", "files_after", "running")}
    return Compaction(ranks=len(folders), damaged=tuple(damaged), **named)


def _of_rank(folder: RankFolder) -> dict[str, int]:
    """Compact the files of a rank; return what there is to count."""
    begun = read_begun(folder.begun)
    if lives(folder, begun):
        return {"running": 1}
    if begun.state == OPENING or not folder.path.exists():
        return {}
    rank = _RankFolder(folder, _tidied(folder, begun))
    before = sum(len(part.files) for part in rank.manifest.parts)
    after = rank.compacted() if rank.is_closable or rank.is_mergeable else before
    done = {"closed": int(rank.is_closable), "merged": int(rank.is_mergeable)}
    return {**done, "files_before": before, "files_after": after}


def _tidied(folder: RankFolder, begun: Begun) -> Begun:
    """Complete or undo a compaction that died; remove files that no manifest names."""
    clean_up(folder.path)
    manifest = read_manifest(folder)
    if begun.compacting is not None:
        was_replaced = (len(manifest.lines), manifest.sha256(len(manifest.lines))) == begun.compacting
        begun = _settled(begun, manifest) if was_replaced else replace(begun, compacting=None)
        write_begun(folder, begun)
    is_known = len(manifest.lines) >= begun.lines and manifest.sha256(begun.lines) == begun.manifest
    if manifest.problems or not is_known:  # `verify` names it
        raise CorruptLedgerError(f"{folder.manifest} is not what {folder.begun} knows of it; left as it is.")
    _remove_old(folder, manifest, begun)
    return begun


def _settled(begun: Begun, manifest: Manifest) -> Begun:
    lines = len(manifest.lines)
    return replace(begun, state=manifest.end or DIED, lines=lines, manifest=manifest.sha256(lines), compacting=None)


def _remove_old(folder: RankFolder, manifest: Manifest, begun: Begun) -> None:
    known = {file.file for part in manifest.parts for file in part.files}
    for path in folder.path.glob("*-*.parquet"):
        if path.name not in known and not path.name.startswith("."):
            path.unlink(missing_ok=True)
    if begun.has_ended:
        folder.tail.unlink(missing_ok=True)
    sync_folder(folder.path)


class _RankFolder:
    """The files of a rank that has ended or died."""

    def __init__(self, folder: RankFolder, begun: Begun) -> None:
        self.folder, self.begun, self.manifest = folder, begun, read_manifest(folder)
        self.tail = read_tail(folder.tail)
        self._check()
        self.is_closable = not begun.has_ended
        self.is_mergeable = any(len(group) > 1 for group in self._groups())

    def _check(self) -> None:
        """Refuse a tail that is damaged: it is left as it is, for `verify` to name."""
        is_whole = self.tail.present and not self.tail.damaged and not self.tail.missing
        if not self.begun.has_ended and not is_whole:
            raise CorruptLedgerError(f"{self.folder.tail} is damaged or gone; left as it is.")

    def _groups(self) -> list[list[LedgerPart]]:
        """Return the closed parts in runs that make one merged part each."""
        groups: list[list[LedgerPart]] = []
        rows = dict.fromkeys(TABLES, 0)
        for part in self.manifest.parts:
            more = {file.table: file.rows for file in part.files}
            if groups and all(rows[name] + more.get(name, 0) <= MERGED_ROWS[name] for name in TABLES):
                groups[-1].append(part)
                rows = {name: rows[name] + more.get(name, 0) for name in TABLES}
            else:
                groups.append([part])
                rows = {name: more.get(name, 0) for name in TABLES}
        return groups

    def compacted(self) -> int:
        """Do it; return the number of Parquet files there are now."""
        # The next number is what a dead rank may have left; an attempt that opens meanwhile removes that one.
        number = max((part.number for part in self.manifest.parts), default=-1) + 1
        groups, tail = self._groups(), live_tables(self.manifest, self.tail)
        last = groups.pop() if groups and tail else []
        parts: list[LedgerPart] = []
        for group in [*groups, last]:
            if len(group) == 1 and group is not last:
                parts += group
            elif group or tail:
                number += 1
                more = tail if group is last else {}
                parts.append(write_part(self.folder, number, self._tables(group, more)))
        self._replace_manifest(parts, self._same_rows(parts, tail))
        return sum(len(part.files) for part in parts)

    def _same_rows(self, parts: list[LedgerPart], tail: Tables) -> RowsHash:
        """Return the hash of the new parts' rows; refuse where it is not that of the old ones."""
        known, read = (self.begun.rows, self.begun.rows_sha256), partial(read_closed, self.folder)
        if known == (None, None):
            known = rows_hash(pieces_of(self.manifest.parts, read, tail))
        found = rows_hash(pieces_of(parts, read, {}))
        if found != known:
            raise CorruptLedgerError(
                f"{self.folder.path}: its rows have the SHA-256 {found.sha256[:16]}..., and {self.folder.begun} knows "
                f"{str(known[1])[:16]}...: one of them was altered. Left as it is; run `lading verify`."
            )
        return found

    def _replace_manifest(self, parts: list[LedgerPart], stored: RowsHash) -> None:
        values: list[dict[str, Any]] = [
            {"compacted": True},
            *({"part": part.number, "files": [asdict(file) for file in part.files]} for part in parts),
            {"part": len(parts), "end": self.manifest.end or DIED},
        ]
        lines = [journal_line(value) for value in values]
        announced = len(lines), sha256_of_bytes(b"".join(lines))
        begun = replace(self.begun, compacting=announced, rows=stored.rows, rows_sha256=stored.sha256)
        write_begun(self.folder, begun)
        write_aside(self.folder.manifest, b"".join(lines))
        manifest = read_manifest(self.folder)
        begun = _settled(begun, manifest)
        write_begun(self.folder, begun)
        _remove_old(self.folder, manifest, begun)

    def _tables(self, group: list[LedgerPart], more: Tables) -> Tables:
        """Return the rows of some parts, in order, and more rows after them."""
        found: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
        for part in group:
            for file in part.files:
                found[file.table].append(read_closed(self.folder, file))
        for name, table in more.items():
            found[name].append(table)
        return {name: settled_rows(name, tables) for name, tables in found.items() if tables}
