"""Have the disk fetch at once what a batch needs of a mapped file.

    touched as they come    page 7 ── wait ──▶ page 2 ── wait ──▶ page 9 ── wait ──▶
    read ahead              pages 7, 2, 9 ───▶ wait for all of them

A page that is not in memory is fetched when it is touched, with its neighbours, and whoever touches it waits. Rows of a
shuffled batch lie anywhere, so their pages are announced first. Where some of them are looked at and found in memory,
which costs 2 microseconds, nothing is announced. Without the system's help (Windows) nothing is done.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError

I64 = NDArray[np.int64]
_WILL_NEED = 3  # of madvise, on Linux and on macOS
_LOOKED_AT = 4


def is_mapped(array: NDArray[Any]) -> bool:
    """Say whether an array lies over a mapped file."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap)


def mapped_array(file: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Return the numbers of a file of a store, mapped; one that has not exactly so many is refused."""
    if not file.is_file():
        raise SourceError(f"{file} is missing. The store is damaged; build it again.")
    expected, found = count * dtype.itemsize, file.stat().st_size
    if found != expected:
        raise SourceError(
            f"{file} has {found} bytes, expected {expected} ({count} x {dtype}). It was cut off or belongs to another "
            "store; build it again."
        )
    # A plain array over the map: slices of np.memmap cost microseconds each. Of an empty file nothing can be mapped.
    return np.asarray(np.memmap(file, dtype, "r", shape=(count,))) if count else np.zeros(0, dtype)


def read_ahead(array: NDArray[Any], starts: I64, sizes: I64 | int) -> None:
    """Announce what will be read of an array, where it is mapped and some of that is not in memory.

    Args:
        array: It lies side by side in memory.
        starts: Where each piece begins, in bytes from the array's beginning.
        sizes: Bytes of each piece, or of all of them.
    """
    if is_mapped(array):
        read_ahead_at(array.ctypes.data, starts, sizes)


def read_rows_ahead(array: Any, rows: I64) -> None:
    """``read_ahead`` of some rows of an array; nothing of anything else."""
    if isinstance(array, np.ndarray) and array.ndim and array.flags.c_contiguous and is_mapped(array):
        read_ahead_at(array.ctypes.data, rows * np.int64(array.strides[0]), array.strides[0])


def read_ahead_at(address: int, starts: I64, sizes: I64 | int) -> None:
    """``read_ahead`` of a mapped file that lies at an address."""
    if not is_in_memory(address, starts):
        announce(address, starts, sizes)


def is_in_memory(address: int, starts: I64) -> bool:
    """Say whether some of many places of a mapped file are in memory."""
    system = _system()
    if system is None or not len(starts):
        return True
    page, found = mmap.PAGESIZE, ctypes.c_ubyte()
    for start in starts[:: -(-len(starts) // _LOOKED_AT)].tolist():
        if system.mincore((address + start) // page * page, page, ctypes.byref(found)) or not found.value & 1:
            return False
    return True


def announce(address: int, starts: I64, sizes: I64 | int) -> None:
    """Have the system fetch pieces of a mapped file soon."""
    system, page = _system(), mmap.PAGESIZE
    places = starts + address
    first = places // page * page
    for place, size in zip(first.tolist(), (places + sizes - first).tolist(), strict=True):
        system.madvise(place, size, _WILL_NEED)  # a place that is not there is no error of ours


@functools.cache
def _system() -> Any:
    """Return the functions of the C library, or None."""
    try:
        system = ctypes.CDLL(None)
        system.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        system.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    except (OSError, AttributeError, TypeError):
        return None
    return system
