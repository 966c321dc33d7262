"""What an audit has to say: a fault, in plain words, with its evidence and the line that fixes it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

REPEATED = "repeated across workers or ranks"
NEVER_REACHED = "never reached"
SAME_ORDER = "same order every epoch"
SAME_HEAD = "always the same first batches"
SAME_NUMBERS = "identical random numbers in every worker"
DROPPED_TAIL = "dropped tail"
PADDING_TWICE = "padding counted twice"
REPLACEMENT = "sampling with replacement"

FAULTS = (REPEATED, NEVER_REACHED, SAME_ORDER, SAME_HEAD, SAME_NUMBERS, DROPPED_TAIL, PADDING_TWICE)


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


def some(values: list[int], limit: int = 5, *, total: int | None = None) -> str:
    """Return a list shortened for reading; ``total`` says how many there are, if not all are given.

    >>> some([3, 1, 2]), some(list(range(100)))
    ('1, 2, 3', '0, 1, 2, 3, 4, ... (100)')
    """
    ordered = sorted(values)
    text = ", ".join(map(str, ordered[:limit]))
    return text if len(ordered) <= limit else f"{text}, ... ({total or len(ordered)})"
