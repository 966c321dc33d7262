"""The one keeper of random numbers: Python's and NumPy's generators always, torch's where torch is loaded.

    isolated_rng(key)    the numbers of a key inside the block, put back after it: random numbers belong to a batch,
                         not to a process
    untouched(loader)    put back after the block, as if nothing had been drawn
    capture, restore     a snapshot, and back to it; as strings (``packed``) it fits into a checkpoint of any kind

Datasets that augment with the global generators get the same numbers for any number of workers and after every resume,
and training's own generators never notice that data was read.

Both of Python's and NumPy's generators are Mersenne Twisters of 624 words. Their own ways to get, set and seed a state
cost ten times what is needed: their words are exchanged in place instead, where a test at import shows that this gives
and sets the very same state; elsewhere the slow way is taken, with the same numbers. A key gives Python's generator the
first 624 words of its SplitMix64 stream, NumPy's the next 624, and is torch's seed. Nothing is imported: a framework
that is not loaded has no generator.
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

from lading.runtime import compiled, splitmix

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
    """Give the global generators the numbers of a key of 64 bits inside the block; put them back after it.

    Args:
        key: Begins a stream of its own for each generator. torch is seeded with it, and gives it back as a signed
            number: 63 bits where a dataset may ask for it.
    """

    __slots__ = ("_before", "_key")

    def __init__(self, key: int) -> None:
        self._key = key

    def __enter__(self) -> None:
        quick = _quick
        if quick is not None and quick.is_there():
            self._before: Any = quick.exchange(self._key)
        else:
            self._before = capture()
            _seed(self._key)

    def __exit__(self, *error: object) -> None:
        if isinstance(self._before, tuple):
            assert _quick is not None
            _quick.put_back(self._before)
        else:
            restore(self._before)


def _seed(key: int) -> None:
    """Give the global generators the numbers of a key, the slow way."""
    words = splitmix.words(key, 2 * _WORDS)
    _slow_set_python_state(Twister(words[:_WORDS].tobytes(), _WORDS, None))
    bits = _numpy_bits()
    if isinstance(bits, np.random.MT19937):
        _slow_set_numpy_state(Twister(words[_WORDS:].tobytes(), _WORDS, None))
    else:  # the user replaced NumPy's own
        bits.state = type(bits)(key).state
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


def _numpy_bits() -> Any:
    return np.random.mtrand._rand._bit_generator


# The same, by copying memory. Each returns None, or does nothing and returns False, where it does not know its way.


class _Memory:
    """The words of a generator where they lie in memory, and the number that counts in them."""

    def __init__(self, words: int, place: int) -> None:
        self.words = np.ctypeslib.as_array((ctypes.c_uint32 * _WORDS).from_address(words))
        self.place = ctypes.c_int.from_address(place)

    def get(self) -> tuple[bytes, int]:
        return self.words.tobytes(), self.place.value

    def set(self, words: bytes, place: int) -> None:
        self.words[:] = np.frombuffer(words, np.uint32)
        self.place.value = place


class _PythonMemory(_Memory):
    """An instance of ``random.Random``: after its head an int, the place, and 624 words."""

    def __init__(self, generator: random.Random) -> None:
        head = id(generator) + object.__basicsize__
        super().__init__(head + 4, head)
        self.generator: Any = generator

    def state(self) -> Twister:
        return Twister(*self.get(), self.generator.gauss_next)

    def set_state(self, state: Twister) -> None:
        self.set(state.words, state.place)
        self.generator.gauss_next = state.gauss


class _NumpyMemory(_Memory):
    """A ``RandomState``: 624 words and the place at its bit generator's address; in itself the normal that waits."""

    def __init__(self, generator: Any, gauss: int) -> None:
        self.bits = generator._bit_generator
        address = self.bits.ctypes.state_address
        super().__init__(address, address + _SIZE)
        self.waits = ctypes.c_int.from_address(id(generator) + gauss - 8)
        self.gauss = ctypes.c_double.from_address(id(generator) + gauss)

    def state(self) -> Twister:
        return Twister(*self.get(), self.gauss.value if self.waits.value else None)

    def set_state(self, state: Twister) -> None:
        self.set(state.words, state.place)
        self.waits.value, self.gauss.value = state.gauss is not None, state.gauss or 0.0


