"""Accelerate's manners: what it expects of a loader that it has prepared.

    accelerator.prepare(loader)  ─▶  reads ``_is_accelerate_prepared``  ─▶  the loader itself, from now on polite

Batches go to Accelerate's device, ``GradientState`` knows when the last batch of
an iteration comes (gradients are synced there) and how many of its rows count
(``gather_for_metrics``), and ``save_state`` keeps the loader's state. Nothing is
sharded: the plan has given every rank its share and marked the padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import send_to_device

from lading.identity import Bill
from lading.loader.iteration import Batches
from lading.order import Plan


class PreparedState:
    """What ``GradientState`` reads of a loader, by Accelerate's names."""

    def __init__(self, plan: Plan) -> None:
        self.end_of_dataloader = False  # whether the batch yielded last ends the iteration
        self.total_batch_size = plan.global_batch_size
        self.total_dataset_length = plan.epoch_samples
        left = plan.epoch_samples % plan.global_batch_size
        self.remainder = 0 if plan.drop_last else left  # rows of the last global batch that count; 0: it is full


class Prepared(Iterator[Any]):
    """An iteration as Accelerate wants it; ``last``: the step that ends it."""

    def __init__(self, batches: Batches[tuple[Any, Bill]], plan: Plan, last: int, *, with_bills: bool) -> None:
        self._batches, self._last, self._with_bills = batches, last, with_bills
        self._device = AcceleratorState().device
        self._state, self._gradients = PreparedState(plan), GradientState()
        self._gradients._add_dataloader(self._state)

    def __len__(self) -> int:
        return len(self._batches)

    def __next__(self) -> Any:
        try:
            batch, bill = next(self._batches)
        except BaseException:
            self._end()
            raise
        self._state.end_of_dataloader = bill.step == self._last
        batch = send_to_device(batch, self._device)
        return (batch, bill) if self._with_bills else batch

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        if self._state in self._gradients.dataloader_references:
            self._gradients._remove_dataloader(self._state)
