"""The steering of a dataset that is open in several processes: one epoch, one forced variant, for all of them.

    parent      set_epoch(3) ──▶ [3, -1, 0] ◀── worker 0, worker 1 ...      shared memory, three numbers

``dataset.set_epoch`` in the parent never reaches worker processes that were
started before; what lies in shared memory does. Change it between epochs only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.source.jasper_steering import VARIANTS, Steering, variant_number

EPOCH, FORCED, NEGATIVES = range(3)


class SharedSteering:
    """Epoch, forced variant and number of negative refreshes, seen by every process.

    Args:
        steering: Probabilities by epoch.
        epoch: Epoch to start at.
    """

    def __init__(self, steering: Steering, epoch: int = 0) -> None:
        self.steering = steering
        self._numbers = torch.tensor([0, -1, 0]).share_memory_()
        self.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return int(self._numbers[EPOCH])

    @property
    def negatives(self) -> int:
        """How often the negatives were refreshed."""
        return int(self._numbers[NEGATIVES])

    def set_epoch(self, epoch: int) -> None:
        """Move every process to an epoch."""
        if epoch < 0:
            raise SourceError(f"epoch is {epoch}, expected 0 or more.")
        self._numbers[EPOCH] = int(epoch)

    def force(self, variant: str | None) -> None:
        """Give every sample this variant; None: back to the curriculum."""
        self._numbers[FORCED] = -1 if variant is None else variant_number(variant)

    def refresh_negatives(self) -> None:
        """Tell every process that there are new negatives on disk."""
        self._numbers[NEGATIVES] += 1

    def now(self) -> tuple[int, int, int]:
        """Return epoch, forced variant (-1: none) and number of refreshes, read at once."""
        epoch, forced, negatives = self._numbers.tolist()
        return epoch, forced, negatives

    def variants(self, pairs: NDArray[np.int64], epoch: int, forced: int) -> NDArray[np.int64]:
        """Return the variant of each pair in an epoch."""
        return self.steering.variants(pairs, epoch) if forced < 0 else np.full(len(pairs), forced, dtype=np.int64)

    def variant(self, pair: int, epoch: int, forced: int) -> int:
        """Return the variant of one pair in an epoch."""
        return self.steering.variant(pair, epoch) if forced < 0 else forced

    def stats(self) -> dict[str, Any]:
        """Return the epoch, and probabilities and names of the variants in the same order."""
        probs = self.steering.probabilities(self.epoch)
        return {"epoch": self.epoch, "probs": [probs[name] for name in VARIANTS], "variant_names": list(VARIANTS)}
