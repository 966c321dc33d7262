"""One line for everybody who already has a loader: the same batches, now with bills.

    loader = lading.track(loader, run="runs/7")

    DataLoader ──▶ batch ──────────▶ batch          byte for byte the same
        └── what it pulled ──▶ bill ──▶ tracker, ledger

Nothing is predicted here (there is no plan), so names are kept as they are
observed. See ``lading.loader.recording`` for how the loader is watched.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lading.ledger.ledger import Ledger
from lading.train.tracked import TrackedLoader

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


def track(
    dataloader: DataLoader[Any],
    run: str | os.PathLike[str] | Ledger | None = None,
    tracker: Any = None,
    *,
    names: Sequence[str] | None = None,
) -> TrackedLoader:
    """Return a loader that yields byte for byte the batches of a torch DataLoader, with bills.

    Args:
        dataloader: Any torch DataLoader: map style or iterable, any sampler, collate function and workers. The index
            in a bill is the one the sampler gave, so ``dataloader.dataset[index]`` is the sample; for a ConcatDataset
            it is the index in the part whose number ``dataset_idx`` is; an iterable's samples are counted.
        run: Folder of a run: where the names of the samples are recorded. A batch counts as used when the next one is
            asked for, unless ``commit`` or ``skip`` said so before. Or a ``Ledger``, to which you commit yourself.
        tracker: Anything with ``update(bill)`` and ``flush()``, a ``BatchTracker`` for instance; or several of them.
        names: Names of the datasets, by number. Default: their types.

    Returns:
        A loader; not a DataLoader by isinstance, so frameworks leave its sampler alone. With several ranks give the
        DataLoader a distributed sampler yourself.
    """
    return TrackedLoader(dataloader, run, tracker, names=names)
