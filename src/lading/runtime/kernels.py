"""Compiled twins of ``splitmix``, bit for bit the same, and memory by address."""

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

from lading.runtime.splitmix import MULTIPLY_1, MULTIPLY_2


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

_M1, _M2 = np.uint64(MULTIPLY_1), np.uint64(MULTIPLY_2)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


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
