"""Real text that is on every machine: the docstrings of Python's own library."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

MODULES = (
    "argparse asyncio collections csv datetime decimal difflib email.message functools http.client inspect io json"
)
MODULES += " logging os pathlib random shutil socket statistics string subprocess tarfile threading unittest zipfile"


def docstrings() -> list[dict[str, Any]]:
    """First line (the question), the rest (the source) and the name (keywords) of every documented function."""
    found = {}
    for module in map(importlib.import_module, MODULES.split()):
        owners = [module, *(c for _, c in inspect.getmembers(module, inspect.isclass))]
        for owner, (name, thing) in ((o, m) for o in owners for m in inspect.getmembers(o, callable)):
            first, _, rest = (inspect.getdoc(thing) or "").partition("\n")
            if len(rest.split()) > 8 and not name.startswith("_"):
                words = [w for w in name.lower().split("_") if w] + [owner.__name__.lower()]
                found.setdefault(
                    (first, rest), {"question": first, "source": rest, "relevance": 1.0, "keywords": words}
                )
    return list(found.values())
