"""Watch a short run of a loader and say in plain words what is wrong with it.

    for finding in lading.audit(loader):
        print(finding)

Eight faults, each with its evidence and the line that fixes it: samples
repeated in an epoch, samples never reached, samples left out of an
epoch, the same order in every epoch, always the same first batches, identical
random numbers in every worker, a dropped tail, padding counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from torch.utils.data import DataLoader

from lading.errors import LoaderError
from lading.identity import World
from lading.identity.world import process_group
from lading.kits.audit.finding import Finding
from lading.kits.audit.order import OrderJudge
from lading.kits.audit.stream import StreamJudge
from lading.kits.audit.watch import Loop, is_planned, ranks_of, watch_order, watch_plan, watch_stream
from lading.observe.dataloader import data_length, is_iterable, order_of
from lading.runtime.random_state import untouched

MAX_BATCHES = 10_000

# Of very little data two epochs may be alike by chance: then more of them are watched.
_FEW_SAMPLES, _MORE_EPOCHS = 12, 6


def audit(
    dataloader: Any,
    epochs: int = 2,
    *,
    set_epoch: bool = False,
    limit_batches: int | None = None,
) -> list[Finding]:
    """Watch a short run and return what is wrong; an empty list if nothing is.

    A finding whose ``level`` is ``note`` may be meant: sampling with replacement, epochs of a part of the data, a
    stream in the same order.

    The loader is left as it was: everything happens on copies, and random numbers are put back. Of map-style data only
    a few samples are loaded. A distributed sampler is watched on all its ranks; in a process group the ranks compare
    what they got.

    Args:
        dataloader: A torch DataLoader, a Lading loader, or a list of DataLoaders, one for each rank.
        epochs: Epochs to watch; below 2 nothing can be said about what changes between epochs.
        set_epoch: Tell sampler and dataset each epoch, as a training loop should. Without it a sampler that needs to be
            given is a finding.
        limit_batches: Batches the training loop takes from each epoch, if it does not take all.
    """
    loaders = _loaders(dataloader)
    if epochs < 1:
        raise LoaderError(f"epochs is {epochs}: expected at least 1, and 2 to see what changes between epochs.")
    first, loop = loaders[0], Loop(epochs, limit_batches or MAX_BATCHES, limit_batches is not None, set_epoch)
    if is_planned(first):
        return OrderJudge(first, watch_plan(first, loop), loop.most).findings()
    with ExitStack() as afterwards:
        for loader in loaders:
            afterwards.enter_context(untouched(loader))
            for part in (order_of(loader), loader.dataset):
                if hasattr(part, "set_epoch") and hasattr(part, "epoch"):
                    afterwards.callback(part.set_epoch, part.epoch)
        return _audit_stream(loaders, loop) if is_iterable(first) else _audit_order(loaders, loop)


def _audit_order(loaders: list[Any], loop: Loop) -> list[Finding]:
    first = loaders[0]
    if data_length(first) is None:
        raise LoaderError(
            f"{type(first.dataset).__name__} has no length, so whether all of it is reached is unknown. "
            "Give it __len__."
        )
    if loop.epochs > 1 and len(first.dataset) <= _FEW_SAMPLES:
        loop = replace(loop, epochs=max(loop.epochs, _MORE_EPOCHS))
    group = _several_ranks()
    watched = [watch_order(loader, loop) for loader in (loaders if group or len(loaders) > 1 else ranks_of(first))]
    ranks = _all_ranks(group, watched)
    if len(ranks) == 1 and group is None and not hasattr(order_of(first), "num_replicas"):
        ranks *= World.current().world_size  # the environment has several ranks, the sampler knows nothing of them
    return OrderJudge(first, ranks, loop.most).findings()


def _audit_stream(loaders: list[Any], loop: Loop) -> list[Finding]:
    first = loaders[0]
    ranks = _all_ranks(_several_ranks(), [watch_stream(loader, loop) for loader in loaders])
    alone = watch_stream(first, replace(loop, epochs=2), alone=True) if first.num_workers > 1 else []
    return StreamJudge(first, ranks, alone, is_limited=loop.is_limited).findings()


def _loaders(dataloader: Any) -> list[Any]:
    several = list(dataloader) if isinstance(dataloader, Sequence) else [dataloader]
    several = [getattr(loader, "dataloader", loader) for loader in several]  # a tracked loader is its DataLoader
    wrong = [loader for loader in several if not isinstance(loader, DataLoader)]
    if wrong or not several:
        found = type(wrong[0]).__name__ if wrong else "empty list"
        raise LoaderError(f"found a {found}: expected a torch DataLoader, a Lading loader, or one DataLoader per rank.")
    return several


def _several_ranks() -> Any:
    group = process_group()
    return group if group is not None and group.get_world_size() > 1 else None


def _all_ranks(group: Any, own: list[Any]) -> list[Any]:
    """Return what every rank of the process group saw; without one, what was watched here."""
    if group is None:
        return own
    seen: list[Any] = [None] * group.get_world_size()
    group.all_gather_object(seen, own)
    return [each for rank in seen for each in rank]
