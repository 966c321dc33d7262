"""Losses of everything and of each dataset, added up over time and over processes.

            code   prose   everything
    sums     9.1     4.2        13.3      added here at every step, on the device
    counts     6       2           8      added over all processes when somebody asks

Sums and counts, not means of means: unequal shares and padding are right.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lading.identity import Bill
from lading.train.metrics_torch import add_over_ranks

ALL = ""


class Losses:
    """Collects losses of samples.

    Args:
        names: Names of the datasets, by number.
        device: Where the losses are.
    """

    def __init__(self, names: Sequence[str], device: torch.device) -> None:
        self._names = (*names, ALL)
        self._here = torch.zeros(2, len(self._names), dtype=torch.float64, device=device)
        self._everywhere = torch.zeros_like(self._here)

    def add(self, loss: torch.Tensor, bill: Bill) -> None:
        """Add the loss of a batch: one number, or one for each row that counts."""
        count = bill.num_samples
        if count == 0:
            return
        values = loss.detach().to(torch.float64)
        self._here[0, -1] += values.sum() if values.ndim else values * count
        self._here[1, -1] += count
        if values.ndim:
            owners = torch.from_numpy(bill.dataset_idx[bill.is_real].astype("int64")).to(values.device)
            self._here[0].index_add_(0, owners, values)
            self._here[1].index_add_(0, owners, torch.ones_like(values))

    def recent(self) -> dict[str, float]:
        """Return the means since this was last asked, over all processes; every process must ask."""
        add_over_ranks(self._here)
        means = self._means(self._here)
        self._everywhere += self._here
        self._here.zero_()
        return means

    def take(self) -> dict[str, float]:
        """Return the means since they were last taken, over all processes; every process must ask."""
        self.recent()
        means = self._means(self._everywhere)
        self.num_samples = int(self._everywhere[1, -1])
        self._everywhere.zero_()
        return means

    def _means(self, table: torch.Tensor) -> dict[str, float]:
        sums, counts = table.tolist()
        return {name: s / n for name, s, n in zip(self._names, sums, counts, strict=True) if n}
