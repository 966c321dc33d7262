"""Means per dataset: which source does the model learn well, which badly.

    loss per sample  [B]    ─┐                       ┌─ {"code": 1.83, "prose": 2.41}
    loss per token   [B, T] ─┴─ sums, counts ─ ranks ┘

Sums and counts are added over all ranks before dividing, so unequal shares,
padding rows and ranks that saw nothing of a dataset are all right. Works on
torch tensors (process group), JAX arrays (processes) and NumPy arrays.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity import Bill
from lading.runtime.arrays import framework, host

F64 = NDArray[np.float64]

_FRAMEWORKS = {"torch": "lading.train.metrics.torch", "jax": "lading.train.metrics.jax"}


def per_dataset_mean(loss_per_sample: Any, bill: Bill, *, reduce: bool = True) -> dict[str, float]:
    """Return the mean of a value per sample for each dataset that was seen, over all ranks.

    Args:
        loss_per_sample: One value a row of this rank's batch, padding rows included.
        bill: The bill of the batch.
        reduce: Whether to add up over the ranks. Every rank must then call it, at the same step.

    Example:
        >>> from lading.order import Plan
        >>> bill = Plan.make({"code": 4, "prose": 4}, batch_size=8).bill(0)
        >>> per_dataset_mean(bill.dataset_idx + 1.0, bill)
        {'code': 1.0, 'prose': 2.0}
    """
    _check_rows(loss_per_sample, len(bill), "loss_per_sample", dimensions=1)
    datasets = np.where(bill.is_padding, -1, bill.dataset_idx)
    return dataset_means(loss_per_sample, datasets, bill.names, reduce=reduce)


def per_dataset_token_mean(
    loss_per_token: Any, owners: Bill | Any, *, names: Sequence[str] = (), mask: Any = None, reduce: bool = True
) -> dict[str, float]:
    """Return the mean of a value per token for each dataset that was seen, over all ranks.

    Args:
        loss_per_token: Values [B, T].
        owners: The dataset number of every token [B, T] (-1: padding), as ``token_owners`` gives it for packed rows;
            or the bill, where a row belongs to one dataset.
        names: Names of the datasets; a bill knows them.
        mask: True [B, T] where a token counts, beside padding.
        reduce: Whether to add up over the ranks. Every rank must then call it, at the same step.
    """
    if isinstance(owners, Bill):
        names = owners.names
        rows = np.where(owners.is_padding, -1, owners.dataset_idx)
        _check_rows(loss_per_token, len(rows), "loss_per_token", dimensions=2)
        owners = np.broadcast_to(rows[:, None], tuple(loss_per_token.shape))
    datasets = host(owners)
    if mask is not None:
        datasets = np.where(host(mask).astype(bool), datasets, -1)
    if tuple(datasets.shape) != tuple(loss_per_token.shape):
        raise SourceError(
            f"loss_per_token has the shape {tuple(loss_per_token.shape)}, the owners {tuple(datasets.shape)}: expected "
            "the same. Pass the loss before it is reduced, one value a token."
        )
    return dataset_means(loss_per_token.reshape(-1), datasets.reshape(-1), names, reduce=reduce)


def token_owners(document_idx: Any, documents_per_dataset: Sequence[int]) -> NDArray[np.int64]:
    """Return the dataset of every token of packed rows, -1 for padding.

    Args:
        document_idx: Document number of each token [B, T], from 1; 0 is padding.
        documents_per_dataset: Documents of each dataset, in the order in which they were numbered.

    Example:
        >>> token_owners([[1, 1, 3, 0]], [2, 5]).tolist()
        [[0, 0, 1, -1]]
    """
    documents = host(document_idx).astype(np.int64)
    bounds = np.cumsum(documents_per_dataset)
    if documents.size and not 0 <= documents.min() <= documents.max() <= bounds[-1]:
        raise SourceError(
            f"document numbers go from {documents.min()} to {documents.max()}: expected 0 (padding) to {bounds[-1]}, "
            "the documents of all datasets. Check documents_per_dataset."
        )
    return np.where(documents == 0, -1, np.searchsorted(bounds, documents - 1, side="right"))


def dataset_means(values: Any, datasets: NDArray[Any], names: Sequence[str], *, reduce: bool) -> dict[str, float]:
    """Return the mean of the values (one a row) of each dataset; rows of dataset -1 do not count."""
    if len(names) == 0:
        raise SourceError("the datasets have no names: expected one each. Pass names=plan.names.")
    home = _FRAMEWORKS.get(framework(values))
    if home is None:
        sums, counts = dataset_sums(np.asarray(values, dtype=np.float64), datasets, len(names))
    else:
        # Opened only for values of that framework, which is loaded then.
        sums, counts = importlib.import_module(home).dataset_sums(values, datasets, len(names), reduce=reduce)
    return {name: float(s / n) for name, s, n in zip(names, sums, counts, strict=True) if n > 0}


def dataset_sums(values: F64, datasets: NDArray[Any], num_datasets: int) -> tuple[F64, F64]:
    """Return the sum of values and the number of rows of each dataset, in this process."""
    real = datasets >= 0
    owners = datasets[real].astype(np.int64)
    sums = np.bincount(owners, weights=values[real], minlength=num_datasets).astype(np.float64)
    return sums, np.bincount(owners, minlength=num_datasets).astype(np.float64)


def _check_rows(values: Any, rows: int, name: str, dimensions: int) -> None:
    shape = tuple(values.shape)
    if len(shape) != dimensions or shape[0] != rows:
        raise SourceError(
            f"{name} has the shape {shape}, the batch {rows} rows: expected {dimensions} dimensions, one value "
            f"{'a row' if dimensions == 1 else 'a token'}. Use reduction='none' in the loss."
        )
