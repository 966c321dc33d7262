"""Hash what a sample holds, the same on every machine and in every process.

    sample ──▶ walk its parts in order ──▶ type, shape, bytes of each ──▶ 64 bits

Equal content, equal hash, whether it is a tensor or an array. Used for ids
that follow a sample when its dataset is reordered, and to see in an audit
whether two workers read the same thing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from lading.errors import SourceError


def content_hash(sample: Any) -> str:
    """Return 16 hex digits that stand for a sample's content.

    >>> content_hash({"x": np.array([1, 2])}) == content_hash({"x": np.array([1, 2])})
    True
    >>> content_hash([1, 2]) == content_hash([2, 1])
    False

    Raises:
        SourceError: A part is of a type whose bytes mean nothing outside this process.
    """
    state = hashlib.blake2b(digest_size=8)
    _feed(state, sample)
    return state.hexdigest()


def _feed(state: hashlib.blake2b, part: Any) -> None:
    if part is None or isinstance(part, bool | int | float | complex):
        _mark(state, "scalar", repr(part).encode())
    elif isinstance(part, str):
        _mark(state, "text", part.encode())
    elif isinstance(part, bytes | bytearray | memoryview):
        _mark(state, "bytes", bytes(part))
    elif isinstance(part, Mapping):
        _mark(state, "mapping", str(len(part)).encode())
        for key in sorted(part, key=str):
            _feed(state, str(key))
            _feed(state, part[key])
    elif isinstance(part, list | tuple):
        _mark(state, "sequence", str(len(part)).encode())
        for item in part:
            _feed(state, item)
    else:
        array = _as_array(part)
        _mark(state, f"array {array.dtype.str} {array.shape}", np.ascontiguousarray(array).tobytes())


def _mark(state: hashlib.blake2b, kind: str, content: bytes) -> None:
    # Lengths go in as well, so that no two structures run into one.
    state.update(f"{kind} {len(content)} ".encode())
    state.update(content)


def _as_array(part: Any) -> np.ndarray:
    if hasattr(part, "detach"):
        part = part.detach().cpu()
        if str(part.dtype) == "torch.bfloat16":
            part = part.float()  # NumPy has no bfloat16; every value has its float32
    try:
        array = np.asarray(part)
    except (TypeError, ValueError) as error:
        raise _unknown(part) from error
    if array.dtype.hasobject:
        raise _unknown(part)
    return array


def _unknown(part: Any) -> SourceError:
    return SourceError(
        f"a sample holds a {type(part).__name__}, which has no content hash: expected tensors, arrays, numbers, text, "
        "bytes, or dicts and lists of them. Pass ids=[...] with an id for each sample instead."
    )
