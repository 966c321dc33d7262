"""The evidence of a run: which files hold it, which attempt owns which steps.

A snapshot: it reads tails first and manifests after them, so a part that the
writer closes in between is seen once, and nobody has to wait for anybody.
Files that are missing or have the wrong size are left out and named.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lading.errors import CorruptLedgerError
from lading.ledger.attempts import Launch, Span, lineage, read_launch
from lading.ledger.description import Description, plan_events_of, read_description, read_events
from lading.ledger.parts import PartFile, read_manifest
from lading.ledger.run_folder import RankFolder, RunFolder
from lading.ledger.schema import DELIVERED, SCHEMAS
from lading.ledger.tail import Tail, read_tail
from lading.order.event import event_from_dict
from lading.order.plan import Plan
from lading.runtime.files import Journal


@dataclass(frozen=True)
class Damage:
    """A file that cannot be used.

    Attributes:
        file: Which.
        step: First step it held, where that is known.
        problem: What is wrong with it.
    """

    file: Path
    step: int | None
    problem: str


@dataclass(frozen=True)
class RankEvidence:
    """What one rank left in one attempt."""

    folder: RankFolder
    tail: Tail
    files: tuple[PartFile, ...]
    parts: int
    closed: bool

    def tail_table(self, name: str) -> pa.Table:
        """Return the rows of the tail that are in no part."""
        tables = self.tail.tables[name] if self.tail.generation is None or self.tail.generation >= self.parts else []
        return pa.concat_tables([SCHEMAS[name].empty_table(), *tables])

    def last_step(self) -> int | None:
        """Return the largest step the rank recorded."""
        steps = [file.last_step for file in self.files]
        tail = self.tail_table("batches")["step"]
        steps += [int(np.max(tail.to_numpy()))] if len(tail) else []
        return max(steps, default=None)

    @property
    def is_empty(self) -> bool:
        """Whether the rank left no row."""
        return not self.files and not len(self.tail_table("batches"))


@dataclass(frozen=True)
class AttemptEvidence:
    """What all ranks left in one attempt."""

    launch: Launch
    ranks: tuple[RankEvidence, ...]

    @property
    def number(self) -> int:
        """Number of the attempt."""
        return self.launch.attempt

    @property
    def is_void(self) -> bool:
        """Whether nobody left a row: then nothing was rolled back either."""
        return all(rank.is_empty for rank in self.ranks)

    @property
    def last_step(self) -> int | None:
        """The largest step that any rank recorded."""
        return max((s for s in (rank.last_step() for rank in self.ranks) if s is not None), default=None)


@dataclass
class Evidence:
    """Everything a run left on disk, without the rows themselves."""

    run: RunFolder
    description: Description
    events: list[dict[str, Any]]
    attempts: dict[int, AttemptEvidence]
    damage: list[Damage] = field(default_factory=list)

    @functools.cached_property
    def spans(self) -> list[Span]:
        """Who owns which steps of history."""
        return lineage((a.number, a.launch.start_step) for a in self.attempts.values() if not a.is_void)

    @functools.cached_property
    def _plans(self) -> dict[int, Plan]:
        return {}

    def plan(self, attempt: int) -> Plan | None:
        """Return the plan that an attempt followed, with the events made in it."""
        launch = self.attempts[attempt].launch
        if launch.plan is None:
            return None
        if attempt not in self._plans:
            made = plan_events_of(self.events, attempt)
            base = self.description.plan(launch.plan)
            self._plans[attempt] = base.with_events([*map(event_from_dict, launch.events), *made])
        return self._plans[attempt]

    def owner(self, step: int) -> int | None:
        """Return the attempt that owns a step of history."""
        return next((span.attempt for span in self.spans if step in span), None)

    def span(self, attempt: int) -> Span | None:
        """Return the steps of history that an attempt owns, if any."""
        return next((span for span in self.spans if span.attempt == attempt), None)

    def files(self, table: str) -> list[tuple[RankEvidence, PartFile]]:
        """Return the closed files of a table that can be read."""
        broken = {damage.file for damage in self.damage}
        return [
            (rank, file)
            for attempt in self.attempts.values()
            for rank in attempt.ranks
            for file in rank.files
            if file.table == table and rank.folder.path / file.file not in broken
        ]

    def rows(self, steps: Iterable[int]) -> pa.Table:
        """Return the rows of ``batches`` of some steps, of all attempts and ranks; opens only files that hold them."""
        wanted = np.unique(np.fromiter(steps, dtype=np.int64))
        tables = [_with_origin(SCHEMAS["batches"].empty_table(), 0, 0)]
        for rank, file in self.files("batches"):
            inside = _between(wanted, file)
            if len(inside):
                tables.append(_with_origin(read_part(rank, file, inside), rank.folder.attempt, rank.folder.rank))
        for rank in (rank for attempt in self.attempts.values() for rank in attempt.ranks):
            table = rank.tail_table("batches")
            if len(table):
                kept = table.filter(pa.array(np.isin(table["step"].to_numpy(), wanted)))
                tables.append(_with_origin(kept, rank.folder.attempt, rank.folder.rank))
        return _latest(pa.concat_tables(tables))

    def exceptions(self) -> list[dict[str, Any]]:
        """Return every exception to the plan: step, attempt, rank, fate and the deviation's fields."""
        tables = [
            _with_origin(read_part(rank, file), rank.folder.attempt, rank.folder.rank)
            for rank, file in self.files("batches")
            if file.exceptions
        ]
        for rank in (rank for attempt in self.attempts.values() for rank in attempt.ranks):
            tables.append(_with_origin(rank.tail_table("batches"), rank.folder.attempt, rank.folder.rank))
        if not tables:
            return []
        table = pa.concat_tables(tables)
        table = _latest(table.filter(table["exceptions"].is_valid()))
        return [
            {"attempt": row["attempt"], "rank": row["rank"], "step": row["step"], "fate": row["fate"], **deviation}
            for row in table.select(["attempt", "rank", "step", "fate", "exceptions"]).to_pylist()
            for deviation in json.loads(row["exceptions"])
        ]


