"""Accelerate: hand a Lading loader to ``Accelerator.prepare`` without having its sampler replaced.

    model, optimizer, loader = accelerator.prepare(model, optimizer, accelerated(loader))

Accelerate shards plain DataLoaders itself and repeats samples to even them out.
A Lading loader already gives each rank its share; this wrapper moves batches to
the device and tells Accelerate where an epoch ends, for gradient accumulation
and ``gather_for_metrics``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lading.errors import missing_extra

try:
    from accelerate.data_loader import DataLoaderStateMixin
    from accelerate.state import AcceleratorState, GradientState
    from accelerate.utils import send_to_device

    from lading.loader.torch.loader import Loader
except ModuleNotFoundError as error:
    raise missing_extra("accelerate", "accelerate", "lading.train.accelerate") from error


def accelerated(loader: Loader) -> AcceleratedLoader:
    """Return a loader that ``Accelerator.prepare`` leaves as it is."""
    return AcceleratedLoader(loader)


class AcceleratedLoader(DataLoaderStateMixin):  # type: ignore[misc]
    """A Lading loader as Accelerate knows its own.

    Args:
        loader: The loader; ``state_dict``, ``plan``, ``last_bill`` and all else are reached through ``loader``.
    """

    _is_accelerate_prepared = True

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.gradient_state = GradientState()
        self.dataset = range(loader.plan.epoch_samples)
        self.total_batch_size = loader.plan.global_batch_size
        self._drop_last = loader.drop_last

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        device = AcceleratorState().device
        last = self.loader.iteration_steps()[-1]
        self.begin()
        try:
            for batch, bill in self.loader.with_bills():
                self.end_of_dataloader = bill.step == last
                yield send_to_device(batch, device)
        finally:
            self.end()

    def set_epoch(self, epoch: int) -> None:
        """Move to another epoch; see ``Loader.set_epoch``."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader stands."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken."""
        self.loader.load_state_dict(state)
