"""Where the random numbers of a foreign loader stand, so that its order can be drawn again.

    global      torch, NumPy, random     a sampler without a generator draws from one of them
    private     the generators of the loader and of its samplers

A snapshot is a short text, so that it fits into a checkpoint of any kind.
"""

from __future__ import annotations

import base64
import json
import random
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def generators_of(dataloader: Any) -> list[torch.Generator]:
    """Return the private generators a DataLoader draws from, each once, in a fixed order."""
    batch_sampler = getattr(dataloader, "batch_sampler", None)
    owners = [dataloader, getattr(dataloader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)]
    found = [getattr(owner, "generator", None) for owner in owners]
    unique = {id(g): g for g in found if isinstance(g, torch.Generator)}
    return list(unique.values())


def capture(dataloader: Any) -> dict[str, str]:
    """Return where all random numbers stand that a DataLoader may draw from."""
    states = {f"private{i}": _packed(g.get_state()) for i, g in enumerate(generators_of(dataloader))}
    return {**_global_states(), **states}


@contextmanager
def as_captured(dataloader: Any, states: Mapping[str, str]) -> Iterator[None]:
    """Draw inside the block as at the time of ``capture``.

    Afterwards the private generators go on from there. The global ones are put back, because they belong to the
    training loop; unless they stood just there, as they do when the user restored them with the checkpoint.
    """
    before = _global_states()
    is_there = all(before[name] == states.get(name) for name in before)
    _restore(dataloader, states)
    try:
        yield
    finally:
        if not is_there:
            _restore(None, before)


@contextmanager
def untouched(dataloader: Any) -> Iterator[None]:
    """Put all random numbers back after the block, as if nothing had been drawn."""
    before = capture(dataloader)
    try:
        yield
    finally:
        _restore(dataloader, before)


def _global_states() -> dict[str, str]:
    numpy: Any = np.random.get_state()  # noqa: NPY002  # samplers use the global generator
    version, numbers, gauss = random.getstate()
    return {
        "torch": _packed(torch.random.get_rng_state()),
        "numpy": json.dumps([numpy[0], _packed_bytes(numpy[1].tobytes()), *map(float, numpy[2:])]),
        "python": json.dumps([version, _packed_bytes(np.array(numbers, np.uint32).tobytes()), gauss]),
    }


def _restore(dataloader: Any, states: Mapping[str, str]) -> None:
    if "torch" in states:
        torch.random.set_rng_state(_unpacked(states["torch"]))
    if "numpy" in states:
        kind, keys, place, has_gauss, gauss = json.loads(states["numpy"])
        words = np.frombuffer(_unpacked_bytes(keys), np.uint32)
        np.random.set_state((kind, words, int(place), int(has_gauss), gauss))  # noqa: NPY002
    if "python" in states:
        version, numbers, next_gauss = json.loads(states["python"])
        words = np.frombuffer(_unpacked_bytes(numbers), np.uint32)
        random.setstate((version, tuple(words.tolist()), next_gauss))
    for i, generator in enumerate(generators_of(dataloader) if dataloader is not None else []):
        if f"private{i}" in states:
            generator.set_state(_unpacked(states[f"private{i}"]))


def _packed(state: torch.Tensor) -> str:
    return _packed_bytes(state.numpy().tobytes())


def _unpacked(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(_unpacked_bytes(text)), dtype=torch.uint8)


def _packed_bytes(content: bytes) -> str:
    # torch spends 8 bytes on each 32-bit word of its state; a quick compression gets that back.
    return base64.b64encode(zlib.compress(content, 1)).decode()


def _unpacked_bytes(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))
