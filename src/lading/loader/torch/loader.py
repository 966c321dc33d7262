"""The torch face: a ``DataLoader`` whose batches can be accounted for.

    sources ──┐
              ├─▶ engine ─▶ batches of tensors, each with its bill
    seed, G ──┘

It is a torch ``DataLoader`` to everyone who asks; what it yields, and in which
order, is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory as pinned

from lading.errors import LoaderError
from lading.identity import Bill, World
from lading.loader.bad_samples import BadSamplePolicy
from lading.loader.engine import Engine
from lading.loader.request import first_size, request_of
from lading.loader.state import Resume
from lading.loader.torch import samplers
from lading.loader.torch.collate import TorchArrays
from lading.loader.torch.prepared import PreparedLoader
from lading.loader.torch.rebuilt import PlannedCollate, SourceView
from lading.loader.torch.samplers import PlanSampler
from lading.order import Plan
from lading.order.curriculum.request import Curriculum
from lading.order.mixture.request import Mixture
from lading.order.mixture.spec import MixtureSpec
from lading.order.mixture.weights import Weights


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


class Loader(PreparedLoader, DataLoader[Any]):  # type: ignore[misc]
    """Load batches that can be accounted for.

    Args:
        sources: One dataset, or several by name. Anything with ``__len__`` and ``__getitem__``.
        batch_size: Samples of a batch on each rank.
        global_batch_size: Samples of a step, all ranks together; instead of ``batch_size``.
        seed: Same seed, same order, on every machine.
        shuffle: True, False, or ``"window"`` (windows of ``window_samples`` neighbours, for locality on disk). None, as
            torch has it by default, is True.
        window_samples: Samples of a window.
        weights: Shares of the datasets, by name or in order; an epoch is then the sum of their lengths.
        mixture: A ``Mixture`` (schedule, temperature, token weights, policy ...) or a ``Curriculum``; instead of
            ``weights``.
        chunk_batches: Batches of a chunk, or ``Chunks`` that adapt. Each iteration then yields one chunk.
        batch_schedule: Global batch sizes that change as planned, ``[(0, 32), ("1000ba", 64)]``; instead of a size.
        blocked: Samples that are never used, ``{"data": [3, 9]}``: each is replaced by a substitute from step 0 on.
        pad: Whether the last, incomplete batch is filled up with marked rows. None: only with several ranks.
        names: Keys of the name columns in dict batches (``{"idx": "sample_idx"}``), or False for none.
        tracker: Anything with ``update(bill)`` and ``flush()``: a BatchTracker, a Ledger, or several of them.
        on_bad_sample: What to do about a sample that cannot be read: ``raise``, ``skip`` or ``substitute``; by the
            name of its dataset; or a ``BadSamplePolicy`` with a limit.
        fingerprint: Content to look at for the plan: None, ``"sample"`` or ``"full"``.
        world: Who this process is; default: the process group, else the environment.
        prefetch: Batches to gather ahead in a thread, without workers; None: 2 where they are large (1 MB).
            Code that may draw random numbers never runs there: ``random_free = True`` on a source says it does not.
        on_resume: What may differ between a saved run and this loader when its state is loaded.
        workers: ``"processes"``, or ``"threads"`` for sources that release the interpreter's lock while they read; they
            must be ``random_free``.
        drop_last: Whether an incomplete global batch at the end of an epoch is dropped.
        collate_fn, num_workers, pin_memory, timeout, worker_init_fn, multiprocessing_context, prefetch_factor,
            persistent_workers: As in torch.
        generator, in_order, pin_memory_device: As torch has them by default; anything else is refused.
        dataset: torch's name for ``sources``.
        sampler, batch_sampler: What frameworks inject when they make a loader anew.

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
        sources: Any = None,
        batch_size: int | None = None,
        shuffle: bool | str | None = True,
        *,
        global_batch_size: int | None = None,
        seed: int = 0,
        window_samples: int = 4096,
        weights: Weights | None = None,
        mixture: Mixture | Curriculum | MixtureSpec | Weights | None = None,
        chunk_batches: Any = None,
        batch_schedule: Sequence[tuple[Any, int]] | None = None,
        blocked: Mapping[str, Sequence[int]] | None = None,
        pad: bool | None = None,
        names: Mapping[str, str] | bool | None = None,
        tracker: Any = None,
        on_bad_sample: str | Mapping[str, str] | BadSamplePolicy = "raise",
        fingerprint: str | None = None,
        world: World | None = None,
        prefetch: int | None = None,
        on_resume: Resume | None = None,
        workers: str = "processes",
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
        dataset: Any = None,
        sampler: Any = None,
        batch_sampler: Any = None,
    ) -> None:
        shuffle = True if shuffle is None else shuffle
        if sampler is not None or batch_sampler is not None:
            asked = (batch_size, shuffle, drop_last)
            batch_size, shuffle, drop_last = samplers.meaning(sampler, batch_sampler, asked)
        sources = _given(sources, dataset)
        _refuse(generator=generator, in_order=in_order, pin_memory_device=pin_memory_device)
        sources = sources.source if isinstance(sources, SourceView) else sources
        collate_fn = collate_fn.given if isinstance(collate_fn, PlannedCollate) else collate_fn
        self.on_resume = on_resume or Resume()
        request = request_of(
            self,
            sources=sources,
            global_batch_size=global_batch_size,
            seed=seed,
            shuffle=shuffle,
            window_samples=window_samples,
            weights=weights,
            mixture=mixture,
            chunk_batches=chunk_batches,
            batch_schedule=batch_schedule,
            blocked=blocked,
            drop_last=drop_last,
            names=names,
            collate_fn=collate_fn,
            on_bad_sample=on_bad_sample,
            fingerprint=fingerprint,
            prefetch=prefetch,
            num_workers=num_workers,
            prefetch_factor=prefetch_factor,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            persistent_workers=persistent_workers,
            workers=workers,
            batch_size=batch_size,
            pad=pad,
        )
        face = TorchFace(pin_memory=pin_memory, world=world, pad=pad)
        self.engine = Engine(request, face, tracker)
        view = self.view()
        self.engine.dataset = view if len(self.engine.readers) > 1 else view.source
        super().__init__(
            view,
            batch_size=batch_size or global_batch_size or first_size(batch_schedule),
            sampler=PlanSampler(self.engine, view),
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            drop_last=drop_last,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
        )
        self.dress(batch_size or global_batch_size or first_size(batch_schedule), collate_fn)
        if batch_sampler is not None:
            self.engine.on_yield = samplers.index_log(batch_sampler)
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
