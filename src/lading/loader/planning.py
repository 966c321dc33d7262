"""From a request and its sources to the plan.

    LoaderRequest (sources, batch size, seed, weights ...) ─▶ check_sources, try_plan ─▶ make_plan ─▶ Plan

What a plan refuses is refused when the loader is made, by making one (``try_plan``), for one process, without looking
at content. It is the plan where this process is alone and the sources are as they were; else one is made at first use,
when it is known how many ranks there are.

What identifies a source (``describe``), so that a resume on other data is refused, is by default only what costs
nothing: type, length, columns and dtypes, and what the source offers itself. Content is read on request (``"sample"``:
64 spread samples, ``"full"``: all), because datasets may augment at random.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.errors import LoaderError, MixtureError, PlanError, SourceError
from lading.identity import World, fingerprint
from lading.loader.adapting import Adapting
from lading.loader.request import LoaderRequest, check_plan
from lading.order.dataset import PlannedDataset
from lading.order.decided import KINDS, opened
from lading.order.mixture.request import Mixture
from lading.order.mixture.spec import MixtureSpec
from lading.order.plan import Plan
from lading.order.plan_json import LOOKAHEAD_STEPS
from lading.runtime.fields import listed
from lading.runtime.processes import start_method
from lading.source.protocol import Located
from lading.source.reader import Reader, parts_called

if TYPE_CHECKING:
    from lading.order.adaptation import Adaptation

MODES = (None, "sample", "full")
_SAMPLED = 64
_CHUNK = 4096


def check_mode(mode: Any) -> None:
    """Refuse what is no way to look at content."""
    if mode not in MODES:
        raise SourceError(f"fingerprint is {mode!r}: expected None, 'sample' or 'full'.")


def describe(reader: Reader, mode: str | None, workers: int = 1) -> str:
    """Return the fingerprint of a source.

    Args:
        mode: Content to look at: None, ``"sample"`` or ``"full"``.
        workers: Processes that read it for ``"full"``; the result is the same.
    """
    check_mode(mode)
    source = reader.source
    parts: dict[str, Any] = {"type": type(source).__qualname__, "length": len(source), "columns": _columns(source)}
    if mode is not None:
        parts["content"] = _content(reader, mode, workers)
    return fingerprint(parts)


def _columns(source: Any) -> Any:
    offered = getattr(source, "fingerprint", None)
    if callable(offered):
        return offered()
    if hasattr(source, "_fingerprint"):  # a Hugging Face dataset keeps its own
        return str(source._fingerprint)
    if hasattr(source, "dtype") and hasattr(source, "shape"):
        return f"{source.dtype}{tuple(source.shape[1:])}"
    tensors = getattr(source, "tensors", None)
    if isinstance(tensors, tuple):
        return [f"{t.dtype}{tuple(t.shape[1:])}" for t in tensors]
    return None


def _content(reader: Reader, mode: str, workers: int) -> str:
    from lading.identity.content import joined_hash  # only where content is looked at

    length = len(reader.source)
    if mode == "sample":
        chosen = np.unique(np.linspace(0, max(length - 1, 0), min(_SAMPLED, length)).astype(np.int64))
        return joined_hash([_hashes(reader, chosen)])
    from lading.runtime.blocks.run import run_blocks  # only here

    def hashes_of(block: int) -> NDArray[np.uint64]:
        return _hashes(reader, np.arange(block * _CHUNK, min((block + 1) * _CHUNK, length), dtype=np.int64))

    blocks = range(-(-length // _CHUNK))
    alike = workers if start_method() == "fork" else 1  # a source may not be one that can be sent
    hashes = dict(run_blocks(hashes_of, blocks, workers=max(alike, 1)))
    return joined_hash(hashes[block] for block in blocks)


def _hashes(reader: Reader, indices: NDArray[np.int64]) -> NDArray[np.uint64]:
    from lading.identity.content import sample_hashes

    return sample_hashes(reader.samples(indices, 0, np.zeros(len(indices), dtype=np.uint64)))


class Ingredients(NamedTuple):
    """What a plan is made of that is not the request's: it may be another when the plan is made in earnest.

    Attributes:
        batch: Samples of a step, all ranks together; 0 where a schedule says it.
        lookahead_steps: Most steps on their way.
        datasets: The sources as they are now.
    """

    batch: int
    lookahead_steps: int
    datasets: list[PlannedDataset]


class Trial(NamedTuple):
    """The plan of one process, made to see whether there can be one, and what it was made of."""

    ingredients: Ingredients
    plan: Plan


def make_plan(
    request: LoaderRequest,
    readers: Sequence[Reader],
    world: World,
    in_flight: int,
    first_batch: int | None = None,
    trial: Trial | None = None,
) -> Plan:
    """Return the plan that a request describes.

    Args:
        in_flight: Most steps on their way; the plan's lookahead is at least that, unless the user gave it.
        first_batch: Global batch size a resumed run began with: its schedule counts in those steps.
        trial: What was made when the loader was; it is the plan where nothing has changed since.
    """
    if request.plan is not None:
        check_plan(request.plan, _batch(request, world), len(readers))
        return request.plan
    found = _ingredients(request, readers, world, in_flight)
    if trial is not None and first_batch is None and trial.ingredients == found:
        return trial.plan
    return _made_of(found, request, readers, first_batch)


def _batch(request: LoaderRequest, world: World) -> int:
    return request.global_batch_size or (request.batch_size or 0) * world.world_size


def _ingredients(request: LoaderRequest, readers: Sequence[Reader], world: World, in_flight: int) -> Ingredients:
    check_sequence(request)
    means = (request.mixture.mean_tokens if isinstance(request.mixture, Mixture) else None) or {}
    named = zip(request.sources, readers, strict=True)
    processes = request.workers.num_workers if request.workers.kind == "processes" else 1
    datasets = [_planned(name, reader, request.fingerprint, means, processes) for name, reader in named]
    given = request.lookahead_steps
    return Ingredients(_batch(request, world), max(LOOKAHEAD_STEPS, in_flight) if given is None else given, datasets)


def _made_of(found: Ingredients, request: LoaderRequest, readers: Sequence[Reader], first_batch: int | None) -> Plan:
    chunks = request.chunks
    return Plan.make(
        found.datasets,
        found.batch or None,
        batch_schedule=request.batch_schedule,
        mixture=planned_mixture(found.datasets, request, first_batch),
        adaptation=_adaptation(request, readers, first_batch or found.batch),
        seed=request.seed,
        shuffle=request.plan_shuffle,
        window_samples=request.window_samples,
        lookahead_steps=found.lookahead_steps,
        drop_last=request.drop_last,
        blocked=request.blocked or (),
        masked=request.masked or (),
        sample_weights={} if request.sample_weights is None else _sample_weights(request, readers),
        chunk_batches=None if chunks is None else chunks.first,
        chunk_schedule=chunks.schedule if chunks is not None and len(chunks.schedule) > 1 else (),
    )


def _adaptation(request: LoaderRequest, readers: Sequence[Reader], batch: int) -> Adaptation | None:
    chooses = request.chunks is not None and request.chunks.choose is not None
    if isinstance(request.mixture, Adapting):
        if chooses:
            raise PlanError(
                "chunks are chosen and a curriculum cannot be used: expected chunks of one size, each once a pass."
            )
        return request.mixture.adaptation(request, readers, batch)
    chosen: Adaptation | None = opened(KINDS["chosen_chunks"])() if chooses else None
    return chosen


def _sample_weights(request: LoaderRequest, readers: Sequence[Reader]) -> dict[str, NDArray[Any]]:
    from lading.loader.sample_values import sample_weights_of  # most samples have none

    return sample_weights_of(request, readers)


def delivers(request: LoaderRequest, readers: Sequence[Reader], world: World) -> bool:
    """Say whether an epoch has a batch; mixtures, curricula and plans that are given have one or are refused."""
    if request.plan is not None or request.batch_schedule:
        return True
    if not isinstance(request.mixture, Mixture) or request.mixture.is_mixture:
        return True
    samples = sum(len(reader.source) for reader in readers)
    return samples >= (_batch(request, world) if request.drop_last else 1)


def check_sequence(request: LoaderRequest) -> None:
    """Refuse to shuffle a source whose datasets are meant to come one after another."""
    for name, source in request.sources.items():
        if request.plan_shuffle != "none" and getattr(source, "is_sequential", False):
            raise LoaderError(
                f"dataset {name!r} is a {type(source).__name__}, whose datasets come one after another, and "
                f"shuffle={request.shuffle!r} would mix them. Pass shuffle=False, or use a WeightedConcatDataset."
            )


def _planned(name: str, reader: Reader, mode: str | None, means: Mapping[str, float], workers: int) -> PlannedDataset:
    """Return what a plan keeps of a source; ``means``: mean tokens of a sample as the user gave them, by name."""
    source, described = reader.source, describe(reader, mode, workers)
    mean_tokens = means[name] if name in means else getattr(source, "mean_tokens", None)
    location = source.stored_at() if isinstance(source, Located) else None
    return PlannedDataset(name, len(source), described, mean_tokens, location, parts_called(source, name))


def planned_mixture(
    datasets: Sequence[PlannedDataset], request: LoaderRequest, first_batch: int | None
) -> Mixture | MixtureSpec | None:
    """Return the mixture of a loader's plan, or None where every sample comes once an epoch.

    Args:
        request: What the user asked for; with a policy and no weights to begin with, the lengths are the weights.
        first_batch: Global batch size a resumed run began with: its schedule counts in those steps.
    """
    asked = request.mixture
    if isinstance(asked, MixtureSpec):
        return asked
    if not isinstance(asked, Mixture):  # a curriculum: the order adapts instead
        return None
    if not asked.is_mixture and asked.policy is not None:
        asked = replace(asked, temperature=1.0)
    if asked.is_mixture:
        is_resized = first_batch is not None and not request.batch_schedule
        return asked.planned(datasets, first_batch or 0, request.drop_last) if is_resized else asked
    if asked.needs_weights:
        raise MixtureError(
            "stopping, epoch_samples and unit are about weights, and there are none: every sample comes once an "
            "epoch. Pass Mixture(weights, ...), a schedule or a temperature, or leave them out."
        )
    return None


def try_plan(request: LoaderRequest, readers: Sequence[Reader]) -> Trial | None:
    """Refuse a request that no plan can be made of; return what was made, unless values of samples went into it."""
    check_mode(request.fingerprint)
    if request.plan is not None or not delivers(request, readers, World()):
        return None
    trial = replace(request, fingerprint=None)
    if isinstance(request.mixture, Adapting):  # whose scores may be long: looked at when the plan is made
        trial = replace(trial, mixture=Mixture())
    found = _ingredients(trial, readers, World(), 0)
    plan = _made_of(found, trial, readers, None)
    reads_values = isinstance(request.mixture, Adapting) or request.sample_weights is not None
    return None if reads_values else Trial(found, plan)


def check_sources(request: LoaderRequest, readers: Sequence[Reader]) -> None:
    """Refuse sources without a sample, and arrays that cannot be in one batch; warn of what may be columns."""
    sources = request.sources
    for name, reader in zip(sources, readers, strict=True):
        if not len(reader.source):
            raise SourceError(
                f"dataset {name!r} is empty: a {type(reader.source).__name__} without a sample. Check its path and "
                "filters, or leave it out."
            )
    if request.collate_fn is not None or len(readers) < 2 or any(reader.arrays is None for reader in readers):
        return
    kinds = {name: _kind(reader.arrays) for name, reader in zip(sources, readers, strict=True)}
    for (one, mine), (other, theirs) in itertools.pairwise(kinds.items()):
        if mine != theirs:
            raise SourceError(
                f"datasets {one!r} and {other!r} do not fit into one batch: {mine} and {theirs}. If they are columns "
                f"of one dataset, pass {_as_columns(sources)}; else give them the same keys, dtypes and shapes, or "
                "pass a collate_fn."
            )
    says_datasets = not isinstance(request.mixture, Mixture) or request.mixture.is_mixture
    are_bare = all(hasattr(source, "shape") for source in sources.values())
    if are_bare and not says_datasets and len({len(reader.source) for reader in readers}) == 1:
        warnings.warn(
            f"{listed(map(repr, sources), 3)} are arrays of one length, and each is taken for a dataset whose rows are "
            f"samples. If they are columns of one dataset, pass {_as_columns(sources)}.",
            stacklevel=4,
        )


def _kind(arrays: Any) -> str:
    """Return the keys, types and row shapes of arrays, in words."""
    if isinstance(arrays, Mapping):
        return ", ".join(f"{name}: {_kind(arrays[name])}" for name in sorted(arrays, key=str))
    if isinstance(arrays, list | tuple):
        return ", ".join(map(_kind, arrays))
    return f"{str(arrays.dtype).removeprefix('torch.')} rows of shape {tuple(arrays.shape[1:])}"


def _as_columns(sources: Mapping[str, Any]) -> str:
    names = list(sources)[:3]
    return f"lading.Columns({', '.join(f'{name}={name}' for name in names)}{', ...' if len(sources) > 3 else ''})"
