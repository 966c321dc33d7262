"""Another generator behind ``np.random`` for a while, and training's put back: exchanged, not copied.

    begin    training's bit generator is taken out, one that only batches draw from put in
    end      and back, with the normal number that waited

Copying NumPy's state takes 70 microseconds, exchanging the bit generator (``np.random.set_bit_generator``) less than
one. The exchange drops a normal that waits, so it has to be known whether one does. It does not where none did at the
end of the last exchange and no number was drawn since, which the state shows: it is read at the address that
``bit_generator.ctypes`` documents, after a trial. Everywhere else NumPy is asked, in 33 microseconds.

What cannot be seen: ``np.random.set_state`` with a waiting normal and the very words of the last exchange.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

import numpy as np

_STATE_BYTES = 4 * 624 + 4  # words, and the place in them

Bits = np.random.BitGenerator
_random: Any = np.random  # whose types leave out get_bit_generator and set_bit_generator


class Kept(NamedTuple):
    """What was behind ``np.random``.

    Attributes:
        bits: The bit generator.
        content: Its words and place as they lie in memory; None where they cannot be read.
        waiting: The whole state, as NumPy gives it, where a normal waits.
        instead: The bit generator that took its place.
    """

    bits: Bits
    content: bytes | None
    waiting: dict[str, Any] | None
    instead: Bits


_spare: list[Bits] = []  # a bit generator takes 90 microseconds to make
_calm: tuple[Bits | None, bytes] = (None, b"")  # a bit generator, and its content when no normal waited


def begin() -> Kept:
    """Put another bit generator, a Mersenne Twister to be seeded, behind ``np.random``; return what was there."""
    bits = _random.get_bit_generator()
    content = _content(bits)
    waiting = None if content is not None and _calm[0] is bits and _calm[1] == content else _waiting()
    try:
        instead = _spare.pop()
    except IndexError:
        instead = np.random.MT19937()
    _random.set_bit_generator(instead)
    return Kept(bits, content, waiting, instead)


def end(kept: Kept) -> None:
    """Undo ``begin``."""
    global _calm
    _random.set_bit_generator(kept.bits)
    _spare.append(kept.instead)
    if kept.waiting is not None:
        set_state(kept.waiting)
    elif kept.content is not None:
        _calm = kept.bits, kept.content


def keep_a_twister() -> None:
    """See to it that a Mersenne Twister is behind ``np.random``, where the user put another kind there."""
    if not isinstance(_random.get_bit_generator(), np.random.MT19937):
        _random.set_bit_generator(np.random.MT19937())


def set_state(state: Any) -> None:
    """``np.random.set_state``; a normal may wait after it."""
    global _calm
    np.random.set_state(state)  # noqa: NPY002
    _calm = None, b""


def _waiting() -> dict[str, Any] | None:
    state: Any = np.random.get_state(legacy=False)  # noqa: NPY002
    return state if state["has_gauss"] else None


def _content(bits: Bits) -> bytes | None:
    if type(bits) is not np.random.MT19937 or not _is_readable():
        return None
    return ctypes.string_at(bits.ctypes.state_address, _STATE_BYTES)


@functools.cache
def _is_readable() -> bool:
    """Try out whether the state of NumPy's own bit generator lies in memory as expected."""
    probe = np.random.MT19937(5)
    for draws in (0, 1, 700):
        probe.random_raw(draws)
        state = probe.state["state"]
        expected = state["key"].tobytes() + np.int32(state["pos"]).tobytes()
        if ctypes.string_at(probe.ctypes.state_address, _STATE_BYTES) != expected:
            return False
    return True
