"""What a plan knows of a dataset."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class PlannedDataset:
    """Name, number of samples, and what identifies the content.

    Attributes:
        name: Name in bills and reports.
        length: Number of samples.
        fingerprint: Stands for type, columns and content, as far as they were looked at.
        mean_tokens: Mean tokens of a sample, where weights are given by tokens.
        location: Where it lies, for records; no part of what identifies it, so data may move.
    """

    name: str
    length: int
    fingerprint: str = ""
    mean_tokens: float | None = None
    location: str | None = field(default=None, compare=False)
