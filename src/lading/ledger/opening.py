"""Open an attempt: what the run is, which plan it follows, what it continues, which samples are blocked.

run.json ─▶ plans/ ─▶ log: parent, blocks, pending steps ─▶ claim or join ─▶ begun ─▶ the rank's folder
"""

from __future__ import annotations

import functools
import os
import socket
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lading.errors import ConfigError, ResumeError
from lading.identity import World
from lading.ledger.attempts import Opened, Request, launch_token, open_attempt
from lading.ledger.description import Description, check_plan, describe, keep_plan, new_description, read_description
from lading.ledger.events import pending_at
from lading.ledger.launch import Base, Launch, Range
from lading.ledger.limits import now_seconds
from lading.ledger.lineage import Ancestry, AncestryRules, blocked_by_hand, left_out, masks_to_honour, refuse_tainted
from lading.ledger.log import BlockRequest, ForgetRequest, Log, begin_log, read_log
from lading.ledger.manifest import recorded_until
from lading.ledger.run_folder import RunFolder
from lading.order.event import Block, Event, event_to_dict
from lading.order.plan import Plan
from lading.order.substitute import all_blocks
from lading.runtime.fields import COUNT, SHA256, Fields, FieldTable, Origin
from lading.runtime.processes import process_identity

_NO_PLAN = "record='digest' needs a plan: without one a digest stands for nothing. Pass the plan, or record='names'."


@dataclass(frozen=True)
class Opening:
    """An attempt that is about to be opened.

    Attributes:
        run: The run.
        step: First step.
        world: This rank among how many.
        plan: The plan, events included, or None.
        record: What to record; None: what the run records, or what suits.
        names: Names of the datasets, where there is no plan.
        lengths: Their lengths, where they are known.
        config: What the user says of the run, kept when it begins.
        loaded: What the loaded state says, or None.
        previous: The attempt of this ledger before, or None.
        follows: What another ledger of this process recorded of the same loader before, or None.
        honour_blocks: Whether the loader will follow the plan that comes back.
        allow_changed_plan: Whether a run may be continued that was begun with another plan.
        allow_unknown_parent: Whether a state of an attempt may be continued that this folder does not know.
        fork: Whether another attempt may be running.
        bases: The checkpoints that the weights were loaded from.
    """

    run: RunFolder
    step: int
    world: World
    plan: Plan | None
    record: str | None
    names: tuple[str, ...]
    lengths: tuple[int, ...]
    config: Mapping[str, Any]
    loaded: Mapping[str, Any] | None
    previous: Launch | None
    follows: Mapping[str, Any] | None
    honour_blocks: bool
    allow_changed_plan: bool
    allow_unknown_parent: bool
    fork: bool
    bases: tuple[Base, ...] = ()


def open_attempt_of(opening: Opening) -> tuple[Description, Opened]:
    """Open an attempt of a run, or join the one that the other ranks opened."""
    description = _described(opening)
    begin_log(opening.run, description.sha256)
    plan_sha256 = None if opening.plan is None else keep_plan(opening.run, opening.plan)
    make = functools.partial(_launch, opening, description, plan_sha256)
    own = None if opening.previous is None else opening.previous.attempt
    request = Request(description.run, description.sha256, opening.world, make, opening.fork, own)
    opened = open_attempt(opening.run, request)
    if opened.is_opener:
        _warn_left_behind(opening, opened.launch)
    return description, opened


def _described(opening: Opening) -> Description:
    from lading import __version__  # at call time: the front door must not be needed to open this room

    planned = opening.plan is not None
    fresh = new_description(
        __version__,
        opening.record or ("digest" if planned else "names"),
        opening.plan.names if opening.plan is not None else opening.names,
        () if planned else opening.lengths,
        opening.config,
    )
    if fresh.record == "digest" and not planned:
        raise ConfigError(_NO_PLAN)
    description = describe(opening.run, fresh)
    if opening.record is not None and opening.record != description.record:
        raise ResumeError(
            f"{opening.run.path} records {description.record!r}, and record={opening.record!r} was given: one run has "
            f"one kind of evidence. Leave record= out, or give the new one a folder of its own."
        )
    return description


def _launch(opening: Opening, description: Description, plan_sha256: str | None, log: Log) -> Launch:
    """Return the launch that would come after a log."""
    run, plan = opening.run, opening.plan
    check_plan(run, log, plan, allow_changed_plan=opening.allow_changed_plan)
    ancestry = _ancestry(opening, description, log)
    refuse_tainted(log, ancestry)
    events: tuple[Event, ...] = plan.events if plan is not None else ()
    requests: tuple[BlockRequest | ForgetRequest, ...] = (*log.blocks, *log.forgets)
    if requests and plan is not None and opening.honour_blocks:
        events = (*events, *blocks_to_honour(requests, plan, opening.step))
        events = (*events, *masks_to_honour(log.forgets, plan, opening.step))
    elif requests and plan is not None:
        _check_follows(log.forgets, plan, opening.step)
    return Launch(
        attempt=max(log.launches, default=-1) + 1,
        kind=ancestry.kind,
        parent=ancestry.parent,
        start_step=opening.step,
        world_size=opening.world.world_size,
        token=launch_token(opening.world),
        plan=None if plan is None else plan.fingerprint,
        plan_sha256=plan_sha256,
        events=tuple(event_to_dict(e, whole=True) for e in events),
        pending=_pending(run, ancestry),
        host=socket.gethostname(),
        process=process_identity(os.getpid()),
        lading=description.lading,
        time=now_seconds(),
        bases=opening.bases,
    )


