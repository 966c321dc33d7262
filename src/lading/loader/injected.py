"""What a framework means when it rebuilds a loader around a sampler.

Lightning re-instantiates a ``DataLoader`` from its arguments to predict (around
a batch sampler that notes indices) and to overfit (around a sequential sampler).
Both are understood; any other sampler would replace the plan and is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import SequentialSampler

from lading.errors import LoaderError
from lading.identity import Bill
from lading.loader.sampler import PlanSampler

if TYPE_CHECKING:
    from lading.loader.loader import Loader

Sizes = tuple[int | None, bool | str, bool]


def meaning(sampler: Any, batch_sampler: Any, asked: Sizes) -> Sizes:
    """Return (batch_size, shuffle, drop_last) as meant by an injected sampler."""
    inner = getattr(batch_sampler, "sampler", None)
    inner = getattr(inner, "planned", inner)  # create_loader dresses the plan as a Random- or SequentialSampler
    sampler = getattr(sampler, "planned", sampler)
    if isinstance(inner, PlanSampler):
        original = inner.loader
        return original.rank_batch_size, original.shuffle, bool(batch_sampler.drop_last)
    if isinstance(sampler, SequentialSampler) and batch_sampler is None:
        return asked[0], False, asked[2]
    if isinstance(sampler, PlanSampler) and batch_sampler is None:
        return asked
    found = type(sampler if sampler is not None else batch_sampler).__name__
    raise LoaderError(
        f"a {found} was injected into a Lading loader, whose order is its plan's. Pass use_distributed_sampler=False "
        "to the Trainer, or hand it lading.train.lightning.plain(loader), which frameworks leave alone."
    )


def note_indices(loader: Loader, bill: Bill) -> None:
    """Tell a framework's index-noting batch sampler what a batch held."""
    seen = getattr(loader.batch_sampler, "seen_batch_indices", None)
    if seen is not None:
        seen.append(bill.idx.tolist())
