"""Which attempt's steps are history, and which were rolled back.

    attempt 0   ├──────────────┤ x                 steps 0..109, killed
    attempt 1             ├─────────┤ x            resumed from 90: 0's steps from 90 on are rolled back
    attempt 2        ├──────────────────▶          resumed from 70: so are 1's, all of them
    history     ├────┼──────────────────▶          each step once: 0..69 of attempt 0, 70.. of attempt 2

A later attempt owns everything from its first step on. An attempt that left
no row rolled nothing back: it is void.

How ranks that start together agree on the number of their attempt, without talking to each other.

    a process group exists       rank 0 claims a number and leaves it in the group's key-value store
    none                         the first rank makes the folder of the next number and signs it with the launch's
                                 token; a rank that finds a folder of its own launch without itself joins it

A folder is made aside, with its ``launch.json`` inside, and renamed: of two
ranks that claim the same number one wins, and the other finds the winner's.
See docs/decisions for the reasons.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lading.errors import CorruptLedgerError, LedgerError
from lading.identity import World, fingerprint
from lading.ledger.run_folder import LEDGER_VERSION, RankFolder, RunFolder
from lading.runtime.files import Journal, json_bytes, sync_folder


@dataclass(frozen=True)
class Launch:
    """Where an attempt began.

    Attributes:
        attempt: Its number in the run, from 0.
        start_step: The first step it delivers.
        world_size: Number of ranks.
        token: Stands for the launch; equal for the ranks that were started together.
        plan: Fingerprint of the plan, or None where nothing predicts the order.
        events: Plan events in force when it began, as JSON-able fields.
        time: Seconds since 1970.
        host: Machine of the process that opened it.
        process: Id and start time of that process.
        version: ``LEDGER_VERSION`` of the writer.
        lading: Lading's version.
    """

    attempt: int
    start_step: int
    world_size: int
    token: str
    plan: str | None
    events: tuple[dict[str, Any], ...]
    time: float
    host: str
    process: tuple[int, int]
    version: int = LEDGER_VERSION
    lading: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the launch as JSON-able fields."""
        return asdict(self)


@dataclass(frozen=True)
class Span:
    """The steps ``[start, stop)`` of history that one attempt owns; ``stop`` None means to the end."""

    attempt: int
    start: int
    stop: int | None

    def __contains__(self, step: int) -> bool:
        return self.start <= step and (self.stop is None or step < self.stop)


def read_launch(run: RunFolder, attempt: int) -> Launch:
    """Read where an attempt began."""
    path = run.launch(attempt)
    try:
        fields = json.loads(path.read_bytes())
        return Launch(**{**fields, "events": tuple(fields["events"]), "process": tuple(fields["process"])})
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLedgerError(
            f"{path} is not what a ledger wrote ({error}). Restore it from a copy; the other attempts stay readable."
        ) from error
    except FileNotFoundError as error:
        raise CorruptLedgerError(
            f"{path} is missing: nobody can say where attempt {attempt} began. Restore it from a copy."
        ) from error


def lineage(starts: Iterable[tuple[int, int]]) -> list[Span]:
    """Return who owns which steps, from (attempt, first step) of every attempt that left rows.

    >>> [(s.attempt, s.start, s.stop) for s in lineage([(0, 0), (1, 90), (2, 70)])]
    [(0, 0, 70), (2, 70, None)]
    """
    spans: list[Span] = []
    end: int | None = None
    for attempt, start in sorted(starts, reverse=True):
        if end is None or start < end:
            spans.append(Span(attempt, start, end))
            end = start
    return spans[::-1]


_PATIENCE_SECONDS = 120.0
_IDS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID")
_RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


def open_attempt(run: RunFolder, world: World, make: Callable[[int], Launch]) -> tuple[Launch, RankFolder]:
    """Return the attempt this rank belongs to, and the folder that now is this rank's alone.

    Args:
        run: The run.
        world: Who asks.
        make: Gives the ``Launch`` to sign a new attempt of this number with.
    """
    store = _store(world)
    if store is None:
        launch = _join_or_claim(run, world, make)
    else:
        launch = _agree(store, run, world, make)
    folder = run.rank(launch.attempt, world.rank)
    try:
        folder.path.mkdir()
    except FileExistsError as error:
        raise LedgerError(
            f"{folder.path} belongs to another process already: two processes write as rank {world.rank} of attempt "
            f"{launch.attempt}. Give each its rank= and world_size=, or each run its own folder."
        ) from error
    sync_folder(folder.path.parent)
    return launch, folder


