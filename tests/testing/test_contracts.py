"""The public contracts, kept by Lading's own sources and orders, and able to fail."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import Subset, TensorDataset

from lading.order import Plan, Shuffled
from lading.source.columns import Columns
from lading.testing import OrderContract, SourceContract


class TestColumns(SourceContract):
    """Named arrays and tensors."""

    def make(self):
        """Return columns of two kinds."""
        return Columns(x=np.arange(12).reshape(6, 2), y=torch.arange(6.0))


class TestTensorColumns(SourceContract):
    """Tensors only: gathered into buffers."""

    def make(self):
        """Return tensors."""
        return Columns(x=torch.arange(12).reshape(6, 2), y=torch.arange(6.0))


class TestTensorDataset(SourceContract):
    """torch's own, taken apart."""

    def make(self):
        """Return two tensors."""
        return TensorDataset(torch.arange(12).reshape(6, 2), torch.arange(6))


class TestSubset(SourceContract):
    """A choice of rows."""

    def make(self):
        """Return three rows of six."""
        return Subset(TensorDataset(torch.arange(6)), [4, 1, 3])


class TestFullShuffle(OrderContract):
    """One shuffle of everything."""

    lengths = (17, 5)

    def make(self):
        """Return the order."""
        return Shuffled(self.lengths, 3, "full", 4, {})


class TestWindowShuffle(OrderContract):
    """Windows of neighbours."""

    lengths = (17, 5)

    def make(self):
        """Return the order."""
        return Shuffled(self.lengths, 3, "window", 4, {})


class TestNoShuffle(OrderContract):
    """As they lie."""

    lengths = (17, 5)

    def make(self):
        """Return the order."""
        return Shuffled(self.lengths, 3, "none", 4, {})


def test_block_shuffling_keeps_neighbours_together():
    """A batch touches few blocks; inside, and among each other, they are shuffled."""
    plan = Plan.make(10_000, 100, shuffle="window", window_samples=500)

    for step in range(100):
        blocks = np.unique(plan.bill(step).idx // 500)
        assert len(blocks) <= 2
    assert (np.diff(plan.bill(3).idx) != 1).any()


def test_the_source_contract_can_fail():
    """A ``take`` that forgets the order of rows, and a source that counts, are caught."""

    class Sorted(Columns):
        def take(self, indices):
            return super().take(np.sort(indices))

    class Counting(Columns):
        count = 0

        def __getitem__(self, index):
            self.count += 1
            return {"x": self.count}

    class SortedContract(SourceContract):
        def make(self):
            return Sorted(x=np.arange(6))

    class CountingContract(SourceContract):
        def make(self):
            return Counting(x=np.arange(6))

    with pytest.raises(AssertionError, match=r"row 0 of take\(...\) is not sample 5"):
        SortedContract().test_columns_hold_what_samples_hold()
    with pytest.raises(AssertionError):
        CountingContract().test_reads_the_same_sample_again()


def test_the_order_contract_can_fail():
    """An order whose inverse points elsewhere is caught."""

    class Wrong(Shuffled):
        def positions(self, dataset, index, start, stop):
            return super().positions(dataset, index, start, stop) + 1

    class WrongContract(OrderContract):
        lengths = (17,)

        def make(self):
            return Wrong(self.lengths, 0, "full", 4, {})

    with pytest.raises(AssertionError):
        WrongContract().test_positions_invert_samples()
