"""The one keeper of random numbers: Python's and NumPy's generators always, torch's where torch is loaded.

    isolated_rng(key)    seeded inside the block, put back after it: random numbers belong to a batch, not to a process
    untouched(loader)    put back after the block, as if nothing had been drawn
    capture, restore     a snapshot, and back to it; as strings (``packed``) it fits into a checkpoint of any kind

Datasets that augment with the global generators get the same numbers for any number of workers and after every resume,
and training's own generators never notice that data was read.

Python's and NumPy's ways to get and set a state build tuples of 624 integers and cost ten times what is needed. Their
words are copied in place instead, where a test at import shows that this gives and sets the very same state; elsewhere
the slow way is taken. Nothing is imported: a framework that is not loaded has no generator.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import functools
import json
import random
import struct
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

_WORDS = 624  # of a Mersenne Twister
_SIZE = 4 * _WORDS
_GAUSS_SEARCHED = 4096  # bytes of a RandomState in which its cached normal is looked for
_WITHIN = ("sampler", "batch_sampler", "base_dataloader", "dataloader")
_DATA = ("dataset", "datasets", "source")


class Twister(NamedTuple):
    """The state of a Mersenne Twister: its words, the place in them, and a normal number that waits, or None."""

    words: bytes
    place: int
    gauss: float | None


# The state of each generator by name: global ones, and "private0", ... of a loader and its samplers.
Snapshot = dict[str, Any]


def capture(loader: Any = None) -> Snapshot:
    """Return the state of the global generators, and of those that a DataLoader and its samplers hold."""
    states: Snapshot = {"python": _python_state(), "numpy": _numpy_state()}
    if (torch := sys.modules.get("torch")) is not None:
        states["torch"] = torch.random.default_generator.get_state()
    for i, generator in enumerate(generators_of(loader)):
        states[f"private{i}"] = generator.get_state()
    return states


def restore(states: Snapshot, loader: Any = None) -> None:
    """Set the generators to a snapshot; what it does not hold is left alone."""
    if "python" in states:
        _set_python_state(states["python"])
    if "numpy" in states:
        _set_numpy_state(states["numpy"])
    if "torch" in states and (torch := sys.modules.get("torch")) is not None:
        torch.random.default_generator.set_state(states["torch"])
    for i, generator in enumerate(generators_of(loader)):
        if f"private{i}" in states:
            generator.set_state(states[f"private{i}"])


def same(one: Snapshot, other: Snapshot) -> bool:
    """Say whether two snapshots are equal."""
    return packed(one) == packed(other)


class isolated_rng:  # used like a function
    """Seed the global generators with a key of 64 bits inside the block; put them back after it.

    Args:
        key: The seed. torch gives a seed back as a signed number: 63 bits where a dataset may ask for it.
    """

    __slots__ = ("_before", "_key")

    def __init__(self, key: int) -> None:
        self._key = key

    def __enter__(self) -> None:
        self._before = capture()
        seed(self._key)

    def __exit__(self, *error: object) -> None:
        restore(self._before)


def seed(key: int) -> None:
    """Seed the global generators with a key of 64 bits."""
    random.seed(key)
    if _same_seeding and key >> 32 and _numpy_quick is not None and _numpy_quick.bits is _numpy_bits():
        _numpy_quick.set(_python_state())  # both fill their words from the same key in the same way
    else:
        _seed_numpy(key)
    if (torch := sys.modules.get("torch")) is not None:
        torch.random.default_generator.manual_seed(key)


@contextlib.contextmanager
def untouched(loader: Any = None) -> Iterator[Callable[[], None]]:
    """Put every generator back that iterating a loader may draw from; gives a function that does so at once."""
    before, own = capture(loader), list(_own_generators(loader))

    def rewind() -> None:
        restore(before, loader)
        for put_back, state in own:
            put_back(state)

    try:
        yield rewind
    finally:
        rewind()


@contextlib.contextmanager
def as_captured(states: Snapshot, loader: Any) -> Iterator[None]:
    """Draw inside the block as at the time of ``capture``.

    Afterwards the private generators continue from there. The global ones are put back, because they belong to the
    training loop; unless they were just there, as they are when the user restored them with the checkpoint.
    """
    before = capture()
    is_there = same(before, {name: state for name, state in states.items() if name in before})
    restore(states, loader)
    try:
        yield
    finally:
        if not is_there:
            restore(before)


def generators_of(loader: Any) -> list[Any]:
    """Return the torch generators of a DataLoader and of its samplers, each once, in a fixed order."""
    torch = sys.modules.get("torch")
    if torch is None or loader is None:
        return []
    found = (getattr(owner, "generator", None) for owner in _owners(loader, _WITHIN))
    return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())


def _owners(loader: Any, within: tuple[str, ...]) -> Iterator[Any]:
    """Yield a loader and the objects inside it, nearest first, each once."""
    waiting, seen = [loader], {id(loader)}
    while waiting:
        owner = waiting.pop(0)
        yield owner
        inner = [getattr(owner, name, None) for name in within]
        for part in [p for i in inner for p in (i if isinstance(i, list | tuple) else [i])]:
            if part is not None and id(part) not in seen and hasattr(part, "__dict__"):
                seen.add(id(part))
                waiting.append(part)


def _own_generators(loader: Any) -> Iterator[tuple[Callable[[Any], Any], Any]]:
    """Yield (function that sets the state, state) of generators of Python and NumPy in a loader, samplers, datasets."""
    if loader is None:
        return
    values = [value for owner in _owners(loader, _WITHIN + _DATA) for value in vars(owner).values()]
    torch = sys.modules.get("torch")
    for value in {id(v): v for v in values}.values():
        if isinstance(value, random.Random):
            yield value.setstate, value.getstate()
        elif isinstance(value, np.random.RandomState):
            yield value.set_state, value.get_state(legacy=False)
        elif isinstance(value, np.random.Generator):
            yield functools.partial(setattr, value.bit_generator, "state"), value.bit_generator.state
        elif torch is not None and isinstance(value, torch.Generator):
            yield value.set_state, value.get_state()


# The global generators, the slow way: as their documentation says.


def _slow_python_state() -> Twister:
    _, words, gauss = random.getstate()
    return Twister(np.array(words[:-1], np.uint32).tobytes(), words[-1], gauss)


def _slow_set_python_state(state: Twister) -> None:
    words = np.frombuffer(state.words, np.uint32).tolist()
    random.setstate((3, (*words, state.place), state.gauss))


def _slow_numpy_state() -> Any:
    found = np.random.get_state(legacy=False)  # noqa: NPY002  # datasets use the global generator
    if found["bit_generator"] != "MT19937":
        return found  # NumPy's own generator was replaced
    gauss = found["gauss"] if found["has_gauss"] else None
    return Twister(found["state"]["key"].tobytes(), int(found["state"]["pos"]), gauss)


def _slow_set_numpy_state(state: Any) -> None:
    if isinstance(state, Twister):
        words, waits = np.frombuffer(state.words, np.uint32), state.gauss is not None
        state = ("MT19937", words, state.place, int(waits), state.gauss or 0.0)
    np.random.set_state(state)  # noqa: NPY002


def _seed_numpy(key: int) -> None:
    bits = _numpy_bits()
    if isinstance(bits, np.random.MT19937):
        np.random.seed([key & 0xFFFFFFFF, key >> 32])  # noqa: NPY002
    else:
        bits.state = type(bits)(key).state


def _numpy_bits() -> Any:
    return np.random.mtrand._rand._bit_generator


# The same, by copying memory. Each returns None, or does nothing and returns False, where it does not know its way.


class _Memory:
    """Words that lie somewhere in memory, and the number that counts in them."""

    def __init__(self, words: int, place: int) -> None:
        self._words = (ctypes.c_char * _SIZE).from_address(words)
        self._place = ctypes.c_int.from_address(place)

    def get(self) -> tuple[bytes, int]:
        return self._words.raw, self._place.value

    def set(self, words: bytes, place: int) -> None:
        self._words.raw, self._place.value = words, place


class _PythonMemory:
    """An instance of ``random.Random``: after its head an int, the place, and 624 words."""

    def __init__(self, generator: random.Random) -> None:
        head = id(generator) + object.__basicsize__
        self._generator, self._memory = generator, _Memory(head + 4, head)

    def get(self) -> Twister:
        return Twister(*self._memory.get(), self._generator.gauss_next)  # type: ignore[attr-defined]

    def set(self, state: Twister) -> None:
        self._memory.set(state.words, state.place)
        self._generator.gauss_next = state.gauss  # type: ignore[attr-defined]


class _NumpyMemory:
    """A ``RandomState``: 624 words and the place at its bit generator's address; in itself the normal that waits."""

    def __init__(self, generator: Any, gauss: int) -> None:
        self.bits = generator._bit_generator
        address = self.bits.ctypes.state_address
        self._memory = _Memory(address, address + _SIZE)
        self._waits = ctypes.c_int.from_address(id(generator) + gauss - 8)
        self._gauss = ctypes.c_double.from_address(id(generator) + gauss)

    def get(self) -> Twister:
        return Twister(*self._memory.get(), self._gauss.value if self._waits.value else None)

    def set(self, state: Twister) -> None:
        self._memory.set(state.words, state.place)
        self._waits.value, self._gauss.value = state.gauss is not None, state.gauss or 0.0


