"""Every step of a run, once for each attempt that recorded it: the rows of all ranks added up, in NumPy.

    rows of a rank ─▶ the latest of each step ─▶ added up over ranks ─▶ steps ─▶ history: what the leaf owns of them

It takes a row a step, however many ranks there are, and no database. ``views`` says the same in SQL, for the
questions of users; a law compares the two.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.ledger.tables import APPLIED, DELIVERED
from lading.report.evidence import AttemptEvidence, Evidence, RankEvidence, read_part
from lading.runtime.arrow import numbers, words_of
from lading.runtime.fields import INT64_MAX

I64 = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]

NOTHING = -INT64_MAX - 1  # where no rank knows an update or a chunk
_READ = ["step", "update", "epoch", "chunk", "samples", "digest", "fate", "loss", "time"]
_ROWS_AT_ONCE = 1 << 22
_ADDED = ("ranks", "open", "unused", "samples", "digest", "loss", "losses")
_LARGEST = ("update", "epoch", "chunk", "time")


class History:
    """The steps of a run as columns, in order of attempt and step.

    Args:
        evidence: The run.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    @functools.cached_property
    def steps(self) -> Columns:
        """Every step of every attempt.

        ``attempt``, ``step``; ``ranks`` that recorded it, of them ``open`` (its fate is not known) and ``unused`` (not
        applied); ``samples``, ``digest``; ``losses`` that are known and their mean ``loss``; ``update``, ``epoch``,
        ``chunk``, ``time``; whether history owns it (``owned``) and whether it was pending at a checkpoint (``waits``).
        """
        found = [_of_attempt(self._evidence, a) for a in self._evidence.attempts.values()]
        columns = _joined(found, ("attempt", "step", *_ADDED, *_LARGEST))
        if columns["losses"].max(initial=0) > 1:
            columns["loss"] = columns["loss"] / np.maximum(columns["losses"], 1)
        columns["owned"] = self._owned(columns)
        columns["waits"] = self._waits(columns)
        return columns

    @functools.cached_property
    def kept(self) -> Columns:
        """The steps of history, once each unless replayed: settled on all ranks; ``applied`` says whether used."""
        steps = self.steps
        worlds = {number: attempt.launch.world_size for number, attempt in self._evidence.attempts.items()}
        counts = np.diff(np.searchsorted(steps["attempt"], list(worlds)), append=len(steps["step"]))
        wanted = np.repeat(np.array(list(worlds.values()), dtype=np.int64), counts)
        kept = steps["owned"] & (steps["ranks"] == wanted) & ((steps["open"] == 0) | steps["waits"])
        found = taken(steps, kept)
        found["applied"] = (found["unused"] == 0) & ~found["waits"]
        return found

    @functools.cached_property
    def applied(self) -> Columns:
        """The steps of history that an update used."""
        return taken(self.kept, self.kept["applied"])

    def _owned(self, columns: Columns) -> NDArray[np.bool_]:
        owned = np.zeros(len(columns["step"]), dtype=bool)
        for span in self._evidence.spans:
            first, last = np.searchsorted(columns["attempt"], [span.attempt, span.attempt + 1])
            steps = columns["step"][first:last]
            owned[first:last] = (steps >= span.start) & (steps < (INT64_MAX if span.stop is None else span.stop))
        return owned

    def _waits(self, columns: Columns) -> NDArray[np.bool_]:
        waits = np.zeros(len(columns["step"]), dtype=bool)
        for attempt, step in self._evidence.pending:
            waits |= columns["owned"] & (columns["attempt"] == attempt) & (columns["step"] == step)
        return waits


def taken(columns: Columns, rows: NDArray[Any]) -> Columns:
    """Return some rows of columns."""
    if rows.dtype == bool and rows.all():  # as a rule: nothing is copied
        return dict(columns)
    return {name: values[rows] for name, values in columns.items()}


def largest(values: NDArray[Any]) -> int | None:
    """Return the largest of some numbers; None where none is known."""
    found = int(values.max()) if len(values) else NOTHING
    return None if found == NOTHING else found


def repeated(values: NDArray[Any]) -> int:
    """Return how many of some numbers are there already. (``np.unique`` takes 50 times as long to say so.)"""
    ordered = np.sort(values, kind="stable")  # in order, as a rule: that is found in one pass
    return int(np.count_nonzero(ordered[1:] == ordered[:-1]))


def time_of(milliseconds: int) -> datetime.datetime:
    """Return a time as it is stored as one that can be shown."""
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=milliseconds)


def _of_attempt(evidence: Evidence, attempt: AttemptEvidence) -> Columns:
    """Return the steps that an attempt recorded, in order."""
    total = _nothing()
    for ranks in _blocks(attempt):
        total = _added([total, _latest(_rows(evidence, ranks))])
    total["attempt"] = np.full(len(total["step"]), attempt.number, dtype=np.int64)
    return total


