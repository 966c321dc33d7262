"""The JAX face: every process reads its own rows, every step is one global batch on the mesh.

    engine ─▶ host columns of this process's rows ─▶ convert ─▶ global jax.Arrays

It needs no torch. Shapes are static: the last batch of an epoch is padded, and
says so in ``is_padding``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from lading.errors import LoaderError, missing_extra

try:
    import jax
    from jax.sharding import Mesh, PartitionSpec
except ModuleNotFoundError as error:
    raise missing_extra("jax", "jax", "lading.loader.jax.loader") from error

from lading.identity import Bill, World
from lading.loader.base import EngineLoader
from lading.loader.engine import Engine
from lading.loader.jax.placement import Placement
from lading.loader.numpy import NumpyArrays
from lading.loader.request import LoaderOptions, PlainOptions, Resume, request_of, takes
from lading.order import Plan
from lading.source.protocol import Sources
from lading.source.reader import draws_nothing

I64 = NDArray[np.int64]
DEPTH = 2  # batches that wait on the devices, behind workers


class JaxFace:
    """What the engine asks of JAX: rows follow the mesh, and batches are placed on it.

    Args:
        mesh: The mesh; None: all devices along one axis.
        spec: How a batch is cut, rows first.
        convert: Makes of the host columns what is placed.
        depth: Placed batches that wait, ready.
    """

    places = True

    def __init__(
        self, mesh: Mesh | None, spec: PartitionSpec | None, convert: Callable[[Any], Any] | None, depth: int
    ) -> None:
        self.arrays = NumpyArrays(small_names=True)
        self.depth = depth
        self._mesh, self._spec, self._convert = mesh, spec, convert
        self.places_freely = convert is None or draws_nothing(convert)
        self._shares: dict[tuple[int, World], _Share] = {}

    def world(self) -> World:
        """Look this process up among the others; asks JAX, and so starts its backend."""
        return World(jax.process_index(), jax.process_count())

    def share(self, plan: Plan, step: int, world: World) -> Bill:
        """Return the rows of this process's devices, and those it answers for."""
        share = self._share(plan.clock.batch_at(step), world)
        if share.is_own:
            return plan.bill(step, world=world, pad=True)
        return _rows_of(plan.bill(step, pad=True), share.rows).replace(world=world)

    def place(self, batch: Any, bill: Bill, batch_rows: int) -> tuple[Any, Bill, Any]:
        """Make global arrays of the rows that this process's devices hold."""
        share = self._share(batch_rows, bill.world)
        local, booked = _taken(batch, share.local), _taken(batch, share.booked)
        made = local if self._convert is None else self._convert(local)
        answered = _rows_of(bill, share.booked)
        if share.is_empty:
            answered = answered.replace(is_padding=np.ones_like(answered.is_padding), deviations=())
        return share.placement.place(made, share.device_rows), answered, booked

    def _share(self, batch_rows: int, world: World) -> _Share:
        found = self._shares.get((batch_rows, world))
        if found is None:
            found = _Share.make(Placement.make(self._mesh, self._spec, batch_rows), batch_rows, world)
            self._shares[batch_rows, world] = found
        return found


@dataclass(frozen=True)
class _Share:
    """Which rows of a global batch of some size a process reads, holds and answers for.

    Attributes:
        placement: Where rows go.
        rows: Rows that are read: those of its devices, and those it answers for (the same, unless the mesh puts the
            devices in another order than their processes). None: all.
        device_rows: Rows that its devices hold.
        local: Places of these among the rows read; None: all.
        booked: Places of the rows it answers for among the rows read; None: all.
        is_empty: Whether it answers for none; one row then stands in, as padding.
        is_own: Whether it reads the rows it answers for, and no others.
    """

    placement: Placement
    rows: I64 | None
    device_rows: I64
    local: I64 | None
    booked: I64 | None
    is_empty: bool
    is_own: bool

    @classmethod
    def make(cls, placement: Placement, batch_rows: int, world: World) -> _Share:
        """Work the rows out."""
        held = placement.local_rows()
        start, stop = world.share(batch_rows)
        answered = np.arange(start, max(stop, start + 1)) % batch_rows
        rows = np.union1d(held, answered)
        local, booked = (None if len(part) == len(rows) else np.searchsorted(rows, part) for part in (held, answered))
        is_own = local is None and booked is None and start < stop
        return cls(placement, None if len(rows) == batch_rows else rows, held, local, booked, start == stop, is_own)


def _rows_of(bill: Bill, rows: I64 | None) -> Bill:
    """Return some rows of a bill; None: all."""
    if rows is None:
        return bill
    kept = set(bill.slots[rows].tolist()) if bill.deviations else set()
    return bill.select(rows, deviations=tuple(d for d in bill.deviations if d.slot in kept))


def _taken(batch: Any, rows: I64 | None) -> Any:
    return batch if rows is None else jax.tree_util.tree_map(lambda column: column[rows], batch)


@takes(LoaderOptions, PlainOptions)
class JaxLoader(EngineLoader):
    """Yield the steps of a plan as batches of global ``jax.Array``s.

    Args:
        sources: One dataset, or several by name. Anything with ``__len__`` and ``__getitem__``.
        global_batch_size: Rows of a step, all processes together.
        mesh: The mesh; None: all devices along one axis, ``data``.
        spec: How a batch is cut, rows first; None: rows over the mesh's first axis.
        convert: Makes of the host columns what is placed on the mesh, e.g. ``lading.batch.llm_batch``. None: a dict
            with the columns and ``idx``, ``dataset_idx``, ``is_padding`` beside them; tuples stay as they are. With an
            attribute ``random_free = True`` it may run ahead in a thread.
        plan: A ready plan, instead of the arguments that describe one.
        options: See ``PlainOptions``.
    """

    def __init__(
        self,
        sources: Sources,
        global_batch_size: int | None = None,
        *,
        mesh: Mesh | None = None,
        spec: PartitionSpec | None = None,
        convert: Callable[[Any], Any] | None = None,
        plan: Plan | None = None,
        **options: Unpack[PlainOptions],
    ) -> None:
        self.mesh, self.spec, self.convert = mesh, spec, convert
        own = {"global_batch_size": global_batch_size, "pad": True}  # shapes are static
        given = self.keep(options, PlainOptions, sources=sources, **own)
        request = request_of({**given, "plan": plan, "marks_padding": True, "convert": convert})
        self.engine = Engine(
            request,
            JaxFace(mesh, spec, convert, DEPTH if given["prefetch"] is None else given["prefetch"]),
            given["tracker"],
        )
        if self.engine.fetcher.counter.leaves_out:
            raise LoaderError(
                "the collate_fn may leave samples out (its rows is a function), and batches of a JaxLoader have fixed "
                "shapes: expected a row of each sample. Let the dataset raise an error for samples that cannot be "
                "used, and pass on_bad_sample='skip' or 'substitute'."
            )

    def get_state(self) -> dict[str, Any]:
        """Return where the loader is: the same in every process, and JSON (``orbax.checkpoint.args.JsonSave``)."""
        return self.state_dict()

    def set_state(self, state: Mapping[str, Any] | str | bytes, on_resume: Resume | None = None) -> None:
        """Resume where a state was taken, on any number of processes.

        Args:
            state: What ``get_state`` returned, or its JSON.
            on_resume: What may differ; None: what the loader was made with.
        """
        self.load_state_dict(json.loads(state) if isinstance(state, str | bytes) else state, on_resume)