def _gauss_offset() -> int:
    """Return where in a ``RandomState`` its cached normal lies; an error where it is not found exactly once."""
    probe, mark = np.random.RandomState(1), -1234.567890123
    probe.set_state({**probe.get_state(legacy=False), "has_gauss": 1, "gauss": mark})
    size = min(type(probe).__basicsize__, _GAUSS_SEARCHED)
    found = ctypes.string_at(id(probe), size)
    place = found.index(struct.pack("d", mark))
    if place % 8 or found.count(struct.pack("d", mark)) != 1 or struct.unpack_from("i", found, place - 8) != (1,):
        raise ValueError("the layout is unknown")
    return place


def _python_memory() -> _PythonMemory | None:
    """Return the quick way to Python's generator if copies of two others are exact; None otherwise."""
    try:
        for number in range(3):
            one, other = random.Random(number), random.Random(99)
            one.random(), one.gauss(0, 1) if number else None
            _PythonMemory(other).set(_PythonMemory(one).get())
            if one.getstate() != other.getstate() or one.gauss(0, 1) != other.gauss(0, 1):
                return None
        return _PythonMemory(random._inst)
    except (AttributeError, ValueError, TypeError):
        return None


def _numpy_memory() -> _NumpyMemory | None:
    """Return the quick way to NumPy's generator if copies of two others are exact; None otherwise."""
    try:
        gauss = _gauss_offset()
        for number in range(3):
            one, other = np.random.RandomState(number), np.random.RandomState(99)
            one.random_sample(), one.normal() if number else None
            _NumpyMemory(other, gauss).set(_NumpyMemory(one, gauss).get())
            draws = [g.normal(size=700).tobytes() + g.bytes(50) for g in (one, other)]
            if draws[0] != draws[1]:
                return None
        return _NumpyMemory(np.random.mtrand._rand, gauss)
    except (AttributeError, ValueError, TypeError):
        return None


