"""Short stable fingerprints of descriptions: equal content, equal fingerprint, on every machine."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def fingerprint(description: Any) -> str:
    """Return 16 hex digits that stand for a JSON-able description.

    >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    """
    text = json.dumps(description, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
