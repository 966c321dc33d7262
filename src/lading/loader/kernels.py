"""Compiled gather of a whole batch: rows are bytes, copied from many arrays into ready ones.

Apart from ``rows``: Numba is optional, and opened at first use.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lading.runtime.kernels import copy, kernel, short_kernel

# Rows lie anywhere: the beginning of a row to come is fetched while others are copied, the processor guesses the rest.
_AHEAD, _BEGUN, _LINE = 3, 256, 64
_PIECE = 1 << 16  # bytes that a thread copies before it looks for more


@intrinsic
def _read_ahead(typing_context: Any, address: Any) -> Any:
    """Have the processor fetch a line of memory that will be read soon."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        for_reading, keep, of_data = number(0), number(3), number(1)
        builder.call(prefetch, [builder.inttoptr(arguments[0], pointer), for_reading, keep, of_data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def _add(typing_context: Any, address: Any, value: Any) -> Any:
    """Add to a number in memory that several threads count with; return what it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", number, arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@kernel
def _copy_rows(addresses, sources, rows, target, size, column, first, stop):  # type: ignore[no-untyped-def]
    begun = min(size, _BEGUN)
    for i in range(first, stop):
        if i + _AHEAD < stop:
            coming = addresses[sources[i + _AHEAD], column] + rows[i + _AHEAD] * size
            for line in range(0, begun, _LINE):
                _read_ahead(coming + line)  # type: ignore[call-arg]
        copy(target + i * size, addresses[sources[i], column] + rows[i] * size, size)  # type: ignore[call-arg]


@kernel
def gather(addresses, lengths, sizes, sources, rows, targets):  # type: ignore[no-untyped-def]
    """Copy rows of several sources to their places in a batch, column by column.

    Args:
        addresses: Of each column of each source, source by source.
        lengths: Rows of each source.
        sizes: Bytes of a row of each column.
        sources: Source of each row of the batch.
        rows: Row in its source.
        targets: Address of each column of the batch; none: only look whether the rows are there.

    Returns:
        The first row of the batch that its source does not have, or -1; nothing is copied then.
    """
    for i in range(rows.shape[0]):
        if sources[i] < 0 or sources[i] >= lengths.shape[0] or rows[i] < 0 or rows[i] >= lengths[sources[i]]:
            return i
    for column in range(targets.shape[0]):
        _copy_rows(addresses, sources, rows, targets[column], sizes[column], column, 0, rows.shape[0])
    return -1


@short_kernel
def gather_little(addresses, lengths, sizes, sources, rows, targets):  # type: ignore[no-untyped-def]
    """``gather`` of few bytes: the interpreter's lock is kept."""
    return gather(addresses, lengths, sizes, sources, rows, targets)


@kernel
def gather_beside_others(addresses, sizes, sources, rows, targets, counts):  # type: ignore[no-untyped-def]
    """Copy as ``gather`` does, rows that are there, while other threads do the same; each takes what none has taken.

    Args:
        addresses, sizes, sources, rows, targets: As in ``gather``.
        counts: Pieces taken and pieces done, shared by all.

    Returns:
        The number of pieces.
    """
    taken, done = counts.ctypes.data, counts.ctypes.data + 8
    while True:
        rest = _add(taken, 1)  # type: ignore[call-arg, var-annotated]
        pieces, column, first = 0, -1, 0
        for i in range(sizes.shape[0]):
            most = max(1, _PIECE // max(1, sizes[i]))
            number = (rows.shape[0] + most - 1) // most
            if column < 0 and rest < number:
                column, first = i, rest * most
            rest -= number
            pieces += number
        if column < 0:
            return pieces
        stop = min(first + max(1, _PIECE // max(1, sizes[column])), rows.shape[0])
        _copy_rows(addresses, sources, rows, targets[column], sizes[column], column, first, stop)
        _add(done, 1)


@kernel
def are_done(counts, pieces, patience):  # type: ignore[no-untyped-def]
    """Wait until all pieces of ``gather_beside_others`` are done; False where that takes too many looks."""
    looks = 0
    while looks < patience and _add(counts.ctypes.data + 8, 0) < pieces:  # type: ignore[call-arg]
        looks += 1
    return looks < patience
