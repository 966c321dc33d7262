"""Names of samples, places they are used at, and departures from the plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

# Columns of a batch that say what its rows are: the sample's index, its dataset's number, an id of the user's, and
# whether the row only fills up.
IDX, DATASET_IDX, IS_PADDING, ID = "idx", "dataset_idx", "is_padding", "id"
NAME_COLUMNS = (IDX, DATASET_IDX, IS_PADDING)
SAMPLE_COLUMNS = (IDX, DATASET_IDX, ID)  # what a dataset can put on a single sample
LEFT_OUT = "by the collate function"  # why a sample was skipped that could be read


class SampleId(NamedTuple):
    """One training example: the dataset's number and the index inside it."""

    dataset: int
    index: int  # type: ignore[assignment]  # shadows tuple.index, which no name needs


class Place(NamedTuple):
    """Where a sample is used: an epoch, a step, a slot of its global batch (and the rank that holds the slot)."""

    epoch: int
    step: int
    slot: int
    rank: int | None = None


@dataclass(frozen=True)
class Deviation:
    """A slot that did not get the sample the plan says.

    Attributes:
        slot: Slot of the global batch.
        kind: ``skipped`` (unused) or ``substituted`` (another index of the same dataset took its place).
        dataset: Dataset number of the planned sample.
        index: Index of the planned sample.
        substitute: Index that was delivered instead, for ``substituted``.
        reason: Why, in one line.
    """

    slot: int
    kind: str
    dataset: int
    index: int
    substitute: int | None = None
    reason: str = ""
