"""The one keeper of random numbers: Python's and NumPy's generators always, torch's where torch is loaded.

    isolated_rng(key)    the numbers of a key inside the block, put back after it: random numbers belong to a batch,
                         not to a process
    seed(key)            the same numbers, and nothing is put back: in worker processes
    untouched(loader)    put back after the block, as if nothing had been drawn
    capture, restore     a snapshot, and back to it; as strings (``packed``) it fits into a checkpoint of any kind

Datasets that augment with the global generators get the same numbers for any number of workers and after every resume,
and training's own generators never notice that data was read.

A key seeds each generator, as its documentation says. Nothing is imported: a framework that is not loaded has no
generator.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from lading.runtime import numpy_exchange

_SPREAD = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: keys that are close give seeds that are not
_WITHIN = ("sampler", "batch_sampler", "base_dataloader", "dataloader")
_DATA = ("dataset", "datasets", "source")


class Twister(NamedTuple):
    """The state of a Mersenne Twister: its words, the place in them, and a normal number that waits, or None."""

    words: bytes
    place: int
    gauss: float | None


# The state of each generator by name: global ones, and "private0", ... of a loader and its samplers.
Snapshot = dict[str, Any]
GLOBAL = ("python", "numpy", "torch")


def capture(loader: Any = None) -> Snapshot:
    """Return the state of the global generators, and of those that a DataLoader and its samplers hold."""
    _, words, gauss = random.getstate()
    python = Twister(np.array(words[:-1], np.uint32).tobytes(), words[-1], gauss)
    states: Snapshot = {"python": python, "numpy": _numpy_state()}
    if (of_torch := _torch_generator()) is not None:
        states["torch"] = of_torch.get_state()
    for i, generator in enumerate(generators_of(loader)):
        states[f"private{i}"] = generator.get_state()
    return states


def restore(states: Snapshot, loader: Any = None) -> None:
    """Set the generators to a snapshot; what it does not hold is left alone."""
    if "python" in states:
        words = np.frombuffer(states["python"].words, np.uint32).tolist()
        random.setstate((3, (*words, states["python"].place), states["python"].gauss))
    if "numpy" in states:
        _set_numpy_state(states["numpy"])
    if "torch" in states and (of_torch := _torch_generator()) is not None:
        of_torch.set_state(states["torch"])
    for i, generator in enumerate(generators_of(loader)):
        if f"private{i}" in states:
            generator.set_state(states[f"private{i}"])


def same(one: Snapshot, other: Snapshot) -> bool:
    """Say whether two snapshots are equal."""
    return packed(one) == packed(other)


def differing(one: Snapshot, other: Snapshot) -> set[str]:
    """Return the names of the generators that are elsewhere in one snapshot than in another."""
    return {name for name, state in packed(one).items() if packed(other).get(name) != state}


class isolated_rng:  # used like a function
    """Give the global generators the numbers of a key below 2**63 inside the block; put them back after it."""

    __slots__ = ("_generator", "_key", "_numpy", "_python", "_torch")

    def __init__(self, key: int) -> None:
        self._key = key

    def __enter__(self) -> None:
        self._generator = _torch_generator()
        self._torch = None if self._generator is None else self._generator.get_state()
        self._python = random.getstate()
        self._numpy = numpy_exchange.begin()
        _seed(self._key, self._generator)

    def __exit__(self, *error: object) -> None:
        random.setstate(self._python)
        numpy_exchange.end(self._numpy)
        if self._generator is not None:
            self._generator.set_state(self._torch)


def seed(key: int) -> None:
    """Give the global generators the numbers of a key, for good: in a process in which only batches draw."""
    numpy_exchange.keep_a_twister()
    _seed(key, _torch_generator())


def _seed(key: int, torch_generator: Any) -> None:
    # NumPy and torch make their words alike of 32 bits: from the same ones they would give the same numbers.
    random.seed(key)
    np.random.seed(key * _SPREAD >> 32 & 0xFFFFFFFF)  # noqa: NPY002  # datasets use the global generator
    if torch_generator is not None:
        torch_generator.manual_seed(key)  # of which it uses the lower 32 bits


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


def _torch_generator() -> Any:
    torch = sys.modules.get("torch")
    return None if torch is None else torch.default_generator


def _numpy_state() -> Any:
    found = np.random.get_state(legacy=False)  # noqa: NPY002  # datasets use the global generator
    if found["bit_generator"] != "MT19937":
        return found  # NumPy's own generator was replaced
    gauss = found["gauss"] if found["has_gauss"] else None
    return Twister(found["state"]["key"].tobytes(), int(found["state"]["pos"]), gauss)


def _set_numpy_state(state: Any) -> None:
    if isinstance(state, Twister):
        words, waits = np.frombuffer(state.words, np.uint32), state.gauss is not None
        state = ("MT19937", words, state.place, int(waits), state.gauss or 0.0)
    numpy_exchange.set_state(state)


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
