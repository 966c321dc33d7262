"""Move batches between frameworks: every array of a batch, mapping, list or tuple, and nothing else in it.

to_numpy here, to_torch in ``torch.py``, to_jax in ``jax.py``
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lading.batch.batch import Batch
from lading.runtime.arrays import framework, host


def converted(batch: Any, convert: Callable[[Any], Any]) -> Any:
    """Return the same structure with every array converted; what is no array stays."""
    if framework(batch):
        return convert(batch)
    if isinstance(batch, Batch):
        return batch.map(lambda value: converted(value, convert))
    if isinstance(batch, Mapping):
        return {key: converted(value, convert) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(converted(value, convert) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(converted(value, convert) for value in batch)
    return batch


def to_numpy(batch: Any) -> Any:
    """Return a batch (or a dict, list or tuple of arrays) with NumPy arrays in it; memory is shared where possible.

    >>> import numpy as np
    >>> to_numpy({"x": np.arange(2), "name": "kept"})
    {'x': array([0, 1]), 'name': 'kept'}
    """
    return converted(batch, host)
