"""The state of the global generators where it lies in memory: exchanged there for the numbers of a key, and put back.

Python's, NumPy's and torch's generators are Mersenne Twisters of 624 words with something before and behind them:

    Python   place, words                               ``random._inst``
    NumPy    words, place; elsewhere a normal           ``np.random.mtrand._rand``
    torch    seed, left, seeded, next, words, normals   ``torch.random.default_generator``, where torch is loaded

Their own ways to get, set and seed a state take ten times as long. Where each one lies is found and tried out on
generators made for it: a copy must give the very same state and numbers. What is not found so is left to
``random_state``, which does the same the documented way.

Apart from ``random_state``, which says what numbers a batch gets: this is only where they lie.
"""

from __future__ import annotations

import ctypes
import functools
import random
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.runtime import compiled, splitmix

WORDS = 624  # of a Mersenne Twister
SIZE = 4 * WORDS
_SEARCHED = 4096  # bytes of a RandomState in which its cached normal is looked for
_TORCH_HEAD, _TORCH_TAIL, _TORCH_SEARCHED = 20, 28, 256


class Block(NamedTuple):
    """A piece of memory that holds a part of a generator's state.

    Attributes:
        address: Where it begins.
        head: What its bytes before the words become.
        words: How many words it has.
        tail: What its bytes behind the words become.
        key: Whether it begins with the seed, eight bytes.
    """

    address: int
    head: bytes
    words: int
    tail: bytes
    key: bool = False

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.head) + 4 * self.words + len(self.tail)

    def read(self) -> bytes:
        """Return its bytes."""
        return ctypes.string_at(self.address, self.size)

    def write(self, content: bytes) -> None:
        """Set its bytes."""
        ctypes.memmove(self.address, content, self.size)

    def fresh(self, key: int, words: NDArray[np.uint32]) -> bytes:
        """Return what it holds at the beginning of a key's numbers."""
        head = struct.pack("<Q", key) + self.head[8:] if self.key else self.head
        return head + words.tobytes() + self.tail


