"""Batches on torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lading.batch.batch import converted
from lading.runtime.arrays import framework, host


def to_torch(batch: Any, device: Any = None) -> Any:
    """Return a batch (or a dict, list or tuple of arrays) with torch tensors in it, moved to a device if given.

    NumPy memory is shared where torch may write to it, else copied.
    """
    return converted(batch, lambda array: _tensor(array, device))


def _tensor(array: Any, device: Any) -> torch.Tensor:
    if framework(array) != "torch":
        array = host(array)
        # Torch has no read-only tensors: a mapped file or a JAX buffer must not be written through one.
        array = torch.from_numpy(array if array.flags.writeable and array.ndim else np.array(array))
    found: torch.Tensor = array if device is None else array.to(device, non_blocking=True)
    return found
