"""Values as JSON knows them: no NaN, no infinities, no types of Python's or of a framework's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None: what is not known is not written."""
    return {name: value for name, value in values.items() if value is not None}


def plain(value: Any) -> Any:
    """Return a value that every JSON reader accepts; what is not finite becomes null.

    >>> plain({"loss": float("nan"), 3: (1, 2.5)})
    {'loss': None, '3': [1, 2.5]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # arrays and tensors, and their scalars
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
