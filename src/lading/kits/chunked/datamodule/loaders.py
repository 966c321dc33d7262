"""Which loader a partition gets: torch's own, or Lading's where something asks for it.

one dataset, nothing asked for        ─▶ torch's DataLoader, same batches as ever
several datasets, weights, a ledger   ─▶ Loader
chunk sizes                           ─▶ ChunkedDataLoader (see ``chunked``)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader

from lading.errors import ConfigError, SourceError
from lading.identity import World
from lading.loader.adapting import curriculum
from lading.loader.request import Resume
from lading.loader.torch.loader import Loader
from lading.order.mixture.request import Mixture

# Arguments that only Lading's loader understands; any of them asks for it.
LADING_ARGUMENTS = (
    "global_batch_size",
    "weights",
    "mixture",
    "curriculum",
    "sample_weights",
    "temperature",
    "policy",
    "tracker",
    "on_bad_sample",
    "allow_rebatch",
)


# Arguments of configuration files that describe a mixture beside its weights.
_MIXTURE = ("temperature", "policy")


def standard_loader(dataset: Any, *, accounted: bool = False, **arguments: Any) -> DataLoader[Any]:
    """Return the loader of a partition that is not chunked.

    Args:
        dataset: A dataset, or ``{name: dataset}``.
        accounted: Take Lading's loader although torch's would do.
        arguments: Arguments of the loader; ``seed`` becomes torch's generator.
    """
    if accounted or isinstance(dataset, Mapping) or any(arguments.get(a) is not None for a in LADING_ARGUMENTS):
        return Loader(dataset, **lading_arguments(arguments))
    arguments = {name: value for name, value in arguments.items() if name not in LADING_ARGUMENTS}
    if arguments.get("pin_memory") and not torch.accelerator.is_available():
        arguments["pin_memory"] = False  # nothing to pin for; torch would warn of it every time
    seed = arguments.pop("seed", None)
    if seed is not None:
        arguments.setdefault("generator", torch.Generator().manual_seed(seed))
    return DataLoader(dataset, **arguments)


def lading_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as Lading's loader takes them: a generator becomes the seed it was seeded with."""
    kept = with_resume(arguments)
    generator = kept.pop("generator", None)
    if generator is not None:
        kept.setdefault("seed", generator.initial_seed() & (2**63 - 1))
    if kept.get("global_batch_size") is None:
        kept.setdefault("batch_size", 1)
    return kept


def with_resume(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with the words of a configuration file as objects: ``allow_rebatch``, ``temperature`` ...."""
    kept = dict(arguments)
    asked = kept.pop("curriculum", None)
    if asked is not None:
        if any(kept.get(name) is not None for name in ("weights", "mixture", *_MIXTURE)):
            raise ConfigError("curriculum and weights were both given: each says what is drawn when. Leave one out.")
        kept["mixture"] = curriculum(asked)
    mixed = {name: kept.pop(name) for name in _MIXTURE if kept.get(name) is not None}
    if mixed:
        kept["mixture"] = Mixture(kept.pop("weights", None), **mixed)
    if kept.pop("allow_rebatch", None):
        kept.setdefault("on_resume", Resume(rebatch=True))
    return kept


def partition_size(dataset: Any) -> int:
    """Return the samples of a partition, all its datasets together."""
    try:
        return sum(len(d) for d in dataset.values()) if isinstance(dataset, Mapping) else len(dataset)
    except TypeError as error:
        raise SourceError(
            f"a partition of type {type(dataset).__name__} has no length: expected __len__ and __getitem__. "
            "Streams cannot be cut into chunks; see TaggedIterableDataset."
        ) from error


def global_batch(arguments: Mapping[str, Any]) -> int | None:
    """Return the samples of a global batch, None where no batch size is given yet."""
    if arguments.get("global_batch_size") is not None:
        return int(arguments["global_batch_size"])
    size = arguments.get("batch_size")
    if size is None:
        return None
    return int(size) * (arguments.get("world") or World.current()).world_size
