"""How ranks that start together agree on the number of their attempt, and that no other process is at work.

    a process group exists   rank 0 claims a number and leaves it in the group's key-value store
    none                     the first rank claims the next number and signs it with the launch's token; a rank that
                             finds a launch of its own token that runs and waits for it joins it

A number is claimed by creating a record of the run's log: of two processes that
claim the same number one succeeds, and the other finds the winner's.
"""

from __future__ import annotations

import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lading.errors import CorruptLedgerError, LadingError, LedgerError
from lading.identity import World, fingerprint
from lading.identity.world import key_value_store, waited
from lading.ledger.begun import (
    Begun,
    begun_if_readable,
    changed_lately,
    is_alive,
    leave_claim,
    leave_refusal,
    new_begun,
    read_refusal,
)
from lading.ledger.description import read_plan
from lading.ledger.launch import Launch, Seal
from lading.ledger.log import Log, append, read_log, record_bytes, sha256_of_bytes
from lading.ledger.manifest import remove_unclosed
from lading.ledger.run_folder import RankFolder, RunFolder
from lading.ledger.seal import NOTHING, newest_seal, next_seal, unsealed
from lading.runtime.files import clean_up, create_aside, renamed, sync_folder
from lading.runtime.processes import process_identity

_VISIBLE_SECONDS = 120.0
_JOIN_SECONDS = 600.0
_IDS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID")
_RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


@dataclass(frozen=True)
class Request:
    """What a rank that is about to open an attempt brings.

    Attributes:
        run_id: Id of the run.
        description_sha256: SHA-256 of ``run.json``.
        world: Who asks.
        make: Gives the launch that would come after a log.
        fork: Whether another attempt may be running.
        own: The attempt that this process was in, which other ranks may not have left yet.
    """

    run_id: str
    description_sha256: str
    world: World
    make: Callable[[Log], Launch]
    fork: bool = False
    own: int | None = None


@dataclass(frozen=True)
class Opened:
    """An attempt that this rank belongs to.

    Attributes:
        launch: Where it began.
        folder: The folder that now is this rank's alone.
        begun: What the rank said of itself.
        is_opener: Whether this process claimed the attempt.
    """

    launch: Launch
    folder: RankFolder
    begun: Begun
    is_opener: bool


def open_attempt(run: RunFolder, request: Request) -> Opened:
    """Join the attempt of this launch, or claim a new one; make this rank's folder."""
    store = key_value_store(request.world)
    opened = _join_or_claim(run, request) if store is None else _agree(store, run, request)
    opened.folder.path.mkdir()
    sync_folder(opened.folder.path.parent)
    return opened


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


def _join_or_claim(run: RunFolder, request: Request) -> Opened:
    """Join the newest attempt if it is of this launch and waits for this rank; else claim the number after it."""
    while True:
        log = current_log(run, request.description_sha256)  # read once a turn: who joins and who claims must agree
        joined = _joined(run, request, log)
        if joined is not None:
            return joined
        before = unsealed(run, log)
        if not request.fork:
            check_alone(run, before, own=request.own)
        claimed = _claim(run, log, request, next_seal(newest_seal(log), log.launches, before))
        if claimed is not None:
            return claimed


def current_log(run: RunFolder, description_sha256: str) -> Log:
    """Read the log of a run that is to be continued; refuse one that has lost records."""
    log = read_log(run, description_sha256)
    if log.problems:
        found = log.problems[0]
        raise CorruptLedgerError(
            f"{found.file} {found.text}: the run cannot be continued without it. Restore it from a copy, or give the "
            "run that continues a new folder."
        )
    return log


def _joined(run: RunFolder, request: Request, log: Log) -> Opened | None:
    if request.world.world_size == 1 or not log.launches:
        return None
    newest = log.launches[max(log.launches)]
    is_meant = (newest.token, newest.world_size) == (launch_token(request.world), request.world.world_size)
    if not is_meant or run.rank(newest.attempt, request.world.rank).begun.exists() or not _waits(run, newest):
        return None
    refused = read_refusal(run.begun(newest.attempt))
    if refused is not None:
        raise LedgerError(refused)
    others = {number: launch for number, launch in log.launches.items() if launch is not newest}
    _check_alike(run, request, replace(log, launches=others), newest)
    return _joins(run, request, newest)


