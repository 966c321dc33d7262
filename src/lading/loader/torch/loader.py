"""The torch face: a ``DataLoader`` whose batches can be accounted for.

    sources ──┐
              ├─▶ engine ─▶ batches of tensors, each with its bill
    seed, G ──┘

It is a torch ``DataLoader`` to everyone who asks; what it yields, and in which
order, is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import torch
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory as pinned

from lading.errors import LoaderError
from lading.identity import Bill, World
from lading.loader.engine import Engine
from lading.loader.options import LoaderOptions, takes
from lading.loader.request import first_size, request_of
from lading.loader.torch import samplers
from lading.loader.torch.collate import TorchArrays
from lading.loader.torch.prepared import PreparedLoader
from lading.loader.torch.rebuilt import PlannedCollate, SourceView
from lading.loader.torch.samplers import PlanSampler
from lading.order import Plan
from lading.source.protocol import Sources


class TorchFace:
    """What the engine asks of torch.

    Args:
        pin_memory: Whether batches are pinned, where there is an accelerator.
        world: Who this process is; None: looked up.
        pad: Whether the last, incomplete batch is filled up.
    """

    places_freely = True
    depth = 2

    def __init__(self, *, pin_memory: bool, world: World | None, pad: bool | None) -> None:
        self.arrays = TorchArrays()
        self._pins, self._world, self._pad = pin_memory, world, pad

    @property
    def places(self) -> bool:
        """Whether batches are pinned."""
        return self._pins and torch.accelerator.is_available()

    def world(self) -> World:
        """Look this process up among the others."""
        return self._world or World.current()

    def share(self, plan: Plan, step: int, world: World) -> Bill:
        """Return the slots of this rank."""
        return plan.bill(step, world=world, pad=self._pad)

    def place(self, batch: Any, bill: Bill, batch_rows: int) -> tuple[Any, Bill, Any]:
        """Pin a batch."""
        batch = pinned(batch)  # type: ignore[no-untyped-call]
        return batch, bill, batch


@takes(LoaderOptions)
class Loader(PreparedLoader, DataLoader[Any]):  # type: ignore[misc]
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
            batch_size, shuffle, drop_last = samplers.meaning(sampler, batch_sampler, asked)
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
        self.engine = Engine(request, face, given["tracker"])
        if batch_sampler is not None:
            self.engine.notes.on_yield = samplers.index_log(batch_sampler, self.engine)
            if self.engine.notes.on_yield is not None:
                self.engine.tracker = None  # a prediction is no training
        view, size = self.view(), batch_size or global_batch_size or first_size(given["batch_schedule"])
        self.engine.dataset = view if len(self.engine.readers) > 1 else view.source
        sampler = PlanSampler(self.engine, view)
        super().__init__(view, size, sampler=sampler, pin_memory=pin_memory, **torchs)
        self.dress(size, collate_fn)
        if batch_sampler is not None:
            object.__setattr__(self, "batch_sampler", batch_sampler)  # torch allows no change after __init__


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
