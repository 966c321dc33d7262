"""The evidence of a run: which files hold it, which attempt owns which steps.

``lading.report.snapshot`` takes it. Files that are missing, altered or not where
they belong are left out and named.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lading.errors import CorruptLedgerError, LadingError, LedgerError
from lading.ledger.begun import Begun
from lading.ledger.description import Description, bounded, read_plan
from lading.ledger.deviations import deviations_from
from lading.ledger.events import EventRow, event_rows
from lading.ledger.launch import Launch
from lading.ledger.lineage import Span, lineage, pending_of, root_of
from lading.ledger.log import Log
from lading.ledger.manifest import Manifest, PartFile
from lading.ledger.parts import sha256_of
from lading.ledger.run_folder import RankFolder, RunFolder
from lading.ledger.schema import SCHEMAS, latest_rows, rows_table, typed
from lading.ledger.tail import Tail
from lading.ledger.waybill.waybill import Moment
from lading.order.event import Event, event_from_dict
from lading.order.plan import Plan
from lading.runtime.fields import Origin, listed

_FEW = 64
_THREADED_ROWS = 1 << 16  # below, threads and buffers cost more than they save: there may be 10 000 small parts


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
    begun: Begun | None
    tail: Tail
    manifest: Manifest
    _tail_tables: dict[str, pa.Table] = field(default_factory=dict, init=False, repr=False, compare=False)

    @functools.cached_property
    def files(self) -> tuple[PartFile, ...]:
        """The closed files, as the manifest knows them."""
        return tuple(file for part in self.manifest.parts for file in part.files)

    @property
    def parts(self) -> int:
        """Number of closed parts."""
        return len(self.manifest.parts)

    @property
    def closed(self) -> bool:
        """Whether the rank's files are closed: by itself, or by a compaction after its death."""
        return (self.begun is not None and self.begun.has_ended) or self.manifest.end is not None

    @property
    def has_live_tail(self) -> bool:
        """Whether the tail holds rows that are in no part."""
        return not self.closed and (self.tail.generation is None or self.tail.generation >= self.parts)

    def tail_table(self, name: str) -> pa.Table:
        """Return the rows of the tail that are in no part; every question asks for them, of every rank."""
        if name not in self._tail_tables:
            self._tail_tables[name] = rows_table(name, self.tail.rows[name] if self.has_live_tail else ())
        return self._tail_tables[name]

    def last_step(self) -> int | None:
        """Return the largest step of which the rank recorded a batch."""
        steps = [file.last_step for file in self.files if file.table == "batches"]
        tail = self.tail_table("batches")["step"]
        steps += [int(np.max(tail.to_numpy()))] if len(tail) else []
        return max(steps, default=None)

    def next_step(self, launch: Launch) -> int:
        """Return the first step after those that its files still hold."""
        last = self.last_step()
        return launch.start_step if last is None else last + 1

    @property
    def is_empty(self) -> bool:
        """Whether the rank left no row."""
        return not self.files and not any(len(self.tail_table(name)) for name in ("batches", "rollouts"))


@dataclass(frozen=True)
class AttemptEvidence:
    """What all ranks left in one attempt."""

    launch: Launch
    ranks: tuple[RankEvidence, ...]
    is_damaged: bool = False

    @property
    def number(self) -> int:
        """Number of the attempt."""
        return self.launch.attempt

    @functools.cached_property
    def is_void(self) -> bool:
        """Whether it recorded nothing, and nothing that it recorded is lost."""
        return not self.is_damaged and all(rank.is_empty for rank in self.ranks)

    @functools.cached_property
    def last_step(self) -> int | None:
        """The largest step that any rank recorded."""
        return max([step for rank in self.ranks if (step := rank.last_step()) is not None], default=None)


