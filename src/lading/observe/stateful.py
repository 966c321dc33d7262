"""Come from torchdata's ``StatefulDataLoader``: its state, read by its keys, moves a loader of ours.

    batches yielded       _num_yielded, or with workers _snapshot._snapshot_step + _steps_since_snapshot
    the pass's order      _sampler_iter_state.sampler_iter_state.generator, of its RandomSampler

A tracked DataLoader that draws with the same generator continues exactly there.
A ``Loader`` has an order of its own: it takes over where data is read in
sequence, or at the end of an epoch.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import RandomSampler, SequentialSampler

from lading.errors import ResumeError
from lading.loader.base import EngineLoader
from lading.loader.state import make_state, marked
from lading.observe.names import pulled_indices
from lading.observe.recording import Recording
from lading.observe.track_state import TrackedState, names_digest
from lading.observe.tracking import TrackedLoader
from lading.runtime.fields import Fields, FieldTable, Origin, given
from lading.runtime.random_state import generators_of

_MOST = 1 << 60
_ORIGIN = Origin(
    "the state of a StatefulDataLoader",
    ResumeError,
    "Pass what state_dict() of torchdata's StatefulDataLoader returned, from the rank that loads it.",
)


class StatefulState(NamedTuple):
    """What a state of a ``StatefulDataLoader`` says.

    Attributes:
        batches: Batches yielded in its pass.
        is_finished: Whether the pass had ended.
        samples: Samples drawn for them, where the state says it exactly; else None.
        generator: Where its RandomSampler's generator was when the pass began; None: it had none.
    """

    batches: int
    is_finished: bool
    samples: int | None
    generator: Any


def import_stateful(state: Mapping[str, Any], loader: EngineLoader | TrackedLoader, *, epoch: int = 0) -> None:
    """Move a loader to where torchdata's ``StatefulDataLoader`` was when its state was taken.

    Args:
        state: What ``StatefulDataLoader.state_dict()`` returned.
        loader: A loader from ``track`` around a DataLoader over the same data, whose sampler is sequential or a
            ``RandomSampler`` with a generator: it continues in the same order. Or a ``Loader``: it continues inside an
            epoch only where neither shuffles, else at the epoch's end.
        epoch: The epoch that the state was taken in; the state does not say.

    Raises:
        ResumeError: The state is damaged, of a stream or of a dataset with a state of its own, or the loader cannot
            continue there: each with what to do instead.
    """
    saved = read_stateful(state)
    if isinstance(loader, TrackedLoader):
        loader.load_state_dict(_tracked_state(saved, loader, epoch))
        return
    plan = loader.plan
    first, steps = plan.epoch_start(epoch), plan.epoch_steps(epoch)
    _check_length(saved, steps)
    if saved.is_finished or saved.batches == steps:
        loader.load_state_dict(make_state(plan, first + steps))
        return
    if saved.batches and (plan.shuffle != "none" or plan.mixture is not None or saved.generator is not None):
        raise ResumeError(
            f"the state was taken after {saved.batches} of {steps} batches of an epoch in another order than this "
            "loader's: samples would repeat or be missed. Finish the epoch with track(DataLoader(...)), which follows "
            "the old order, and begin the next one with this loader; or resume from a state of an epoch's end."
        )
    rows = plan.global_batch_size // loader.world.world_size
    if saved.samples is not None and saved.samples != saved.batches * rows:
        raise ResumeError(
            f"the state's {saved.batches} batches hold {saved.samples} samples, this loader's {saved.batches * rows}. "
            "Make the loader with the batch size of the state."
        )
    loader.load_state_dict(make_state(plan, first + saved.batches))


def read_stateful(state: Any) -> StatefulState:
    """Return what a state says; whatever is not as torchdata writes it is refused by name."""
    fields = Fields(state, _ORIGIN)
    finished = fields.flag("_iterator_finished")
    if "_snapshot" not in fields:
        _refuse_own_states(fields)
        samples, generator = _sampler(fields)
        return StatefulState(fields.integer("_num_yielded", low=0, high=_MOST), finished, samples, generator)
    snapshot = fields.record("_snapshot")
    workers = snapshot.record("_worker_snapshots")
    for worker in workers:
        if workers.value(worker) is not None:
            _refuse_own_states(workers.record(worker))
    batches = snapshot.integer("_snapshot_step", low=0, high=_MOST)
    batches += fields.integer("_steps_since_snapshot", low=0, high=_MOST)
    _, generator = _sampler(snapshot.record("_main_snapshot"))
    return StatefulState(batches, finished, None, generator)  # its sampler has run ahead of what was yielded


def _refuse_own_states(fields: Fields) -> None:
    if fields.value("fetcher_state") is not None:
        raise ResumeError(
            "the state is of an IterableDataset, which keeps its own place: nothing here can read it. Finish the epoch "
            "with StatefulDataLoader, and begin the next one with lading.track or lading.Loader."
        )
    if fields.value("dataset_state") is not None:
        raise ResumeError(
            "the state holds one of the dataset itself, which Lading's order does not need and cannot restore. Load it "
            "into the dataset with its own load_state_dict, and set 'dataset_state' to None in the state."
        )


def _sampler(fields: Fields) -> tuple[int | None, Any]:
    batches = given(Fields.record)(fields, "_sampler_iter_state")
    if batches is None:
        return None, None
    samples, inner = batches.read(_DRAWN).values()
    generator = None if inner is None else inner.value("generator")
    if generator is not None and not (isinstance(generator, torch.Tensor) and generator.dtype == torch.uint8):
        batches.refuse("sampler_iter_state", "the state of a torch.Generator in 'generator'")
    return samples, generator


_DRAWN: FieldTable = {
    "samples_yielded": given(Fields.integer, low=0, high=_MOST),
    "sampler_iter_state": given(Fields.record),
}


def _check_length(saved: StatefulState, batches: int | None) -> None:
    if batches is not None and saved.batches > batches:
        raise ResumeError(
            f"the state was taken after {saved.batches} batches, an epoch of this loader has {batches}: it is of other "
            "data, or of another batch size. Make the loader with those of the state."
        )


def _tracked_state(saved: StatefulState, tracked: TrackedLoader, epoch: int) -> dict[str, Any]:
    """Return the state that ``track`` would have taken there."""
    dataloader = tracked.dataloader
    sampler: Any = getattr(dataloader, "sampler", None)
    batch_sampler = getattr(dataloader, "batch_sampler", None)
    fits = isinstance(sampler, RandomSampler if saved.generator is not None else SequentialSampler)
    if not fits or batch_sampler is None or (saved.generator is not None and sampler.generator is None):
        wanted = "RandomSampler(dataset, generator=torch.Generator())" if saved.generator is not None else "none"
        raise ResumeError(
            f"the state continues in a {'shuffled' if saved.generator is not None else 'sequential'} order; the "
            f"tracked DataLoader has a {type(sampler).__name__} that cannot draw it again. Make it with the state's "
            f"batch size and sampler: {wanted}."
        )
    _check_length(saved, len(dataloader))
    is_over = saved.is_finished or saved.batches == len(dataloader)
    batches, after = _drawn(saved, sampler, batch_sampler, None if is_over else saved.batches)
    if saved.samples is not None and sum(map(len, batches[: saved.batches])) != saved.samples:
        raise ResumeError(
            f"the state's {saved.batches} batches hold {saved.samples} samples, this DataLoader's "
            f"{sum(map(len, batches[: saved.batches]))}. Make it with the batch size of the state."
        )
    state = after if is_over else saved.generator
    places = {id(g): f"private{i}" for i, g in enumerate(generators_of(dataloader))}
    indices = np.concatenate([pulled_indices(b, len(dataloader.dataset)) for b in batches] or [np.zeros(0, np.int64)])
    names = tracked._recording.names(indices) if isinstance(tracked._recording, Recording) else None
    assert names is not None, "a sampler means a torch DataLoader"
    drawn = {} if state is None else {places[id(sampler.generator)]: state}
    standing = TrackedState(
        epoch=epoch + is_over,
        step=epoch * len(dataloader) + len(batches),
        position=(epoch * len(dataloader.dataset) + len(indices)) * tracked.world.world_size,
        batch=0 if is_over else len(batches),
        digest=0 if is_over else names_digest(0, names.datasets, names.indices),
        samples=0 if is_over else len(indices),
        starts_workers=False,  # the order is drawn from this state, whatever the workers' seed takes
        began={} if is_over or not batches else drawn,
        now=drawn if is_over or not batches else {},
        rank=tracked.world.rank,
    )
    return {**standing.to_state(tracked._source), **marked(None)}


def _drawn(saved: StatefulState, sampler: Any, batch_sampler: Any, count: int | None) -> tuple[list[Any], Any]:
    """Return the first batches of the pass (None: all), and where its generator is after them."""
    if saved.generator is None:
        return list(itertools.islice(batch_sampler, count)), None
    before = sampler.generator.get_state()
    try:
        sampler.generator.set_state(saved.generator)
        return list(itertools.islice(batch_sampler, count)), sampler.generator.get_state()
    except RuntimeError as error:
        raise ResumeError(f"the state of the generator is damaged: {error}. Take an older checkpoint.") from error
    finally:
        sampler.generator.set_state(before)
