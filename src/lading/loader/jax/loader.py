"""A loader for JAX: every process reads its own rows, every step is one global batch on the mesh.

    plan ─▶ bill of a step ─▶ rows of this process ─▶ gather (a thread, ahead) ─▶ global jax.Arrays

Like the torch loader its only state is a step number, the same in every process;
it needs no torch. Shapes are static: the last batch of an epoch is padded, and
says so in ``is_padding``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lading.errors import LoaderError, missing_extra

try:
    import jax
    from jax.sharding import Mesh, PartitionSpec
except ModuleNotFoundError as error:
    raise missing_extra("jax", "jax", "lading.loader.jax.loader") from error

from lading.identity import Bill, World
from lading.loader.cursor import Cursor
from lading.loader.jax.host_rows import read_rows
from lading.loader.jax.placement import Placement
from lading.loader.planning import planned_dataset, planned_mixture
from lading.loader.state import make_state, restored_plan
from lading.order import Plan
from lading.order.mixture.request import MixtureRequest
from lading.runtime.threads import ahead
from lading.source.reader import reader_of


class JaxLoader:
    """Yield the steps of a plan as batches of global ``jax.Array``s.

    Args:
        sources: One dataset, or several by name. Anything with ``__len__`` and ``__getitem__``.
        global_batch_size: Rows of a step, all processes together.
        mesh: The mesh; None: all devices along one axis, ``data``.
        spec: How a batch is cut, rows first; None: rows over the mesh's first axis.
        convert: Makes of the host columns what is placed on the mesh, e.g. ``lading.batch.llm_batch``. None: a dict
            with the columns and ``idx``, ``dataset_idx``, ``is_padding`` beside them; tuples stay as they are.
        plan: A ready plan, instead of the arguments below up to ``drop_last``.
        seed: Same seed, same order, on every machine.
        shuffle: Whether rows are shuffled.
        weights: Shares of the datasets, by name.
        mixture: A ``MixtureSpec`` or ``MixtureRequest`` (schedule, temperature, token weights), instead of ``weights``.
        chunk_batches: Steps of a chunk. Each iteration then hands out one chunk.
        drop_last: Whether an incomplete global batch at the end of an epoch is dropped instead of padded.
        tracker: Anything with ``update(bill)`` and ``flush()``: a BatchTracker, a Ledger.
        prefetch: Batches that wait on the devices, ready.
    """

    def __init__(
        self,
        sources: Any,
        global_batch_size: int,
        *,
        mesh: Mesh | None = None,
        spec: PartitionSpec | None = None,
        convert: Callable[[Any], Any] | None = None,
        plan: Plan | None = None,
        seed: int = 0,
        shuffle: bool = True,
        weights: Mapping[str, float] | None = None,
        mixture: Any = None,
        chunk_batches: int | None = None,
        drop_last: bool = False,
        tracker: Any = None,
        prefetch: int = 2,
    ) -> None:
        self.sources = dict(sources) if isinstance(sources, Mapping) else {"data": sources}
        self.mesh, self.spec, self.convert = mesh, spec, convert
        self.tracker, self.prefetch = tracker, prefetch
        self._readers = [reader_of(source, name) for name, source in self.sources.items()]
        settings = {"seed": seed, "shuffle": "full" if shuffle else "none", "chunk_batches": chunk_batches}
        shares = mixture, MixtureRequest(weights)
        self._fresh = plan or self._make_plan(global_batch_size, shares, drop_last=drop_last, **settings)
        if self._fresh.global_batch_size != global_batch_size or len(self._fresh.datasets) != len(self.sources):
            raise LoaderError(
                f"the plan has batches of {self._fresh.global_batch_size} rows from {len(self._fresh.datasets)} "
                f"datasets, the loader {global_batch_size} from {len(self.sources)}. Make them agree."
            )
        self.plan = self._fresh
        self.last_bill: Bill | None = None
        self._cursor = Cursor()
        self._newest: object = None

    def _make_plan(self, batch: int, shares: tuple[Any, MixtureRequest], *, drop_last: bool, **settings: Any) -> Plan:
        named = zip(self.sources, self._readers, strict=True)
        datasets = tuple(planned_dataset(name, reader) for name, reader in named)
        mixed = planned_mixture(datasets, *shares, None, batch, drop_last)
        return Plan(datasets, batch, drop_last=drop_last, mixture=mixed, **settings)

    @property
    def world(self) -> World:
        """This process among how many; asks JAX, and so starts its backend."""
        return World(jax.process_index(), jax.process_count())

    @property
    def step(self) -> int:
        """The next step to hand out."""
        return self._cursor.next_step

    @property
    def epoch(self) -> int:
        """The epoch of the next step."""
        return self.plan.locate(self.step).epoch

    def __len__(self) -> int:
        """Return the steps of the whole epoch (or chunk) that the next iteration is about."""
        first, stop = self._cursor.bounds(self.plan)
        return stop - first

    def __iter__(self) -> Iterator[Any]:
        return (batch for batch, _ in self.with_bills())

    def with_bills(self) -> Iterator[tuple[Any, Bill]]:
        """Yield (global batch, bill) for one epoch or chunk; the bill is this process's share, for a ledger."""
        steps = self._cursor.begin(self.plan)
        placement = Placement.make(self.mesh, self.spec, self.plan.clock.batch)
        self._newest = token = object()
        return self._handed_out(ahead(self._batches(steps, placement), self.prefetch), steps.stop, token)

    def _handed_out(self, batches: Iterator[Any], stop: int, token: object) -> Iterator[tuple[Any, Bill]]:
        for batch, bill in batches:
            if token is self._newest:  # an older iterator no longer moves the loader
                self._cursor.hand_out(bill.step, stop)
                self.last_bill = bill
            for tracker in self._trackers():
                tracker.update(bill)
            yield batch, bill

    def _batches(self, steps: range, placement: Placement) -> Iterator[tuple[Any, Bill]]:
        rows, world, plan = placement.local_rows(), self.world, self.plan
        for step in steps:
            whole = plan.bill(step, pad=True)
            yield placement.place(self._read(whole, rows), rows), plan.bill(step, world=world, pad=True)

    def _read(self, bill: Bill, rows: Any) -> Any:
        columns = read_rows(self._readers, bill, rows, self.plan.seed)
        return self.convert(columns) if self.convert is not None else columns

    def set_epoch(self, epoch: int) -> None:
        """Move to the start of another epoch; the current one is left alone."""
        if epoch != self.epoch:
            self._cursor.move_to(self.plan.epoch_start(epoch))

    def get_state(self) -> dict[str, Any]:
        """Return where the loader stands: the same in every process, and JSON (``orbax.checkpoint.args.JsonSave``)."""
        for tracker in self._trackers():
            tracker.flush()
        return make_state(self.plan, self.step)

    def set_state(
        self, state: Mapping[str, Any] | str | bytes, *, allow_rebatch: bool = False, allow_changed_plan: bool = False
    ) -> None:
        """Go on where a state was taken, on any number of processes.

        Args:
            state: What ``get_state`` returned, or its JSON.
            allow_rebatch: Go on with another global batch size from there.
            allow_changed_plan: Go on although seed, data or weights differ.
        """
        found = json.loads(state) if isinstance(state, str | bytes) else state
        self.plan, step = restored_plan(
            found, self._fresh, allow_rebatch=allow_rebatch, allow_changed_plan=allow_changed_plan
        )
        self._cursor.move_to(step)
        self._newest, self.last_bill = None, None

    state_dict = get_state
    load_state_dict = set_state

    def _trackers(self) -> tuple[Any, ...]:
        if self.tracker is None:
            return ()
        return tuple(self.tracker) if isinstance(self.tracker, list | tuple) else (self.tracker,)
