"""The ledger: what training really consumed, on disk, whatever happens to the process.

    ledger = Ledger("runs/7", loader.plan)
    for batch, bill in loader.with_bills():
        ledger.deliver(bill)                       # it left the loader
        loss = train(batch)
        ledger.commit(bill, update=n, loss=loss)   # an update used it

``deliver`` is also called ``update``, so a ledger can be a loader's ``tracker``.
An attempt begins with the first bill: its step says where a resumed run starts.
A loader also says which state it loaded, and asks for ``mark`` when a state is
taken: so an attempt knows its parent.
"""

from __future__ import annotations

import functools
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from lading.errors import LedgerError
from lading.identity import Bill, World
from lading.ledger.begun import CLOSED, FAILED, INTERRUPTED
from lading.ledger.events import JUMP, NOTE, PENDING, VALIDATED, event_text
from lading.ledger.given import check_choices, check_open, checked_bills, checked_losses, checked_number, checked_update
from lading.ledger.launch import Launch, as_ranges
from lading.ledger.limits import now_milliseconds, readable
from lading.ledger.opening import Opening, checked_mark, open_attempt_of, warn_of_blocks
from lading.ledger.rows import MOST_OPEN, Columns, Rows, content_of
from lading.ledger.run_folder import RunFolder
from lading.ledger.seal import seal_dead, seal_own
from lading.ledger.tables import APPLIED, SKIPPED
from lading.ledger.waybill.stamping import Waybills
from lading.ledger.writer import Writer, check_thread, close_forgotten, sync_every, unwritable
from lading.order.event import Event, event_from_dict, event_to_dict
from lading.order.plan import Plan
from lading.runtime.fields import LONGEST_TEXT
from lading.runtime.paths import local_path

F = TypeVar("F", bound=Callable[..., Any])


def _entry(method: F) -> F:
    """Let one thread in at a time, and no fork of the process that writes."""

    @functools.wraps(method)
    def entered(ledger: Ledger, /, *args: Any, **options: Any) -> Any:
        with ledger._entered():
            return method(ledger, *args, **options)

    return cast(F, entered)