def read_evidence(path: Path) -> Evidence:
    """Take a snapshot of a run."""
    run = RunFolder(path)
    description = read_description(run)
    damage: list[Damage] = []
    attempts = {}
    for number in run.attempts():
        try:
            launch = read_launch(run, number)
        except CorruptLedgerError as error:
            damage.append(Damage(run.launch(number), None, str(error)))
            continue
        attempts[number] = AttemptEvidence(launch, tuple(_rank_evidence(f, damage) for f in run.ranks(number)))
    return Evidence(run, description, read_events(run), attempts, damage)


def _rank_evidence(folder: RankFolder, damage: list[Damage]) -> RankEvidence:
    tail = read_tail(folder.tail)
    manifest = read_manifest(folder)
    closed = any(line.get("closed") for line in Journal(folder.manifest).values()[-1:])
    files = tuple(file for part in manifest for file in part.files)
    for file in files:
        path = folder.path / file.file
        found = path.stat().st_size if path.exists() else None
        if found is None:
            damage.append(Damage(path, file.first_step, "is missing"))
        elif found != file.size:
            damage.append(Damage(path, file.first_step, f"has {found} bytes, {file.size} were written"))
    return RankEvidence(folder, tail, files, len([p for p in manifest if p.files]), closed)


def _between(wanted: np.ndarray, file: PartFile) -> np.ndarray:
    low, high = np.searchsorted(wanted, [file.first_step, file.last_step + 1])
    return wanted[low:high]


def read_part(rank: RankEvidence, file: PartFile, steps: np.ndarray | None = None) -> pa.Table:
    """Read a closed part, or the rows of some steps of it; page checksums are checked."""
    path = rank.folder.path / file.file
    try:
        reader = pq.ParquetFile(path, page_checksum_verification=True)
        groups = _groups(reader, steps)
        table = reader.read_row_groups(groups).cast(SCHEMAS[file.table])
    except (OSError, pa.ArrowException) as error:
        raise CorruptLedgerError(
            f"{path} cannot be read ({error}). Run `lading verify` to see what is damaged; the other files "
            "stay readable."
        ) from error
    return table if steps is None else table.filter(pa.array(np.isin(table["step"].to_numpy(), steps)))


def _groups(reader: pq.ParquetFile, steps: np.ndarray | None) -> list[int]:
    """Return the row groups that may hold some steps."""
    groups = range(reader.metadata.num_row_groups)
    if steps is None:
        return list(groups)
    ends = [reader.metadata.row_group(g).column(0).statistics for g in groups]
    return [g for g in groups if np.any((steps >= ends[g].min) & (steps <= ends[g].max))]


def _with_origin(table: pa.Table, attempt: int, rank: int) -> pa.Table:
    origin = [pa.array(np.full(len(table), value, dtype=np.int32)) for value in (attempt, rank)]
    return table.add_column(0, "attempt", origin[0]).add_column(1, "rank", origin[1])


def _latest(table: pa.Table) -> pa.Table:
    """Keep one row of each (attempt, rank, step): the settled one, or the last."""
    keys: Sequence[tuple[int, int, int]] = list(
        zip(*(table[name].to_pylist() for name in ("attempt", "rank", "step")), strict=True)
    )
    best: dict[tuple[int, int, int], int] = {}
    fates = table["fate"].to_pylist()
    for row, key in enumerate(keys):
        if key not in best or fates[row] != DELIVERED or fates[best[key]] == DELIVERED:
            best[key] = row
    return table if len(best) == len(table) else table.take(sorted(best.values()))
