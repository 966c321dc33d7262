"""Watch a short run of a loader and say in plain words what is wrong with it.

    for finding in lading.audit(loader):
        print(finding)

Seven faults, each with its evidence and the line that fixes it: samples
repeated across workers or ranks, samples never reached, the same order in
every epoch, always the same first batches, identical random numbers in every
worker, a dropped tail, padding counted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, SubsetRandomSampler

from lading.errors import LoaderError
from lading.identity import World
from lading.identity.world import process_group
from lading.observe.auditing.finding import Finding
from lading.observe.auditing.judge import OrderJudge
from lading.observe.auditing.order import (
    OrderEvidence,
    OrderFacts,
    Watched,
    is_planned,
    ranks_of,
    watch_order,
    watch_plan,
)
from lading.observe.auditing.stream import StreamFacts, StreamJudge, StreamPass, declared_length, watch_stream
from lading.observe.auditing.workers import same_numbers
from lading.observe.dataloader import data_length, is_iterable, order_of
from lading.runtime.random_state import untouched

MAX_BATCHES = 10_000

# Of very little data two epochs may be alike by chance: then more of them are watched.
_FEW_SAMPLES, _MORE_EPOCHS = 12, 6

# Samplers that draw nothing by chance, or always from the same samples.
_FIXED = (list, tuple, range, SequentialSampler, SubsetRandomSampler)


def audit(
    dataloader: Any,
    epochs: int = 2,
    *,
    set_epoch: bool = False,
    limit_batches: int | None = None,
) -> list[Finding]:
    """Watch a short run and return what is wrong; an empty list if nothing is.

    A finding whose ``level`` is ``note`` may be meant: sampling with replacement, a stream in the same order.

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
    first = loaders[0]
    if is_planned(first):
        return _judged_order(first, watch_plan(first, epochs, limit_batches or MAX_BATCHES), limit_batches)
    with ExitStack() as afterwards:
        for loader in loaders:
            afterwards.enter_context(untouched(loader))
            for part in (order_of(loader), loader.dataset):
                if hasattr(part, "set_epoch") and hasattr(part, "epoch"):
                    afterwards.callback(part.set_epoch, part.epoch)
        watch = _audit_stream if is_iterable(first) else _audit_order
        return watch(loaders, epochs, set_epoch, limit_batches)


def _audit_order(loaders: list[Any], epochs: int, set_epoch: bool, limit: int | None) -> list[Finding]:
    first, watched = loaders[0], []
    if data_length(first) is None:
        raise LoaderError(
            f"{type(first.dataset).__name__} has no length, so whether all of it is reached is unknown. "
            "Give it __len__."
        )
    if epochs > 1 and len(first.dataset) <= _FEW_SAMPLES:
        epochs = max(epochs, _MORE_EPOCHS)
    ranks = loaders if len(loaders) > 1 or _several_ranks() else ranks_of(first)
    for rank, loader in enumerate(ranks):
        watched.append(watch_order(loader, rank, epochs, limit or MAX_BATCHES, _teller(loader, set_epoch)))
    watched = [Watched(rank, own.epochs) for rank, own in enumerate(_all_ranks(watched))]
    findings = _judged_order(first, watched, limit)
    batches = watched[0].epochs[0]
    if first.num_workers > 1 and batches and len(batches[0].samples):
        finding = same_numbers(first, int(batches[0].samples[0]))
        findings += [finding] if finding is not None else []
    return findings


def _judged_order(loader: Any, watched: list[Watched], limit: int | None) -> list[Finding]:
    order = order_of(loader)
    most = max((len(e) for w in watched for e in w.epochs), default=0)
    is_cut = limit is not None and most >= limit
    facts = OrderFacts(
        length=len(loader.dataset),
        sampler=type(order).__name__,
        has_set_epoch=hasattr(order, "set_epoch"),
        shuffles=getattr(order, "shuffle", False) is True,
        is_fixed=hasattr(order, "set_epoch") or isinstance(order, _FIXED),
        drops_last=any(getattr(o, "drop_last", False) for o in (loader, loader.batch_sampler, order)),
        with_replacement=bool(getattr(order, "replacement", False)) or getattr(loader, "mixture", None) is not None,
        draws_again=bool(getattr(order, "replacement", False)),
        takes_part=isinstance(order, RandomSampler) and order.num_samples < len(loader.dataset),
        is_limited=is_cut or most >= MAX_BATCHES,
    )
    if len(watched) == 1:
        watched = _unseen_ranks(loader, watched)
    return OrderJudge(OrderEvidence(watched, facts)).findings()


def _unseen_ranks(loader: Any, watched: list[Watched]) -> list[Watched]:
    """Return what all ranks get where the environment has several and the sampler knows nothing of them."""
    size = 1 if is_planned(loader) else World.current().world_size
    if size == 1 or hasattr(order_of(loader), "num_replicas") or _several_ranks():
        return watched
    return [Watched(rank, watched[0].epochs) for rank in range(size)]


def _audit_stream(loaders: list[Any], epochs: int, set_epoch: bool, limit: int | None) -> list[Finding]:
    first, most = loaders[0], limit or MAX_BATCHES
    own = [watch_stream(loader, epochs, most, _teller(loader, set_epoch)) for loader in loaders]
    ranks = _all_ranks(own)
    alone: list[StreamPass] = []
    if first.num_workers > 1:
        alone = watch_stream(first, 2, most, _teller(first, set_epoch), alone=True)
    was_cut = any(p.was_cut for p in (*ranks[0], *alone))
    facts = StreamFacts(
        source=type(first.dataset).__name__,
        batch_size=first.batch_size,
        num_workers=first.num_workers,
        drops_last=bool(first.drop_last),
        length=declared_length(first),
        has_set_epoch=hasattr(first.dataset, "set_epoch"),
        is_limited=limit is not None or was_cut,
    )
    return StreamJudge(ranks, alone, facts).findings()


def _teller(loader: Any, set_epoch: bool) -> Callable[[int], None]:
    def tell(epoch: int) -> None:
        for part in (order_of(loader), loader.dataset) if set_epoch else ():
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)

    return tell


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


def _all_ranks(own: list[Any]) -> list[Any]:
    """Return what every rank of the process group saw; without one, what was watched here."""
    group = _several_ranks()
    if group is None:
        return own
    seen: list[Any] = [None] * group.get_world_size()
    group.all_gather_object(seen, own)
    return [each for rank in seen for each in rank]