class Ledger:
    """Record what one rank consumes. Any thread may record; states are taken by the one that iterates.

    Args:
        run_dir: Folder of the run; the same for all ranks and all attempts.
        plan: The plan the bills come from. None: a Lading loader whose tracker this is brings its own; with any other,
            nothing predicts the names, so they are kept.
        record: ``digest`` (12 bytes a batch; the plan knows the rest), ``names`` or ``content`` (names and a hash of
            each sample's bytes). None: what the run records; for a new one ``digest`` with a plan, ``names`` without.
        rank, world_size: This process's rank, and the number of ranks; None: as the bills say.
        flush_every: Sync to disk after so many steps (an int) or seconds (``"5s"``). The loader also flushes before
            each checkpoint.
        on_error: What a full or read-only disk does: ``raise`` or ``warn`` and train on.
        allow_changed_plan: Continue a run that was begun with another plan.
        allow_unknown_parent: Continue from a state that was taken in an attempt that this folder does not know;
            ``lading verify`` then calls the steps before unknown.
        fork: Open an attempt although another one is running: a second line of history.
        base: Checkpoints that the weights were loaded from, each with a waybill: a path or several.
        names: Names of the datasets, where there is no plan.
        lengths: Samples of each of them, 0 where it is unknown: reports then count passes.
        config: Settings of this run, ``{"lr": 3e-4}``, kept when it begins: ``lading ls`` shows what differs.
        part_rows: Rows of ``batches``, ``samples`` and ``events`` at which a Parquet part is closed.
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
        allow_unknown_parent: bool = False,
        fork: bool = False,
        base: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        names: Iterable[str] = (),
        lengths: Iterable[int] = (),
        part_rows: dict[str, int] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        check_choices(record, on_error)
        self._record = record
        self.run_dir, self.plan, self.on_error = local_path(run_dir), plan, on_error
        self._sync = sync_every(flush_every)
        self._world = World.current(rank, world_size) if rank is not None or world_size is not None else None
        self._allow = {"allow_changed_plan": allow_changed_plan, "allow_unknown_parent": allow_unknown_parent}
        self._fork, self._names, self._part_rows, self.config = fork, tuple(names), part_rows, dict(config or {})
        self._lengths = tuple(int(length) for length in lengths)
        self._run = RunFolder(self.run_dir.absolute())  # training may change its folder
        self._waybills = Waybills(self._run, base)
        self._complete_waybills = functools.partial(self._waybills.settle, wait=True)
        self._run_id = ""
        self._launch: Launch | None = None
        self._loaded: Mapping[str, Any] | None = None
        self._follows: Mapping[str, Any] | None = None
        self._writer: Writer | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._seal: Callable[[], None] | None = None
        self._last, self._settled = -1, -1
        self._open: dict[int, Bill] = {}
        self._marked: set[int] = set()
        self._broken = self._closed = False
        self._lock, self._iterates = threading.RLock(), 0
        self._guarded(self.run_dir.mkdir, parents=True, exist_ok=True)

    @property
    def attempt(self) -> int | None:
        """Number of the open attempt; None before the first bill."""
        return None if self._launch is None else self._launch.attempt

    @property
    def launched(self) -> dict[str, Any] | None:
        """Run, attempt and launch of the attempt opened last, and the step after the last delivered; None before."""
        if self._launch is None:
            return None
        launch, run = self._launch, self._run_id
        return {"run": run, "attempt": launch.attempt, "launch": launch.sha256, "step": self._last + 1}

    def follow(self, launched: Mapping[str, Any] | None) -> None:
        """Note in which attempt the same loader was recorded before, by another ledger of this process; None: in none.

        An attempt that is opened without a loaded state then continues that one: nothing trained on is undone.
        """
        self._follows = launched

    @property
    def is_closed(self) -> bool:
        """Whether it takes nothing more."""
        return self._closed

    @property
    def wants_batch(self) -> bool:
        """Whether ``deliver`` is to be given the batch as well as its bill."""
        return self._record == "content"

    @property
    def record(self) -> str:
        """What is kept: ``digest``, ``names`` or ``content``."""
        return self._record or ("digest" if self.plan is not None else "names")

    @_entry
    def begin(
        self,
        step: int,
        plan: Plan | None = None,
        world: World | None = None,
        loaded: Mapping[str, Any] | None = None,
    ) -> Plan | None:
        """Open an attempt at a step, unless the open one continues, and return the plan to follow from here.

        In a new attempt that plan has the samples blocked by hand replaced. A loader calls this whenever it starts to
        iterate; without it an attempt begins with the first bill, and follows the plan as it was given.

        Args:
            step: First step that will be delivered.
            plan: The plan as the resumed loader knows it, events included. None: the ledger's own.
            world: This rank among how many. None: looked up.
            loaded: What ``mark`` returned when the checkpoint was taken that was loaded, and its ``step`` (a loader's
                state has them all). None: no state was loaded.
        """
        self._iterates = threading.get_ident()
        is_new_plan = plan is not None and plan != self.plan
        self.plan = plan or self.plan
        loaded = checked_mark(loaded)
        if self._is_off() or self._continues(step, loaded, is_new_plan=is_new_plan):
            return self.plan
        if self.plan is None and not self._names:
            self._loaded = loaded  # the first bill knows the names
            return None
        self._guarded(self._open_attempt, step, self._world or world or World.current(), loaded, honour_blocks=True)
        return self.plan

    @_entry
    def mark(self, step: int | None = None) -> dict[str, Any] | None:
        """Return ``run``, ``attempt`` and ``launch`` for a checkpoint, after a flush; None before the first bill.

        Args:
            step: The next step of the loader at the checkpoint; None: the one after the last delivered.
        """
        if self._writer is None or self._launch is None or self._broken:
            return None
        step = self._last + 1 if step is None else step
        if not self._closed:  # a closed one has everything on disk
            check_thread(self._iterates)
            if step <= self._settled or step < self._launch.start_step:  # the loader was moved back without a state
                self._guarded(self._open_attempt, step, self._world or World.current(), None)
            self._note_pending(step)
            self._waybills.settle()
        self._waybills.take(self._launch.sha256, step, as_ranges([s for s in sorted(self._open) if s < step]))
        return {name: value for name, value in (self.launched or {}).items() if name != "step"}

    def deliver(self, bill: Bill, batch: Any = None) -> None:
        """Record that a batch left the loader.

        Args:
            bill: Its bill.
            batch: The batch itself, for ``record="content"``.
        """
        with self._entered():
            self._take(bill, batch)
            if self._writer is not None and self._writer.has_news:
                self._complain()

    update = deliver

    def _take(self, bill: Bill, batch: Any = None) -> None:
        if self._is_off():
            return
        self._iterates = threading.get_ident()
        step = bill.step
        if self._writer is None or self._launch is None or step <= self._settled or step < self._launch.start_step:
            self._begin_with(bill)
            if self._writer is None:
                return
        elif step > self._last + 1:
            self._note_event(step, JUMP, {"from": self._last + 1})
        elif step <= self._last:
            self._open = {s: given for s, given in self._open.items() if s < step}
        content = content_of(batch, bill) if self.wants_batch and batch is not None else None
        self._writer.put(Rows.deliver, bill, now_milliseconds(), content, samples=len(bill))
        self._open[step] = bill
        if len(self._open) > MOST_OPEN:
            del self._open[next(iter(self._open))]
        self._last = step

    def commit(
        self,
        bills: Bill | Iterable[Bill],
        update: int | None = None,
        loss: Any = None,
        row_losses: Any = None,
        **metrics: Any,
    ) -> None:
        """Record that an optimizer update used one batch, or several accumulated ones.

        Args:
            bills: The bill, or the bills of one update.
            update: Number of the update.
            loss: Its loss as it is now; a float or anything that becomes one (a device is waited for by the writer).
            row_losses: The loss of each row of this rank's batch, NaN where it is unknown, in the batch's order: an
                array, a tensor or a list. With a list of bills, a list of as many of them (None: unknown).
            **metrics: Further numbers by name.
        """
        with self._entered():
            numbers = {name: checked_number(name, value) for name, value in metrics.items()} if metrics else None
            self._waybills.update = update = checked_update(update)
            if row_losses is not None:
                bills = bills if isinstance(bills, Bill) else checked_bills(bills)
                row_losses = checked_losses(bills, row_losses)
            self._settle(bills, APPLIED, update, checked_number("loss", loss), numbers, None, row_losses)

    @_entry
    def skip(self, bills: Bill | Iterable[Bill], reason: str) -> None:
        """Record that a batch was not used, and why (an overflow, for instance)."""
        self._settle(bills, SKIPPED, None, None, None, str(reason))

    def is_open(self, bill: Bill) -> bool:
        """Say whether a delivered batch still waits to be committed or skipped."""
        return bill.step in self._open

    @_entry
    def event(self, event: Event) -> None:
        """Record a change of the plan (a reweighting, a rebatching) made in this attempt."""
        if self.plan is not None:
            self.plan = self.plan.with_event(event)
        if not self._is_off():
            self._note_event(event.step, event.kind, event_to_dict(event, whole=True))

    @_entry
    def validated(self, step: int, fields: Mapping[str, Any]) -> None:
        """Record a validation before a step: what was measured, and on which steps of which plan."""
        if not self._is_off():
            self._note_event(step, VALIDATED, fields)

    @_entry
    def note(self, step: int, text: str) -> None:
        """Record a sentence about this attempt from a step on; ``verify`` repeats it."""
        if not self._is_off():
            self._note_event(step, NOTE, {"text": readable(text, LONGEST_TEXT)})

    @_entry
    def record_columns(self, table: str, pieces: Iterable[Columns]) -> None:
        """Record rows of ``rollouts``, ``uses`` or ``fates``, column by column; ``begin`` opened the attempt."""
        if self._writer is not None and not self._is_off():
            self._writer.put(Rows.add_columns, table, pieces)

    @_entry
    def checkpoint(self, path: str | os.PathLike[str], state: Mapping[str, Any], *, after: Any = None) -> None:
        """Say what a checkpoint that was saved learned from: its waybill, beside its files or inside its folder.

        Another thread hashes; it appears with a later ``commit``, ``mark``, ``checkpoint`` or ``close``.

        Args:
            path: Folder or file, completely written by all ranks. Every rank may call this, rank 0 writes.
            state: What the loader's ``state_dict()`` returned for it.
            after: The future of a save that is still under way.
        """
        if not self._broken and (self._world or World.current()).rank == 0:
            self._waybills.begin_with(path, state, self._run_id, self._launch, after)
            self._waybills.settle(wait=self._closed)

    @_entry
    def flush(self) -> None:
        """Wait until everything recorded so far is on disk. A closed ledger is on disk already."""
        if self._writer is not None and not self._closed and not self._is_off():
            self._writer.flush()
            self._complain(insist=self.on_error == "raise")

    @_entry
    def close(self, *, interrupted: bool = False, failed: bool = False) -> None:
        """Write everything and close the last part. Closing twice is fine.

        Args:
            interrupted: Whether training was broken off in order, by Ctrl-C or a signal.
            failed: Whether training ended by an exception.
        """
        if self._closed and (self._writer is None or self._writer.is_over):
            return
        self._closed = True
        if self._launch is not None:  # a checkpoint may be saved afterwards
            self._waybills.take(self._launch.sha256, self._last + 1, as_ranges(sorted(self._open)))
        self._complete_waybills()
        self._end(FAILED if failed else INTERRUPTED if interrupted else CLOSED)
        if self._seal is not None:
            self._seal()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is None or self._writer is None or not self._writer.is_foreign:  # a fork that fails has its own error
            self.close(interrupted=kind is KeyboardInterrupt, failed=kind not in (None, KeyboardInterrupt))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())

    def __repr__(self) -> str:
        return f"Ledger({str(self.run_dir)!r}, attempt={self.attempt}, record={self.record!r})"

    def _repr_html_(self) -> str:
        from lading.ledger.notebook import ledger_html  # only notebooks need it

        return ledger_html(self)

    def _entered(self) -> threading.RLock:
        """Return the lock, after refusing a fork; ``deliver`` and ``commit`` take it themselves, for speed."""
        if (writer := self._writer) is not None and writer.pid != os.getpid() and not self._closed:
            writer.check_process()  # before the lock: a fork may have inherited a taken one
        return self._lock

    def _settle(self, bills: Bill | Iterable[Bill], fate: str, *fields: Any) -> None:
        """Record what became of some batches; further fields are those of ``Rows.settle`` after its time."""
        if self._is_off():
            return
        several = (bills,) if isinstance(bills, Bill) else checked_bills(bills)
        for bill in several:
            if bill.step not in self._open and (self._writer is None or bill.step > self._last):
                self._take(bill)
        writer = self._writer
        if writer is None:
            return
        check_open(several, self._open, fate, self._launch)
        steps = [bill.step for bill in several]
        self._settled = max((self._settled, *steps))
        writer.put(Rows.settle, steps, fate, now_milliseconds(), *fields)
        for step in steps:  # not before the rows are there: Ctrl-C may come at any time
            del self._open[step]
        self._waybills.settle()
        if writer.has_news:
            self._complain()

    def _continues(self, step: int, loaded: Mapping[str, Any] | None, *, is_new_plan: bool) -> bool:
        """Say whether an iteration that starts at a step belongs to the open attempt."""
        launch = self._launch
        if self._writer is None or launch is None or step <= self._settled or step < launch.start_step:
            return False
        if loaded is None or is_new_plan:
            return loaded is None
        parent = launch.parent
        is_same_load = parent is not None and (parent.launch, parent.step) == (loaded["launch"], loaded["step"])
        return loaded["launch"] == launch.sha256 or (is_same_load and self._settled < 0)

    def _begin_with(self, bill: Bill) -> None:
        """Open the attempt that begins with a bill: the first one, or one that goes back behind what was used."""
        if self.plan is None and not self._names:
            self._names = bill.names or tuple(f"dataset {d}" for d in range(int(bill.dataset_idx.max(initial=0)) + 1))
        if self.plan is not None and self._run.description.exists():
            warn_of_blocks(self._run, self.plan, bill.step)
        loaded, self._loaded = self._loaded, None
        self._guarded(self._open_attempt, bill.step, self._world or bill.world, loaded)

    def _open_attempt(
        self, step: int, world: World, loaded: Mapping[str, Any] | None, *, honour_blocks: bool = False
    ) -> None:
        self._end(CLOSED)
        opening = Opening(
            run=self._run,
            step=step,
            world=world,
            plan=self.plan,
            record=self._record,
            names=self._names,
            lengths=self._lengths,
            config=self.config,
            loaded=loaded,
            previous=self._launch,
            follows=self._follows,
            honour_blocks=honour_blocks,
            fork=self._fork,
            bases=self._waybills.bases,
            **self._allow,
        )
        description, opened = open_attempt_of(opening)
        if self.plan is not None:  # whoever opened the attempt decided which blocks it honours
            self.plan = self.plan.with_events([event_from_dict(event) for event in opened.launch.events])
        self._record, self._run_id = description.record, description.run
        self._writer = Writer(
            opened.folder,
            opened.begun,
            Rows(description.record),
            sync_steps=self._sync[0],
            sync_seconds=self._sync[1],
            part_rows=self._part_rows,
            has_peers=world.world_size > 1,
            chores=seal_dead(self._run, description.sha256) if opened.is_opener else None,
        )
        seal = functools.partial(seal_own, self._run, description.sha256, opened.launch)
        self._seal = seal if world.rank == 0 else None
        self._finalizer = weakref.finalize(self, close_forgotten, self._writer, self._complete_waybills, self._seal)
        self._world, self._launch = world, opened.launch
        self._last, self._settled, self._open, self._marked = step - 1, -1, {}, set()

    def _end(self, end: str) -> None:
        """Write everything of the open attempt, and say how it ended."""
        if self._writer is not None:
            self._writer.close(end)
            if self._finalizer is not None:  # until then: Ctrl-C may come while the disk is waited for
                self._finalizer.detach()
            self._complain(insist=True)

    def _note_event(self, step: int, kind: str, fields: Mapping[str, Any]) -> None:
        row = step, kind, event_text(step, kind, fields), now_milliseconds()
        if self._writer is not None and (self._world or World.current()).rank == 0:
            self._writer.put(Rows.add, "events", [row])

    def _note_pending(self, step: int) -> None:
        """Record which batches wait for their update while a state is taken: a resume will never use them."""
        pending = [s for s in sorted(self._open) if s < step]
        if pending or step in self._marked:
            self._marked.add(step)
            self._note_event(step, PENDING, {"steps": as_ranges(pending)})
            self.flush()

    def _is_off(self) -> bool:
        if self._closed:
            again = "Open a new Ledger to continue: a new attempt begins."
            raise LedgerError(f"the ledger of {self.run_dir} is closed. {again}")
        return self._broken

    def _guarded(self, action: Any, *args: Any, **options: Any) -> None:
        """Do something with the disk; where that fails, do what ``on_error`` says."""
        try:
            action(*args, **options)
        except OSError as error:
            why = error if isinstance(error, LedgerError) else unwritable(self.run_dir, error)
            if self.on_error == "raise":
                raise why from error
            self._broken = True
            warnings.warn(f"{why} Nothing is recorded in this attempt.", stacklevel=5)

    def _complain(self, *, insist: bool = False) -> None:
        error = self._writer.take_error(insist=insist) if self._writer else None
        if error is None:
            return
        if self.on_error == "raise" or (self._writer is not None and self._writer.is_refused):
            raise error
        warnings.warn(str(error), stacklevel=4)
