"""``--decode``: show the content of samples where the source is at hand.

--decode train:sources        the object ``sources`` of train.py: a dict of datasets, one dataset, or a function
                              that returns either
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from lading.errors import ConfigError
from lading.report.render import table

Decode = Annotated[
    str | None,
    typer.Option("--decode", metavar="MODULE:NAME", help="Show the samples themselves, from these sources."),
]
_LONGEST = 160


def contents(target: str, rows: list[dict[str, Any]]) -> list[str]:
    """Return the content of samples as short texts."""
    sources = _sources(target)
    texts = []
    for row in rows:
        source = sources[row["name"]] if isinstance(sources, Mapping) and row["name"] in sources else sources
        if isinstance(source, Mapping):
            raise ConfigError(f"{target} has no dataset {row['name']!r}: it has {', '.join(map(repr, source))}.")
        text = " ".join(str(source[row["index"]]).split())
        texts.append(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")
    return texts


def decoded_table(rows: list[dict[str, Any]]) -> RenderableType:
    """Return the samples with their content as a table."""
    return table(rows, {"slot": "slot", "name": "dataset", "index": "index", "content": "content"}, "Content")


def _sources(target: str) -> Any:
    module, colon, name = target.partition(":")
    if not colon or not module or not name:
        raise ConfigError(f"--decode {target!r}: expected MODULE:NAME, for instance train:sources.")
    sys.path.insert(0, ".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"--decode {target!r} cannot be opened: {error}. Expected MODULE:NAME.") from error
    finally:
        sys.path.remove(".")
    return found() if callable(found) and not hasattr(found, "__getitem__") else found
