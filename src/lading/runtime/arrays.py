"""One way to speak to NumPy, torch and JAX arrays, without importing what is not loaded; and to files mapped as arrays.

An array can only come from a framework that is loaded already, so its type is
looked up in ``sys.modules``. The three namespaces share enough names (``full_like``,
``concatenate``, ``cumsum`` with ``axis``, ``int32``) that the rest needs no branches.

What a batch needs of a mapped file is fetched by the disk at once (``read_ahead``):

    touched as they come    page 7 ── wait ──▶ page 2 ── wait ──▶ page 9 ── wait ──▶
    read ahead              pages 7, 2, 9 ───▶ wait for all of them

A page that is not in memory is fetched when it is touched, with its neighbours, and whoever touches it waits. Rows of a
shuffled batch lie anywhere, so their pages are announced first. Where some of them are looked at and found in memory,
which costs 2 microseconds, nothing is announced. Without the system's help (Windows) nothing is done.
"""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import sys
from array import array as array_of_numbers
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import PlanError, SourceError
from lading.runtime import compiled

_ALIGN = 64
_KINDS = {int: ("q", np.int64), float: ("d", np.float64)}  # of Python's arrays, and of NumPy's


def framework(array: Any) -> str:
    """Return ``numpy``, ``torch`` or ``jax``; an empty text for anything that is no array."""
    if isinstance(array, np.ndarray | np.generic):
        return "numpy"
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(array, torch.Tensor):
        return "torch"
    if jax is not None and isinstance(array, jax.Array):
        return "jax"
    return ""


def namespace(array: Any) -> Any:
    """Return the module whose functions take this array."""
    found = framework(array)
    if found == "jax":
        return sys.modules["jax"].numpy
    if found:
        return sys.modules[found]
    raise SourceError(
        f"expected a NumPy, torch or JAX array, found {type(array).__name__}. Convert it with numpy.asarray first."
    )


def as_int32(values: Any, like: Any = None, name: str = "tokens") -> Any:
    """Return integers as an ``int32`` array, of the framework of ``like`` where given.

    Values that an int32 cannot hold are refused where they can be looked at (not under a JAX trace).
    """
    if not framework(values):
        values = np.asarray(values)
    if framework(values) == "numpy":
        _refuse_what_int32_cannot_hold(values, name)
    given = values if like is None else like
    space = namespace(given)
    if framework(given) == "torch":
        device = None if like is None else like.device
        return space.as_tensor(np.asarray(values) if framework(values) == "jax" else values, device=device).to(
            space.int32
        )
    return space.asarray(values).astype(space.int32)


def _refuse_what_int32_cannot_hold(values: Any, name: str) -> None:
    if values.dtype.kind not in "iub":
        raise SourceError(
            f"{name} have dtype {values.dtype}, expected integers. Pass token ids, not text or embeddings."
        )
    if values.dtype.itemsize >= 4 and (found := beyond(values, np.int32)) is not None:
        raise SourceError(f"{name} hold {found}, which does not fit into int32. Check the tokenizer's output.")


def beyond(values: NDArray[Any], kind: Any) -> int | None:
    """Return the largest (or else the smallest) of some integers where another integer type cannot hold it."""
    if values.dtype == kind or not values.size:
        return None
    low, high, limits = int(values.min()), int(values.max()), np.iinfo(kind)
    return high if high > limits.max else low if low < limits.min else None


def extent(numbers: NDArray[np.int64]) -> tuple[int, int]:
    """Return the smallest and the largest of some integers of 64 bits; of none 0 and -1."""
    if compiled.enabled() and numbers.size and numbers.flags.c_contiguous:
        found: tuple[int, int] = compiled.kernels.extent(numbers)
        return found
    return (int(numbers.min()), int(numbers.max())) if numbers.size else (0, -1)


def shifted_right(array: Any, first: int) -> Any:
    """Return rows moved one to the right along the last axis, ``first`` in front."""
    space = namespace(array)
    return space.concatenate([space.full_like(array[..., :1], first), array[..., :-1]], axis=-1)


def counting(like: Any) -> Any:
    """Return 0, 1, 2, ... along the last axis, as ``int32`` in the shape and the place of ``like``."""
    space = namespace(like)
    return space.cumsum(space.ones_like(like, dtype=space.int32), axis=-1, dtype=space.int32) - 1


