"""The ledger: what training really consumed, on disk, whatever happens to the process.

    ledger = Ledger("runs/7", loader.plan)
    for batch, bill in loader.with_bills():
        ledger.deliver(bill)                       # it left the loader
        loss = train(batch)
        ledger.commit(bill, update=n, loss=loss)   # an update used it

``deliver`` is also called ``update``, so a ledger can be a loader's ``tracker``.
An attempt begins with the first bill: its step says where a resumed run starts.
"""

from __future__ import annotations

import functools
import json
import os
import re
import socket
import time
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lading.errors import ConfigError, LedgerError
from lading.identity import Bill, World
from lading.identity.content import content_hashes
from lading.ledger.attempts import Launch, launch_token, open_attempt, process_identity
from lading.ledger.description import Description, blocks_to_honour, describe, enter_attempt, read_events, record_event
from lading.ledger.rows import MOST_OPEN, Fate, Rows, warm_up
from lading.ledger.run_folder import LEDGER_VERSION, RunFolder
from lading.ledger.schema import APPLIED, SKIPPED
from lading.ledger.writer import Writer
from lading.order.event import Event, event_from_dict, event_to_dict
from lading.order.plan import Plan

RECORDS = ("digest", "names", "content")


class Ledger:
    """Record what one rank consumes.

    Args:
        run_dir: Folder of the run; the same for all ranks and all attempts.
        plan: The plan the bills come from. None: a Lading loader whose tracker this is brings its own; with any other,
            nothing predicts the names, so they are kept.
        record: ``digest`` (8 bytes a batch; the plan knows the rest), ``names`` or ``content`` (names and a hash of
            each sample's bytes). None: ``digest`` with a plan, ``names`` without.
        rank: This process's rank; None: as the bills say.
        world_size: Number of ranks; None: as the bills say.
        flush_every: Sync to disk after so many steps (an int) or seconds (``"5s"``). The loader also flushes before
            each checkpoint.
        on_error: What a full or read-only disk does: ``raise`` or ``warn`` and train on.
        allow_changed_plan: Go on in a run that was begun with another plan.
        names: Names of the datasets, where there is no plan.
        part_rows: Rows of ``batches`` and ``samples`` at which a Parquet part is closed.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        plan: Plan | None = None,
        *,
        record: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        flush_every: int | str = "5s",
        on_error: str = "raise",
        allow_changed_plan: bool = False,
        names: Iterable[str] = (),
        part_rows: dict[str, int] | None = None,
    ) -> None:
        _check_choices(record, on_error)
        self._record = record
        self.run_dir, self.plan, self.on_error = Path(run_dir), plan, on_error
        self.attempt: int | None = None
        self._sync = _sync_every(flush_every)
        self._world = World.current(rank, world_size) if rank is not None or world_size is not None else None
        self._allow_changed_plan, self._names, self._part_rows = allow_changed_plan, tuple(names), part_rows
        self._run = RunFolder(self.run_dir.absolute())  # training may change its folder
        self._writer: Writer | None = None
        self._last, self._settled = -1, -1
        self._open: dict[int, None] = {}
        self._broken = self._closed = False
        self._guarded(self.run_dir.mkdir, parents=True, exist_ok=True)

    @property
    def wants_batch(self) -> bool:
        """Whether ``deliver`` is to be given the batch as well as its bill."""
        return self.record == "content"

    @property
    def record(self) -> str:
        """What is kept: ``digest``, ``names`` or ``content``."""
        return self._record or ("digest" if self.plan is not None else "names")

    def begin(
        self,
        step: int,
        plan: Plan | None = None,
        world: World | None = None,
        loaded: Mapping[str, Any] | None = None,
    ) -> Plan | None:
        """Open an attempt at a step, unless the step goes on in the open one, and return the plan to follow from here.

        In a new attempt that plan has the samples blocked by hand replaced. A loader calls this whenever it starts to
        iterate; without it an attempt begins with the first bill, and follows the plan as it was given.

        Args:
            step: First step that will be delivered.
            plan: The plan as the resumed loader knows it, events included. None: the ledger's own.
            world: This rank among how many. None: looked up.
            loaded: ``run``, ``attempt``, ``launch`` and ``step`` of the state that was loaded; None without one.
        """
        self.plan = plan or self.plan
        if self._is_off() or (self._writer is not None and step > self._settled):
            return self.plan
        self._guarded(self._open_attempt, step, self._world or world or World.current(), honour_blocks=True)
        return self.plan

    def deliver(self, bill: Bill, batch: Any = None) -> None:
        """Record that a batch left the loader.

        Args:
            bill: Its bill.
            batch: The batch itself, for ``record="content"``.
        """
        self._take(bill, batch)
        if self._writer is not None and self._writer.has_news:
            self._complain()

    update = deliver

    def _take(self, bill: Bill, batch: Any = None) -> None:
        if self._is_off():
            return
        step = bill.step
        if self._writer is None or step <= self._settled:
            self._begin_with(bill)
            if self._writer is None:
                return
        elif step > self._last + 1:
            self._note_jump(step)
        elif step <= self._last:
            self._open = {s: None for s in self._open if s < step}
        self._open[step] = None
        if len(self._open) > MOST_OPEN:
            del self._open[next(iter(self._open))]
        self._last = step
        content = content_hashes(batch, len(bill)) if self.record == "content" and batch is not None else None
        now = _now()
        self._writer.put(lambda rows: rows.deliver(bill, now, content), len(bill))

    def commit(self, bills: Bill | Iterable[Bill], update: int | None = None, loss: Any = None, **metrics: Any) -> None:
        """Record that an optimizer update used one batch, or several accumulated ones.

        Args:
            bills: The bill, or the bills of one update.
            update: Number of the update.
            loss: Its loss; a float or anything that becomes one (a tensor is read in the background).
            **metrics: Further numbers by name.
        """
        loss = loss.detach() if hasattr(loss, "detach") else loss  # do not keep the graph alive
        self._settle(bills, APPLIED, update=update, loss=loss, metrics=metrics)

    def skip(self, bills: Bill | Iterable[Bill], reason: str) -> None:
        """Record that nobody used a batch, and why (an overflow, for instance)."""
        self._settle(bills, SKIPPED, reason=str(reason))

    def is_open(self, bill: Bill) -> bool:
        """Say whether a delivered batch still waits to be committed or skipped."""
        return bill.step in self._open

    def event(self, event: Event) -> None:
        """Record a change of the plan (a reweighting, a rebatching) made in this attempt."""
        if self.plan is not None:
            self.plan = self.plan.with_event(event)
        if self._world_or_first().rank == 0 and not self._is_off():
            self._guarded(self._record_plan_event, event)

    def flush(self) -> None:
        """Wait until everything recorded so far is on disk. A closed ledger is on disk already."""
        if self._writer is not None and not self._closed and not self._is_off():
            self._writer.flush()
            self._complain(insist=self.on_error == "raise")

    def close(self) -> None:
        """Write everything and close the last part. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            self._finalizer.detach()
            self._writer.close()
            self._complain(insist=True)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({str(self.run_dir)!r}, attempt={self.attempt}, record={self.record!r})"

    def _settle(self, bills: Bill | Iterable[Bill], fate: str, **fields: Any) -> None:
        if self._is_off():
            return
        several = [bills] if isinstance(bills, Bill) else list(bills)
        for bill in several:
            if bill.step not in self._open and (self._writer is None or bill.step > self._last):
                self._take(bill)
        if self._writer is None:
            return
        steps = tuple(bill.step for bill in several)
        unknown = [step for step in steps if step not in self._open]
        if unknown:
            raise LedgerError(
                f"step {unknown[0]} cannot become {fate}: its fate was recorded before in attempt {self.attempt}, or "
                f"it is not among the last {MOST_OPEN} delivered. Commit or skip each batch once, and soon."
            )
        for step in steps:
            del self._open[step]
        self._settled = max(self._settled, *steps) if steps else self._settled
        settled = Fate(steps, fate, _now(), **fields)
        self._writer.put(lambda rows: rows.settle(settled))
        if self._writer.has_news:
            self._complain()

    def _begin_with(self, bill: Bill) -> None:
        """Open the attempt that begins with a bill: the first one, or one that goes back behind what was used."""
        if self.plan is None and not self._names:
            self._names = bill.names or tuple(f"dataset {d}" for d in range(int(bill.dataset_idx.max(initial=0)) + 1))
        pending = blocks_to_honour(read_events(self._run), self.plan.events, bill.step) if self.plan else ()
        if pending:
            warnings.warn(
                f"{sum(len(b.indices) for b in pending)} samples were blocked by hand and this loader does not know: "
                f"they are used as before. Pass the ledger as the loader's tracker, or follow ledger.begin(step).",
                stacklevel=4,
            )
        self._guarded(self._open_attempt, bill.step, self._world or bill.world)

    def _fresh_description(self) -> Description:
        from lading import __version__  # at call time: the front door must not be needed to open this room

        plans: dict[str, Any] = {}
        if self.plan is not None:
            plans[self.plan.fingerprint] = json.loads(self.plan.with_events(()).to_json())
        names = self.plan.names if self.plan is not None else self._names
        return Description(LEDGER_VERSION, __version__, time.time(), self.record, names, plans, ())

    def _open_attempt(self, step: int, world: World, *, honour_blocks: bool = False) -> None:
        if self._writer is not None:
            self._writer.close()
        if self.record == "digest" and self.plan is None:
            raise ConfigError("record='digest' needs a plan: without one nobody could say what a digest stands for.")
        fresh = self._fresh_description()
        describe(self._run, fresh, allow_changed_plan=self._allow_changed_plan)
        events = self.plan.events if self.plan is not None else ()
        if honour_blocks:
            events = (*events, *blocks_to_honour(read_events(self._run), events, step))
        make = functools.partial(self._launch, step, world, fresh.lading, events)
        launch, folder = open_attempt(self._run, world, make)
        if self.plan is not None:  # whoever opened the attempt decided which blocks it honours
            self.plan = self.plan.with_events([event_from_dict(e) for e in launch.events])
        if world.rank == 0:
            enter_attempt(self._run, fresh, launch)
            record_event(self._run, "attempt", attempt=launch.attempt, step=step, world_size=world.world_size)
        warm_up()
        rows = Rows(self.record, planned=self.plan is not None)
        steps, seconds = self._sync
        self._writer = Writer(folder, rows, sync_steps=steps, sync_seconds=seconds, part_rows=self._part_rows)
        self._finalizer = weakref.finalize(self, _close_forgotten, self._writer)  # at the end of the process, too
        self._world, self.attempt = world, launch.attempt
        self._last, self._settled, self._open = step - 1, -1, {}

    def _launch(self, step: int, world: World, version: str, events: Sequence[Event], attempt: int) -> Launch:
        return Launch(
            attempt=attempt,
            start_step=step,
            world_size=world.world_size,
            token=launch_token(world),
            plan=self.plan.fingerprint if self.plan else None,
            events=tuple(event_to_dict(e) for e in events),
            time=round(time.time(), 3),
            host=socket.gethostname(),
            process=process_identity(os.getpid()),
            lading=version,
        )

    def _record_plan_event(self, event: Event) -> None:
        record_event(self._run, "plan", attempt=self.attempt, step=event.step, plan_event=event_to_dict(event))

    def _note_jump(self, step: int) -> None:
        if self._world_or_first().rank == 0:
            fields = {"attempt": self.attempt, "step": step, "from": self._last + 1}
            self._guarded(functools.partial(record_event, self._run, "jump", **fields))

    def _world_or_first(self) -> World:
        return self._world or World.current()

    def _is_off(self) -> bool:
        if self._closed:
            raise LedgerError(
                f"the ledger of {self.run_dir} is closed. Open a new Ledger to go on: a new attempt begins."
            )
        return self._broken

    def _guarded(self, action: Any, *args: Any, **options: Any) -> None:
        """Do something with the disk; where that fails, do what ``on_error`` says."""
        try:
            action(*args, **options)
        except OSError as error:
            why = error if isinstance(error, LedgerError) else _unwritable(self.run_dir, error)
            if self.on_error == "raise":
                raise why from error
            self._broken = True
            warnings.warn(f"{why} Nothing is recorded in this attempt.", stacklevel=4)

    def _complain(self, *, insist: bool = False) -> None:
        error = self._writer.take_error(insist=insist) if self._writer else None
        if error is None:
            return
        if self.on_error == "raise":
            raise error
        warnings.warn(str(error), stacklevel=3)


