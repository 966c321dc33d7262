"""Accelerate: every checkpoint that ``save_state`` writes says what it learned from; batches are moved as it does."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import send_to_device

from lading.ledger import Ledger
from lading.ledger.waybill.stamping import remove_stale
from lading.loader.base import EngineLoader


def describe_saves(accelerator: Accelerator, ledger: Ledger, loader: EngineLoader) -> None:
    """Let every checkpoint that an accelerator saves have a waybill; once, after ``prepare``.

    Args:
        accelerator: The accelerator. All processes call this, as they all call ``save_state``.
        ledger: The ledger, a tracker of the loader.
        loader: The loader that training iterates over.
    """
    save = functools.partial(type(accelerator).save_state, accelerator)

    def save_state(*args: Any, **options: Any) -> Any:
        state = loader.state_dict()  # before anything of the checkpoint exists: what was recorded is on disk
        folder = save(*args, **options)
        accelerator.wait_for_everyone()  # other processes write files of their own
        if state["run"] and state["step"]:  # nothing was trained on before the first batch
            ledger.checkpoint(folder, state)
        return folder

    def before(models: Any, weights: Any, folder: str) -> None:
        if accelerator.is_main_process:
            remove_stale(Path(folder))

    accelerator.register_save_state_pre_hook(before)
    accelerator.save_state = save_state


def moved(accelerator: Accelerator, batch: Any) -> Any:
    """Return a batch as Accelerate's own DataLoader gives it to a loop."""
    if not accelerator.device_placement:
        return batch
    return send_to_device(batch, accelerator.device, non_blocking=accelerator.non_blocking)
