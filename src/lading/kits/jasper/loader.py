"""Loaders for JASPER directories: create one, tell it the epoch, look at its first batch before training.

    create_loader(dir, "train", 32) ─▶ Loader ─▶ for epoch: set_epoch(loader, epoch); for batch in loader: ...
                                        │
                                        └ dataset_obj, sampler_obj        as the original attaches them

The loader is a Lading ``Loader``: batches are gathered, named and resumable.
The steering of a batch follows the epoch in its bill, in every worker.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch.utils.data import DataLoader, Subset

from lading.errors import LoaderError
from lading.identity import World
from lading.kits.jasper.dataset import JASPERSteeringDataset
from lading.kits.jasper.gather import jasper_spec
from lading.loader.torch.first_batch import first_batch
from lading.loader.torch.loader import Loader
from lading.loader.torch.rebuilt import undistributed
from lading.source.spec import BatchSpec, validate_batch

__all__ = ["create_loader", "set_epoch", "validate_first_batch"]


@runtime_checkable
class KnowsEpochs(Protocol):
    """A dataset or sampler that takes the epoch."""

    def set_epoch(self, epoch: int) -> None: ...


def create_loader(
    dataset_dir: str | Path,
    split: str,
    batch_size: int | None,
    num_workers: int = 0,
    distributed: bool = False,
    epoch: int = 0,
    drop_last: bool | None = None,
    pin_memory: bool = True,
    *,
    seed: int = 0,
    device: torch.device | str | None = None,
    chunk_batches: int | None = None,
    batch_schedule: Sequence[tuple[Any, int]] | None = None,
    tracker: Any = None,
    persistent_workers: bool = False,
    prefetch_factor: int | None = None,
    storage_format: str = "auto",
    use_mmap: bool | None = None,
    validate: bool | None = None,
    names: Mapping[str, str] | bool | None = None,
) -> Loader:
    """Return a torch ``DataLoader`` with ``dataset_obj`` and ``sampler_obj`` for one split of a JASPER directory.

    Args:
        dataset_dir, split: Which data; "train" is shuffled, "val" and "test" go in order.
        batch_size: Samples of a batch on each rank; None where ``batch_schedule`` says the sizes.
        num_workers: Worker processes; batches are gathered, so 0 is quickest for tables in memory.
        distributed: Each rank gets its share; False: every process gets everything (a warning where ranks run).
        epoch: Epoch to start at, for the curriculum and the order.
        drop_last: Drop the incomplete batch at the end; None: for train only.
        pin_memory: Pin batches; quietly off where there is no accelerator.
        seed, chunk_batches, batch_schedule, tracker, names: As in ``Loader``; ``names=False``: only the nine keys.
        device, storage_format, use_mmap, validate: As in ``JASPERSteeringDataset``.
        persistent_workers, prefetch_factor: As in torch.
    """
    if not distributed:
        _warn_of_ranks()
    dataset = JASPERSteeringDataset(dataset_dir, split, epoch, device, storage_format, use_mmap, validate=validate)
    loader = Loader(
        {split: dataset},
        batch_size,
        seed=seed,
        shuffle=split == "train",
        chunk_batches=chunk_batches,
        batch_schedule=batch_schedule,
        drop_last=split == "train" if drop_last is None else drop_last,
        tracker=tracker,
        names=names,
        world=None if distributed else World(),
        num_workers=num_workers,
        pin_memory=pin_memory,
        persistent_workers=persistent_workers,
        prefetch_factor=prefetch_factor,
    )
    if not distributed:
        object.__setattr__(loader, "sampler", undistributed(loader.sampler))  # torch allows no change after __init__
    loader.dataset_obj = dataset
    loader.sampler_obj = loader.sampler if distributed else None
    if epoch:
        loader.move_to(loader.plan.epoch_start(epoch))  # set_epoch leaves chunked loaders alone
    return loader


def _warn_of_ranks() -> None:
    group = torch.distributed
    if group.is_available() and group.is_initialized() and group.get_world_size() > 1:
        warnings.warn(
            f"create_loader with distributed=False in a process group of {group.get_world_size()} ranks: every rank "
            "reads every sample. Pass distributed=True to give each rank its share.",
            stacklevel=3,
        )


def set_epoch(loader: DataLoader[Any], epoch: int) -> None:
    """Move dataset and sampler to an epoch: the curriculum and the order.

    Args:
        loader: What ``create_loader`` returned, or a plain DataLoader around a JASPER dataset.
        epoch: The epoch that comes next.
    """
    notified = [dataset for dataset in _datasets(loader) if isinstance(dataset, KnowsEpochs)]
    if isinstance(loader, Loader):
        notified.append(loader)
    else:
        inner = getattr(loader.batch_sampler, "sampler", None)
        samplers = {id(s): s for s in (loader.sampler, inner, loader.batch_sampler) if isinstance(s, KnowsEpochs)}
        notified.extend(samplers.values())
    if not notified:
        raise LoaderError(
            f"neither the {type(loader.dataset).__name__} nor the {type(loader.sampler).__name__} of this loader has a "
            "set_epoch. Make the loader with create_loader, or around a JASPERSteeringDataset."
        )
    for one in notified:
        one.set_epoch(epoch)


def validate_first_batch(loader: Any, *, strict: bool = False, spec: BatchSpec | None = None) -> bool:
    """Check keys, shapes, types, NaN, Inf and ranges of the first batch; the run that follows is not touched.

    Args:
        loader: Any loader; its dataset's ``spec()`` says what to expect.
        strict: Allow exactly the nine keys, not even the names Lading adds.
        spec: What to expect instead.

    Returns:
        True.

    Raises:
        BatchError: An ``AssertionError`` that names the first fault and the sample (pair) at fault.
    """
    own = (dataset.spec() for dataset in _datasets(loader) if isinstance(dataset, DeclaresSpec))
    expected = spec or next(own, None) or jasper_spec("D", "n_neg", None)
    if isinstance(loader, Loader) and isinstance(loader.names, Mapping):
        expected = replace(expected, allowed=(*expected.allowed, *loader.names.values()))
    with first_batch(loader) as (batch, name_row):
        return validate_batch(batch, expected, strict=strict, name_row=name_row)


@runtime_checkable
class DeclaresSpec(Protocol):
    """A source that says what its batches look like."""

    def spec(self) -> BatchSpec: ...


def _datasets(loader: Any) -> Iterator[Any]:
    """Yield the datasets of a loader, those inside subsets too."""
    sources = loader.sources if isinstance(loader, Loader) else getattr(loader, "dataset", None)
    for dataset in sources.values() if isinstance(sources, Mapping) else (sources,):
        while type(dataset) is Subset:
            dataset = dataset.dataset
        yield dataset
