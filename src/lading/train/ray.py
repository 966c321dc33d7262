"""Ray Train: a loader for the loop of a worker, instead of ``ray.train.torch.prepare_data_loader``.

    loader = lading.train.ray.prepare(Loader(sources, global_batch_size=8, tracker=ledger))
    for batch in loader:                    # on Ray's device; the books are those of this batch
        ...

Ray's own function reads one batch ahead of the loop, and shards what has been shared out already.
"""

from __future__ import annotations

from typing import TypeVar

from lading.errors import LoaderError, missing_extra

try:
    import ray.train.torch
except ModuleNotFoundError as error:
    raise missing_extra("ray", "ray", "lading.train.ray") from error

from lading.loader.torch.chunked import ChunkedDataLoader
from lading.loader.torch.loader import Loader
from lading.loader.torch.ray import is_ray_worker
from lading.observe.tracking import TrackedLoader

LoaderT = TypeVar("LoaderT", Loader, ChunkedDataLoader, TrackedLoader)


def prepare(loader: LoaderT) -> LoaderT:
    """Return a loader whose batches come on the device of this Ray Train worker, recorded as they are trained on.

    It is the loader itself. Do not give it to Ray's ``prepare_data_loader``, too: nobody could tell.

    Args:
        loader: A ``Loader``, a ``ChunkedDataLoader`` with chunks, or a DataLoader of yours that is tracked:
            ``track(prepare_data_loader(dataloader, move_to_device=False), run=...)``.
    """
    if not isinstance(loader, Loader | ChunkedDataLoader | TrackedLoader):
        raise LoaderError(
            f"found a {type(loader).__name__}: expected a Loader, a ChunkedDataLoader or track(...). A DataLoader of "
            "yours: prepare(track(prepare_data_loader(dataloader, move_to_device=False), run=...))."
        )
    if not is_ray_worker():
        raise LoaderError(
            "no Ray Train worker runs here, so there is no device to move batches to: expected a call in the function "
            "that a TorchTrainer runs. Elsewhere iterate over the loader as it is."
        )
    inner = loader.chunks if isinstance(loader, ChunkedDataLoader) else loader
    inner.lockstep(ray.train.torch.get_device())
    return loader
