"""The torch face: a ``DataLoader`` whose batches can be accounted for.

    sources ──┐
              ├─▶ engine ─▶ batches of tensors, each with its bill
    seed, G ──┘

It is a torch ``DataLoader`` to everyone who asks; what it yields, and in which
order, is the engine's. Among frameworks it behaves so:

    taken apart     dataset, batch_sampler and collate_fn carry the plan
    Accelerate      accelerator.prepare(loader)            the loader itself, with Accelerate's manners
    Ray Train       lading.train.ray.prepare(loader)       the loader itself, its batches on Ray's device

Nobody's caller is looked at. In a Ray Train worker a loop over a loader looks
like Ray's own wrapper, which reads a batch ahead: only a prepared loader, or
``with_bills()``, is iterated there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Unpack, cast

import torch
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory as pinned

from lading.errors import LoaderError
from lading.identity import Bill, World
from lading.loader.base import EngineLoader
from lading.loader.engine import Engine
from lading.loader.iteration import Batches
from lading.loader.request import LoaderOptions, first_size, request_of, takes
from lading.loader.torch.collate import TorchArrays
from lading.loader.torch.ray import Lockstep
from lading.loader.torch.rebuilt import (
    PlanBatchSampler,
    PlannedCollate,
    PlanSampler,
    Pulls,
    SourceView,
    index_log,
    meaning,
)
from lading.order import Plan
from lading.source.protocol import Sources


class TorchFace:
    """What the engine asks of torch."""

    places_freely = True
    depth = 2

    def __init__(self, *, pin_memory: bool, world: World | None, pad: bool | None) -> None:
        self.arrays = TorchArrays()
        self._pins, self._world, self._pad = pin_memory, world, pad

    @property
    def places(self) -> bool:
        return self._pins and torch.accelerator.is_available()

    def world(self) -> World:
        return self._world or World.current()

    def share(self, plan: Plan, step: int, world: World) -> Bill:
        return plan.bill(step, world=world, pad=self._pad)

    def place(self, batch: Any, bill: Bill, batch_rows: int) -> tuple[Any, Bill, Any]:
        batch = pinned(batch)  # type: ignore[no-untyped-call]
        return batch, bill, batch


@takes(LoaderOptions)
class Loader(Lockstep, EngineLoader, DataLoader[Any]):
    """Load batches that can be accounted for.

    Args:
        sources: One dataset, or several by name. Anything with ``__len__`` and ``__getitem__``.
        batch_size: Samples of a batch on each rank.
        shuffle: True, False, or ``"window"`` (windows of ``window_samples`` neighbours, for locality on disk). None, as
            torch has it by default, is True.
        global_batch_size: Samples of a step, all ranks together; instead of ``batch_size``.
        pad: Whether the last, incomplete batch is filled up with marked rows. None: only with several ranks.
        world: Who this process is; default: the process group, else the environment.
        drop_last: Whether an incomplete global batch at the end of an epoch is dropped.
        collate_fn, num_workers, pin_memory, timeout, worker_init_fn, multiprocessing_context, prefetch_factor,
            persistent_workers: As in torch.
        generator, in_order, pin_memory_device: As torch has them by default; anything else is refused.
        dataset: torch's name for ``sources``.
        sampler, batch_sampler: What frameworks inject when they make a loader anew.
        options: See ``LoaderOptions``.

    Example:
        >>> import numpy as np
        >>> loader = Loader({"numbers": np.arange(10)}, batch_size=4, shuffle=False)
        >>> [batch.tolist() for batch in loader]
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        >>> loader.plan.bill(2).samples
        [SampleId(dataset=0, index=8), SampleId(dataset=0, index=9)]
    """

    use_stateful_dataloader = True  # Accelerate's ``save_state`` and ``load_state`` keep the loader's state
    _is_prepared = False

    def __init__(
        self,
        sources: Sources | None = None,
        batch_size: int | None = None,
        shuffle: bool | str | None = True,
        *,
        global_batch_size: int | None = None,
        pad: bool | None = None,
        world: World | None = None,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        generator: torch.Generator | None = None,
        in_order: bool = True,
        pin_memory_device: str = "",
        dataset: Sources | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        **options: Unpack[LoaderOptions],
    ) -> None:
        shuffle = True if shuffle is None else shuffle
        if sampler is not None or batch_sampler is not None:
            asked = (batch_size, shuffle, drop_last)
            batch_size, shuffle, drop_last = meaning(sampler, batch_sampler, asked)
            batch_size = batch_size if global_batch_size is None else None  # made anew: of two sizes that mean one
        sources = _given(sources, dataset)
        _refuse(generator=generator, in_order=in_order, pin_memory_device=pin_memory_device)
        sources = sources.source if isinstance(sources, SourceView) else sources
        collate_fn = collate_fn.given if isinstance(collate_fn, PlannedCollate) else collate_fn
        own = {"global_batch_size": global_batch_size, "shuffle": shuffle, "pad": pad, "world": world}
        given = self.keep(options, LoaderOptions, sources=sources, **own)
        torchs = {
            "drop_last": drop_last,
            "collate_fn": collate_fn,
            "num_workers": num_workers,
            "timeout": timeout,
            "worker_init_fn": worker_init_fn,
            "multiprocessing_context": multiprocessing_context,
            "prefetch_factor": prefetch_factor,
            "persistent_workers": persistent_workers,
        }
        request = request_of({**given, **torchs, "batch_size": batch_size, "pin_memory": pin_memory})
        face = TorchFace(pin_memory=pin_memory, world=world, pad=pad)
        self.engine = engine = Engine(request, face, given["tracker"])
        if batch_sampler is not None:
            engine.notes.on_yield = index_log(batch_sampler, engine)
            if engine.notes.on_yield is not None:
                engine.tracker = None  # a prediction is no training
        size = batch_size or global_batch_size or first_size(given["batch_schedule"])
        view = SourceView(engine.fetcher, lambda: engine.world.rank)
        engine.dataset = view if len(engine.readers) > 1 else view.source
        planned = PlanSampler(engine, view)
        super().__init__(view, size, sampler=planned, pin_memory=pin_memory, **torchs)
        # What torch made of the arguments is replaced by parts that carry the plan.
        self._pulls = Pulls(engine)
        if batch_sampler is None:
            batch_sampler = PlanBatchSampler(planned, size, drop_last, self._pulls)
        object.__setattr__(self, "batch_sampler", batch_sampler)  # torch allows no change after __init__
        self.collate_fn = PlannedCollate(collate_fn, self._pulls)
        self._connect()

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore a copy: its parts report to it, not to nobody; on the way to a worker they are cut off."""
        vars(self).update(state)
        self._connect()

    def _connect(self) -> None:
        if isinstance(self.collate_fn, PlannedCollate):
            self.collate_fn.reports_to(self._pulls)
            cast(SourceView, self.dataset).collated_by(self.collate_fn)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if not self._is_prepared:
            self._check_lockstep()
        return self._iterate(with_bills=False)

    def with_bills(self) -> Batches[tuple[Any, Bill]]:
        """Iterate over (batch, bill); ``len`` is that of the loader."""
        return self._iterate(with_bills=True)

    def _iterate(self, *, with_bills: bool) -> Batches[Any]:
        if not self._is_prepared:
            return self._in_place(self.engine.iterate(with_bills=with_bills))
        from lading.loader.torch.accelerate import Prepared  # Accelerate has prepared this loader, so it is there

        last = self.engine.coming().stop - 1
        return Prepared(self.engine.iterate(with_bills=True), self.plan, last, with_bills=with_bills)

    def delivered(self, batches: int = 1) -> list[Bill]:
        """Report that batches of a loader built from this one reached the training loop; return their bills.

        Only needed where such a loader has worker processes: without them deliveries are noticed.

        Args:
            batches: How many, since the last report.
        """
        return [self._pulls.deliver() for _ in range(batches)]

    def state_dict(self, before: Bill | None = None) -> dict[str, Any]:
        """Return where the loader is: the same on every rank, JSON-able, at any time.

        Args:
            before: A bill yielded since the last resume; see ``EngineLoader.state_dict``.
        """
        if self._pulls.are_unreported:
            raise LoaderError(
                "batches were pulled from this loader by another one, with workers, and none was reported as "
                "delivered: the place of the run is unknown. Call loader.delivered() after each batch, or iterate over "
                "the Lading loader itself."
            )
        return super().state_dict(before)

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Whether Accelerate leaves this loader as it is; being asked, the loader takes on its manners."""
        accelerate = sys.modules.get("accelerate.state")
        if accelerate is None or not accelerate.is_initialized():  # nobody there who could have asked
            return False
        self._is_prepared = True
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, value: bool) -> None:
        self._is_prepared = bool(value)


_REFUSED = {
    "generator": (None, "the order, and the seeds of the workers, come from seed=. Pass seed=generator.initial_seed()"),
    "in_order": (True, "batches come in the order of the plan. Leave it out"),
    "pin_memory_device": ("", "batches are pinned for the current accelerator. Leave it out"),
}


def _given(sources: Any, dataset: Any) -> Any:
    """Return the datasets, by our name for them or by torch's."""
    if sources is None and dataset is None:
        raise LoaderError(
            "no dataset: expected Loader(dataset, ...), or several by name, Loader({'a': ..., 'b': ...})."
        )
    return dataset if sources is None else sources


def _refuse(**given: Any) -> None:
    """Refuse arguments of torch's DataLoader that would change nothing here."""
    for name, value in given.items():
        default, why = _REFUSED[name]
        if value is not default and value != default:
            raise LoaderError(f"{name}={value!r} has no effect on a Lading loader: {why}.")