def _blocks(attempt: AttemptEvidence) -> Iterator[list[RankEvidence]]:
    """Yield the ranks of an attempt, so many at a time that their rows fit the memory."""
    block: list[RankEvidence] = []
    rows = 0
    for rank in attempt.ranks:
        mine = sum(file.rows for file in rank.files if file.table == "batches") + len(rank.tail_table("batches"))
        if block and rows + mine > _ROWS_AT_ONCE:
            yield block
            block, rows = [], 0
        block.append(rank)
        rows += mine
    yield block


def _rows(evidence: Evidence, ranks: list[RankEvidence]) -> Columns:
    """Return the rows of some ranks of one attempt."""
    closed = [
        (rank.folder.rank, read_part(rank, file, columns=_READ)) for rank in ranks for file in evidence.batches_of(rank)
    ]
    tails = [(rank.folder.rank, rank.tail_table("batches")) for rank in ranks if len(rank.tail_table("batches"))]
    found = [_columns([table for _, table in kind]) for kind in (closed, tails) if kind]
    both = [*closed, *tails]
    columns = _joined(found, ("step", *_ADDED, *_LARGEST))
    if len(ranks) == 1:
        columns["rank"] = _same(ranks[0].folder.rank, len(columns["step"]), np.int64)
    else:
        columns["rank"] = np.repeat([rank for rank, _ in both], [len(table) for _, table in both]).astype(np.int64)
    return columns


def _columns(tables: list[pa.Table]) -> Columns:
    """Return rows as columns that can be added up."""
    table = pa.concat_tables([table.select(_READ) for table in tables])
    columns: Columns = {}
    for name in ("step", "samples", "digest"):
        columns[name] = numbers(table[name], np.int64)[0]
    for name in _LARGEST:
        is_known = table[name].null_count < len(table)
        found = numbers(table[name], np.int64) if is_known else None
        columns[name] = _same(NOTHING, len(table), np.int64) if found is None else _filled(*found, NOTHING)
    loss, known = numbers(table["loss"], np.float64)
    columns["loss"], columns["losses"] = _filled(loss, known, 0.0), _counted(known)
    delivered, applied = words_of(table["fate"], DELIVERED), words_of(table["fate"], APPLIED)
    columns["open"], columns["unused"] = _counted(delivered), _counted(~applied)
    columns["digest"] = columns["digest"].view(np.uint64)
    columns["ranks"] = _same(1, len(table), np.int32)
    return columns


def _same(value: int, count: int, kind: type[Any]) -> NDArray[Any]:
    """Return a column that holds one value everywhere and takes no memory: a tenth of a second of a long run."""
    return np.broadcast_to(np.array(value, dtype=kind), (count,))


def _counted(true: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return 1 where something is true, else 0."""
    if true.all() or not true.any():
        return _same(int(true.all()), len(true), np.int32)
    return true.astype(np.int32)


def _filled(values: NDArray[Any], known: NDArray[np.bool_], missing: float) -> NDArray[Any]:
    return values if known.all() else np.where(known, values, np.array(missing, values.dtype))


def _nothing() -> Columns:
    """Return the columns of no step."""
    columns: Columns = {name: np.empty(0, dtype=np.int64) for name in ("attempt", "rank", "step", *_ADDED, *_LARGEST)}
    return {**columns, "digest": np.empty(0, dtype=np.uint64), "loss": np.empty(0)}


def _joined(parts: list[Columns], names: tuple[str, ...]) -> Columns:
    """Return the rows of all parts; of one part they are not copied."""
    some = [part for part in parts if len(part["step"])] or [_nothing()]
    return {n: some[0][n] if len(some) == 1 else np.concatenate([part[n] for part in some]) for n in names}


def _latest(rows: Columns) -> Columns:
    """Keep one row a rank and step, where a step was written as delivered and again when its fate was known."""
    opened = np.flatnonzero(rows["open"])
    if not len(opened):
        return rows
    order = np.lexsort([rows["open"], rows["step"], rows["rank"]])  # of a rank's step the settled rows come first
    rank, step = rows["rank"][order], rows["step"][order]
    again = np.concatenate([[False], (rank[1:] == rank[:-1]) & (step[1:] == step[:-1])])
    return taken(rows, np.sort(order[~(again & (rows["open"][order] > 0))]))


def _added(parts: list[Columns]) -> Columns:
    """Return the steps of some parts, each once and in order."""
    rows = _joined(parts, ("step", *_ADDED, *_LARGEST))
    steps = rows["step"]
    if np.all(steps[1:] > steps[:-1]):
        return rows
    order = np.argsort(steps, kind="stable")
    starts = np.flatnonzero(np.diff(steps[order], prepend=steps[order[0]] - 1))
    found: Columns = {"step": steps[order[starts]]}
    for names, add in ((_ADDED, np.add), (_LARGEST, np.maximum)):
        for name in names:
            found[name] = add.reduceat(rows[name][order], starts)
    return found
