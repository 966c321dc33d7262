"""Who am I among how many: one rank of a world; and how its ranks agree on something.

    slots of a global batch   0 1 2 3 4 5 6 7 8 9
    world of 3                ──0── ──1── ───2───   shares differ by one at the most

The world is looked up in arguments, else the process group, else the
environment. Nothing is imported: a framework that is not loaded has no group.

Ranks agree, or all of them raise the same sentence:

    rank 0   count its turn · write its value                    · come ─┐
    rank 1   count its turn · read rank 0's value · compare      · come ─┼─▶ all have come ─▶ no difference: continue
    rank 2   count its turn · read rank 0's value · note the difference ─┘                 ─▶ some: all raise

It goes through the key-value store behind the process group, not through a
collective: ranks may reach it in another order than their own collectives, and
no device is needed. A rank does constant work. The n-th turn of a rank is
compared with the n-th turn of the others. What a turn wrote is removed two
turns later, when every rank has left it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
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


Value = Mapping[str, Any]
Differences = Callable[[Value, Value], list[str]]
_JAX_SECONDS = 300.0  # JAX's processes have no timeout of their own; this is its initialization_timeout
_LONGEST_PAUSE_SECONDS = 0.1
_MOST_LISTED = 4


def field_differences(theirs: Value, mine: Value) -> list[str]:
    """Return what differs between two values, field by field.

    >>> field_differences({"seed": 1, "size": 8}, {"seed": 2, "size": 8})
    ['seed 1 -> 2']
    """
    names = dict.fromkeys([*theirs, *mine])
    return [f"{n} {theirs.get(n)} -> {mine.get(n)}" for n in names if theirs.get(n) != mine.get(n)]


def agree(
    world: World,
    what: str,
    value: Value,
    *,
    differences: Differences = field_differences,
    way_out: str = "Give every rank the same arguments.",
) -> int:
    """Compare a value with rank 0's; every rank raises the same error if any rank differs, or none does.

    Call it on every rank, once for each thing to agree on, and in the same order for things of one kind. Without a
    process group of this very world (one rank, no group, ranks given as arguments) nothing is compared.

    Args:
        world: This rank among how many.
        what: Kind of thing to agree on, for the error (``"the plan"``); turns are counted for each kind.
        value: What this rank has, JSON-able.
        differences: Returns what differs between rank 0's value and this rank's.
        way_out: Last sentence of the error.

    Returns:
        The number of the turn, from 1; 0 where nothing was compared. It names a loader the same way on every rank.

    Raises:
        WorldError: The ranks differ, or a rank did not come in time; it names the ranks and what differs.
    """
    store = key_value_store(world)
    if store is None:
        return 0
    return Turn(store, world, what).take(value, differences, way_out)


def key_value_store(world: World) -> KeyValueStore | None:
    """Return the store of the process group whose world this is; None where there is none. Imports nothing."""
    if world.world_size == 1:
        return None
    group, processes = process_group(), jax_processes()
    if group is not None and World(group.get_rank(), group.get_world_size()) == world:
        store = group.distributed_c10d._get_default_store()
        return None if store is None else TorchStore(store)
    if processes is not None and World(processes.process_id, processes.num_processes) == world:
        return JaxStore(processes.client)
    return None


def waited(store: KeyValueStore, key: str, timeout_seconds: float) -> str | None:
    """Return a value as soon as some rank wrote it; None where none did in time."""
    deadline, pause = time.monotonic() + timeout_seconds, 0.001
    while (value := store.get(key)) is None:
        if time.monotonic() >= deadline:
            return None
        time.sleep(pause)  # asked again, not waited for in the store: Ctrl-C works, other threads may use the store
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    return value


class TorchStore:
    """The key-value store behind torch's process group."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.timeout_seconds: float = store.timeout.total_seconds()

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, which begins at 0; return its new value."""
        return int(self._store.add(key, amount))

    def set(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> str | None:
        """Return a value; None where there is none yet."""
        return bytes(self._store.get(key)).decode() if self._store.check([key]) else None

    def remove(self, key: str) -> None:
        self._store.delete_key(key)


class JaxStore:
    """The key-value store of JAX's coordinator."""

    timeout_seconds = _JAX_SECONDS

    def __init__(self, client: Any) -> None:
        self._client = client

    def add(self, key: str, amount: int) -> int:
        return int(self._client.key_value_increment(key, amount))

    def set(self, key: str, value: str) -> None:
        self._client.key_value_set(key, value, allow_overwrite=True)

    def get(self, key: str) -> str | None:
        try:
            return str(self._client.key_value_try_get(key))
        except Exception as error:  # a JaxRuntimeError, which cannot be named without importing JAX
            if "NOT_FOUND" in str(error):
                return None
            raise

    def remove(self, key: str) -> None:
        self._client.key_value_delete(key)


