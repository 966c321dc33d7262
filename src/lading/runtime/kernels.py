"""Compiled twins of ``splitmix``, bit for bit the same, the exchange of generators' states, and memory by address.

Apart from ``twisters`` and ``splitmix``: Numba is optional, and opened at first use.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from lading.runtime.splitmix import GOLDEN, MULTIPLY_1, MULTIPLY_2


def cached(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return ``numba.njit`` with a cache on disk, or without one where nothing beside the run can be written."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # "no locator available": a read-only package, a user without a home
            _say_uncached()
            return numba.njit(**options)(function)

    return decorate


@functools.cache
def _say_uncached() -> None:
    logging.getLogger(__name__).warning(
        "no place for compiled code: neither %s nor a home can be written; each process compiles anew, in seconds. "
        "Set NUMBA_CACHE_DIR to a folder that can be, or LADING_NUMBA=0.",
        Path(__file__).parents[1],
    )


kernel = cached(nogil=True)
# For what takes microseconds, or must not be seen half done: whoever lets go of the interpreter's lock may have to wait
# for it for milliseconds.
short_kernel = cached()

_M1, _M2, _GOLDEN = np.uint64(MULTIPLY_1), np.uint64(MULTIPLY_2), np.uint64(GOLDEN)
_S30, _S27, _S31, _S32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)


@kernel
def mix64(x):  # type: ignore[no-untyped-def]
    """``splitmix.mix64`` on one ``uint64``."""
    x = (x ^ (x >> _S30)) * _M1
    x = (x ^ (x >> _S27)) * _M2
    return x ^ (x >> _S31)


@intrinsic
def copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy bytes from one address to another."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source, size = arguments
        pointer = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(builder, builder.inttoptr(target, pointer), builder.inttoptr(source, pointer), size, 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@short_kernel
def exchange(key, table, made, saved):  # type: ignore[no-untyped-def]
    """Save the states of generators and give them the numbers of a key.

    Args:
        key: Below 2**63.
        table: Of each block of memory its address, the bytes before, of and behind its words, whether it begins with
            the seed, and the address of what it holds at the beginning, words and seed aside.
        made: Room for the words of all blocks, and the key.
        saved: Address of room for all blocks.
    """
    last = made.shape[0] - 1
    for i in range(last):
        made[i] = mix64(np.uint64(key) + np.uint64(i + 1) * _GOLDEN)
    made[last] = key
    words = made.ctypes.data
    seed = words + 8 * last
    for i in range(table.shape[0]):
        address, head, body, tail, fresh = table[i, 0], table[i, 1], table[i, 2], table[i, 3], table[i, 5]
        size = head + body + tail
        copy(saved, address, size)  # type: ignore[call-arg]
        copy(address, fresh, head)
        copy(address + head, words, body)
        copy(address + head + body, fresh + head + body, tail)
        if table[i, 4]:
            copy(address, seed, 8)
        saved, words = saved + size, words + body


@short_kernel
def put_back(table, saved):  # type: ignore[no-untyped-def]
    """Undo ``exchange``."""
    for i in range(table.shape[0]):
        size = table[i, 1] + table[i, 2] + table[i, 3]
        copy(table[i, 0], saved, size)  # type: ignore[call-arg]
        saved += size
