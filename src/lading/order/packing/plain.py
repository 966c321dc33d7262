"""The packing algorithms in plain Python: what the compiled ones equal, and what runs without them.

for every piece, in order     place it in a row       ─▶  row of each piece
group the pieces by row       (a stable sort)         ─▶  row_offsets, document, start, size
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.order.packing.rules import PackingRules

Columns = tuple[NDArray[np.int64], NDArray[Any], NDArray[Any], NDArray[np.int32]]
Part = tuple[int, int, int]


def index_columns(lengths: NDArray[Any], order: NDArray[Any] | None, rules: PackingRules) -> Columns:
    """Return ``row_offsets``, ``document``, ``start`` and ``size`` of an index."""
    if rules.algorithm == "concat_then_split":
        rows, parts = _concatenated(lengths, rules)
    else:
        parts = list(_parts(lengths, order, rules))
        fit = _FirstFit(rules, len(parts)) if rules.algorithm == "first_fit" else _BestFit(rules)
        rows = [fit.place(size) for _, _, size in parts]
    by_row = np.argsort(np.array(rows, np.int64), kind="stable")
    table = np.array(parts, np.int64).reshape(-1, 3)[by_row]
    counts = np.bincount(rows) if rows else np.zeros(0, np.int64)
    row_offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    names = np.int32 if len(lengths) < 1 << 31 else np.int64
    return row_offsets, table[:, 0].astype(names), table[:, 1].astype(lengths.dtype), table[:, 2].astype(np.int32)


def _parts(lengths: NDArray[Any], order: NDArray[Any] | None, rules: PackingRules) -> Iterator[Part]:
    """Yield (document, start, size) of every piece, documents longer than a row cut into several."""
    row_length = rules.row_length
    documents = range(len(lengths)) if order is None else order.tolist()
    for document in documents:
        kept = int(lengths[document])
        if rules.overflow == "truncate":
            kept = min(kept, row_length)
        for start in range(0, kept, row_length):
            tokens = min(row_length, kept - start)
            yield document, start, tokens + (rules.append_eod and tokens < row_length)


class _FirstFit:
    """The first open row with room, found in a tree of the most room below each node."""

    def __init__(self, rules: PackingRules, num_pieces: int) -> None:
        self.row_length, self.open_rows = rules.row_length, rules.open_rows
        self.leaves = 1 << max(num_pieces - 1, 1).bit_length()
        self.room = [0] * (2 * self.leaves)
        self.num_rows = self.num_open = self.oldest = 0

    def place(self, size: int) -> int:
        if self.room[1] < size:
            return self._open(size)
        node = 1
        while node < self.leaves:
            node *= 2
            node += self.room[node] < size
        left = self.room[node] - size
        self._set(node, left)
        self.num_open -= left == 0
        return node - self.leaves

    def _open(self, size: int) -> int:
        row = self.num_rows
        self.num_rows += 1
        if size < self.row_length:
            if self.num_open == self.open_rows:
                while self.room[self.leaves + self.oldest] == 0:
                    self.oldest += 1
                self._set(self.leaves + self.oldest, 0)
                self.num_open -= 1
            self._set(self.leaves + row, self.row_length - size)
            self.num_open += 1
        return row

    def _set(self, node: int, room: int) -> None:
        self.room[node] = room
        while node > 1:
            node //= 2
            self.room[node] = max(self.room[2 * node], self.room[2 * node + 1])


class _BestFit:
    """The open row with the least room that suffices: a stack of rows for every amount of room."""

    def __init__(self, rules: PackingRules) -> None:
        self.row_length, self.open_rows = rules.row_length, rules.open_rows
        self.stacks: list[list[int]] = [[] for _ in range(rules.row_length + 1)]
        self.room: list[int] = []
        self.filled = 0  # bit r is set where a stack holds rows with room r
        self.num_open = self.oldest = 0

    def place(self, size: int) -> int:
        row = self._least_room(size)
        if row is None:
            return self._open(size)
        self._push(row, self.room[row] - size)
        self.num_open -= self.room[row] == 0
        return row

    def _least_room(self, size: int) -> int | None:
        while enough := self.filled >> size:
            room = size + (enough & -enough).bit_length() - 1
            row = self.stacks[room].pop()
            if not self.stacks[room]:
                self.filled &= ~(1 << room)
            if row >= self.oldest:  # older rows were closed
                return row
        return None

    def _open(self, size: int) -> int:
        row = len(self.room)
        self.room.append(0)
        if size < self.row_length:
            if self.num_open == self.open_rows:
                while self.room[self.oldest] == 0:
                    self.oldest += 1
                self.oldest += 1
                self.num_open -= 1
            self.num_open += 1
            self._push(row, self.row_length - size)
        return row

    def _push(self, row: int, room: int) -> None:
        self.room[row] = room
        if room:
            self.stacks[room].append(row)
            self.filled |= 1 << room


def _concatenated(lengths: NDArray[Any], rules: PackingRules) -> tuple[list[int], list[Part]]:
    """Return row and (document, start, size) of every piece of one stream cut into rows."""
    rows: list[int] = []
    parts: list[Part] = []
    row = column = 0
    for document, length in enumerate(lengths.tolist()):
        kept = min(length, rules.row_length) if rules.overflow == "truncate" else length
        start = 0
        while start < kept:
            size = min(rules.row_length - column, kept - start)
            start, first, column = start + size, start, column + size
            if start == kept and rules.append_eod and kept != rules.row_length and column < rules.row_length:
                size, column = size + 1, column + 1
            rows.append(row)
            parts.append((document, first, size))
            if column == rules.row_length:
                row, column = row + 1, 0
    return rows, parts
