"""A loader that Lightning leaves alone, and how to find Lading's loader again inside what Lightning holds.

Lightning rebuilds any ``DataLoader`` it wants to change (``trainer.predict``,
``overfit_batches``, a sampler under ``ddp``). An iterable that is none keeps
its order, its bills and its state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.utilities.combined_loader import CombinedLoader

from lading.identity import Bill
from lading.loader.torch.chunked import ChunkedDataLoader
from lading.loader.torch.loader import Loader


class PlainLoader:
    """An iterable with a length and a state, and nothing that Lightning would take hold of."""

    def __init__(self, loader: Loader | ChunkedDataLoader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def last_bill(self) -> Bill | None:
        return self.loader.last_bill

    def bill_at(self, batch_idx: int) -> Bill:
        """Return the bill of a batch of the epoch or chunk under way."""
        return self.loader.bill_at(batch_idx)

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where a state was taken."""
        self.loader.load_state_dict(state)


def plain(loader: Loader | ChunkedDataLoader) -> PlainLoader:
    """Return a loader as an iterable that Lightning leaves alone."""
    return PlainLoader(loader)


def lading_loader(loader: Any) -> Loader | None:
    """Return Lading's loader inside what a trainer was given, None if there is none."""
    if isinstance(loader, PlainLoader):
        loader = loader.loader
    if isinstance(loader, ChunkedDataLoader):
        return loader.chunks if loader.use_chunked else None
    return loader if isinstance(loader, Loader) else None


def any_train_loader(trainer: Trainer) -> Loader | None:
    """Return Lading's loader that is trained on, with chunks or without, if it is the only one."""
    loaders = flat(trainer.fit_loop._combined_loader)
    return lading_loader(loaders[0]) if len(loaders) == 1 else None


def flat(combined: CombinedLoader | None) -> list[Any]:
    """Return the loaders that Lightning holds together."""
    return [] if combined is None else list(combined.flattened)


def iterate_anew(trainer: Trainer) -> None:
    """Let training take its batches from where the loader stands now."""
    if trainer.fit_loop._data_fetcher is not None:
        iter(trainer.fit_loop._data_fetcher)
