"""From a batch to the arguments of ``forward``, and from its output to a loss.

    {"input_ids", "labels", "idx", "dataset_idx"}  ─▶  forward(input_ids=, labels=)          does not take names
                                                   ─▶  forward(input_ids=, labels=, idx=...)  does
    output, output["loss"], output.loss, output[0] ─▶  one number, or one a sample

One number a sample is better: per-dataset losses, and the policies that
follow them, need it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from lading.errors import SourceError
from lading.identity import Bill

NAME_COLUMNS = frozenset({"idx", "dataset_idx", "is_padding", "id"})


class Arguments:
    """Turns batches into positional and keyword arguments of a model's ``forward``.

    Args:
        model: The model; a compiled one is asked for what it was compiled from.
        device: Where tensors go.
        dtype: Precision of floating columns, where the model is not in single precision.
        pass_names: Whether ``forward`` gets the name columns; None: if it accepts them.
    """

    def __init__(
        self, model: torch.nn.Module, device: torch.device, dtype: torch.dtype | None, pass_names: bool | None = None
    ) -> None:
        self._device, self._dtype = device, dtype
        self._left_out = _unwanted(model) if pass_names is None else frozenset() if pass_names else NAME_COLUMNS

    def __call__(self, batch: Any, bill: Bill) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments for the rows of a batch that count (or all of them, if none does)."""
        rows = None
        if 0 < bill.num_samples < len(bill):
            rows = torch.from_numpy(bill.is_real.nonzero()[0])
        if isinstance(batch, Mapping):
            kept = {key: value for key, value in batch.items() if key not in self._left_out}
            return (), {str(key): self._ready(value, rows, len(bill)) for key, value in kept.items()}
        columns = batch if isinstance(batch, tuple | list) else (batch,)
        return tuple(self._ready(column, rows, len(bill)) for column in columns), {}

    def _ready(self, value: Any, rows: torch.Tensor | None, length: int) -> Any:
        if isinstance(value, torch.Tensor):
            if rows is not None and value.ndim and len(value) == length:
                value = value[rows]
            dtype = self._dtype if value.is_floating_point() else None
            return value.to(self._device, dtype, non_blocking=True)
        if isinstance(value, Mapping):
            return {key: self._ready(inner, rows, length) for key, inner in value.items()}
        if isinstance(value, tuple | list):
            if rows is not None and len(value) == length and not isinstance(value[0], torch.Tensor):
                value = [value[row] for row in rows.tolist()]
            return type(value)(self._ready(inner, rows, length) for inner in value)
        return value


def loss_of(output: Any, rows: int) -> torch.Tensor:
    """Return the loss in what ``forward`` returned: one number, or one for each row.

    Args:
        output: A tensor, a tuple that begins with one, or anything with a ``loss``.
        rows: Rows the model was given.
    """
    found = output
    if isinstance(output, Mapping):
        found = output.get("loss")
    elif hasattr(output, "loss"):
        found = output.loss
    elif isinstance(output, tuple | list) and output:
        found = output[0]
    if not isinstance(found, torch.Tensor):
        has = f"it has {', '.join(map(str, output))}" if isinstance(output, Mapping) else f"a {type(output).__name__}"
        raise SourceError(
            f"forward returned no loss; {has}. Return the loss, or a dict with 'loss': one number, or one for each "
            "sample."
        )
    if found.ndim and (found.ndim > 1 or len(found) not in (1, rows)):
        raise SourceError(
            f"forward returned a loss of shape {tuple(found.shape)} for {rows} samples: expected one number, or one "
            "for each sample. Take the mean over the other dimensions."
        )
    return found.squeeze() if found.numel() == 1 and rows != 1 else found


def _unwanted(model: torch.nn.Module) -> frozenset[str]:
    """Return the name columns that a model's ``forward`` does not accept."""
    parameters = inspect.signature(getattr(model, "_orig_mod", model).forward).parameters.values()
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return frozenset()
    return NAME_COLUMNS - {p.name for p in parameters}
