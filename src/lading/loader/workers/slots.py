"""Shared memory for results: the worker writes into free slots, the reader frees what it no longer uses.

    slot   | state | buffer 0 | buffer 1 | ... | pickle stream | start and length of each buffer |
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
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lading.loader.workers import wire
from lading.runtime.processes import at_fork

MAX_HELD = 4  # slots of one worker that the reader may hold; further results are copied out of their slots
_ALIGN = 64
_FREE, _USED, _RETIRED = 0, 1, 2
_PAGE = mmap.PAGESIZE
_PLACE = struct.Struct("<qq")  # where a buffer begins, and its bytes


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
    """The worker's side: finds or makes a free slot and writes a result into it.

    Memory for the coming result can be borrowed from its slot; what lies there is sent without a copy.
    """

    def __init__(self) -> None:
        self._maps: dict[int, mmap.mmap] = {}
        self._expected = 0  # bytes of the result before
        self._open: _OpenSlot | None = None

    def lend(self, size: int) -> np.ndarray | None:
        """Return memory of some bytes in the slot of the coming result; None where that has no room."""
        if self._open is None and self._expected:
            self._open = self._opened(self._expected)
        return None if self._open is None else self._open.lend(size)

    def write(self, value: Any) -> tuple[SlotPlace, int | None]:
        """Write an object; return where it lies, and the descriptor of the slot if it is new."""
        stream, buffers = wire.pack(value)
        pieces = [*buffers, stream]
        opened, self._open = self._open, None
        starts = None if opened is None else opened.starts(pieces)
        if opened is None or starts is None:  # nothing was borrowed, or the rest has no room there
            if opened is not None:
                opened.end, self._open = _ALIGN, opened
            size = _ALIGN + sum(_aligned(piece.nbytes) for piece in pieces) + _PLACE.size * len(buffers)
            opened = self._opened(size)
            starts = opened.starts(pieces)
            assert starts is not None, "the slot was made for them"
        self._expected = opened.end
        opened.write(pieces, starts)
        place = SlotPlace(opened.slot, len(opened.memory), len(buffers), starts[-1], starts[-1] + stream.nbytes)
        return place, opened.descriptor

    def _opened(self, size: int) -> _OpenSlot:
        slot, descriptor = self._find(size)
        return _OpenSlot(slot, descriptor, self._maps[slot])

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


class _OpenSlot:
    """The slot that a result is put together in.

    Attributes:
        end: Where its unused memory begins.
    """

    def __init__(self, slot: int, descriptor: int | None, memory: mmap.mmap) -> None:
        self.slot, self.descriptor, self.memory, self.end = slot, descriptor, memory, _ALIGN
        self._bytes = np.frombuffer(memory, np.uint8)
        self._address = _address(self._bytes)
        self._lent = _ALIGN
        memory[0] = _USED

    def lend(self, size: int) -> np.ndarray | None:
        start, stop = self.end, self.end + size
        if stop > len(self.memory):
            return None
        self.end = _aligned(stop)
        return self._bytes[start:stop]

    def starts(self, pieces: Sequence[memoryview]) -> list[int] | None:
        """Return where each piece lies already or is to be written; None where there is no room for all of them."""
        starts, end = [], self.end
        for piece in pieces:
            start = self._place_of(piece) if self.end > _ALIGN and piece.nbytes else None
            if start is None:
                start, end = end, _aligned(end + piece.nbytes)
            starts.append(start)
        end += _PLACE.size * (len(pieces) - 1)
        if end > len(self.memory):
            return None
        self._lent, self.end = self.end, end
        return starts

    def write(self, pieces: Sequence[memoryview], starts: Sequence[int]) -> None:
        """Write the pieces that do not lie here yet, and behind the last of them where the others are."""
        view = memoryview(self.memory)
        for piece, start in zip(pieces, starts, strict=True):
            if start >= self._lent:
                view[start : start + piece.nbytes] = piece
        *buffers, stream = pieces
        stop = starts[-1] + stream.nbytes
        places = [number for both in zip(starts, (b.nbytes for b in buffers), strict=False) for number in both]
        struct.pack_into(f"<{len(places)}q", view, stop, *places)

    def _place_of(self, piece: memoryview) -> int | None:
        """Return where a piece lies here; None: elsewhere."""
        start = _address(np.frombuffer(piece, np.uint8)) - self._address
        return start if 0 <= start < self.end else None


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


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
        found = _places(memory, place)
        root = slot.hold()
        return wire.unpack(memoryview(memory)[place.start : place.stop], _cut(root, found))

    def drop(self, place: SlotPlace) -> None:
        """Free a slot whose result is no longer wanted."""
        self._slots[place.slot].memory[0] = _FREE

    def close(self) -> None:
        """Forget all slots; what is still held keeps its memory."""
        self._slots.clear()

    def _copy(self, slot: _Slot, place: SlotPlace) -> Any:
        memory = slot.memory
        found = _places(memory, place)
        copied = np.frombuffer(memory, np.uint8, place.stop).copy()
        memory[0] = _FREE
        return wire.unpack(copied.data[place.start : place.stop], _cut(copied, found))


def _places(memory: mmap.mmap, place: SlotPlace) -> list[tuple[int, int]]:
    """Return where each buffer begins, and its bytes."""
    stop = place.stop + place.num_buffers * _PLACE.size
    return list(_PLACE.iter_unpack(memoryview(memory)[place.stop : stop]))


def _cut(root: np.ndarray, places: list[tuple[int, int]]) -> list[np.ndarray]:
    return [root[start : start + length] for start, length in places]


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