class Exchange:
    """Several generators as one.

    Args:
        blocks: Where their states lie.
    """

    def __init__(self, blocks: list[Block]) -> None:
        self._blocks = blocks
        self._words = sum(block.words for block in blocks)
        self._size = sum(block.size for block in blocks)
        self._unused: list[tuple[int, Any]] = []  # memory for saved states: its address, and what keeps it
        fresh = [np.frombuffer(b.fresh(0, np.zeros(b.words, np.uint32)), np.uint8) for b in blocks]
        sizes = [(len(b.head), 4 * b.words, len(b.tail)) for b in blocks]
        rows = [(b.address, *s, b.key, f.ctypes.data) for b, s, f in zip(blocks, sizes, fresh, strict=True)]
        self._table, self._fresh = np.array(rows, np.int64), fresh
        self._made = np.empty(self._words // 2 + 1, np.uint64)

    @functools.cached_property
    def _compiled(self) -> tuple[Callable[..., None], Callable[..., None]] | None:
        if not compiled.enabled():
            return None
        from lading.runtime import kernels  # opened at first use: Numba is optional and slow to import

        return kernels.exchange, kernels.put_back

    def begin(self, key: int) -> Any:
        """Give the generators the numbers of a key below 2**63; return what they were, for ``end``."""
        if self._compiled is None:
            return self._begin(key)
        saved = self._unused.pop() if self._unused else self._room()
        self._compiled[0](key, self._table, self._made, saved[0])
        return saved

    def end(self, before: Any) -> None:
        """Put back what ``begin`` returned."""
        if self._compiled is None:
            for block, content in zip(self._blocks, before, strict=True):
                block.write(content)
            return
        self._compiled[1](self._table, before[0])
        self._unused.append(before)

    def _room(self) -> tuple[int, Any]:
        memory = np.empty(self._size, np.uint8)
        return memory.ctypes.data, memory

    def _begin(self, key: int) -> list[bytes]:
        """``kernels.exchange`` without Numba."""
        before = [block.read() for block in self._blocks]
        words, at = splitmix.words(key, self._words), 0
        for block in self._blocks:
            block.write(block.fresh(key, words[at : at + block.words]))
            at += block.words
        return before


def python_blocks(generator: random.Random) -> list[Block]:
    """Return where an instance of ``random.Random`` keeps its state, but for the normal that waits."""
    return [Block(id(generator) + object.__basicsize__, struct.pack("i", WORDS), WORDS, b"")]


def numpy_blocks(generator: Any, gauss: int) -> list[Block]:
    """Return where a ``RandomState`` keeps its state: with its bit generator, and in itself the normal that waits."""
    address = generator._bit_generator.ctypes.state_address
    return [Block(address, b"", WORDS, struct.pack("i", WORDS)), Block(id(generator) + gauss - 8, bytes(16), 0, b"")]


def torch_blocks(generator: Any, words: int) -> list[Block]:
    """Return where a generator of torch for the processor keeps its state."""
    return [
        Block(generator._cdata + words - _TORCH_HEAD, struct.pack("<Qiii", 0, 1, 1, 0), WORDS, bytes(_TORCH_TAIL), True)
    ]


@functools.cache
def python_is_known() -> bool:
    """Say whether copies of Python's generators are exact."""
    try:
        for number in range(3):
            one, other = random.Random(number), random.Random(99)
            one.random(), one.gauss(0, 1) if number else None
            _copy(python_blocks(one), python_blocks(other))
            other.gauss_next = one.gauss_next  # type: ignore[attr-defined]
            if one.getstate() != other.getstate() or one.gauss(0, 1) != other.gauss(0, 1):
                return False
    except (AttributeError, ValueError, TypeError):
        return False
    return True


@functools.cache
def numpy_gauss() -> int | None:
    """Return where in a ``RandomState`` its cached normal lies, if copies of NumPy's generators are exact."""
    try:
        gauss = _gauss_offset()
        for number in range(3):
            one, other = np.random.RandomState(number), np.random.RandomState(99)
            one.random_sample(), one.normal() if number else None
            _copy(numpy_blocks(one, gauss), numpy_blocks(other, gauss))
            draws = [g.normal(size=700).tobytes() + g.bytes(50) for g in (one, other)]
            if draws[0] != draws[1]:
                return None
    except (AttributeError, ValueError, TypeError):
        return None
    return gauss


@functools.cache
def torch_words(torch: Any) -> int | None:
    """Return where in a generator of torch its words lie, if copies of such generators are exact."""
    try:
        words = _torch_offset(torch)
        for number in range(4):
            one, other = torch.Generator().manual_seed(number), torch.Generator().manual_seed(99)
            if number:  # a normal number waits: a double, a float, both
                torch.randn((), generator=one, dtype=torch.float64 if number % 2 else torch.float32)
                torch.randn((), generator=other if number == 3 else one)
            _copy(torch_blocks(one, words), torch_blocks(other, words))
            if not torch.equal(one.get_state(), other.get_state()):
                return None
        found, documented = torch.Generator(), torch.Generator()
        torch.randn((), generator=found)
        key, made = 1 << 62 | 5, splitmix.words(5, WORDS)
        [block] = torch_blocks(found, words)
        block.write(block.fresh(key, made))
        documented.set_state(torch_state(torch, key, made))
        is_same = torch.equal(found.get_state(), documented.get_state()) and found.initial_seed() == key
        return words if is_same and torch.equal(*(torch.randn(999, generator=g) for g in (found, documented))) else None
    except (AttributeError, ValueError, TypeError, RuntimeError):
        return None


def torch_state(torch: Any, key: int, words: NDArray[np.uint32]) -> Any:
    """Return the state, as torch documents it, of a generator with some words and a seed."""
    state = np.zeros_like(torch.Generator().get_state().numpy())
    fields = state[: 8 * (3 + WORDS)].view(np.uint64)
    fields[0], fields[1], fields[2] = key, 1 | 1 << 32, 0  # seed, left and seeded, next
    fields[3:] = words
    return torch.from_numpy(state)


def _copy(blocks: list[Block], others: list[Block]) -> None:
    for block, other in zip(blocks, others, strict=True):
        other.write(block.read())


def _gauss_offset() -> int:
    """Return where in a ``RandomState`` its cached normal lies; an error where it is not found exactly once."""
    probe, mark = np.random.RandomState(1), -1234.567890123
    probe.set_state({**probe.get_state(legacy=False), "has_gauss": 1, "gauss": mark})
    size = min(type(probe).__basicsize__, _SEARCHED)
    found = ctypes.string_at(id(probe), size)
    place = found.index(struct.pack("d", mark))
    if place % 8 or found.count(struct.pack("d", mark)) != 1 or struct.unpack_from("i", found, place - 8) != (1,):
        raise ValueError("the layout is unknown")
    return place


def _torch_offset(torch: Any) -> int:
    """Return where in a generator of torch its words lie; an error where they are not near its beginning."""
    probe = torch.Generator().manual_seed(12345)
    words = probe.get_state().numpy()[: 8 * (3 + WORDS)].view(np.uint64)[3:].astype(np.uint32).tobytes()
    # Its words begin soon, so that much more than so many bytes of it is there to be read.
    place = ctypes.string_at(probe._cdata, _TORCH_SEARCHED).index(words[: _TORCH_SEARCHED // 2])
    if place % 4 or ctypes.string_at(probe._cdata + place, SIZE) != words:
        raise ValueError("the layout is unknown")
    return place