KeyValueStore = TorchStore | JaxStore


class Turn:
    """One comparison: the n-th of its kind on this rank. It waits for others as long as the process group would."""

    def __init__(self, store: KeyValueStore, world: World, what: str, timeout_seconds: float | None = None) -> None:
        self._store, self._world, self._what = store, world, what
        self._seconds = store.timeout_seconds if timeout_seconds is None else timeout_seconds
        self.number = store.add(self._turns_of(world.rank), 1)

    def take(self, value: Value, differences: Differences = field_differences, way_out: str = "") -> int:
        """Compare; return the number of the turn."""
        self._clean_up()
        text = json.dumps(value, sort_keys=True)
        if self._world.rank == 0:
            self._store.set(self._key("value"), text)
        first = self._waited("value", [0])
        if first != text:
            theirs = json.loads(first)
            found = differences(theirs, json.loads(text)) or field_differences(theirs, json.loads(text))
            self._note(f"rank {self._world.rank} differs from rank 0 ({', '.join(found)})")
        self._come()
        noted = self._noted()
        if noted:
            raise WorldError(f"ranks disagree on {self._what}: {'; '.join(noted)}. {way_out}".rstrip())
        return self.number

    def _come(self) -> None:
        if self._store.add(self._key("came"), 1) == self._world.world_size:
            self._store.set(self._key("all"), "came")
        self._waited("all", range(self._world.world_size))

    def _note(self, difference: str) -> None:
        place = self._store.add(self._key("differ"), 1)
        if place <= _MOST_LISTED:
            self._store.set(self._key(f"difference{place}"), difference)

    def _noted(self) -> list[str]:
        """Return the differences; the same list on every rank, because all have come."""
        count = self._store.add(self._key("differ"), 0)
        listed = [self._store.get(self._key(f"difference{i + 1}")) or "" for i in range(min(count, _MOST_LISTED))]
        more = [f"and {count - _MOST_LISTED} more"] if count > _MOST_LISTED else []
        return sorted(listed) + more

    def _waited(self, name: str, ranks: Any) -> str:
        value = waited(self._store, self._key(name), self._seconds)
        if value is not None:
            return value
        late = [r for r in ranks if self._store.add(self._turns_of(r), 0) < self.number]
        who = f"rank{'s' * (len(late) > 1)} {', '.join(map(str, late[:_MOST_LISTED]))}"
        raise WorldError(
            f"{who if late else 'a rank'} did not come to agree on {self._what} within {self._seconds:g} s "
            f"(comparison {self.number}): expected all {self._world.world_size} ranks. Every rank must use the same "
            "loaders; for one that a single rank uses alone, pass world=World()."
        )

    def _clean_up(self) -> None:
        """Remove what turn n-2 wrote: all have come to turn n-1, so all have left n-2."""
        if self._world.rank == 0 and self.number > 2:
            for name in ("value", "came", "all", "differ"):
                self._store.remove(f"{self._prefix}/{self.number - 2}/{name}")

    @property
    def _prefix(self) -> str:
        return f"lading/agree/{self._what}"

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{self.number}/{name}"

    def _turns_of(self, rank: int) -> str:
        return f"{self._prefix}/turns/{rank}"
