"""Where the random numbers of a foreign loader stand, so that its order can be drawn again.

    global      torch, NumPy, random     a sampler without a generator draws from one of them
    private     the generators of the loader and of its samplers

A snapshot is taken in microseconds; as texts (``packed``) it fits into a
checkpoint of any kind.

Random numbers that belong to a batch, not to a process.

Datasets that augment with the global generators (``random``, NumPy, torch)
get them seeded for the batch and put back afterwards: the same numbers for any
number of workers and after every resume, and training's own generators never
notice that data was read.
"""

from __future__ import annotations

import base64
import json
import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

# The state of each generator by name: global ones, and "private0", ... of the loader and its samplers.
Snapshot = dict[str, Any]


def generators_of(dataloader: Any) -> list[torch.Generator]:
    """Return the private generators a DataLoader draws from, each once, in a fixed order."""
    batch_sampler = getattr(dataloader, "batch_sampler", None)
    owners = [dataloader, getattr(dataloader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)]
    found = [getattr(owner, "generator", None) for owner in owners]
    unique = {id(g): g for g in found if isinstance(g, torch.Generator)}
    return list(unique.values())


def capture(dataloader: Any) -> Snapshot:
    """Return where all random numbers stand that a DataLoader may draw from."""
    states = {f"private{i}": g.get_state() for i, g in enumerate(generators_of(dataloader))}
    return {**_global_states(), **states}


def packed(snapshot: Snapshot) -> dict[str, str]:
    """Return a snapshot as texts."""
    return {name: _PACK.get(name, _packed)(state) for name, state in snapshot.items()}


def unpacked(texts: Mapping[str, str]) -> Snapshot:
    """Undo ``packed``."""
    return {name: _UNPACK.get(name, _unpacked)(text) for name, text in texts.items()}


def same(one: Snapshot, other: Snapshot) -> bool:
    """Say whether two snapshots are equal."""
    return packed(one) == packed(other)


@contextmanager
def as_captured(dataloader: Any, states: Snapshot) -> Iterator[None]:
    """Draw inside the block as at the time of ``capture``.

    Afterwards the private generators go on from there. The global ones are put back, because they belong to the
    training loop; unless they stood just there, as they do when the user restored them with the checkpoint.
    """
    before = _global_states()
    is_there = same(before, {name: state for name, state in states.items() if name in before})
    restore(dataloader, states)
    try:
        yield
    finally:
        if not is_there:
            restore(None, before)


@contextmanager
def untouched(dataloader: Any) -> Iterator[None]:
    """Put all random numbers back after the block, as if nothing had been drawn."""
    before = capture(dataloader)
    try:
        yield
    finally:
        restore(dataloader, before)


def _global_states() -> Snapshot:
    return {
        "torch": torch.random.get_rng_state(),
        "numpy": np.random.get_state(),  # noqa: NPY002  # samplers use the global generator
        "python": random.getstate(),
    }


def restore(dataloader: Any, states: Snapshot) -> None:
    """Put random numbers back to where they stood; without a DataLoader only the global ones."""
    if "torch" in states:
        torch.random.set_rng_state(states["torch"])
        np.random.set_state(states["numpy"])  # noqa: NPY002
        random.setstate(states["python"])
    for i, generator in enumerate(generators_of(dataloader) if dataloader is not None else []):
        if f"private{i}" in states:
            generator.set_state(states[f"private{i}"])


def _packed(state: torch.Tensor) -> str:
    return _packed_bytes(state.numpy().tobytes())


def _unpacked(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(_unpacked_bytes(text)), dtype=torch.uint8)


def _packed_numpy(state: Any) -> str:
    return json.dumps([state[0], _packed_bytes(state[1].tobytes()), *map(float, state[2:])])


def _unpacked_numpy(text: str) -> Any:
    kind, words, place, has_gauss, gauss = json.loads(text)
    return kind, np.frombuffer(_unpacked_bytes(words), np.uint32), int(place), int(has_gauss), gauss


def _packed_python(state: Any) -> str:
    version, words, gauss = state
    return json.dumps([version, _packed_bytes(np.array(words, np.uint32).tobytes()), gauss])


def _unpacked_python(text: str) -> Any:
    version, words, gauss = json.loads(text)
    return version, tuple(np.frombuffer(_unpacked_bytes(words), np.uint32).tolist()), gauss


def _packed_bytes(content: bytes) -> str:
    # torch spends 8 bytes on each 32-bit word of its state; a quick compression gets that back.
    return base64.b64encode(zlib.compress(content, 1)).decode()


def _unpacked_bytes(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


_PACK: dict[str, Callable[[Any], str]] = {"numpy": _packed_numpy, "python": _packed_python}
_UNPACK: dict[str, Callable[[str], Any]] = {"numpy": _unpacked_numpy, "python": _unpacked_python}


@contextmanager
def isolated_rng(key: int) -> Iterator[None]:
    """Seed the global generators with a 64-bit key inside the block; restore them after it."""
    python, numpy, pytorch = random.getstate(), np.random.get_state(), torch.random.get_rng_state()  # noqa: NPY002
    random.seed(key)
    np.random.seed([key & 0xFFFFFFFF, key >> 32])  # noqa: NPY002  # datasets use the global generator
    torch.random.default_generator.manual_seed(key)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.random.set_rng_state(pytorch)