def running_maximum(array: Any) -> Any:
    """Return the largest value so far along the last axis."""
    found = framework(array)
    if found == "torch":
        return sys.modules["torch"].cummax(array, dim=-1).values
    if found == "jax":
        return sys.modules["jax"].lax.cummax(array, axis=array.ndim - 1)
    return np.maximum.accumulate(array, axis=-1)


def side_by_side(numbers: Sequence[Any]) -> NDArray[Any] | None:
    """Return Python's integers of 64 bits, or its floats, as an array; None for any that do not become such numbers.

    NumPy and torch look at every one of them first to find the type: that takes several times as long.
    """
    kinds = _KINDS.get(type(numbers[0]))
    try:
        return None if kinds is None else np.frombuffer(array_of_numbers(kinds[0], numbers), kinds[1])
    except (TypeError, OverflowError):
        return None


def finite_numbers(values: Any, count: int, what: str) -> NDArray[np.float64]:
    """Return values as floats; refuse those that are not one finite number for each of so many samples."""
    expected = f"{what}: expected {count} finite numbers, one for each sample"
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PlanError(f"{expected} ({error}).") from error
    if found.shape != (count,):
        raise PlanError(f"{expected}, found shape {found.shape}.")
    if not np.isfinite(found).all():
        bad = int(np.argmin(np.isfinite(found)))
        raise PlanError(f"{expected}; that of sample {bad} is {found[bad]}.")
    return found


def is_texts(column: Any) -> bool:
    """Say whether a column of a batch is a list of texts, one a row."""
    return isinstance(column, list) and bool(column) and isinstance(column[0], str | bytes)


def host(array: Any) -> NDArray[Any]:
    """Return an array of any framework as NumPy; the same memory where that is possible.

    Types that NumPy lacks (bfloat16, float8, complex32) become float32 or complex64, which have every value of theirs.
    """
    if type(array) is np.ndarray and array.dtype.kind != "V":  # the quick questions first: asked of every batch
        return array
    torch = sys.modules.get("torch")
    if torch is not None and (type(array) is torch.Tensor or isinstance(array, torch.Tensor)):
        return _host_of_tensor(array)
    found = np.asarray(array)
    # JAX brings types of its own to NumPy; to NumPy they are bytes without meaning.
    return found.astype(np.float32) if found.dtype.kind == "V" and "float" in found.dtype.name else found


def _host_of_tensor(tensor: Any) -> NDArray[Any]:
    try:
        found: NDArray[Any] = tensor.numpy()
    except (TypeError, RuntimeError):  # on a device, with a gradient, or of a type that NumPy lacks
        kept = tensor.detach().cpu()
        try:
            found = kept.numpy()
        except TypeError:
            found = (kept.cfloat() if kept.is_complex() else kept.float()).numpy()
    return found


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


def some_of(places: I64) -> I64:
    """Return a few of many places, spread over all of them."""
    return places[:: max(-(-len(places) // _LOOKED_AT), 1)]


def aligned(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an array about to be filled that begins where JAX, on a CPU, reads it without copying it first.

    Its base is no array, so a view of it refers to the array itself: ``Buffers`` sees that it is used.
    """
    kind = np.dtype(dtype)
    memory = bytearray(math.prod(shape) * kind.itemsize + _ALIGN)
    return np.ndarray(shape, kind, memory, -np.frombuffer(memory, np.uint8).ctypes.data % _ALIGN)


def is_in_memory(address: int, starts: I64) -> bool:
    """Say whether some of many places of a mapped file are in memory."""
    system = _system()
    if system is None or not len(starts):
        return True
    page, found, is_resident = mmap.PAGESIZE, ctypes.c_ubyte(), system[0]
    for start in some_of(starts).tolist():
        if is_resident((address + start) // page * page, page, ctypes.byref(found)) or not found.value & 1:
            return False
    return True


def announce(address: int, starts: I64, sizes: I64 | int) -> None:
    """Have the system fetch pieces of a mapped file soon."""
    system, page = _system(), mmap.PAGESIZE
    places = starts + address
    first = places // page * page
    for place, size in zip(first.tolist(), (places + sizes - first).tolist(), strict=True):
        system[1](place, size, _WILL_NEED)  # a place that is not there is no error of ours


@functools.cache
def _system() -> Any:
    """Return the C library's ``mincore`` and ``madvise``, or None."""
    try:
        # The first is so quick that the interpreter is kept: another thread that took it would have to be waited for.
        mincore, madvise = ctypes.PyDLL(None).mincore, ctypes.CDLL(None).madvise
        mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    except (OSError, AttributeError, TypeError):
        return None
    return mincore, madvise
