"""The engine under every loader: what makes a batch accounted for, without a framework.

    request ─▶ plan ─▶ bill of a step ─▶ this process's rows ─▶ fetch (here, in a thread, in workers)
                                                                  │
    tracker, cursor, policy, last bill ◀── deliver ◀── place ◀────┘

Its only state is a step number (``Cursor``) and the events of the plan: the
order is a pure function, so resuming costs microseconds wherever it lands, on
any number of ranks and workers. A batch counts as delivered the moment it is
yielded: the cursor advances, the trackers are notified, and only then does
the caller get it.

What differs between torch, JAX and NumPy is asked of a ``Face``.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lading.errors import LoaderError, WorldError
from lading.identity import Bill, World, fingerprint
from lading.identity.agreement import agree
from lading.identity.hashing import key64
from lading.loader import planning, reweighting
from lading.loader.adaptive.runner import ChunkRunner, announcing, measured, rescored
from lading.loader.bad_samples import BadSamples
from lading.loader.cursor import Cursor
from lading.loader.face import Face
from lading.loader.fetch import Delivery, Fetcher, FetchRequest
from lading.loader.iteration import Iteration, Stream, ended
from lading.loader.names import column_keys
from lading.loader.prefetch import Delivered, capped_prefetch_factor, in_this_process, most_ahead, placed
from lading.loader.request import LoaderRequest
from lading.loader.state import Resume, make_state, read_state, restored_plan
from lading.loader.trackers import Trackers
from lading.loader.workers import ThreadWorkers, Workers
from lading.order import Block, Choose, Event, Plan, Rebatch, Rescore, Reweight
from lading.order.agreement import agree_on_plan
from lading.order.mixture.weights import Weights
from lading.runtime.random_state import isolated_rng
from lading.source.reader import Reader

_NOTHING: Mapping[int, frozenset[int]] = {}


class Engine:
    """Plan, world, cursor, fetching, events and state of a loader.

    Args:
        request: What the user asked for.
        face: The framework's part.
        tracker: Anything with ``update(bill)`` and ``flush()``, or several of them.

    Attributes:
        last_bill: The bill of the batch yielded last.
        dataset: What worker processes see as their dataset (``get_worker_info().dataset``).
        on_yield: Called with the bill of each batch of the newest iteration, before its user gets it.
    """

    def __init__(self, request: LoaderRequest, face: Face, tracker: Any = None) -> None:
        self.request, self.face, self.tracker = request, face, tracker
        policies = request.on_bad_sample.by_source(request.sources)
        self.fetcher = Fetcher(request.sources, request.seed, request.collate_fn, policies, face.arrays)
        _ = self.readers  # refuses what is no source at once
        if request.workers.kind == "threads" and request.workers.num_workers and not self.fetcher.random_free:
            raise LoaderError(
                "workers='threads' needs sources and a collate_fn that draw no random numbers from the global "
                "generators, which belong to training: say so with random_free = True on each, or use processes."
            )
        self.cursor = Cursor()
        self.bad_samples = BadSamples(request.on_bad_sample.limit)
        self.last_bill: Bill | None = None
        self.dataset: Any = None
        self.on_yield: Callable[[Bill], None] | None = None
        self._policy = reweighting.PolicyRunner.of(request.policy)
        self._plan: Plan | None = None
        self._world: World | None = None
        self._has_agreed = False  # with the other ranks, on the plan
        self._workers: Workers | ThreadWorkers | None = None
        self._newest: weakref.ref[Iteration] | None = None  # weak: dropping the iterator ends its workers
        self._chunks = ChunkRunner(request.chunks)
        self._carried: tuple[int, Stream] | None = None  # step, and the stream that already reads from it on
        self._requested: list[tuple[int, Event]] = []  # events of this process, and the next step when they were made
        self._loaded: dict[str, Any] | None = None  # the state loaded last, until its first batch is yielded

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_workers": None, "_newest": None, "_carried": None}

    @property
    def readers(self) -> Sequence[Reader]:
        """How each source is read, by number."""
        return self.fetcher.readers

    @property
    def tracker(self) -> Any:
        """What is notified of every batch yielded."""
        return self._tracker

    @tracker.setter
    def tracker(self, tracker: Any) -> None:
        self._tracker, self._trackers = tracker, Trackers(tracker)

    @property
    def world(self) -> World:
        """This rank among how many; looked up at first use, then frozen."""
        if self._world is None:
            self._world = self.face.world()
        return self._world

    @property
    def plan(self) -> Plan:
        """The order of the run, events included; made at first use."""
        if self._plan is None:
            self._plan = self._fresh_plan()
        return self._plan

    @property
    def step(self) -> int:
        """The next step to yield."""
        return self.cursor.next_step

    def described(self) -> str:
        """Return where the loader is, in a few words; nothing is looked up for it."""
        if self._plan is None:
            return f"step {self.step}"
        at, steps = self._plan.locate(self.step), self.iteration_steps()
        of = f"chunk {at.chunk}" if at.chunk is not None else f"epoch {at.epoch}"
        return f"step {self.step}, {self.step - steps.start} of {len(steps)} in {of}"

    def iteration_steps(self) -> range:
        """Return the steps of the epoch or chunk that the next iteration covers."""
        return range(*self.cursor.bounds(self.plan)) if self.delivers else range(0)

    @property
    def delivers(self) -> bool:
        """Whether there is anything to deliver: some sample and, with ``drop_last``, a complete batch of them."""
        return self._plan is not None or planning.delivers(self.request, self.readers, self.world)

    @property
    def batches_done(self) -> int:
        """Batches of the epoch or chunk that are behind the loader: yielded, or before a loaded state."""
        is_under_way = self._newest is not None and self._newest() is not None
        return (self.step if is_under_way else self.coming().start) - self.iteration_steps().start

    def share_of(self, step: int) -> Bill:
        """Return what this rank answers for at a step, before anything is loaded."""
        return self.plan.bill(step, world=self.world, pad=self.request.pad)

    def bill_at(self, batch_idx: int) -> Bill:
        """Return the bill of a batch of the current epoch or chunk, counted from its start."""
        last = self.last_bill.step if self.last_bill is not None else self.step
        at = self.plan.locate(last)
        first = self.plan.epoch_start(at.epoch) if at.chunk is None else self.plan.chunk_start(at.chunk)
        step = first + batch_idx
        return self.bad_samples.bill(step) or self.share_of(step)

    def iterate(self, *, with_bills: bool) -> Iteration:
        """Start an iteration: an epoch or chunk, or the rest of it where a state was loaded.

        Args:
            with_bills: Whether to yield (batch, bill) or the batch alone.
        """
        if not self.delivers:
            return Iteration(self, ended(), range(0), 0, with_bills)
        whole, steps = self.iteration_steps(), self.begin()
        stream = self._take_carried(steps.start)
        self._end_older()
        if stream is None:
            stream = self.stream_from(steps)
        iteration = Iteration(self, stream, whole, steps.start, with_bills)
        self._newest = weakref.ref(iteration)
        return iteration

    def stream_from(self, steps: range) -> Stream:
        """Return what is read for an iteration; where there are chunks it runs on over their borders."""
        runs_on = self.request.chunks is not None and not self._policy.is_paused
        coming = itertools.count(steps.start) if runs_on else steps
        requests = _requests(weakref.ref(self), coming, self.name_columns())
        return self._stream(requests, self.plan)

    def carry(self, iteration: Iteration, stream: Stream, step: int) -> None:
        """Keep a stream whose iteration has ended: the next chunk is read while this one is trained and validated."""
        is_newest = self._newest is not None and iteration is self._newest()
        if self.request.chunks is not None and not self._policy.is_paused and is_newest:
            iteration.release()
            self._carried = step, stream

    def _take_carried(self, step: int) -> Stream | None:
        """Return the stream that reads from a step on already, if there is one."""
        if self._policy.is_paused:
            return None
        if self._carried is not None and self._carried[0] != step:
            self.drop_carried()
        carried, self._carried = self._carried, None
        return None if carried is None else carried[1]

    def drop_carried(self) -> None:
        """End what is read ahead over the border of a chunk: something else comes there now."""
        carried, self._carried = self._carried, None
        if carried is not None:
            carried[1].close()

    def renumbered(self, bill: Bill) -> Bill:
        """Return a bill with the chunk that its step has now: sizes may have changed since it was read."""
        if bill.chunk is None or not self.plan.events:
            return bill
        chunk = self.plan.locate(bill.step).chunk
        return bill if chunk == bill.chunk else bill.replace(chunk=chunk)

    def coming(self) -> range:
        """Return the steps that an iteration would yield if it started now."""
        return self.cursor.coming(self.plan) if self.delivers else range(0)

    def begin(self) -> range:
        """Agree with the other ranks, notify the trackers, and return the steps of the iteration that starts.

        A loop that fetches with a DataLoader of its own calls this and reports each batch with ``note``.
        """
        self._check_world()
        steps = self.coming()
        if not self._has_agreed and not self._policy.is_paused:
            agree_on_plan(self.world, self.plan, steps.start)
            self._has_agreed = True
        for event in self._trackers.begin(steps.start, self.plan, self.world, self._loaded):
            self._plan = self.plan.with_event(event)
            self.drop_carried()
        if not self._policy.is_paused:
            self._chunks.choose(self, steps.start)
        self.fetcher.parts = self.plan.parts
        self.cursor.begin(steps, self.plan)
        return steps

    def name_columns(self) -> Mapping[str, str]:
        """Return the key in dict batches of each name column."""
        return column_keys(self.request.names, self.request.sources.values(), may_pad=self._may_pad())

    def deliver(self, iteration: Iteration, bill: Bill, delivery: Delivery, stop: int) -> None:
        """Note that a batch is yielded. Only the newest iteration moves the cursor."""
        is_newest = self._newest is not None and iteration is self._newest()
        self.note(bill, stop, delivery.batch if delivery.content is None else delivery.content, moves=is_newest)

    def note(self, bill: Bill, stop: int, batch: Any = None, *, moves: bool = True) -> None:
        """Note that a batch reached the training loop.

        Args:
            bill: Its bill.
            stop: Step that ends the iteration.
            batch: Its content, for trackers that want it.
            moves: Whether the loader is at the next step now.
        """
        if moves:
            self.cursor.advance(bill.step, stop)
            self.last_bill = bill
            if self.on_yield is not None:
                self.on_yield(bill)
        self._loaded = None
        if bill.deviations:
            self.bad_samples.note(bill)
        self._trackers.update(bill, batch)
        if moves and self._policy.wants(self.step):
            with announcing(self, "a reweighting", self.request.policy):
                chosen = self._policy.choose(self.plan, self.step)
            if chosen is not None:
                self.reweight(chosen, reweighting.reason_of(self.request.policy))

    def fetch_request(self, step: int, names: Mapping[str, str]) -> FetchRequest:
        """Return what is asked of a worker for a step."""
        plan = self.plan
        blocked = {d: frozenset(table) for d, table in plan.blocked_at(step).items()} or _NOTHING
        return FetchRequest(self.face.share(plan, step, self.world), names, blocked)

    def move_to(self, step: int) -> None:
        """Move to a step of the plan without loading a state: nothing that was trained on is undone."""
        self.drop_carried()
        self.cursor.move_to(step)
        self.bad_samples.clear()
        self.last_bill = None

    def set_epoch(self, epoch: int) -> None:
        """Move to the start of another epoch; the current one is left alone, chunks ignore it."""
        if self.request.chunks is None and epoch != self.plan.locate(self.step).epoch:
            self.cursor.move_to(self.plan.epoch_start(epoch))

    def state(self, before: Bill | None = None) -> dict[str, Any]:
        """Return where the loader is, or was before a batch: the same on every rank, JSON-able, at any time."""
        self._trackers.flush()
        step, plan = self.step, self.plan
        if before is not None:
            step, plan = self._step_of(before), self._plan_before(before.step)
        mark = self._trackers.mark(step) or self._loaded
        chunks = self._chunks.state(plan, step)
        kept = {**self._policy.state(step), **({"chunks": chunks} if chunks else {})}
        return make_state(plan, step, kept, mark)

    def load(self, state: Mapping[str, Any], allowed: Resume) -> None:
        """Resume where a state was taken, on any number of ranks and workers."""
        saved = read_state(state)
        fresh = self._fresh_plan(saved.sizes["global_batch_size"])
        levels = planning.known_levels(self.request, self.readers, fresh) if saved.events else []
        plan = restored_plan(saved, fresh, allowed, levels, resizes=self._chunks.adapts)
        lookahead = saved.lookahead_steps
        if self.request.lookahead_steps is None:
            lookahead = max(lookahead, plan.lookahead_steps)
        self._policy.load({k: v for k, v in saved.policy.items() if k != "chunks"})
        self._chunks.load(saved.policy.get("chunks", {}))
        self._plan = plan if plan.lookahead_steps == lookahead else replace(plan, lookahead_steps=lookahead)
        self._loaded, self._has_agreed = saved.mark, False
        self._requested.clear()
        self.move_to(saved.step)

    @contextlib.contextmanager
    def peeking(self) -> Iterator[None]:
        """Let batches be looked at inside the block without taking them from the run or notifying trackers."""
        kept = self.cursor.snapshot(), self.tracker, self.last_bill, self._loaded, self._newest
        self.tracker, self._policy.is_paused = None, True
        try:
            yield
        finally:
            self._policy.is_paused = False
            snapshot, self.tracker, self.last_bill, self._loaded, self._newest = kept
            self.cursor.restore(snapshot)

    def add_event(self, event: Event) -> None:
        """Change the plan from a step on that has not been yielded."""
        if event.step < self.step:
            raise LoaderError(
                f"a {event.kind} at step {event.step} would change steps already yielded; the loader is at step "
                f"{self.step}. Events act from the next step on."
            )
        if event.step < self.step + self.plan.lookahead_steps and not isinstance(event, Choose | Rescore | Rebatch):
            self.drop_carried()
        self._plan = self.plan.with_event(event)
        self._requested.append((self.step, event))
        self._trackers.event(event)

    def reweight(self, weights: Weights, reason: str = "") -> Reweight | None:
        """Change the weights of the mixture right after what may be prefetched; None where they are the same."""
        event = reweighting.reweighted(self.plan, self.step, weights, self.world, reason)
        if event is not None:
            self.add_event(event)
        return event

    def last_chunk(self) -> dict[str, Any]:
        """Return the plan, chunk and steps of the batch yielded last; empty before the first, or without chunks."""
        bill = self.last_bill
        if bill is None or bill.chunk is None:
            return {}
        first = self.plan.chunk_start(bill.chunk)
        return {"plan": self.plan.fingerprint, "chunk": bill.chunk, "first_step": first, "stop_step": bill.step + 1}

    def validated(self, metric: Any = None, loss: Any = None, on: Mapping[str, Any] | None = None) -> tuple[Event, ...]:
        """Record a validation and tell the policies of chunks of it; return what they changed."""
        metric, loss = measured("metric", metric), measured("loss", loss)
        if not (on is None or isinstance(on, Mapping)):
            raise LoaderError(f"on={on!r}: expected a mapping, such as last_chunk() of the validation loader, or None.")
        if self.request.chunks is None or self.step <= self._chunks.last_step:
            return ()
        if self._chunks.adapts:
            self._chunks.ended(self.plan, self.step)  # refuses a call inside a chunk
        self._trackers.validated(self.step, {"metric": metric, "loss": loss, "on": dict(on or {})})
        before = len(self._requested)
        self._chunks.report(self, metric, loss)
        return tuple(event for _, event in self._requested[before:])

    def rescore(self, scores: Any, reason: str = "") -> Rescore | None:
        """Give samples other difficulties from the next epoch on that cannot have been prefetched."""
        levels = planning.levels_of(self.request, self.readers, self.plan, scores)
        return rescored(self, levels, reason)

    def block(self, dataset: str | int, indices: Sequence[int], reason: str = "") -> None:
        """Replace samples by substitutes, from the first step that cannot have been prefetched."""
        number = self.plan.number_of(dataset)
        ahead = self.plan.lookahead_steps if self.cursor.is_iterating or self._carried is not None else 0
        event = Block(self.step + ahead, number, tuple(map(int, indices)), reason)
        agree(
            self.world,
            "a block",
            {"next step": self.step, "acts at": event.step, "dataset": number, "samples": fingerprint(event.indices)},
            way_out="Every rank must call it after the same step, with the same samples. Nothing was changed.",
        )
        self.add_event(event)

    def _fresh_plan(self, first_batch: int | None = None) -> Plan:
        in_flight = self.request.in_flight(self._depth())
        return planning.make_plan(self.request, self.readers, self.world, in_flight, first_batch)

    def _depth(self) -> int:
        """Return the placed batches that may wait behind the workers."""
        return self.face.depth if self.face.places and self.face.places_freely else 0

    def _step_of(self, bill: Bill) -> int:
        if bill.step >= self.step or bill.batch_id != self.plan.batch_id(bill.epoch, bill.step):
            raise LoaderError(
                f"before={bill!r} is no batch that this loader yielded: it is at step {self.step}. Pass a bill of this "
                "run that was yielded since the last resume."
            )
        return bill.step

    def _plan_before(self, step: int) -> Plan:
        """Return the plan without the events that were requested after a step was yielded: they come again."""
        later = [event for asked, event in self._requested if asked > step]
        return self.plan.with_events([e for e in self.plan.events if e not in later]) if later else self.plan

    def _stream(self, requests: Iterator[FetchRequest], plan: Plan) -> Generator[Delivered, None, None]:
        if self.request.workers.num_workers == 0:
            may_run_ahead = self.fetcher.random_free and (self.face.places_freely or not self.face.places)
            fetch = self._fetch_and_place if self.face.places else self.fetcher
            return in_this_process(fetch, requests, self.request.prefetch, most_ahead(plan) if may_run_ahead else 0)
        stream = self._worker_pool(plan).run(requests)
        if not self.face.places:
            return stream
        left = plan.lookahead_steps - self.request.workers.batches - 1
        return placed(stream, self._placed, max(min(self._depth(), left), 0))

    def _worker_pool(self, plan: Plan) -> Workers | ThreadWorkers:
        asked = self.request.workers
        stays = asked.persistent and not self._policy.is_paused  # batches that are only looked at disturb no others
        if self._workers is None or not stays:
            in_threads = asked.kind == "threads"
            made = (ThreadWorkers if in_threads else Workers)(
                self.fetcher if in_threads else self.fetcher.in_worker,
                num_workers=asked.num_workers,
                seed=self.request.seed,
                context=asked.context,
                prefetch_factor=capped_prefetch_factor(plan, asked),
                timeout=asked.timeout,
                worker_init_fn=asked.worker_init_fn,
                persistent=stays,
                dataset=self.dataset,
            )
            if not stays:
                return made
            self._workers = made
        return self._workers

    def _end_older(self) -> None:
        """End an iteration that shares its workers with the one to come."""
        older = self._newest() if self._newest is not None else None
        if older is not None and self.request.workers.persistent and not self._policy.is_paused:
            older.end()

    def _fetch_and_place(self, request: FetchRequest) -> Delivery:
        return self._placed(self.fetcher(request), request)

    def _placed(self, delivery: Delivery, request: FetchRequest) -> Delivery:
        if delivery.failure is not None:
            return delivery
        bill = delivery.bill or request.bill
        with contextlib.nullcontext() if self.face.places_freely else self._isolated(bill):
            batch, bill, content = self.face.place(delivery.batch, bill, self.plan.clock.batch_at(bill.step))
        return Delivery(batch, bill, None, content if self._trackers.want_batches else None)

    def _isolated(self, bill: Bill) -> contextlib.AbstractContextManager[None]:
        return isolated_rng(key64(self.request.seed, "place", bill.epoch, bill.step) >> 1)

    def _may_pad(self) -> bool:
        if self.request.marks_padding or "skip" in self.fetcher.policies:
            return True
        short = self.plan.clock.has_short_steps
        return short and (self.request.pad or (self.world.world_size > 1 and self.request.pad is None))

    def _check_world(self) -> None:
        now = self.face.world()
        if now != self.world:
            raise WorldError(
                f"this loader began as rank {self.world.rank} of {self.world.world_size} and is now rank {now.rank} of "
                f"{now.world_size}. Make the loader after the process group, or pass world=World(rank, world_size)."
            )


def _requests(reference: weakref.ref[Engine], steps: Iterable[int], names: Mapping[str, str]) -> Iterator[FetchRequest]:
    """Yield the requests of some steps without keeping the engine alive: persistent workers keep this."""
    for step in steps:
        engine = reference()
        if engine is None or (engine.plan.chosen_chunks and engine.plan.undecided_from(step) == step):
            return
        request = engine.fetch_request(step, names)
        del engine
        yield request
