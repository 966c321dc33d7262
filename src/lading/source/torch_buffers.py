"""Reuse the memory of batches that nobody holds any more.

A fresh batch of some megabytes costs as much in page faults as its gather.
A buffer is given out again only when its storage has no other owner left: no
batch, no view, no NumPy array, no graph. Worker processes never reuse: what
they send lives in shared memory until the other side lets go.
"""

from __future__ import annotations

import threading

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

MIN_BYTES = 1 << 18  # smaller ones come cheaply from the allocator
_KEPT = 6
_owners = getattr(torch._C, "_storage_Use_Count", None)


class Buffers:
    """Row buffers for one column."""

    def __init__(self, column: torch.Tensor) -> None:
        self._column = column
        self._kept: list[tuple[torch.Tensor, int]] = []
        self._lock = threading.Lock()
        row = column[:1].numel() * column.element_size() if len(column) else 0
        self._min_rows = -(-MIN_BYTES // row) if row else 1 << 62
        self._plain = _owners is None or column.requires_grad or column.device.type != "cpu"

    def __getstate__(self) -> torch.Tensor:
        return self._column

    def __setstate__(self, column: torch.Tensor) -> None:
        self.__init__(column)  # type: ignore[misc]  # locks and buffers do not travel

    def select(self, indices: NDArray[np.int64]) -> torch.Tensor:
        """Gather rows of the column."""
        rows = torch.from_numpy(np.ascontiguousarray(indices))
        if self._plain or len(rows) < self._min_rows or get_worker_info() is not None:
            return self._column.index_select(0, rows.to(self._column.device))
        with self._lock:
            out = self._free((len(rows), *self._column.shape[1:]))
        return torch.index_select(self._column, 0, rows, out=out)

    def _free(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Return memory that nobody else holds; a new alias of it, so that the next look sees its holder."""
        assert _owners is not None
        for buffer, alone in self._kept:
            if buffer.shape == shape and _owners(buffer.untyped_storage()._cdata) <= alone:
                return buffer.detach()
        fresh = self._column.new_empty(shape)
        if len(self._kept) >= _KEPT:
            self._kept.pop(0)
        self._kept.append((fresh, _owners(fresh.untyped_storage()._cdata)))
        return fresh.detach()
