"""Who am I among how many: one rank of a world.

    slots of a global batch   0 1 2 3 4 5 6 7 8 9
    world of 3                ──0── ───1─── ──2──   shares differ by one at the most

The world is looked up in arguments, else the process group, else the
environment. Nothing is imported: a framework that is not loaded has no group.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from lading.errors import WorldError


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


def _torch_world() -> World | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return World(distributed.get_rank(), distributed.get_world_size())


def _jax_world() -> World | None:
    distributed = sys.modules.get("jax._src.distributed")
    state = getattr(distributed, "global_state", None)
    if state is None or getattr(state, "client", None) is None:
        return None
    return World(state.process_id, state.num_processes)


def _environment_world() -> World | None:
    rank, world_size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None or world_size is None:
        return None
    try:
        return World(int(rank), int(world_size))
    except ValueError as error:
        raise WorldError(
            f"RANK={rank!r} and WORLD_SIZE={world_size!r} in the environment are not whole numbers. "
            "Unset them, or pass rank= and world_size=."
        ) from error
