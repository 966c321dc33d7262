"""From a loader's arguments to its plan.

sources, batch size, seed, weights, schedule ... ─▶ make_plan ─▶ Plan

What identifies a source, so that a resume on other data is refused.

By default only what costs nothing: type, length, columns and dtypes, and what
the source offers itself. Content is read on request (``"sample"``: 64 spread
samples, ``"full"``: all), because datasets may augment at random.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lading.errors import MixtureError, SourceError
from lading.identity import fingerprint
from lading.order.dataset import PlannedDataset
from lading.order.mixture.request import MixtureRequest, mixture
from lading.order.mixture.spec import MixtureSpec
from lading.order.plan import Plan
from lading.source.parts import parts_of
from lading.source.protocol import Located
from lading.source.reader import Reader

if TYPE_CHECKING:
    from lading.loader.torch.loader import Loader


MODES = (None, "sample", "full")
_SAMPLED = 64
_CHUNK = 4096


def describe(reader: Reader, mode: str | None) -> str:
    """Return the fingerprint of a source."""
    if mode not in MODES:
        raise SourceError(f"fingerprint is {mode!r}: expected None, 'sample' or 'full'.")
    source = reader.source
    parts: dict[str, Any] = {"type": type(source).__qualname__, "length": len(source), "columns": _columns(source)}
    if mode is not None:
        parts["content"] = _content(reader, mode)
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


def _content(reader: Reader, mode: str) -> str:
    length = len(reader.source)
    if mode == "sample":
        chosen = np.unique(np.linspace(0, max(length - 1, 0), min(_SAMPLED, length)).astype(np.int64))
    else:
        chosen = np.arange(length, dtype=np.int64)
    state = hashlib.blake2b(digest_size=8)
    for start in range(0, len(chosen), _CHUNK):
        indices = chosen[start : start + _CHUNK]
        keys = np.zeros(len(indices), dtype=np.uint64)
        for sample in reader.samples(indices, 0, keys):
            feed(state, sample)
    return state.hexdigest()


def feed(state: Any, value: Any) -> None:
    """Feed a sample's content to a hash, the same on every machine."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            state.update(f"k{key}\0".encode())
            feed(state, value[key])
    elif isinstance(value, list | tuple):
        state.update(f"l{len(value)}\0".encode())
        for item in value:
            feed(state, item)
    elif isinstance(value, str | bytes):
        state.update(b"s" + (value.encode() if isinstance(value, str) else value) + b"\0")
    elif hasattr(value, "__dataclass_fields__"):
        feed(state, {name: getattr(value, name) for name in value.__dataclass_fields__})
    else:
        array = np.ascontiguousarray(value.numpy(force=True) if hasattr(value, "numpy") else value)
        if array.dtype.kind == "O":
            state.update(repr(value).encode())
            return
        state.update(f"{array.dtype.str}{array.shape}\0".encode())
        state.update(array.tobytes())


def make_plan(loader: Loader, first_batch: int | None = None) -> Plan:
    """Return the plan that a loader's arguments describe.

    Args:
        loader: The loader.
        first_batch: Global batch size a resumed run began with: its schedule counts in those steps.
    """
    given = loader.fingerprint, loader.mean_tokens
    datasets = tuple(planned_dataset(name, r, *given) for name, r in loader.named_readers())
    batch = loader.global_batch_size or (loader.rank_batch_size or 0) * loader.world.world_size
    told = loader.weight_unit, loader.stopping, loader.epoch_samples, loader.lookahead_steps
    request = MixtureRequest(loader.weights, loader.schedule, loader.temperature, *told)
    return Plan(
        datasets=datasets,
        global_batch_size=batch,
        seed=loader.seed,
        shuffle=loader.plan_shuffle,
        block_samples=loader.block_samples,
        drop_last=loader.drop_last,
        chunk_batches=loader.chunk_batches,
        mixture=planned_mixture(
            datasets, loader.mixture, request, loader.policy, first_batch or batch, loader.drop_last
        ),
    )


def planned_dataset(
    name: str, reader: Reader, mode: str | None = None, mean_tokens: Mapping[str, float] | None = None
) -> PlannedDataset:
    """Return what a plan keeps of a source.

    Args:
        name: Its name.
        reader: How it is read.
        mode: Content to look at for its fingerprint.
        mean_tokens: Mean tokens of a sample, by name, as the user gave them.
    """
    source = reader.source
    return PlannedDataset(
        name,
        len(source),
        describe(reader, mode),
        mean_tokens_of(name, source, mean_tokens),
        location_of(source),
        tuple(replace(part, name=f"{name}{part.name}") for part in parts_of(source)),
    )


def planned_mixture(
    datasets: Sequence[PlannedDataset], ready: Any, request: MixtureRequest, policy: Any, batch: int, drop_last: bool
) -> MixtureSpec | None:
    """Return the mixture of a loader's plan, or None where every sample comes once an epoch.

    Args:
        datasets: The datasets of the plan.
        ready: A ``MixtureSpec`` or ``MixtureRequest`` given instead of weights.
        request: What the loader's arguments ask for.
        policy: Chooses weights later; without any to begin with, the lengths are the weights.
        batch: Samples of a global batch.
        drop_last: Whether incomplete global batches are dropped.
    """
    if ready is not None and request != MixtureRequest():
        raise MixtureError("mixture= was given beside weights, schedule or their like: expected one of them.")
    if isinstance(ready, MixtureSpec):
        return ready
    request = ready or request
    if not request.is_mixture and policy is not None:
        request = replace(request, temperature=1.0)
    if not request.is_mixture:
        if request != MixtureRequest():
            raise MixtureError(
                "stopping, epoch_samples, weight_unit and lookahead_steps are about weights, and there are none: every "
                "sample comes once an epoch. Pass weights=, schedule= or temperature=, or leave them out."
            )
        return None
    return mixture(datasets, request, batch, drop_last)


def first_batch(state: Mapping[str, Any]) -> int | None:
    """Return the global batch size a run began with, as far as a state says it; schedules count in its steps."""
    try:
        return int(json.loads(state["summary"])["global_batch_size"])
    except (KeyError, TypeError, ValueError):
        return None  # a damaged state is named where it is restored


def mean_tokens_of(name: str, source: Any, given: Mapping[str, float] | None) -> float | None:
    """Return the mean tokens per sample of a source: as given, or as the source says itself."""
    value = given[name] if given is not None and name in given else getattr(source, "mean_tokens", None)
    return None if value is None else float(value)


def location_of(source: Any) -> str | None:
    """Return where a source says that it lies, for records."""
    return source.stored_at() if isinstance(source, Located) else None
