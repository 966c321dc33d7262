"""The plan of a loader dressed as torch's ``RandomSampler`` or ``SequentialSampler``.

Code written for torch asks ``isinstance(loader.sampler, RandomSampler)``.
These are views: the order is the plan's, and there is nothing in them to lose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any, cast

from torch.utils.data import RandomSampler, SequentialSampler

from lading.loader.sampler import PlanSampler


class PlannedRandomSampler(RandomSampler):
    """Samples in the plan's shuffled order."""

    def __init__(self, planned: PlanSampler) -> None:
        super().__init__(cast(Sized, planned.dataset))
        self.planned = planned

    def __iter__(self) -> Iterator[int]:
        return iter(self.planned)

    def __len__(self) -> int:
        return len(self.planned)


class PlannedSequentialSampler(SequentialSampler):
    """Samples from the first to the last."""

    def __init__(self, planned: PlanSampler) -> None:
        super().__init__(cast(Sized, planned.dataset))
        self.planned = planned

    def __iter__(self) -> Iterator[int]:
        return iter(self.planned)

    def __len__(self) -> int:
        return len(self.planned)


def undistributed(planned: Any) -> Any:
    """Return the sampler torch would have made for one process."""
    return PlannedRandomSampler(planned) if planned.shuffle else PlannedSequentialSampler(planned)