def launch_token(world: World) -> str:
    """Return what the ranks of one launch have in common, and other launches have not."""
    explicit = os.environ.get("LADING_LAUNCH")
    if explicit:
        return explicit
    ids = [os.environ.get(name, "") for name in _IDS]
    named = [i for i in ids if i not in ("", "none")]
    restarts = [os.environ.get(name, "") for name in _RESTARTS]
    if not named:
        local = os.environ.get("LOCAL_WORLD_SIZE", str(world.world_size))
        across = local != str(world.world_size)  # several machines: their launchers are different processes
        address = [os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")]
        named = address if across else [socket.gethostname(), *map(str, process_identity(os.getppid()))]
    return fingerprint([named, restarts])


def process_identity(pid: int) -> tuple[int, int]:
    """Return a process's id and start time: together they are never used again. 0 where there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return pid, int(fields[19])
    except (OSError, IndexError, ValueError):
        return pid, 0


def _join_or_claim(run: RunFolder, world: World, make: Callable[[int], Launch]) -> Launch:
    """Join the newest attempt if it is of this launch and waits for this rank; else claim the number after it."""
    while True:
        numbers = run.attempts()  # looked at once a turn: who joins and who claims must have seen the same
        if world.world_size > 1 and numbers and _waits(run, numbers[-1], world, make):
            return read_launch(run, numbers[-1])
        claimed = _claim(run, make, max(numbers, default=-1) + 1)
        if claimed is not None:
            return claimed


def _waits(run: RunFolder, attempt: int, world: World, make: Callable[[int], Launch]) -> bool:
    """Say whether an attempt is of this launch and waits for this rank."""
    try:
        launch, mine = read_launch(run, attempt), make(attempt)
    except LedgerError:
        return False
    alike = (launch.token, launch.world_size, launch.start_step) == (mine.token, world.world_size, mine.start_step)
    return alike and not run.rank(attempt, world.rank).path.exists() and _lives(run, launch)


def _lives(run: RunFolder, launch: Launch) -> bool:
    """Say whether an attempt is going on, or ended in order: a rank may come late, but not to a crashed attempt."""
    pid, started = launch.process
    if launch.host != socket.gethostname() or not started or process_identity(pid) == (pid, started):
        return True
    return any(line.get("closed") for rank in run.ranks(launch.attempt) for line in Journal(rank.manifest).values())


def _claim(run: RunFolder, make: Callable[[int], Launch], number: int) -> Launch | None:
    """Make the folder of an attempt, with its launch inside, in one go; return None where somebody was first."""
    run.ledger.mkdir(parents=True, exist_ok=True)
    launch, aside = make(number), run.ledger / f".attempt.{os.getpid()}.{time.monotonic_ns()}.tmp"
    try:
        aside.mkdir()
        (aside / "launch.json").write_bytes(json_bytes(launch.to_dict()))
        os.rename(aside, run.attempt(number))
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        if not run.attempt(number).exists():
            raise
        return None
    sync_folder(run.ledger)
    return launch


def _agree(store: Any, run: RunFolder, world: World, make: Callable[[int], Launch]) -> Launch:
    """Let rank 0 claim a number and tell the others through the store."""
    name = f"lading/{fingerprint(str(run.path.resolve()))}"
    turn = store.count(f"{name}/turn/{world.rank}")
    if world.rank == 0:
        launch = _join_or_claim(run, World(), make)  # as if alone: always a new number
        store.set(f"{name}/attempt/{turn}", str(launch.attempt))
        return launch
    attempt = int(store.get(f"{name}/attempt/{turn}"))
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not run.launch(attempt).exists():  # network file systems show a new file to others after a while
        if time.monotonic() > deadline:
            raise LedgerError(f"{run.launch(attempt)} did not appear: is {run.path} the same folder on every machine?")
        time.sleep(0.05)
    launch = read_launch(run, attempt)
    mine = make(attempt)
    if mine.start_step != launch.start_step:
        raise LedgerError(
            f"rank {world.rank} starts at step {mine.start_step}, rank 0 at step {launch.start_step}: expected the "
            "same. Load the same checkpoint on every rank."
        )
    return launch


class _TorchStore:
    """The key-value store behind torch's process group."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def count(self, key: str) -> int:
        return int(self._store.add(key, 1))

    def set(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> str:
        return bytes(self._store.get(key)).decode()


class _JaxStore:
    """The key-value store of JAX's coordinator."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def count(self, key: str) -> int:
        turn = 1
        while True:
            try:
                self._client.key_value_set(f"{key}/{turn}", "taken")
            except Exception:  # the client has no class of its own for "exists already"
                turn += 1
                if turn > 10_000:
                    raise
                continue
            return turn

    def set(self, key: str, value: str) -> None:
        self._client.key_value_set(key, value)

    def get(self, key: str) -> str:
        return str(self._client.blocking_key_value_get(key, int(_PATIENCE_SECONDS * 1000)))


def _store(world: World) -> Any | None:
    """Return the store of a process group that is up and that this world speaks of; import nothing."""
    if world.world_size == 1:
        return None
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        if (torch.get_rank(), torch.get_world_size()) != (world.rank, world.world_size):
            return None
        found = getattr(torch.distributed_c10d, "_get_default_store", None)
        return _TorchStore(found()) if found else None
    jax = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    client = getattr(jax, "client", None)
    if jax is not None and client is not None and (jax.process_id, jax.num_processes) == (world.rank, world.world_size):
        return _JaxStore(client)
    return None