def _check_choices(record: str | None, on_error: str) -> None:
    if record is not None and record not in RECORDS:
        raise ConfigError(f"record is {record!r}: expected one of {', '.join(map(repr, RECORDS))}.")
    if on_error not in ("raise", "warn"):
        raise ConfigError(f"on_error is {on_error!r}: expected 'raise' or 'warn'.")


def _sync_every(flush_every: int | str) -> tuple[int | None, float | None]:
    if isinstance(flush_every, int) and not isinstance(flush_every, bool) and flush_every > 0:
        return flush_every, None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*s", flush_every) if isinstance(flush_every, str) else None
    if match is None:
        raise ConfigError(f"flush_every is {flush_every!r}: expected a number of steps (100) or of seconds ('5s').")
    return None, float(match.group(1))


def _unwritable(run_dir: Path, error: OSError) -> LedgerError:
    return LedgerError(
        f"the ledger in {run_dir} cannot be written: {error.strerror or error}. Make room, or give run_dir= a folder "
        "that can be written; pass on_error='warn' to train without a record."
    )


def _now() -> int:
    return int(time.time() * 1000)


def _close_forgotten(writer: Writer) -> None:
    """Close what a ledger left open that nobody closed."""
    writer.close()
    error = writer.take_error(insist=True)
    if error is not None:
        warnings.warn(str(error), stacklevel=2)
