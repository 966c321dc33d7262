"""The one keeper of random numbers: Python's and NumPy's generators always, torch's where torch is loaded.

    isolated_rng(key)    the numbers of a key inside the block, put back after it: random numbers belong to a batch,
                         not to a process
    untouched(loader)    put back after the block, as if nothing had been drawn
    capture, restore     a snapshot, and back to it; as strings (``packed``) it fits into a checkpoint of any kind

Datasets that augment with the global generators get the same numbers for any number of workers and after every resume,
and training's own generators never notice that data was read.

A key gives Python's generator the first 624 words of its SplitMix64 stream, NumPy's the next 624 and torch's those
after them; torch has the key as its seed, too. Every batch needs that, so it is done in memory where ``twisters`` knows
its way; elsewhere as the generators' documentation says, with the same numbers. Nothing is imported: a framework that
is not loaded has no generator.
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

from lading.runtime import splitmix, twisters
from lading.runtime.twisters import WORDS, Exchange

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
    """Give the global generators the numbers of a key below 2**63 inside the block; put them back after it."""

    __slots__ = ("_before", "_exchange", "_key")

    def __init__(self, key: int) -> None:
        self._key = key

    def __enter__(self) -> None:
        self._exchange = exchange = _exchange_of_now()
        if exchange is None:
            self._before: Any = capture()
            _seed(self._key)
            return
        self._before = exchange.begin(self._key), _PYTHON.gauss_next
        _PYTHON.gauss_next = None

    def __exit__(self, *error: object) -> None:
        if self._exchange is None:
            restore(self._before)
            return
        before, _PYTHON.gauss_next = self._before
        self._exchange.end(before)


def _seed(key: int) -> None:
    """Give the global generators the numbers of a key, as their documentation says."""
    words = splitmix.words(key, 3 * WORDS)
    _set_python_state(Twister(words[:WORDS].tobytes(), WORDS, None))
    bits = _numpy_bits()
    if isinstance(bits, np.random.MT19937):
        _set_numpy_state(Twister(words[WORDS : 2 * WORDS].tobytes(), WORDS, None))
    else:  # the user replaced NumPy's own
        bits.state = type(bits)(key).state
    if (torch := sys.modules.get("torch")) is not None:
        torch.random.default_generator.set_state(twisters.torch_state(torch, key, words[2 * WORDS :]))


class _Known(NamedTuple):
    """The way to exchange the states of the generators, and what it was found for."""

    exchange: Exchange | None
    numpy_bits: Any
    torch: Any


_PYTHON: Any = random._inst
_known = _Known(None, None, None)


def _exchange_of_now() -> Exchange | None:
    """Return how the generators that are there now are exchanged; None: as their documentation says."""
    global _known
    known, bits, torch = _known, _numpy_bits(), sys.modules.get("torch")
    if known.numpy_bits is not bits or known.torch is not torch:
        known = _known = _Known(_found_exchange(bits, torch), bits, torch)
    return known.exchange


def _found_exchange(bits: Any, torch: Any) -> Exchange | None:
    gauss = twisters.numpy_gauss() if isinstance(bits, np.random.MT19937) else None
    if gauss is None or not twisters.python_is_known():
        return None
    blocks = [*twisters.python_blocks(_PYTHON), *twisters.numpy_blocks(np.random.mtrand._rand, gauss)]
    if torch is not None:
        words = twisters.torch_words(torch)
        if words is None:
            return None
        blocks += twisters.torch_blocks(torch.random.default_generator, words)
    return Exchange(blocks)


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


# The global generators, as their documentation says.


def _python_state() -> Twister:
    _, words, gauss = random.getstate()
    return Twister(np.array(words[:-1], np.uint32).tobytes(), words[-1], gauss)


def _set_python_state(state: Twister) -> None:
    words = np.frombuffer(state.words, np.uint32).tolist()
    random.setstate((3, (*words, state.place), state.gauss))


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
    np.random.set_state(state)  # noqa: NPY002


def _numpy_bits() -> Any:
    return np.random.mtrand._rand._bit_generator


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
