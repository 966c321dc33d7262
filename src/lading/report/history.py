"""Every step of a run, once for each attempt that recorded it: the rows of all ranks added up, in NumPy.

    rows of a rank ─▶ the latest of each step ─▶ added up over ranks ─▶ steps ─▶ history: what the leaf owns of them

It takes a row a step, however many ranks there are, and no database. ``views`` says the same in SQL, for the
questions of users; a law compares the two.
"""

from __future__ import annotations

import datetime
import functools
import itertools
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
_ROWS_AT_ONCE = 1 << 22
_LARGEST = ("update", "epoch", "chunk", "time")  # of a step's rows; all other numbers are added up
_EVERY = ("samples", "digest", "loss", *_LARGEST)


class History:
    """The steps of a run as columns, in order of attempt and step.

    Args:
        columns: What is read of a step besides its fate.
    """

    def __init__(self, evidence: Evidence, columns: tuple[str, ...] = _EVERY) -> None:
        self._evidence, self._columns = evidence, columns
        self._others: list[History] = []
        self._places: dict[int, slice] = {}  # where the steps of each attempt lie, once they were read

    def only(self, *columns: str) -> History:
        """Return the steps with some of the columns, or with more where these were read: a long run's take long."""
        for history in (self, *self._others):
            if "steps" in vars(history) and set(columns) <= set(history._columns):
                return history
        self._others.append(History(self._evidence, columns))
        return self._others[-1]

    @functools.cached_property
    def steps(self) -> Columns:
        """Every step of every attempt.

        ``attempt``, ``step``; ``ranks`` that recorded it, of them ``open`` (its fate is not known) and ``unused`` (not
        applied); ``samples``, ``digest``; ``losses`` that are known and their mean ``loss``; ``update``, ``epoch``,
        ``chunk``, ``time``; whether history owns it (``owned``) and whether it was pending at a checkpoint (``waits``).
        """
        attempts = self._evidence.attempts
        found = [_of_attempt(self._evidence, attempt, self._columns) for attempt in attempts.values()]
        ends = np.cumsum([0, *(len(part["step"]) for part in found)]).tolist()
        self._places = dict(zip(attempts, itertools.starmap(slice, itertools.pairwise(ends)), strict=True))
        columns = _joined([_nothing(self._columns), *found])
        if "losses" in columns and columns["losses"].max(initial=0) > 1:
            columns["loss"] = columns["loss"] / np.maximum(columns["losses"], 1)
        columns["owned"] = self._owned(columns)
        columns["waits"] = self._waits(columns)
        return columns

    @functools.cached_property
    def kept(self) -> Columns:
        """The steps of history, once each unless replayed: settled on all ranks; ``applied`` says whether used."""
        steps = self.steps
        kept = steps["owned"] & ((steps["open"] == 0) | steps["waits"])
        for number, mine in self._places.items():
            kept[mine] &= steps["ranks"][mine] == self._evidence.attempts[number].launch.world_size
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
            mine = self._places[span.attempt]
            steps = columns["step"][mine]
            owned[mine] = (steps >= span.start) & (steps < (INT64_MAX if span.stop is None else span.stop))
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


def _of_attempt(evidence: Evidence, attempt: AttemptEvidence, columns: tuple[str, ...]) -> Columns:
    """Return the steps that an attempt recorded, in order."""
    total = _nothing(columns)
    for ranks in _blocks(attempt):
        total = _added([total, _latest(_rows(evidence, ranks, columns))])
    return {**total, "attempt": _same(attempt.number, len(total["step"]), np.int64)}


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


def _rows(evidence: Evidence, ranks: list[RankEvidence], names: tuple[str, ...]) -> Columns:
    """Return the rows of some ranks of one attempt."""
    read = ["step", "fate", *names]
    closed = [
        (rank.folder.rank, read_part(rank, file, columns=read))
        for rank, file in evidence.intact_files("batches", ranks)
    ]
    tails = [
        (rank.folder.rank, rank.tail_table("batches").select(read)) for rank in ranks if rank.tail_table("batches")
    ]
    found = [_columns(pa.concat_tables([table for _, table in kind]), names) for kind in (closed, tails) if kind]
    both = [*closed, *tails]
    columns = _joined([_nothing(names), *found])
    if len(ranks) == 1:
        columns["rank"] = _same(ranks[0].folder.rank, len(columns["step"]), np.int64)
    else:
        columns["rank"] = np.repeat([rank for rank, _ in both], [len(table) for _, table in both]).astype(np.int64)
    return columns


def _columns(table: pa.Table, names: tuple[str, ...]) -> Columns:
    """Return rows as columns that can be added up."""
    delivered, applied = words_of(table["fate"], DELIVERED), words_of(table["fate"], APPLIED)
    columns: Columns = {"step": numbers(table["step"], np.int64)[0]}
    columns["ranks"] = _same(1, len(table), np.int32)
    columns["open"], columns["unused"] = _counted(delivered), _counted(~applied)
    for name in names:
        missing = NOTHING if name in _LARGEST else 0
        kind = np.float64 if name == "loss" else np.int64
        if table[name].null_count == len(table):
            columns[name], known = _same(missing, len(table), kind), _same(0, len(table), np.bool_)
        else:
            values, known = numbers(table[name], kind)
            columns[name] = _filled(values, known, missing)
        if name == "loss":
            columns["losses"] = _counted(known)
    if "digest" in columns:
        columns["digest"] = columns["digest"].view(np.uint64)
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


def _nothing(names: tuple[str, ...]) -> Columns:
    """Return the columns of no step."""
    kinds = {"digest": np.uint64, "loss": np.float64}
    more = ["losses"] if "loss" in names else []
    return {
        n: np.empty(0, kinds.get(n, np.int64)) for n in ("attempt", "step", "ranks", "open", "unused", *names, *more)
    }


def _joined(parts: list[Columns]) -> Columns:
    """Return the rows of all parts, in the columns of the first; of one part they are not copied."""
    some = [part for part in parts if len(part["step"])] or parts[:1]
    names = [name for name in parts[0] if name in some[0]]
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
    rows = _joined(parts)
    steps = rows["step"]
    if np.all(steps[1:] > steps[:-1]):
        return rows
    order = np.argsort(steps, kind="stable")
    starts = np.flatnonzero(np.diff(steps[order], prepend=steps[order[0]] - 1))
    found: Columns = {"step": steps[order[starts]]}
    for name in rows.keys() - found.keys():
        found[name] = (np.maximum if name in _LARGEST else np.add).reduceat(rows[name][order], starts)
    return found
