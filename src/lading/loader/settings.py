"""Arguments of a loader that need a second look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lading.errors import LoaderError
from lading.loader.collate import NAME_KEYS
from lading.loader.fetch import POLICIES


def name_keys(names: Mapping[str, str] | bool | None, sources: Mapping[str, Any], *, may_pad: bool) -> dict[str, str]:
    """Return the key in dict batches of each name column to add."""
    if names is False or all(getattr(s, "provides_names", False) for s in sources.values()):
        return {}
    chosen = dict(names) if isinstance(names, Mapping) else {}
    unknown = sorted(set(chosen) - set(NAME_KEYS))
    if unknown:
        raise LoaderError(f"names has {', '.join(unknown)}: expected keys among {', '.join(NAME_KEYS)}.")
    return {name: chosen.get(name, name) for name in NAME_KEYS if name != "is_padding" or may_pad}


def policies(on_error: str | Mapping[str, str], sources: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what to do about a bad sample, by dataset number."""
    chosen = on_error if isinstance(on_error, Mapping) else dict.fromkeys(sources, on_error)
    found = tuple(chosen.get(name, "raise") for name in sources)
    unknown = sorted({*found} - {*POLICIES}) or sorted({*chosen} - {*sources})
    if unknown:
        raise LoaderError(
            f"on_error has {', '.join(map(repr, unknown))}: expected one of {', '.join(POLICIES)}, or a dict with "
            f"names among {', '.join(sources)}."
        )
    return found