class _Quick:
    """Both generators at once: what every batch of samples costs that may draw random numbers."""

    def __init__(self, python: _PythonMemory, numpy: _NumpyMemory) -> None:
        self.python, self.numpy = python, numpy

    def is_there(self) -> bool:
        """Say whether NumPy's generator is still its own."""
        return self.numpy.bits is _numpy_bits()

    @functools.cached_property
    def _words(self) -> tuple[Callable[..., None], Callable[..., None]]:
        if not compiled.enabled():
            return _exchange, _put_back
        from lading.runtime import kernels  # opened at first use: Numba is optional and slow to import

        return kernels.exchange, kernels.put_back

    def exchange(self, key: int) -> tuple[Any, ...]:
        """Give the generators the numbers of a key; return what they were."""
        python, numpy = self.python, self.numpy
        saved = np.empty(2 * _WORDS, np.uint32)
        self._words[0](key - (1 << 64) if key >> 63 else key, python.words, numpy.words, saved)
        places = python.place.value, numpy.place.value
        waiting = python.generator.gauss_next, numpy.waits.value, numpy.gauss.value
        python.place.value = numpy.place.value = _WORDS
        python.generator.gauss_next, numpy.waits.value = None, 0
        state = None
        if (torch := sys.modules.get("torch")) is not None:
            generator = torch.random.default_generator
            state = generator.get_state()
            generator.manual_seed(key)
        return saved, places, waiting, state

    def put_back(self, before: tuple[Any, ...]) -> None:
        """Undo ``exchange``."""
        python, numpy = self.python, self.numpy
        saved, places, waiting, state = before
        self._words[1](python.words, numpy.words, saved)
        python.place.value, numpy.place.value = places
        python.generator.gauss_next, numpy.waits.value, numpy.gauss.value = waiting
        if state is not None:
            sys.modules["torch"].random.default_generator.set_state(state)


def _exchange(key: Any, one: Any, other: Any, saved: Any) -> None:
    """``kernels.exchange`` without Numba."""
    saved[:_WORDS], saved[_WORDS:] = one, other
    words = splitmix.words(int(key), 2 * _WORDS)
    one[:], other[:] = words[:_WORDS], words[_WORDS:]


def _put_back(one: Any, other: Any, saved: Any) -> None:
    """``kernels.put_back`` without Numba."""
    one[:], other[:] = saved[:_WORDS], saved[_WORDS:]


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
            _PythonMemory(other).set_state(_PythonMemory(one).state())
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
            _NumpyMemory(other, gauss).set_state(_NumpyMemory(one, gauss).state())
            draws = [g.normal(size=700).tobytes() + g.bytes(50) for g in (one, other)]
            if draws[0] != draws[1]:
                return None
        return _NumpyMemory(np.random.mtrand._rand, gauss)
    except (AttributeError, ValueError, TypeError):
        return None


def _both_memories() -> _Quick | None:
    python, numpy = _python_memory(), _numpy_memory()
    return None if python is None or numpy is None else _Quick(python, numpy)


_quick = _both_memories()


def _python_state() -> Twister:
    return _slow_python_state() if _quick is None else _quick.python.state()


def _set_python_state(state: Twister) -> None:
    _slow_set_python_state(state) if _quick is None else _quick.python.set_state(state)


def _numpy_state() -> Any:
    return _quick.numpy.state() if _quick is not None and _quick.is_there() else _slow_numpy_state()


def _set_numpy_state(state: Any) -> None:
    if _quick is not None and _quick.is_there() and isinstance(state, Twister):
        _quick.numpy.set_state(state)
    else:
        _slow_set_numpy_state(state)


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
