"""The torch face: a ``DataLoader`` whose batches can be accounted for.

    sources ──┐
              ├─▶ engine ─▶ batches of tensors, each with its bill
    seed, G ──┘

It is a torch ``DataLoader`` to everyone who asks; what it yields, and in which
order, is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.data import ConcatDataset, DataLoader
from torch.utils.data._utils.pin_memory import pin_memory as pinned

from lading.errors import LoaderError, MixtureError
from lading.identity import Bill, World
from lading.loader.bad_samples import BadSamplePolicy
from lading.loader.base import EngineLoader
from lading.loader.engine import Engine
from lading.loader.request import LoaderRequest, WorkerRequest, named_sources
from lading.loader.state import Resume
from lading.loader.torch import samplers
from lading.loader.torch.collate import TorchArrays
from lading.loader.torch.samplers import PlanSampler
from lading.order import Plan
from lading.order.mixture.request import Mixture
from lading.order.mixture.weights import Weights


class TorchFace:
    """What the engine asks of torch.

    Args:
        pin_memory: Whether batches are pinned, where there is an accelerator.
        rank, world_size: Who this process is; None: looked up.
        pad: Whether the last, incomplete batch is filled up.
    """

    places_freely = True
    depth = 2

    def __init__(self, *, pin_memory: bool, rank: int | None, world_size: int | None, pad: bool | None) -> None:
        self.arrays = TorchArrays()
        self._pins, self._world, self._pad = pin_memory, (rank, world_size), pad

    @property
    def places(self) -> bool:
        """Whether batches are pinned."""
        return self._pins and torch.accelerator.is_available()

    def world(self) -> World:
        """Look this process up among the others."""
        return World.current(*self._world)

    def share(self, plan: Plan, step: int, world: World) -> Bill:
        """Return the slots of this rank."""
        return plan.bill(step, world=world, pad=self._pad)

    def place(self, batch: Any, bill: Bill, batch_rows: int) -> tuple[Any, Bill, Any]:
        """Pin a batch."""
        batch = pinned(batch)  # type: ignore[no-untyped-call]
        return batch, bill, batch


class Loader(EngineLoader, DataLoader[Any]):  # type: ignore[misc]
    """Load batches that can be accounted for.

    Args:
        sources: One dataset, or several by name. Anything with ``__len__`` and ``__getitem__``.
        batch_size: Samples of a batch on each rank.
        global_batch_size: Samples of a step, all ranks together; instead of ``batch_size``.
        seed: Same seed, same order, on every machine.
        shuffle: True, False, or ``"window"`` (windows of ``window_samples`` neighbours, for locality on disk).
        weights: Shares of the datasets, by name or in order; an epoch is then ``epoch_samples`` (the sum of lengths).
        schedule: Weights that change as planned: ``[(0, {...}), ("2000ba", {...})]``, or see
            ``lading.order.mixture.schedule``.
        temperature: Flattens weights (or lengths) to the power 1/T.
        stopping: When an epoch of a mixture ends: ``restart``, ``first_exhausted`` or ``all_exhausted``.
        weight_unit: ``samples`` or ``tokens``: what weights are shares of; ``mean_tokens`` by name, or the sources'.
        lookahead_steps: Most batches on their way; ``reweight`` acts after that many.
        policy: Chooses weights during the run, such as ``lading.train.FollowLosses``.
        mixture: A ready ``MixtureSpec`` or a ``Mixture``; instead of all these.
        chunk_batches: Batches of a chunk. Each iteration then yields one chunk.
        drop_last: Whether an incomplete global batch at the end of an epoch is dropped.
        pad: Whether the last, incomplete batch is filled up with marked rows. None: only with several ranks.
        names: Keys of the name columns in dict batches (``{"idx": "sample_idx"}``), or False for none.
        collate_fn: Makes a batch of a list of samples.
        tracker: Anything with ``update(bill)`` and ``flush()``: a BatchTracker, a Ledger, or several of them.
        on_error: What to do about a sample that cannot be read: ``raise``, ``skip`` or ``substitute``; or by name.
        max_bad: Bad samples after which a run stops all the same.
        fingerprint: Content to look at for the plan: None, ``"sample"`` or ``"full"``.
        rank, world_size: Who this process is; default: the process group, else the environment.
        prefetch: Batches to gather ahead in a thread, without workers; None: where batches are large and used slowly.
        on_resume: What may differ between a saved run and this loader when its state is loaded.
        num_workers, pin_memory, timeout, worker_init_fn, multiprocessing_context, prefetch_factor,
            persistent_workers: As in torch.
        generator: Refused: the order comes from ``seed``.

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
        sources: Any,
        batch_size: int | None = None,
        *,
        global_batch_size: int | None = None,
        seed: int = 0,
        shuffle: bool | str = True,
        window_samples: int = 4096,
        weights: Weights | None = None,
        schedule: Any = None,
        temperature: float | None = None,
        stopping: str = "restart",
        epoch_samples: int | None = None,
        weight_unit: str = "samples",
        mean_tokens: Mapping[str, float] | None = None,
        lookahead_steps: int = Plan.lookahead_steps,
        policy: Any = None,
        mixture: Any = None,
        chunk_batches: int | None = None,
        drop_last: bool = False,
        pad: bool | None = None,
        names: Mapping[str, str] | bool | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        tracker: Any = None,
        on_error: str | Mapping[str, str] = "raise",
        max_bad: int = 100,
        fingerprint: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        prefetch: int | None = None,
        on_resume: Resume | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        generator: torch.Generator | None = None,
        dataset: Any = None,
        sampler: Any = None,
        batch_sampler: Any = None,
    ) -> None:
        if sampler is not None or batch_sampler is not None:
            asked = (batch_size, shuffle, drop_last)
            batch_size, shuffle, drop_last = samplers.meaning(sampler, batch_sampler, asked)
        if generator is not None:
            raise LoaderError(
                "generator= was given: the order of a Lading loader and the seeds of its workers come from seed=, so a "
                "generator would change nothing. Pass seed=generator.initial_seed() instead."
            )
        self.sources, self.global_batch_size, self.seed = sources, global_batch_size, seed
        self.shuffle, self.window_samples = shuffle, window_samples
        self.weights, self.mixture, self.chunk_batches, self.pad = weights, mixture, chunk_batches, pad
        self.schedule, self.temperature, self.stopping = schedule, temperature, stopping
        self.epoch_samples, self.weight_unit, self.mean_tokens = epoch_samples, weight_unit, mean_tokens
        self.lookahead_steps, self.policy = lookahead_steps, policy
        self.names, self.on_error, self.max_bad = names, on_error, max_bad
        self.fingerprint, self.rank, self.world_size = fingerprint, rank, world_size
        self.prefetch, self.on_resume = prefetch, on_resume or Resume()
        wanted = Mixture(weights, schedule, temperature, weight_unit, stopping, epoch_samples)
        if mixture is not None and wanted != Mixture():
            raise MixtureError("mixture= was given beside weights, schedule or their like: expected one of them.")
        request = LoaderRequest(
            sources=named_sources(sources),
            batch_size=batch_size,
            global_batch_size=global_batch_size,
            seed=seed,
            shuffle=shuffle,
            window_samples=window_samples,
            mixture=mixture or wanted,
            mean_tokens=mean_tokens,
            policy=policy,
            lookahead_steps=lookahead_steps,
            chunk_batches=chunk_batches,
            drop_last=drop_last,
            pad=pad,
            names=names,
            collate_fn=collate_fn,
            on_bad_sample=BadSamplePolicy(on_error, max_bad),
            fingerprint=fingerprint,
            prefetch=prefetch,
            workers=WorkerRequest(
                num_workers, prefetch_factor, timeout, worker_init_fn, multiprocessing_context, persistent_workers
            ),
        )
        face = TorchFace(pin_memory=pin_memory, rank=rank, world_size=world_size, pad=pad)
        self.engine = Engine(request, face, tracker)
        readers = self.engine.readers
        view = readers[0].source if len(readers) == 1 else ConcatDataset([r.source for r in readers])
        super().__init__(
            view,
            batch_size=batch_size or global_batch_size,
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
        if batch_sampler is not None:
            self.engine.on_yield = samplers.index_log(batch_sampler)
            object.__setattr__(self, "batch_sampler", batch_sampler)  # torch allows no change after __init__
