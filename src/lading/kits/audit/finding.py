"""What an audit says: a fault in plain words, with its evidence and the line that fixes it; and who says it.

Judge              what all ranks of a loader were given, epoch by epoch
├── OrderJudge     map-style data: a sample is its index
└── StreamJudge    streams: a sample is its hash, and workers are compared with one reader
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.kits.audit.watch import Pass, alike

REPEATED = "repeated in an epoch"
NEVER_REACHED = "never reached"
LEFT_OUT = "left out of an epoch"
SAME_ORDER = "same order every epoch"
SAME_HEAD = "always the same first batches"
SAME_NUMBERS = "identical random numbers in every worker"
DROPPED_TAIL = "dropped tail"
PADDING_TWICE = "padding counted twice"
REPLACEMENT = "sampling with replacement"

FAULTS = (REPEATED, NEVER_REACHED, LEFT_OUT, SAME_ORDER, SAME_HEAD, SAME_NUMBERS, DROPPED_TAIL, PADDING_TWICE)


@dataclass(frozen=True)
class Finding:
    """One fault of a loader.

    Attributes:
        fault: Which of ``FAULTS``.
        message: What is wrong, in one sentence.
        evidence: What was seen.
        fix: The line that fixes it.
        level: ``fault``, or ``note``: it may be meant.
    """

    fault: str
    message: str
    evidence: str
    fix: str
    level: str = "fault"

    def to_dict(self) -> dict[str, str]:
        """Return the finding as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        named = self.fault if self.level == "fault" else f"note, {self.fault}"
        return f"{named}: {self.message}\n  seen:  {self.evidence}\n  fix:   {self.fix}"


def some(values: Iterable[int], limit: int = 5, *, total: int | None = None) -> str:
    """Return numbers shortened for reading; ``total`` says how many there are, if not all are given.

    >>> some([3, 1, 2]), some(range(100))
    ('1, 2, 3', '0, 1, 2, 3, 4, ... (100)')
    """
    ordered = sorted(values)
    text = ", ".join(map(str, ordered[:limit]))
    return text if len(ordered) <= limit else f"{text}, ... ({total or len(ordered)})"


class Judge(ABC):
    """Judges what all ranks of one loader were given.

    Args:
        loader: The loader that was watched.
        ranks: The passes of each rank, epoch by epoch.
        is_limited: Whether only some batches of an epoch were taken.
    """

    def __init__(self, loader: Any, ranks: list[list[Pass]], *, is_limited: bool) -> None:
        self.loader, self.ranks, self.is_limited = loader, ranks, is_limited
        self.num_ranks, self.num_epochs, self.first = len(ranks), len(ranks[0]), ranks[0][0]

    def findings(self) -> list[Finding]:
        """Return everything that is wrong."""
        return [finding for finding in self._judged() if finding is not None]

    @abstractmethod
    def _judged(self) -> Iterable[Finding | None]:
        """Ask every question."""

    def is_same_again(self, ranks: list[list[Pass]]) -> bool:
        """Say whether every epoch was the same on these ranks."""
        return self.num_epochs > 1 and all(alike(p.order for p in passes) for passes in ranks)

    @functools.cached_property
    def shares(self) -> list[NDArray[np.int64]]:
        """The different samples of each rank in the first epoch, ascending."""
        return [np.unique(passes[0].order) for passes in self.ranks]

    @property
    def is_undivided(self) -> bool:
        """Whether every rank has the same samples: nothing divides them."""
        return alike(self.shares)

    @functools.cached_property
    def num_shared(self) -> int:
        """How many samples are on several ranks in the first epoch."""
        _, num_ranks = np.unique(np.concatenate(self.shares), return_counts=True)
        return int((num_ranks > 1).sum())