@dataclass
class Evidence:
    """Everything a run left on disk, without the rows themselves, as seen from one leaf of its tree of attempts.

    Attributes:
        leaf: The attempt whose history is asked for: the newest with a row, unless another was chosen.
        damage: Files that cannot be used.
        plans_read: The plans that can be, by fingerprint and SHA-256, events left out.
        moment: Where the leaf's history ends, for questions about a checkpoint; None: with all that it recorded.
    """

    run: RunFolder
    description: Description
    log: Log
    attempts: dict[int, AttemptEvidence]
    leaf: int | None
    damage: list[Damage] = field(default_factory=list)
    plans_read: dict[tuple[str | None, str | None], Plan] = field(default_factory=dict)
    moment: Moment | None = None
    _plans: dict[int, Plan] = field(default_factory=dict, init=False, repr=False, compare=False)
    _intact: dict[Path, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    @functools.cached_property
    def spans(self) -> list[Span]:
        """Who owns which steps of history, in the order they were trained on; attempts without a row are left out."""
        return [span for span in self._line if not self.attempts[span.attempt].is_void]

    @functools.cached_property
    def _line(self) -> list[Span]:
        stop = None if self.moment is None else self.moment.step
        return [] if self.leaf is None else lineage(self.launches, self.leaf, stop)

    def at(self, moment: Moment) -> Evidence:
        """Return the same evidence as a checkpoint saw it that was taken at a moment of this run."""
        launch = known_launch(self.run.path, self.launches, moment)
        last = self.attempts[moment.attempt].last_step
        reached = launch.start_step if last is None else last + 1
        if moment.step > reached:
            raise LedgerError(
                f"attempt {moment.attempt} of {self.run.path} has steps {launch.start_step} to {reached - 1}, and the "
                f"checkpoint was taken before step {moment.step}: rows are missing. Run `lading verify`."
            )
        return replace(self, leaf=moment.attempt, moment=moment, damage=list(self.damage))

    @functools.cached_property
    def launches(self) -> dict[int, Launch]:
        """The launches, by attempt."""
        return {number: attempt.launch for number, attempt in self.attempts.items()}

    @property
    def is_planned(self) -> bool:
        """Whether a plan predicts the names."""
        return any(launch.plan is not None for launch in self.launches.values())

    @functools.cached_property
    def plans(self) -> tuple[str, ...]:
        """Fingerprints of the plans that were followed, in order."""
        found = (launch.plan for launch in self.launches.values() if launch.plan is not None)
        return tuple(dict.fromkeys(found))

    @functools.cached_property
    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets, by number."""
        return self.description.datasets

    @functools.cached_property
    def pending(self) -> frozenset[tuple[int, int]]:
        """(attempt, step) of what was used by no update when a checkpoint was taken that history resumes from."""
        waited = () if self.moment is None else self.moment.pending
        return frozenset(pending_of(self.launches, self._line, waited))

    @functools.cached_property
    def related(self) -> frozenset[int]:
        """The attempts that have their root in common with the leaf; the others were left behind."""
        if self.leaf is None:
            return frozenset()
        root = root_of(self.launches[self.leaf], self.launches)
        return frozenset(n for n, launch in self.launches.items() if root_of(launch, self.launches) == root)

    def plan(self, attempt: int) -> Plan | None:
        """Return the plan that an attempt followed, with the events made in it."""
        launch = self.attempts[attempt].launch
        if launch.plan is None:
            return None
        if attempt not in self._plans:
            base = self.plans_read.get((launch.plan, launch.plan_sha256))
            base = base or read_plan(self.run, launch.plan, launch.plan_sha256)  # says what is wrong with it
            names = tuple(base.names)
            if names != self.datasets[: len(names)]:
                raise CorruptLedgerError(
                    f"{self.run.description} lists the datasets {listed(self.datasets)}, the plan {launch.plan} has "
                    f"{listed(names)}. One of them was changed: restore it from a copy."
                )
            made = [row.plan_event for row in self.event_rows(attempt)]
            events = [*_events(self.run, launch), *(e for e in made if e is not None)]
            plan = base.with_events(events)
            self._plans[attempt] = plan if plan is base else bounded(plan, self.run.attempt(attempt))
        return self._plans[attempt]

    def event_rows(self, attempt: int) -> list[EventRow]:
        """Return what happened to the order of an attempt."""
        found: list[EventRow] = []
        for rank in self.attempts[attempt].ranks:
            closed = (read_part(*file) for file in self.intact_files("events", [rank]))
            found += event_rows(rank.folder, [*closed, rank.tail_table("events")])
        return found

    def owner(self, step: int) -> int | None:
        """Return the attempt that used a step of history last."""
        held = [span.attempt for span in self.spans if step in span]
        reached = [a for a in held if (self.attempts[a].last_step or 0) >= step]
        return reached[-1] if reached else held[-1] if held else None

    def span(self, attempt: int) -> Span | None:
        """Return the steps of history that an attempt owns, if any."""
        return next((span for span in self.spans if span.attempt == attempt), None)

    def is_intact(self, rank: RankEvidence, file: PartFile) -> bool:
        """Say whether a closed file has the SHA-256 of its manifest; one that has not is damage and is not opened.

        Parquet readers are not made for hostile bytes: some end the process.
        """
        path = rank.folder.path / file.file
        if path not in self._intact:
            self._intact[path] = _has_sha256(path, file)
            if not self._intact[path] and all(damage.file != path for damage in self.damage):
                self.damage.append(Damage(path, file.first_step, "was altered: its SHA-256 is not the manifest's"))
        return self._intact[path]

    def intact_files(
        self, table: str, ranks: Sequence[RankEvidence] | None = None
    ) -> list[tuple[RankEvidence, PartFile]]:
        """Return the closed files of a table, of all ranks or of some, that are what was written."""
        return [(rank, file) for rank, file in self.files(table, ranks) if self.is_intact(rank, file)]

    def files(self, table: str, ranks: Sequence[RankEvidence] | None = None) -> list[tuple[RankEvidence, PartFile]]:
        """Return the closed files of a table that are there; ``is_intact`` before one is opened."""
        broken = {damage.file for damage in self.damage} if self.damage else ()  # as a rule nothing is
        return [
            (rank, file)
            for rank in (self.ranks if ranks is None else ranks)
            for file in rank.files
            if file.table == table and rank.folder.path / file.file not in broken
        ]

    def has_rows(self, table: str) -> bool:
        """Say whether any rank recorded a row of a table."""
        return bool(self.files(table)) or any(len(rank.tail_table(table)) for rank in self.ranks)

    @functools.cached_property
    def ranks(self) -> list[RankEvidence]:
        """What each rank of each attempt left."""
        return [rank for attempt in self.attempts.values() for rank in attempt.ranks]

    def rows(self, steps: Iterable[int], name: str = "batches") -> pa.Table:
        """Return the rows of a table of some steps, of all attempts and ranks; opens only files that hold them."""
        wanted = np.array(sorted(set(steps)), dtype=np.int64)
        closed = [
            with_origin(read_part(rank, file, inside), rank.folder)
            for rank, file in self.files(name)
            if len(inside := _between(wanted, file)) and self.is_intact(rank, file)
        ]
        found = pa.concat_tables([no_rows(name), *closed, *(_of_steps(tail, wanted) for tail in self.tails(name))])
        return latest_rows(found) if name == "batches" else found

    def closed(self, name: str) -> list[pa.Table]:
        """Return all rows of the closed files of a table, file by file."""
        return [with_origin(read_part(rank, file), rank.folder) for rank, file in self.intact_files(name)]

    def tails(self, name: str) -> list[pa.Table]:
        """Return the rows of a table that are in no part yet, rank by rank."""
        return [with_origin(tail, rank.folder) for rank in self.ranks if len(tail := rank.tail_table(name))]

    def exceptions(self) -> list[dict[str, Any]]:
        """Return every exception to the plan: step, attempt, rank, fate and the deviation's fields."""
        closed = [
            with_origin(read_part(rank, file), rank.folder)
            for rank, file in self.files("batches")
            if file.exceptions and self.is_intact(rank, file)
        ]
        tables = [t for t in (*closed, *self.tails("batches")) if t["exceptions"].null_count < len(t)]
        if not tables:
            return []
        table = pa.concat_tables(tables)
        table = latest_rows(table.filter(table["exceptions"].is_valid()))
        return [
            {"attempt": row["attempt"], "rank": row["rank"], "step": row["step"], "fate": row["fate"], **deviation}
            for row in table.select(["attempt", "rank", "step", "fate", "exceptions"]).to_pylist()
            for deviation in self.deviations(row)
        ]

    @functools.cached_property
    def departures(self) -> dict[tuple[int, int], list[dict[str, Any]]]:
        """The exceptions to the plan, by attempt and step."""
        found: dict[tuple[int, int], list[dict[str, Any]]] = {}
        for exception in self.exceptions():
            found.setdefault((exception["attempt"], exception["step"]), []).append(exception)
        return found

    def departures_of(self, attempt: int) -> dict[int, list[dict[str, Any]]]:
        """Return the exceptions to the plan in an attempt, by step."""
        return {step: found for (number, step), found in self.departures.items() if number == attempt}

    def deviations(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the exceptions to the plan that a row of ``batches`` records."""
        if not row["exceptions"]:
            return []
        place = f"{self.run.rank(row['attempt'], row['rank']).path}: exceptions of step {row['step']}"
        return deviations_from(row["exceptions"], Origin(place, CorruptLedgerError, "Run `lading verify`."))

    def labels(self, datasets: NDArray[np.integer]) -> NDArray[Any]:
        """Return the names of datasets by their numbers, "?" where one has none."""
        names = np.array([*(name or "?" for name in self.datasets), "?"], dtype=object)
        found: NDArray[Any] = names[np.minimum(datasets, len(names) - 1)]
        return found


def known_launch(path: Path, launches: Mapping[int, Launch], moment: Moment) -> Launch:
    """Return the launch that a moment is of; refuse a run that does not know it."""
    launch = launches.get(moment.attempt)
    if launch is None or launch.sha256 != moment.launch:
        raise LedgerError(
            f"{path} does not know launch {moment.launch[:8]} of attempt {moment.attempt}: it is an older copy of the "
            "run, or one that was continued on its own. Give the folder that the checkpoint came from."
        )
    if moment.step < launch.start_step:
        raise LedgerError(
            f"attempt {moment.attempt} of {path} began at step {launch.start_step}, and the checkpoint says that it "
            f"was taken before step {moment.step}: it is damaged. Restore its waybill from a copy."
        )
    return launch


def _has_sha256(path: Path, file: PartFile) -> bool:
    try:
        return sha256_of(path) == file.sha256
    except OSError:
        return False


def _events(run: RunFolder, launch: Launch) -> list[Event]:
    try:
        return [event_from_dict(fields) for fields in launch.events]
    except LadingError as error:
        raise CorruptLedgerError(
            f"{run.log}: the launch of attempt {launch.attempt} has events that cannot be read ({error})."
        ) from error


def _between(wanted: np.ndarray, file: PartFile) -> np.ndarray:
    low, high = np.searchsorted(wanted, [file.first_step, file.last_step + 1])
    return wanted[low:high]


def read_part(
    rank: RankEvidence, file: PartFile, steps: np.ndarray | None = None, columns: list[str] | None = None
) -> pa.Table:
    """Read a closed part, the rows of some steps of it, or some columns; page checksums are checked.

    Args:
        steps: The steps to read; None: all.
        columns: The columns to read, ``fate`` as codes of a dictionary; None: all.
    """
    path = rank.folder.path / file.file
    try:
        coded = ["fate"] if columns is not None and "fate" in columns else None
        reader = pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=coded, pre_buffer=False)
        groups = _groups(reader, steps)
        threads = file.rows >= _THREADED_ROWS
        table = typed(reader.read_row_groups(groups, columns, use_threads=threads), file.table, columns)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, pa.ArrowException) as error:
        raise CorruptLedgerError(
            f"{path} cannot be read ({error}). Run `lading verify` to see what is damaged; the other files "
            "stay readable."
        ) from error
    return table if steps is None else _of_steps(table, steps)


def _groups(reader: pq.ParquetFile, steps: np.ndarray | None) -> list[int]:
    """Return the row groups that hold some steps.

    Asked of the column itself: what pyarrow tells of a column's metadata ends the process where the bytes are hostile.
    """
    groups = range(reader.num_row_groups)
    if steps is None or len(groups) == 1:
        return list(groups)
    columns = (reader.read_row_group(g, columns=["step"], use_threads=False)["step"] for g in groups)
    return [g for g, column in zip(groups, columns, strict=True) if np.isin(column.to_numpy(), steps).any()]


def _of_steps(table: pa.Table, steps: np.ndarray) -> pa.Table:
    """Return the rows of some steps; a few are sliced, because a filter opens all of Arrow's functions."""
    found = np.flatnonzero(np.isin(table["step"].to_numpy(), steps))
    if len(found) == len(table):
        return table
    if len(found) > _FEW:
        return table.take(found)
    return pa.concat_tables([table.slice(0, 0), *(table.slice(row, 1) for row in found.tolist())])


def no_rows(name: str) -> pa.Table:
    """Return a table without rows, as ``with_origin`` has its columns."""
    return pa.schema([("attempt", pa.int32()), ("rank", pa.int32()), *SCHEMAS[name]]).empty_table()


def with_origin(table: pa.Table, folder: RankFolder) -> pa.Table:
    """Return rows with the attempt and rank that wrote them as their first columns."""
    origin = [pa.repeat(pa.scalar(value, pa.int32()), len(table)) for value in (folder.attempt, folder.rank)]
    return table.add_column(0, "attempt", origin[0]).add_column(1, "rank", origin[1])
