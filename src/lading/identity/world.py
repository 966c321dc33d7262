"""Who am I among how many: one rank of a world.

    slots of a global batch   0 1 2 3 4 5 6 7 8 9
    world of 3                ──0── ──1── ───2───   shares differ by one at the most

The world is looked up in arguments, else the process group, else the
environment. Nothing is imported: a framework that is not loaded has no group.
``lading.identity.agreement`` compares what the ranks of a world have.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lading.errors import WorldError

Slots = TypeVar("Slots", int, NDArray[np.int64])


@dataclass(frozen=True)
class World:
    """A rank and the number of ranks."""

    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if self.world_size < 1 or not 0 <= self.rank < self.world_size:
            raise WorldError(
                f"rank {self.rank} of world size {self.world_size} is impossible: expected 0 <= rank < world_size. "
                "Check the rank= and world_size= arguments, or RANK and WORLD_SIZE in the environment."
            )

    def share(self, size: int) -> tuple[int, int]:
        """Return the slots ``[start, stop)`` of this rank in a global batch."""
        return self.rank * size // self.world_size, (self.rank + 1) * size // self.world_size

    @classmethod
    def current(cls, rank: int | None = None, world_size: int | None = None) -> World:
        """Look the world up: arguments, else the process group, else the environment."""
        if (rank is None) != (world_size is None):
            raise WorldError(
                f"rank={rank} and world_size={world_size} were given: expected both or neither. "
                "Pass both, or leave both to the process group."
            )
        if rank is not None and world_size is not None:
            return cls(rank, world_size)
        return _torch_world() or _jax_world() or _environment_world() or cls()


def rank_of(slot: Slots, size: int, world_size: int) -> Slots:
    """Return the rank whose share of a global batch of ``size`` holds a slot; the inverse of ``World.share``.

    >>> [rank_of(slot, 10, 3) for slot in range(10)]
    [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    """
    return ((slot + 1) * world_size - 1) // size


def process_group() -> Any | None:
    """Return ``torch.distributed`` where torch is loaded and its default process group exists; import nothing."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def jax_processes() -> Any | None:
    """Return the state of ``jax.distributed`` (``client``, ``process_id``, ``num_processes``) where it is connected."""
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    return state if getattr(state, "client", None) is not None else None


def _torch_world() -> World | None:
    group = process_group()
    return None if group is None else World(group.get_rank(), group.get_world_size())


def _jax_world() -> World | None:
    state = jax_processes()
    return None if state is None else World(state.process_id, state.num_processes)


def _environment_world() -> World | None:
    rank, world_size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None or world_size is None:
        return None
    try:
        return World(int(rank), int(world_size))
    except ValueError as error:
        raise WorldError(
            f"RANK={rank!r} and WORLD_SIZE={world_size!r} in the environment are not integers. "
            "Unset them, or pass rank= and world_size=."
        ) from error
