"""Ask the other ranks whether they want the same, where there is a way to ask."""

from __future__ import annotations

import sys

import numpy as np
import torch

from lading.errors import WorldError
from lading.identity import World


def check_agreement(world: World, value: int, what: str) -> None:
    """Raise on every rank if the ranks' values differ; without a process group nothing is asked.

    Args:
        world: Who asks; must be the process group's world to be asked.
        value: A 64-bit hash of what this rank wants.
        what: What it wants, for the error.
    """
    values = _torch_values(world, value) or _jax_values(world, value)
    if len(set(values)) > 1:
        groups = ", ".join(f"rank {rank}: {v:016x}" for rank, v in enumerate(values))
        raise WorldError(
            f"the ranks ask for different things ({what}; hashes {groups}). Every rank must call it after the same "
            "step, with the same weights: all-reduce what they are worked out from. Nothing was changed."
        )


def _torch_values(world: World, value: int) -> list[int]:
    group = torch.distributed
    if world.world_size == 1 or not group.is_available() or not group.is_initialized():
        return []
    device = "cuda" if group.get_backend() == "nccl" else "cpu"
    mine = torch.tensor([value - (1 << 63)], dtype=torch.int64, device=device)
    all_values = [torch.empty_like(mine) for _ in range(group.get_world_size())]
    group.all_gather(all_values, mine)
    return [int(v) + (1 << 63) for v in all_values]


def _jax_values(world: World, value: int) -> list[int]:
    if world.world_size == 1 or "jax" not in sys.modules:
        return []
    from jax import process_count  # only where JAX is loaded already
    from jax.experimental import multihost_utils

    if process_count() == 1:
        return []
    words = np.array([value & 0xFFFFFFFF, value >> 32], dtype=np.uint32)  # JAX has 32 bits unless told otherwise
    gathered = np.asarray(multihost_utils.process_allgather(words)).reshape(-1, 2).tolist()
    return [low + (high << 32) for low, high in gathered]
