"""Compiled gather of a whole batch: rows are bytes, copied from many arrays into ready ones.

Apart from ``rows``: Numba is optional, and opened at first use.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lading.runtime.kernels import copy, kernel

# Rows lie anywhere: the beginning of a row to come is fetched while others are copied, the processor guesses the rest.
_AHEAD, _BEGUN, _LINE = 3, 256, 64


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


@kernel
def gather(addresses, lengths, sizes, sources, rows, targets):  # type: ignore[no-untyped-def]
    """Copy rows of several sources to their places in a batch, column by column.

    Args:
        addresses: Of each column of each source, source by source.
        lengths: Rows of each source.
        sizes: Bytes of a row of each column.
        sources: Source of each row of the batch.
        rows: Row in its source.
        targets: Address of each column of the batch.

    Returns:
        The first row of the batch that its source does not have, or -1; nothing is copied then.
    """
    for i in range(rows.shape[0]):
        if sources[i] < 0 or sources[i] >= lengths.shape[0] or rows[i] < 0 or rows[i] >= lengths[sources[i]]:
            return i
    for column in range(sizes.shape[0]):
        size = sizes[column]
        begun = min(size, _BEGUN)
        for i in range(rows.shape[0]):
            if i + _AHEAD < rows.shape[0]:
                coming = addresses[sources[i + _AHEAD], column] + rows[i + _AHEAD] * size
                for line in range(0, begun, _LINE):
                    _read_ahead(coming + line)  # type: ignore[call-arg]
            copy(targets[column] + i * size, addresses[sources[i], column] + rows[i] * size, size)  # type: ignore[call-arg]
    return -1