def _ancestry(opening: Opening, description: Description, log: Log) -> Ancestry:
    whole = functools.lru_cache(functools.partial(whole_until, opening.run))
    rules = AncestryRules(
        description.run, log, str(opening.run.path), whole, allow_unknown=opening.allow_unknown_parent
    )
    replayed = opening.previous if opening.loaded is None else None
    is_unnamed = opening.loaded is None or not opening.loaded["run"]  # a state says more than what came before it
    if opening.follows is not None and opening.previous is None and is_unnamed:
        return rules.follow(opening.step, opening.follows)
    return rules.decide(opening.step, opening.loaded, replayed)


def whole_until(run: RunFolder, launch: Launch) -> int | None:
    """Return the largest step that all ranks of an attempt recorded."""
    ranks = [recorded_until(folder) for folder in run.ranks(launch.attempt)]
    found = [last for last in ranks if last is not None]
    return min(found) if found and len(found) == launch.world_size else None


def _pending(run: RunFolder, ancestry: Ancestry) -> tuple[Range, ...]:
    """Return the steps that were used by no update when the checkpoint was taken that an attempt resumes from."""
    if ancestry.parent is None or ancestry.kind != "resume":
        return ()
    return pending_at(run.rank(ancestry.parent.attempt, 0), ancestry.parent.step)


def _warn_left_behind(opening: Opening, launch: Launch) -> None:
    if launch.kind != "root" or launch.attempt == 0:
        return
    warnings.warn(
        f"{opening.run.path} holds {launch.attempt} attempt{'s' * (launch.attempt > 1)} already, and this one starts "
        f"at step {launch.start_step} without a loaded state: a second root. Nothing is undone; what was recorded "
        "before is left behind and no part of this history (`--attempt` shows it). To resume instead, pass the saved "
        "state to loader.load_state_dict before iterating; to begin anew, give the run a new folder.",
        stacklevel=7,
    )


def checked_mark(loaded: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return what a loaded state says of its run, attempt, launch and step, every field checked."""
    if loaded is None:
        return None
    origin = Origin("the loaded state", ResumeError, "Take an older checkpoint.")
    fields = Fields(loaded, origin)
    if fields.text("run") == "":
        return {"run": "", "attempt": -1, "launch": "", "step": fields.integer("step", low=0)}
    return fields.read(_MARK)


_MARK: FieldTable = {
    "run": functools.partial(Fields.hexadecimal, digits=32),
    "attempt": COUNT,
    "launch": SHA256,
    "step": COUNT,
}


def blocks_to_honour(blocks: Iterable[BlockRequest | ForgetRequest], plan: Plan, step: int) -> tuple[Block, ...]:
    """Return the block events that a plan lacks, to act from a step on."""
    known = set(left_out(all_blocks(plan.blocked, plan.events, plan.parts)))
    wanted: dict[tuple[int, str], list[int]] = {}
    for sample, reason in blocked_by_hand(blocks).items():
        if sample not in known:
            wanted.setdefault((sample.dataset, reason), []).append(sample.index)
    return tuple(Block(step, dataset, tuple(indices), reason) for (dataset, reason), indices in wanted.items())


def _check_follows(forgets: list[ForgetRequest], plan: Plan, step: int) -> None:
    """Refuse a loader that does not follow the ledger and would use what must be forgotten."""
    if blocks_to_honour(forgets, plan, step) or masks_to_honour(forgets, plan, step):
        raise ResumeError(
            "samples or documents of this run must be forgotten, and this loader does not know: it would use them "
            "again. Pass the ledger as the loader's tracker (loader.tracker = ledger), or follow ledger.begin(step)."
        )


def warn_of_blocks(run: RunFolder, plan: Plan, step: int) -> None:
    """Say that samples were blocked by hand, where a loader does not follow what the ledger knows."""
    pending = blocks_to_honour(read_log(run, read_description(run).sha256).blocks, plan, step)
    if pending:
        warnings.warn(
            f"{sum(len(b.indices) for b in pending)} samples were blocked by hand and this loader does not know: they "
            "are used as before. Pass the ledger as the loader's tracker, or follow ledger.begin(step).",
            stacklevel=6,
        )
