"""Evaluation that counts every sample once, on any number of processes.

    10 samples, 2 processes of 4     process 0: 0 1 2 3 | 8 9 (0 1)      (...): repeated by Accelerate to fill up
                                     process 1: 4 5 6 7 | (2 3 4 5)

Trainer drops the repeated rows' predictions, but a batch's loss is the mean over
all its rows. So the model is given the rows that count, and what it returns is
filled up again for the gathering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


def rows_that_count(gradient_state: Any, process: int, rows: int) -> int:
    """Return how many rows of this process's batch count: all, or in the last batch of a pass those not repeated.

    Args:
        gradient_state: Accelerate's; it knows the last batch, and the rows of it that count, all processes together.
        process: Number of this process.
        rows: Rows of its batch.
    """
    remainder = int(gradient_state.remainder)
    if not gradient_state.end_of_dataloader or remainder <= 0:
        return rows
    return min(max(remainder - process * rows, 0), rows)


def cut(batch: Any, rows: int, count: int) -> Any:
    """Return the first rows of a batch; of a batch without any that counts, one, which Trainer drops."""
    return _applied(batch, lambda tensor: tensor[: max(count, 1)] if tensor.ndim and len(tensor) == rows else tensor)


def filled(outputs: Any, rows: int, count: int) -> Any:
    """Return what a model made of the first rows, with its last row repeated to make up all rows."""
    there = max(count, 1)

    def fill(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.ndim or len(tensor) != there:
            return tensor
        return torch.cat([tensor, tensor[-1:].expand(rows - there, *tensor.shape[1:])])

    return _applied(outputs, fill)


def _applied(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _applied(inner, change) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return type(value)([_applied(inner, change) for inner in value])
    return value
