"""Put names on samples: the columns ``idx`` and ``dataset_idx``, and what to do where a sample has its own.

Names are integer columns beside the data, so they survive collating, pinning
and the way through worker processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lading.errors import SourceError

NAME_KEYS = ("idx", "dataset_idx", "id")


def name_keys(names: Mapping[str, str] | None) -> dict[str, str]:
    """Return the key of each name, with the ones the caller renamed.

    >>> name_keys({"idx": "sample_idx"})["idx"]
    'sample_idx'
    """
    unknown = set(names or {}) - set(NAME_KEYS)
    if unknown:
        raise SourceError(
            f"names= renames {', '.join(map(repr, sorted(unknown)))}: expected only {', '.join(map(repr, NAME_KEYS))}."
        )
    return {key: (names or {}).get(key, key) for key in NAME_KEYS}


def named(sample: Mapping[str, Any], added: Mapping[str, Any], *, replaces: bool) -> dict[str, Any]:
    """Return a sample with names added; the sample itself stays as it is.

    Args:
        sample: The sample.
        added: The names, by key.
        replaces: Whether keys the sample already has are names too, put there by a dataset further in.

    Raises:
        SourceError: The sample has a column of its own under one of the keys.
    """
    taken = [key for key in added if key in sample]
    if taken and not replaces:
        key = taken[0]
        raise SourceError(
            f"the dataset's samples already have a {key!r}; they have {', '.join(map(str, sample))}. "
            f"Pass names={{{key!r}: 'sample_{key}'}} so that both are kept."
        )
    return {**sample, **added}


def provides_names(dataset: Any) -> bool:
    """Say whether a dataset's samples already carry names."""
    return bool(getattr(dataset, "provides_names", False))
