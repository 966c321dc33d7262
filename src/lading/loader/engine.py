"""The engine under every loader: what makes a batch accounted for, without a framework.

    bill ─▶ fetch ─▶ name ─▶ place ─▶ note

    bill    what this process reads of a step: a pure function of the plan
    fetch   read it and make it a batch: here, in a thread, in workers
    name    add what the bill calls each row
    place   put it where it is used: pinned, on devices
    note    advance the cursor, keep the books, tell the observers; then the caller gets it

Each is in the file of its name. Its only state is a step number (``Cursor``) and
the events of the plan: the order is a pure function, so resuming costs
microseconds wherever it lands, on any number of ranks and workers.

What differs between torch, JAX and NumPy is asked of a ``Face``.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lading.errors import LoaderError
from lading.identity import Bill, World
from lading.loader import planning
from lading.loader.adapting import Adapting
from lading.loader.bill import billed, prepare
from lading.loader.fetch import Delivered, Fetcher, FetchRequest
from lading.loader.iteration import Carrier, Iteration, Stream, check_threads, prefetched, worker_pool
from lading.loader.name import RowNamer, column_keys
from lading.loader.note import Notes, Observer, Trackers
from lading.loader.place import Face, Placer, check_world
from lading.loader.request import LoaderRequest, Resume
from lading.order import Event, Plan
from lading.order.plan_json import agree_on_plan
from lading.source.reader import Reader

if TYPE_CHECKING:
    from lading.loader.workers import ThreadWorkers, Workers


class Engine:
    """Plan, world, cursor, fetching, events and state of a loader.

    Attributes:
        notes: What is known of the batches that were yielded.
        made_plan: The plan, where it was made already.
        dataset: What worker processes see as their dataset (``get_worker_info().dataset``).
    """

    def __init__(self, request: LoaderRequest, face: Face, tracker: Any = None) -> None:
        self.request, self.face = request, face
        policies = request.on_bad_sample.by_source(request.sources)
        self.fetcher = Fetcher(request.sources, request.seed, request.collate_fn, policies, face.arrays)
        _ = self.readers  # refuses what is no source at once
        _ = self.fetcher.counter  # refuses what a collate function says of its rows and means nothing
        planning.check_sources(request, self.readers)
        self._trial = planning.try_plan(request, self.readers)
        check_threads(request.workers, self.fetcher)
        self.notes = Notes(request.on_bad_sample.limit, _observers(request))
        self.cursor, self.bad_samples = self.notes.cursor, self.notes.bad_samples
        self._launched: Mapping[str, Any] | None = None  # the attempt that recorded it last
        self.tracker = tracker
        self.dataset: Any = None
        self.made_plan: Plan | None = None
        self._world: World | None = None
        self._has_agreed = False  # with the other ranks, on the plan
        self._workers: Workers | ThreadWorkers | None = None
        self._newest: weakref.ref[Iteration] | None = None  # weak: dropping the iterator ends its workers
        self._carrier = Carrier()
        self._requested: list[tuple[int, Event]] = []  # events of this process, and the next step when they were made

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_workers": None, "_newest": None, "_carrier": Carrier(), "_trial": None}

    @property
    def readers(self) -> Sequence[Reader]:
        return self.fetcher.readers

    @property
    def tracker(self) -> Any:
        return self._tracker

    @tracker.setter
    def tracker(self, tracker: Any) -> None:
        self._launched = self.notes.trackers.launched or self._launched
        self._tracker, self.notes.trackers = tracker, Trackers(tracker)
        self.notes.trackers.follow(self._launched)
        self.notes.remarked.clear()

    @property
    def world(self) -> World:
        if self._world is None:
            self._world = self.face.world()
        return self._world

    @property
    def plan(self) -> Plan:
        if self.made_plan is None:
            self.made_plan = self._fresh_plan()
        return self.made_plan

    @property
    def step(self) -> int:
        return self.cursor.next_step

    def iteration_steps(self) -> range:
        return range(*self.cursor.bounds(self.plan)) if self.delivers else range(0)

    @property
    def delivers(self) -> bool:
        """Whether there is anything to deliver: some sample and, with ``drop_last``, a complete batch of them."""
        return self.made_plan is not None or planning.delivers(self.request, self.readers, self.world)

    @property
    def batches_done(self) -> int:
        """Batches of the epoch or chunk that are behind the loader: yielded, or before a loaded state."""
        is_under_way = self._newest is not None and self._newest() is not None
        return (self.step if is_under_way else self.coming().start) - self.iteration_steps().start

    def share_of(self, step: int) -> Bill:
        """Return what this rank answers for at a step, before anything is loaded."""
        return self.plan.bill(step, world=self.world, pad=self.request.pad)

    def iterate(self, *, with_bills: bool) -> Iteration:
        """Start an iteration: an epoch or chunk, or the rest of it where a state was loaded."""
        if not self.delivers:
            return Iteration(self, Stream(), range(0), 0, with_bills)
        whole, coming = self.begin()
        stream = None if self.notes.is_peeking else self._carrier.take(coming.start)
        self._end_older()
        iteration = Iteration(self, stream or self.steps(coming), whole, coming.start, with_bills)
        self._newest = weakref.ref(iteration)
        return iteration

    def steps(self, coming: range) -> Stream:
        """Return the batches of some steps, as far as they are on their way: the drawing above, up to the note."""
        prepare(self.plan)
        runs_on = self.request.chunks is not None and not self.notes.is_peeking  # over the borders of chunks
        steps = itertools.count(coming.start) if runs_on else coming
        bills = billed(weakref.ref(self), steps, self.name_columns())
        fetched = self._fetched(bills)
        named = map(RowNamer(self.face.arrays, own=self.fetcher.own_names), fetched)
        place = Placer(self.face, self.request.seed, lambda: self.notes.trackers.want_batches)
        placed = map(place, named) if self.face.places else named
        may_run_ahead = self.fetcher.random_free and (self.face.places_freely or not self.face.places)
        return prefetched(placed, fetched, self.request, self.plan, self._depth(), may_run_ahead=may_run_ahead)

    def deliver(self, iteration: Iteration, placed: Delivered, stop: int) -> Bill:
        """Note that a batch is yielded; return its bill. Only the newest iteration moves the cursor."""
        request, delivery = placed
        bill = delivery.bill or request.bill
        for observer in self.notes.observers:
            bill = observer.amended(self, bill)
        is_newest = self._newest is not None and iteration is self._newest()
        content = delivery.batch if delivery.content is None else delivery.content
        self.notes.note(self, bill, stop, content, moves=is_newest)
        if delivery.remark:
            self.notes.remark(bill.step, delivery.remark)
        if is_newest and bill.step + 1 == stop and self.request.chunks is not None and not self.notes.is_peeking:
            self._carrier.keep(stop, iteration.release())  # the next chunk is read while this one is validated
        return bill

    def note(self, bill: Bill, stop: int, batch: Any = None) -> None:
        """Note that a batch reached a training loop that fetches with a DataLoader of its own; see ``Notes.note``."""
        self.notes.note(self, bill, stop, batch, moves=True)

    def coming(self) -> range:
        """Return the steps that an iteration would yield if it started now."""
        return self.cursor.coming(self.iteration_steps())

    def begin(self) -> tuple[range, range]:
        """Agree with the other ranks and notify trackers; return the steps of the epoch or chunk, and those to yield.

        A loop that fetches with a DataLoader of its own calls this and reports each batch with ``note``.
        """
        plan, notes, whole = self.plan, self.notes, self.iteration_steps()
        check_world(self.world, self.face.world())
        coming = self.cursor.coming(whole)
        if not self._has_agreed and not notes.is_peeking:
            agree_on_plan(self.world, plan, coming.start)
            self._has_agreed = True
        for event in notes.trackers.begin(coming.start, plan, self.world, notes.loaded):
            self.made_plan = self.plan.with_event(event)
            self._carrier.drop()
        for observer in () if notes.is_peeking else notes.observers:
            observer.begin(self, coming.start)
        self.fetcher.parts = self.plan.parts
        if masked := self.plan.masked_at(coming.start):
            self.fetcher.masked_readers(masked)  # refused now, not in a worker
        self.cursor.begin(coming, whole)
        return whole, coming

    def name_columns(self) -> Mapping[str, str]:
        """Return the key in dict batches of each name column."""
        request, several = self.request, self.world.world_size > 1
        may_pad = request.marks_padding or "skip" in self.fetcher.policies
        if not may_pad and (request.pad or (several and request.pad is None)):
            may_pad = self.plan.clock.has_short_steps
        return column_keys(request.names, request.sources.values(), may_pad=may_pad)

    def move_to(self, step: int) -> None:
        self._carrier.drop()
        self.cursor.move_to(step)
        self.bad_samples.clear()
        self.notes.last_bill = None

    def set_epoch(self, epoch: int) -> None:
        if self.request.chunks is None and epoch != self.plan.locate(self.step).epoch:
            self.cursor.move_to(self.plan.epoch_start(epoch))

    def state(self, before: Bill | None = None) -> dict[str, Any]:
        """Return where the loader is, or was before a batch: the same on every rank, JSON-able, at any time."""
        from lading.loader.state import make_state, step_before  # not before a state is taken

        self.notes.trackers.flush()
        step, plan = self.step, self.plan
        if before is not None:
            step, plan = step_before(before, self.plan, self.step), self._plan_before(before.step)
        mark = self.notes.trackers.mark(step) or self.notes.loaded or self._launched
        kept = [observer.state(plan, step) for observer in self.notes.observers]
        return make_state(plan, step, {name: value for part in kept for name, value in part.items()}, mark)

    def load(self, state: Mapping[str, Any], allowed: Resume) -> None:
        from lading.loader.state import read_state, restored_plan

        saved = read_state(state)
        fresh = self._fresh_plan(saved.sizes["global_batch_size"])
        if saved.events and isinstance(self.request.mixture, Adapting):
            fresh = self.request.mixture.resumable(self.request, self.readers, fresh)
        resizes = any(observer.resizes for observer in self.notes.observers)
        plan = restored_plan(saved, fresh, allowed, resizes=resizes)
        lookahead = saved.lookahead_steps
        if self.request.lookahead_steps is None:
            lookahead = max(lookahead, plan.lookahead_steps)
        for observer in self.notes.observers:
            observer.load(saved.policy)
        self.made_plan = plan if plan.lookahead_steps == lookahead else replace(plan, lookahead_steps=lookahead)
        self.notes.loaded, self._has_agreed = saved.mark, False
        self.notes.remarked.clear()
        self._requested.clear()
        self.move_to(saved.step)

    @contextlib.contextmanager
    def peeking(self) -> Iterator[None]:
        notes, tracker, newest = self.notes, self.tracker, self._newest
        kept = self.cursor.snapshot(), notes.last_bill, notes.loaded
        self.tracker, notes.is_peeking = None, True
        try:
            yield
        finally:
            self.tracker, self._newest, notes.is_peeking = tracker, newest, False
            snapshot, notes.last_bill, notes.loaded = kept
            self.cursor.restore(snapshot)

    def add_event(self, event: Event) -> None:
        if event.step < self.step:
            raise LoaderError(
                f"a {event.kind} at step {event.step} would change steps already yielded; the loader is at step "
                f"{self.step}. Events act from the next step on."
            )
        if event.step < self.step + self.plan.lookahead_steps and event.rereads:
            self._carrier.drop()
        self.made_plan = self.plan.with_event(event)
        self._requested.append((self.step, event))
        self.notes.trackers.event(event)

    def validated(self, metric: Any = None, loss: Any = None, on: Mapping[str, Any] | None = None) -> tuple[Event, ...]:
        """Record a validation and tell the observers of it; return what they changed."""
        from lading.loader.chunks import measured  # few runs report validations

        found, before = measured(metric, loss, on), len(self._requested)
        for observer in self.notes.observers:
            observer.validated(self, found, self.notes.trackers)
        return tuple(event for _, event in self._requested[before:])

    def block(self, dataset: str | int, indices: Sequence[int], reason: str = "") -> None:
        from lading.loader.agreeing import blocking  # few runs block samples while they go on

        in_flight = self.plan.lookahead_steps if self.cursor.is_iterating or self._carrier.carries else 0
        self.add_event(blocking(self, dataset, indices, self.step + in_flight, reason))

    def _fresh_plan(self, first_batch: int | None = None) -> Plan:
        in_flight = self.request.in_flight(self._depth())
        return planning.make_plan(self.request, self.readers, self.world, in_flight, first_batch, self._trial)

    def _depth(self) -> int:
        """Return the placed batches that may wait behind the workers."""
        return self.face.depth if self.face.places and self.face.places_freely else 0

    def _plan_before(self, step: int) -> Plan:
        """Return the plan without the events that were requested after a step was yielded: they come again."""
        later = [event for asked, event in self._requested if asked > step]
        return self.plan.with_events([e for e in self.plan.events if e not in later]) if later else self.plan

    def _fetched(self, bills: Iterator[FetchRequest]) -> Iterator[Delivered]:
        """Fetch what bills name: in workers, or here when it is asked for."""
        asked = self.request.workers
        if not asked.num_workers:
            return map(self.fetcher.prepared().here, bills)
        if not asked.persistent or self.notes.is_peeking:  # batches that are only looked at disturb no others
            return worker_pool(asked, self.plan, self.fetcher, self.dataset, persistent=False).run(bills)
        if self._workers is None:
            self._workers = worker_pool(asked, self.plan, self.fetcher, self.dataset, persistent=True)
        return self._workers.run(bills)

    def _end_older(self) -> None:
        """End an iteration that shares its workers with the one to come."""
        older = self._newest() if self._newest is not None else None
        if older is not None and self.request.workers.persistent and not self.notes.is_peeking:
            older.end()


def _observers(request: LoaderRequest) -> list[Observer]:
    """Return who may change what comes; nobody for most loaders."""
    found: list[Observer] = []
    if request.policy is not None:
        from lading.loader.reweighting import PolicyRunner

        found.append(PolicyRunner(request.policy))
    return found if request.chunks is None else [*found, request.chunks.observer()]
