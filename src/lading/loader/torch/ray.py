"""Ray Train: which loops a worker may run, and batches on its device.

    for batch in prepare_data_loader(loader)       Ray asks for batch k + 1, then passes on batch k
    for batch in loader                            asks for batch k, and trains on it

A loader sees the same calls in both, so in a Ray Train worker it refuses them: ``lading.train.ray.prepare``
moves batches and reads none ahead of the loop, ``with_bills()`` yields each batch with its bill.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

from lading.errors import LoaderError
from lading.loader.iteration import Batches


def is_ray_worker() -> bool:
    """Return whether Ray Train runs this process; before its version 2, whether it may."""
    ray = sys.modules.get("ray.train")
    if ray is None:
        return False
    try:
        ray.get_context()
    except (RuntimeError, DeprecationWarning):  # the driver; a function of Ray Tune, which prepares no loaders
        return False
    return True


def refuse_in_ray_worker() -> None:
    """Refuse to iterate a loader that was not prepared, or one built of its parts, in a Ray Train worker."""
    if is_ray_worker():
        raise LoaderError(
            "a loop over this loader in a Ray Train worker cannot be told from Ray's prepare_data_loader, which reads "
            "one batch ahead of training: bills, ledger and state would be one batch off. Write "
            "loader = lading.train.ray.prepare(loader) instead of prepare_data_loader and iterate over it, or iterate "
            "over loader.with_bills()."
        )


class Placed(Iterator[Any]):
    """An iteration whose tensors are moved to a device; bills and everything else stay as they are."""

    def __init__(self, batches: Batches[Any], device: Any) -> None:
        self._batches, self._device = batches, device

    def __len__(self) -> int:
        return len(self._batches)

    def __next__(self) -> Any:
        from lading.batch.batch import converted  # twelve files that other loops never open

        return converted(next(self._batches), self._moved)

    def _moved(self, array: Any) -> Any:
        return array.to(self._device, non_blocking=True) if isinstance(array, torch.Tensor) else array


class Lockstep:
    """What a loader knows of the loop that reads it."""

    _in_lockstep = False
    _device: Any = None

    def lockstep(self, device: Any = None) -> None:
        """Take it that the loop asks for a batch when it has used the one before; see ``lading.train.ray.prepare``.

        Args:
            device: A torch device that batches are moved to; None leaves them where they are.
        """
        self._in_lockstep = True
        self._device = self._device if device is None else device

    def _check_lockstep(self) -> None:
        """Refuse a loop of which this is not known."""
        if not self._in_lockstep:
            refuse_in_ray_worker()

    def _in_place(self, batches: Batches[Any]) -> Batches[Any]:
        """Return an iteration whose batches come on the device, where one was given."""
        return batches if self._device is None else Placed(batches, self._device)
