"""Shared memory for results: the worker writes into free slots, the reader frees what it no longer uses.

    slot   | state | buffer 0 | buffer 1 | ... | pickle stream | lengths of the buffers |
           0       64         64-byte aligned

A slot is memory without a name (``memfd``), so nothing is left behind however
a process ends, and no limit of ``/dev/shm`` applies. The worker makes slots as
it needs them and sends their file descriptors; a batch that is larger than a
slot gets a larger one. What is read lies in the slot, without a copy: the slot
is free again when the last array or tensor in it is gone. A reader that keeps
everything (``list(loader)``) gets copies once it holds ``MAX_HELD`` slots.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import weakref
from typing import Any, NamedTuple

import numpy as np

from lading.loader.workers import wire
from lading.runtime.processes import at_fork

MAX_HELD = 4  # slots of one worker that the reader may hold; further results are copied out of their slots
_ALIGN = 64
_FREE, _USED, _RETIRED = 0, 1, 2
_PAGE = mmap.PAGESIZE


class SlotPlace(NamedTuple):
    """Where a result lies: the slot, its size, the number of buffers, the bounds of the pickle stream."""

    slot: int
    size: int
    num_buffers: int
    start: int
    stop: int


def _new_memory(size: int) -> int:
    """Return the descriptor of fresh shared memory that has no name."""
    try:
        descriptor = os.memfd_create("lading-slot", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # not Linux: a file that is deleted already
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _aligned(number: int) -> int:
    return -(-number // _ALIGN) * _ALIGN


class SlotWriter:
    """The worker's side: finds or makes a free slot and writes a result into it."""

    def __init__(self) -> None:
        self._maps: dict[int, mmap.mmap] = {}

    def write(self, value: Any) -> tuple[SlotPlace, int | None]:
        """Write an object; return where it lies, and the descriptor of the slot if it is new."""
        stream, buffers = wire.pack(value)
        starts, end = [], _ALIGN
        for buffer in buffers:
            starts.append(end)
            end += _aligned(buffer.nbytes)
        stop = end + stream.nbytes
        lengths = struct.pack(f"<{len(buffers)}q", *(buffer.nbytes for buffer in buffers))
        slot, descriptor = self._find(stop + len(lengths))
        memory = self._maps[slot]
        memory[0] = _USED
        view = memoryview(memory)
        for start, buffer in zip(starts, buffers, strict=True):
            view[start : start + buffer.nbytes] = buffer
        view[end:stop] = stream
        view[stop : stop + len(lengths)] = lengths
        return SlotPlace(slot, len(memory), len(buffers), end, stop), descriptor

    def _find(self, size: int) -> tuple[int, int | None]:
        small = None
        for slot, memory in list(self._maps.items()):
            state = memory[0]
            if state == _RETIRED:
                del self._maps[slot]
            elif state == _FREE and len(memory) >= size:
                return slot, None
            elif state == _FREE:
                small = slot
        slot = small if small is not None else next(k for k in range(len(self._maps) + 1) if k not in self._maps)
        size = -(-(size + size // 8) // _PAGE) * _PAGE
        descriptor = _new_memory(size)
        self._maps[slot] = mmap.mmap(descriptor, size)
        return slot, descriptor


class SlotReader:
    """The reader's side of one worker's slots."""

    def __init__(self) -> None:
        self._slots: dict[int, _Slot] = {}
        self._held: set[_Slot] = set()

    def adopt(self, place: SlotPlace, descriptor: int | None) -> None:
        """Map a slot that the worker has just made."""
        if descriptor is not None:
            try:
                self._slots[place.slot] = _Slot(mmap.mmap(descriptor, place.size), self._held)
            finally:
                os.close(descriptor)

    def read(self, place: SlotPlace) -> Any:
        """Return the object in a slot; the slot is free when the object's arrays and tensors are gone."""
        slot = self._slots[place.slot]
        if len(self._held) >= MAX_HELD:
            return self._copy(slot, place)
        memory = slot.memory
        lengths = struct.unpack_from(f"<{place.num_buffers}q", memory, place.stop)
        root = slot.hold()
        return wire.unpack(memoryview(memory)[place.start : place.stop], _cut(root, lengths))

    def drop(self, place: SlotPlace) -> None:
        """Free a slot whose result is no longer wanted."""
        self._slots[place.slot].memory[0] = _FREE

    def close(self) -> None:
        """Forget all slots; what is still held keeps its memory."""
        self._slots.clear()

    def _copy(self, slot: _Slot, place: SlotPlace) -> Any:
        memory = slot.memory
        lengths = struct.unpack_from(f"<{place.num_buffers}q", memory, place.stop)
        copied = np.frombuffer(memory, np.uint8, place.stop).copy()
        memory[0] = _FREE
        return wire.unpack(copied.data[place.start : place.stop], _cut(copied, lengths))


def _cut(root: np.ndarray, lengths: tuple[int, ...]) -> list[np.ndarray]:
    cut, start = [], _ALIGN
    for length in lengths:
        cut.append(root[start : start + length])
        start += _aligned(length)
    return cut


class _Slot:
    """One slot as the reader sees it.

    Every array that is given out has ``root`` as its base: when the last of them is gone, so is ``root``.
    """

    def __init__(self, memory: mmap.mmap, held: set[_Slot]) -> None:
        self.memory, self._held = memory, held
        self._root: weakref.ref[np.ndarray] | None = None
        self._process = 0
        self.is_retired = False

    def hold(self) -> np.ndarray:
        """Return the slot's memory as an array whose end frees the slot."""
        root = np.frombuffer(self.memory, np.uint8)
        self._held.add(self)
        self._process = os.getpid()
        self._root = weakref.ref(root, self._release)
        _holding.add(self)
        return root

    def _release(self, _: Any) -> None:
        if self._process == os.getpid():  # in a forked copy the slot belongs to the process that read it
            self.memory[0] = _RETIRED if self.is_retired else _FREE
        self._held.discard(self)
        _holding.discard(self)


# A forked child sees the memory of the slots that are held at that moment: they are not written again.
_holding: set[_Slot] = set()


def _retire_held_slots() -> None:
    for slot in list(_holding):
        slot.is_retired = True


at_fork(before=_retire_held_slots, after_in_parent=_retire_held_slots)