def _check_alike(run: RunFolder, request: Request, before: Log, theirs: Launch) -> None:
    """Refuse to join a launch that is not the one that this rank would have made; the other ranks hear of it."""
    rank = request.world.rank
    try:
        mine = request.make(before)
        if not replace(mine, token=theirs.token).alike(theirs):
            raise LedgerError(_difference(run, rank, mine, theirs))
    except LadingError as error:
        leave_refusal(run, theirs.attempt, rank, str(error))
        raise


def _waits(run: RunFolder, launch: Launch) -> bool:
    """Say whether an attempt runs and may wait for ranks: its opener lives, and no rank has ended or died."""
    alive = is_alive(launch.host, launch.process)
    if alive is False or (alive is None and time.time() - launch.time > _JOIN_SECONDS):
        return False
    for folder in run.ranks(launch.attempt):
        begun = begun_if_readable(folder.begun)
        if begun is not None and (begun.has_ended or is_alive(begun.host, begun.process) is False):
            return False
    return True


def check_alone(run: RunFolder, before: Mapping[tuple[int, int], Begun], own: int | None = None) -> None:
    """Refuse to open an attempt while a rank of another one runs; those that are in a seal have ended."""
    for (attempt, rank), begun in sorted(before.items(), key=lambda found: -found[0][0]):
        if attempt != own and not begun.has_ended and begun.rows is None and _runs(run.rank(attempt, rank), begun):
            raise LedgerError(
                f"rank {rank} of attempt {attempt} is running: process {begun.process[0]} on {begun.host} "
                f"writes to {run.path}. Expected one attempt at a time: close its ledger or end it first, give "
                "this run a folder of its own, or pass Ledger(..., fork=True) for a second line of history."
            )


def _runs(folder: RankFolder, begun: Begun) -> bool:
    """Say whether a rank runs; one on another machine is watched until it was quiet for a minute."""
    alive = is_alive(begun.host, begun.process)
    if alive is not None:
        return alive
    before = _changed(folder)
    if changed_lately(folder):
        warnings.warn(
            f"rank {begun.rank} of attempt {begun.attempt} wrote to {folder.path} on {begun.host} less than a minute "
            f"ago, and this is {socket.gethostname()}: waiting until it was quiet for a minute, because it may still "
            "run there. A job that comes back under the same host name does not wait.",
            stacklevel=2,
        )
    while changed_lately(folder):
        time.sleep(1.0)
        if _changed(folder) != before:
            return True
    return False


def _changed(folder: RankFolder) -> list[float]:
    return [path.stat().st_mtime for path in (folder.begun, folder.tail) if path.exists()]


def _claim(run: RunFolder, log: Log, request: Request, seal: Seal) -> Opened | None:
    """Create the launch record of the next attempt; return None where another process was first."""
    launch = replace(request.make(log), seal=None if seal == NOTHING else seal)
    fields = launch.to_dict()
    launch = replace(launch, sha256=sha256_of_bytes(record_bytes(log, "launch", fields)))
    begun = new_begun(request.run_id, launch.attempt, request.world.rank, launch.sha256)
    claim = leave_claim(run, begun)
    if append(run, log, "launch", fields) is None:
        claim.unlink(missing_ok=True)
        return None
    opened = _begin(run, request, launch, begun, claim)
    tidy(run, launch.attempt)
    return opened


def tidy(run: RunFolder, attempt: int) -> None:
    """Remove what dead processes left that is of no use to readers: files aside, claims that came to nothing, parts
    that were not closed (their rows are in the tail)."""
    before = (run.begun(attempt - 1),) if attempt else ()
    for folder in (run.path, run.log, run.path / "plans", run.begun(attempt), *before):
        if folder.is_dir():
            clean_up(folder)
    for claim in run.claims(attempt):
        begun = begun_if_readable(claim)
        if begun is not None and is_alive(begun.host, begun.process) is False:
            claim.unlink(missing_ok=True)
    for rank in run.ranks(attempt - 1) if attempt else ():
        begun = begun_if_readable(rank.begun)
        if begun is not None and is_alive(begun.host, begun.process) is False:
            clean_up(rank.path)
            remove_unclosed(rank)


