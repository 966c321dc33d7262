"""How fast blocks are done and how long the rest takes.

12 of 40 blocks, 3.1 MB/s, 2:40 left
"""

from __future__ import annotations

import time
from collections.abc import Callable

Progress = Callable[[float, str], None]


def silent(share: float, text: str) -> None:
    """Progress callback that does nothing."""


class BlockProgress:
    """Count work done, of so many blocks with so many bytes together, and say how it goes."""

    def __init__(self, blocks: int, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.blocks, self.size, self._clock = blocks, size, clock
        self._started = clock()
        self._blocks = self._bytes = self._new_bytes = 0

    def add(self, size: int, *, was_there: bool = False) -> None:
        """Count the bytes of a block that is done; one that was there before says nothing about the rate."""
        self._blocks += 1
        self._bytes += size
        self._new_bytes += 0 if was_there else size

    @property
    def share(self) -> float:
        """Share of the bytes that are done."""
        return self._bytes / self.size if self.size else 1.0

    def text(self) -> str:
        """Return how far it is, how fast it goes and how long the rest takes."""
        rate = self._new_bytes / max(self._clock() - self._started, 1e-9)
        done = f"{self._blocks} of {self.blocks} block{'s' if self.blocks != 1 else ''}"
        if not rate:
            return done
        return f"{done}, {rate / 1e6:.1f} MB/s, {_duration((self.size - self._bytes) / rate)} left"


def _duration(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds.

    >>> _duration(75), _duration(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
