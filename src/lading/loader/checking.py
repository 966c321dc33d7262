"""What a loader is asked for, looked at together with its sources, when it is made.

What a plan refuses is refused by making one, for one process, without looking at content; it is thrown away. The real
one is made at first use, when it is known how many ranks there are.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lading.errors import SourceError
from lading.identity import World
from lading.loader.planning import check_mode, delivers, make_plan
from lading.loader.request import LoaderRequest
from lading.order.adaptive.curriculum.request import Curriculum
from lading.order.mixture.request import Mixture
from lading.runtime.shown import listed
from lading.source.reader import Reader


def check_plannable(request: LoaderRequest, readers: Sequence[Reader]) -> None:
    """Refuse a request that no plan can be made of."""
    check_mode(request.fingerprint)
    if request.plan is not None or not delivers(request, readers, World()):
        return
    trial = replace(request, fingerprint=None)
    if isinstance(request.mixture, Curriculum):  # whose scores may be long: looked at when the plan is made
        trial = replace(trial, mixture=Mixture())
    make_plan(trial, readers, World(), 0)


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
