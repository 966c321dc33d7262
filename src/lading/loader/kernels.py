"""Compiled gather of a whole batch: rows are bytes, copied from many arrays into ready ones.

Rows lie anywhere in memory, and each is waited for. So the heads of several rows are copied first, which memory fetches
at once; where a row is long, the processor guesses the rest of it meanwhile.

    rows        7 ████░░░░░░░░   2 ████░░░░░░░░   9 ████░░░░░░░░       first all heads, then all tails
"""

from __future__ import annotations

from lading.runtime.kernels import copy, kernel, short_kernel

_TOGETHER, _HEAD = 16, 256  # rows, and bytes of each


@kernel
def _copy_rows(addresses, sources, rows, target, size, column):  # type: ignore[no-untyped-def]
    head = min(size, _HEAD)
    for first in range(0, rows.shape[0], _TOGETHER):
        stop = min(first + _TOGETHER, rows.shape[0])
        for i in range(first, stop):
            copy(target + i * size, addresses[sources[i], column] + rows[i] * size, head)  # type: ignore[call-arg]
        if size > head:
            for i in range(first, stop):
                source = addresses[sources[i], column] + rows[i] * size
                copy(target + i * size + head, source + head, size - head)  # type: ignore[call-arg]


@kernel
def gather(addresses, lengths, sizes, sources, rows, targets):  # type: ignore[no-untyped-def]
    """Copy rows of several sources to their places in a batch, column by column.

    Args:
        addresses: Of each column of each source, source by source.
        lengths: Rows of each source.
        sizes: Bytes of a row of each column.
        sources: Source of each row of the batch.
        rows: Row in its source.
        targets: Address of each column of the batch; 0: it is copied elsewhere.

    Returns:
        The first row of the batch that its source does not have, or -1; nothing is copied then.
    """
    for i in range(rows.shape[0]):
        if sources[i] < 0 or sources[i] >= lengths.shape[0] or rows[i] < 0 or rows[i] >= lengths[sources[i]]:
            return i
    for column in range(targets.shape[0]):
        if targets[column]:
            _copy_rows(addresses, sources, rows, targets[column], sizes[column], column)
    return -1


@short_kernel
def gather_little(addresses, lengths, sizes, sources, rows, targets):  # type: ignore[no-untyped-def]
    """``gather`` of few bytes: the interpreter's lock is kept."""
    return gather(addresses, lengths, sizes, sources, rows, targets)