def _joins(run: RunFolder, request: Request, launch: Launch) -> Opened:
    """Begin in an attempt that another rank opened."""
    begun = new_begun(request.run_id, launch.attempt, request.world.rank, launch.sha256)
    return _begin(run, request, launch, begun, None)


def _begin(run: RunFolder, request: Request, launch: Launch, begun: Begun, claim: Path | None) -> Opened:
    """Say that this rank begins, by the claim that its process left if it opens the attempt; refuse where one did."""
    folder = run.rank(launch.attempt, request.world.rank)
    if not (create_aside(folder.begun, begun.to_bytes()) if claim is None else renamed(claim, folder.begun)):
        raise LedgerError(
            f"{folder.path} belongs to another process already: two processes write as rank {request.world.rank} of "
            f"attempt {launch.attempt}. Give each its rank= and world_size=, or each run its own folder."
        )
    return Opened(launch, folder, begun, claim is not None)


def _agree(store: Any, run: RunFolder, request: Request) -> Opened:
    """Let rank 0 claim a number and leave it in the store, or what kept it from doing so."""
    name = f"lading/attempt/{fingerprint(str(run.path.resolve()))}"
    key = f"{name}/{store.add(f'{name}/turn/{request.world.rank}', 1)}"
    if request.world.rank == 0:
        try:
            opened = _join_or_claim(run, replace(request, world=World()))  # as if alone: always a new number
        except Exception as error:
            store.set(key, json.dumps({"error": f"{type(error).__name__}: {error}"}))
            raise
        store.set(key, json.dumps({"attempt": opened.launch.attempt, "launch": opened.launch.sha256}))
        return opened
    text = waited(store, key, store.timeout_seconds)
    if text is None:
        raise LedgerError(f"rank 0 did not open an attempt in {run.path} within {store.timeout_seconds:g} s.")
    found = json.loads(text)
    if "error" in found:
        raise LedgerError(f"rank 0 could not open an attempt in {run.path}: {found['error']}")
    log = _visible(run, request, found["launch"])
    launch = log.launches[found["attempt"]]
    before = {n: x for n, x in log.launches.items() if n < launch.attempt}
    _check_alike(run, request, replace(log, launches=before), launch)
    return _joins(run, request, launch)


def _visible(run: RunFolder, request: Request, sha256: str) -> Log:
    """Wait until a launch record is there: network file systems show a new file to others after a while."""
    deadline = time.monotonic() + _VISIBLE_SECONDS
    while True:
        log = read_log(run, request.description_sha256)
        if log.by_hash(sha256) is not None:
            return log
        if time.monotonic() > deadline:
            raise LedgerError(
                f"the launch did not appear in {run.log}: is {run.path} the same folder on every machine?"
            )
        time.sleep(0.05)


def _difference(run: RunFolder, rank: int, mine: Launch, theirs: Launch) -> str:
    if mine.start_step != theirs.start_step:
        what = f"starts at step {mine.start_step}, the others at step {theirs.start_step}"
    elif mine.plan != theirs.plan:
        what = f"follows another plan than the others ({', '.join(_plan_differences(run, mine, theirs))})"
    else:
        what = f"continues {_named(mine)}, the others {_named(theirs)}"
    return f"rank {rank} {what}: expected the same. Load the same checkpoint and give the same arguments on every rank."


def _plan_differences(run: RunFolder, mine: Launch, theirs: Launch) -> list[str]:
    if mine.plan is None or theirs.plan is None:
        return [f"{theirs.plan or 'none'} -> {mine.plan or 'none'}"]
    known = read_plan(run, theirs.plan, theirs.plan_sha256)
    return known.differences(read_plan(run, mine.plan, mine.plan_sha256))


def _named(launch: Launch) -> str:
    parent = launch.parent
    return "nothing" if parent is None else f"attempt {parent.attempt} ({parent.launch[:8]}) at step {parent.step}"