_python_quick, _numpy_quick = _python_memory(), _numpy_memory()
_QUICK = _python_quick is not None and _numpy_quick is not None


def _seeds_alike() -> bool:
    """Say whether Python's and NumPy's generators get the same words from a key of two words."""
    if not _QUICK:
        return False
    for key in (1 << 32, 0x0123456789ABCDEF, (1 << 64) - 1):
        numpy = np.random.RandomState([key & 0xFFFFFFFF, key >> 32])
        found = numpy.get_state(legacy=False)
        _, words, gauss = random.Random(key).getstate()
        if (*found["state"]["key"].tolist(), found["state"]["pos"]) != words or gauss is not None or found["has_gauss"]:
            return False
    return True


_same_seeding = _seeds_alike()


def _python_state() -> Twister:
    return _slow_python_state() if _python_quick is None else _python_quick.get()


def _set_python_state(state: Twister) -> None:
    _slow_set_python_state(state) if _python_quick is None else _python_quick.set(state)


def _numpy_state() -> Any:
    quick = _numpy_quick
    return _slow_numpy_state() if quick is None or quick.bits is not _numpy_bits() else quick.get()


def _set_numpy_state(state: Any) -> None:
    quick = _numpy_quick
    if quick is None or quick.bits is not _numpy_bits() or not isinstance(state, Twister):
        _slow_set_numpy_state(state)
    else:
        quick.set(state)


# As strings, for checkpoints.


def packed(snapshot: Snapshot) -> dict[str, str]:
    """Return a snapshot as strings, the same on every machine."""
    return {name: _packed(state) for name, state in snapshot.items()}


def unpacked(texts: Mapping[str, str]) -> Snapshot:
    """Undo ``packed``."""
    return {name: _unpacked(text) for name, text in texts.items()}


def _packed(state: Any) -> str:
    if isinstance(state, Twister):
        words = np.frombuffer(state.words, np.uint32).astype("<u4").tobytes()
        return json.dumps(["twister", _shrunk(words), state.place, state.gauss])
    if isinstance(state, dict):  # a generator in the place of NumPy's
        return json.dumps(["numpy", state], default=lambda array: array.tolist())
    return json.dumps(["torch", _shrunk(state.numpy().tobytes())])


def _unpacked(text: str) -> Any:
    kind, *parts = json.loads(text)
    if kind == "twister":
        words = np.frombuffer(_grown(parts[0]), "<u4").astype(np.uint32).tobytes()
        return Twister(words, int(parts[1]), parts[2])
    if kind == "numpy":
        return parts[0]
    return sys.modules["torch"].frombuffer(bytearray(_grown(parts[0])), dtype=sys.modules["torch"].uint8)


def _shrunk(content: bytes) -> str:
    # torch spends 8 bytes on each 32-bit word of its state; a quick compression gets that back.
    return base64.b64encode(zlib.compress(content, 1)).decode()


def _grown(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))
