"""Compiled gather of a whole batch: rows are bytes, copied from many arrays into ready ones.

Apart from ``rows``: Numba is optional, and opened at first use.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from lading.identity.kernels import kernel


@intrinsic
def _copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy bytes from one address to another."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source, size = arguments
        pointer = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(builder, builder.inttoptr(target, pointer), builder.inttoptr(source, pointer), size, 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


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
        for i in range(rows.shape[0]):
            _copy(targets[column] + i * size, addresses[sources[i], column] + rows[i] * size, size)  # type: ignore[call-arg]
    return -1
