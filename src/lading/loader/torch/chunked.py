"""A DataLoader that yields one chunk of batches per iteration, and the next chunk the next time.

    for epoch in range(4):                # chunk_size=30 of 112 batches
        for batch in loader: ...          # 30, 30, 30, 22: all the data; then the next pass
        validate()

A chunk is finished when its last batch was yielded: frameworks never ask
for more. One that was broken off comes again. Without ``chunk_size`` this is
torch's DataLoader and nothing else.

A sampler of the user's says how chunks are ordered:

    nothing, RandomSampler          shuffled, differently in each pass
    SequentialSampler               in order
    ChunkedSampler                  its seed and shuffle
    DistributedSampler              its seed and shuffle; the ranks share each batch
    WeightedRandomSampler           its weights, as sample_weights: planned anew in each pass
    any other                       drawn once: every pass goes through what it drew, in that order

A sampler yields an order from a state that is lost with the process; chunks
need one that can be asked for any chunk at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torch.utils.data.sampler import RandomSampler, SequentialSampler, WeightedRandomSampler

from lading.errors import LoaderError, PlanError
from lading.identity import Bill, World, fingerprint
from lading.loader.chunks import Chunks
from lading.loader.iteration import Batches
from lading.loader.torch.loader import Loader
from lading.loader.torch.rebuilt import PlannedSequentialSampler, PlanSampler, SourceView
from lading.order import Event, Plan
from lading.order.chunked_sampler import ChunkedSampler
from lading.runtime.fields import is_whole
from lading.source.reader import draws_nothing

DEFAULT_SEED = 42


def _ordered(dataset: Any, seed: int | None, shuffle: Any, sampler: Any, generator: Any) -> tuple[Any, dict[str, Any]]:
    """Return the dataset and the arguments that give ``Loader`` the order which a user of torch's DataLoader means."""
    if seed is None:
        seed = DEFAULT_SEED if generator is None else generator.initial_seed() & (2**63 - 1)
    if sampler is None:
        return dataset, {"seed": seed, "shuffle": True if shuffle is None else shuffle}
    if isinstance(sampler, ChunkedSampler):
        if sampler.shuffle == "within":
            raise LoaderError(
                "a ChunkedSampler with shuffle='within' cannot say the order of a ChunkedDataLoader, which "
                "shuffles whole passes. Pass it to torch's DataLoader(dataset, sampler=...), or take shuffle=True."
            )
        return dataset, {"seed": sampler.seed, "shuffle": sampler.shuffle}
    if isinstance(sampler, DistributedSampler):
        world = World(sampler.rank, sampler.num_replicas)
        return dataset, {"seed": sampler.seed, "shuffle": sampler.shuffle, "world": world}
    if isinstance(sampler, SequentialSampler):
        return dataset, {"seed": seed, "shuffle": False}
    if isinstance(sampler, RandomSampler) and not sampler.replacement and sampler.num_samples == len(dataset):
        if sampler.generator is not None:
            seed = sampler.generator.initial_seed() & (2**63 - 1)
        return dataset, {"seed": seed, "shuffle": True}
    if isinstance(sampler, WeightedRandomSampler) and sampler.replacement and sampler.num_samples == len(dataset):
        return dataset, {"seed": seed, "shuffle": True, "sample_weights": sampler.weights}
    return Drawn(dataset, list(sampler)), {"seed": seed, "shuffle": False}


class Drawn(Dataset[Any]):
    """The samples a sampler drew, in its order; ``idx`` counts in what was drawn."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        if not indices:
            raise LoaderError("the sampler drew nothing: expected at least one index. Pass one that is not used up.")
        self.dataset, self.indices = dataset, [int(i) for i in indices]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    @property
    def random_free(self) -> bool:
        """Whether nothing in it draws from a global random generator."""
        return draws_nothing(self.dataset)

    def fingerprint(self) -> str:
        """Return what was drawn, so that a resume with other draws is refused."""
        return fingerprint(self.indices)


class ChunkedDataLoader(DataLoader[Any]):
    """Yield the batches of one chunk per iteration; ``chunk_size`` counts batches, not samples.

    A torch ``DataLoader`` to those who ask. What it does not have itself (``num_workers``, ``sampler``,
    ``batch_sampler``, ``collate_fn`` ...) is that of the loader underneath.

    Args:
        dataset: A dataset, or ``{name: dataset}``.
        batch_size: Samples of a batch on each rank; 1 unless ``global_batch_size=`` says it for all ranks together.
        chunk_size: Batches of a chunk, or how they change: see ``Chunks``; None: the standard DataLoader, same batches.
            The last chunk of a pass may be shorter; above the data it is one chunk.
        limit_batches: Accepted and kept; it never switches chunking on, and the chunk size takes precedence.
        seed: Seed of the chunks; the order equals that of a ``ChunkedSampler`` with this seed. Default 42, or the
            generator's.
        shuffle: Whether each pass is shuffled. Default: chunks are, the standard DataLoader is not.
        sampler: Its kind says the order of chunks.
        generator: Its seed becomes the seed of the chunks.
        dataloader_kwargs: Further arguments of torch's DataLoader (or, in chunks, of ``Loader``). ``drop_last`` drops
            at the end of a pass, not of every chunk.

    Attributes:
        use_chunked: Whether a chunk size was given.
        standard_dataloader: Torch's DataLoader without chunks, None with them.

    Example:
        >>> loader = ChunkedDataLoader(range(10), batch_size=2, chunk_size=3, shuffle=False)
        >>> [[batch.tolist() for batch in loader] for _ in range(3)]
        [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9]], [[0, 1], [2, 3], [4, 5]]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        chunk_size: Any = None,
        *,
        limit_batches: int | float | None = None,
        seed: int | None = None,
        shuffle: bool | str | None = None,
        sampler: Any = None,
        generator: Any = None,
        **dataloader_kwargs: Any,
    ) -> None:
        _refuse_rebuilding(dataset, dataloader_kwargs.get("batch_sampler"))
        if batch_size is None and dataloader_kwargs.get("global_batch_size") is None:
            batch_size = 1
        if isinstance(chunk_size, int | float | str) and not is_whole(chunk_size, 1):
            raise PlanError(f"chunk_size={chunk_size!r}: expected an integer of batches from 1 up, or None.")
        # DataLoader's own __init__ is not called: everything it would make is the inner loader's
        self._chunk_size = chunk_size if chunk_size is None or is_whole(chunk_size, 1) else Chunks.of(chunk_size)
        self.limit_batches, self._dataloader_kwargs = limit_batches, dataloader_kwargs
        self.use_chunked = chunk_size is not None
        self.standard_dataloader: DataLoader[Any] | None = None
        if chunk_size is None:
            order = {"shuffle": None if shuffle is None else bool(shuffle), "sampler": sampler, "generator": generator}
            inner = DataLoader(dataset, batch_size=batch_size, **order, **dataloader_kwargs)
            # Frameworks that make a DataLoader anew read its arguments from here.
            self.__dict__.update({name: value for name, value in vars(inner).items() if not name.startswith("_")})
            self.standard_dataloader = inner
            return
        ordered, meant = _ordered(dataset, seed, shuffle, sampler, generator)
        arguments = {**meant, **_lading_only(dataloader_kwargs)}
        self._world: World | None = arguments.get("world")
        self._loader = Loader(ordered, batch_size, chunk_batches=chunk_size, **arguments)
        self.dataset = self._loader.dataset

    @property
    def chunk_size(self) -> int | None:
        """Batches of a chunk as they are now; None without chunks."""
        if isinstance(self._chunk_size, Chunks):
            return self.plan.clock.pace_at(self._loader.step).chunk_batches
        return self._chunk_size

    @chunk_size.setter
    def chunk_size(self, value: int | None) -> None:
        raise LoaderError(
            f"chunk_size is {self._chunk_size!r} and cannot become {value!r}: it belongs to the plan, by which chunks "
            "are found again after a restart. Make a new ChunkedDataLoader with it."
        )

    @property
    def dataloader_kwargs(self) -> dict[str, Any]:
        """The further arguments as they were given."""
        return self._dataloader_kwargs

    @property
    def effective_chunk_size(self) -> int | None:
        """The size that holds: ``chunk_size``. A limit never switches chunking on."""
        return self.chunk_size

    @property
    def is_chunked(self) -> bool:
        """Whether a chunk size was given; ``use_chunked`` by the name that s4 has for it."""
        return self.use_chunked

    @property
    def inner(self) -> DataLoader[Any]:
        """The loader underneath: Lading's with chunks, torch's without."""
        return self._loader if self.standard_dataloader is None else self.standard_dataloader

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "use_chunked" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name == "sampler" and self.use_chunked and (self._world or World.current()).world_size == 1:
            # A sampler in the plan's fixed order: frameworks replace what they take for shuffled, and chunks would end.
            return PlannedSequentialSampler(cast(PlanSampler, self._loader.sampler))
        return getattr(self.inner, name)

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Whether Accelerate leaves this loader as it is; with chunks it does, as it does Lading's own."""
        return self._loader._is_accelerate_prepared if self.use_chunked else False

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, value: bool) -> None:
        self.chunks._is_accelerate_prepared = value

    @property
    def chunks(self) -> Loader:
        """Lading's loader underneath."""
        if not self.use_chunked:
            raise LoaderError("this ChunkedDataLoader has no chunks: chunk_size was not given. Pass chunk_size=.")
        return self._loader

    @property
    def plan(self) -> Plan:
        """The order of the run."""
        return self.chunks.plan

    @property
    def tracker(self) -> Any:
        """What is notified of every batch yielded: anything with ``update(bill)`` and ``flush()``."""
        return self._loader.tracker if self.use_chunked else None

    @tracker.setter
    def tracker(self, tracker: Any) -> None:
        self.chunks.tracker = tracker

    @property
    def last_bill(self) -> Bill | None:
        """The bill of the batch yielded last."""
        return self._loader.last_bill if self.use_chunked else None

    @property
    def current_chunk(self) -> int:
        """Number of the chunk that comes next or is under way, over all passes."""
        return self._loader.chunk or 0 if self.use_chunked else 0

    @property
    def total_chunks(self) -> int:
        """Chunks that one pass takes; 1 without chunks."""
        return pass_chunks(self._loader) if self.use_chunked else 1

    def validated(
        self, metric: float | None = None, loss: float | None = None, on: Mapping[str, Any] | None = None
    ) -> tuple[Event, ...]:
        """Report the end of a chunk to the policies of chunks; see ``Loader.validated``."""
        return self._loader.validated(metric, loss, on) if self.use_chunked else ()

    def last_chunk(self) -> dict[str, Any]:
        """Return which steps of which plan the chunk had whose batch was yielded last; empty without chunks."""
        return self._loader.last_chunk() if self.use_chunked else {}

    def bill_at(self, batch_idx: int) -> Bill:
        """Return the bill of a batch of the chunk under way."""
        return self.chunks.bill_at(batch_idx)

    def with_bills(self) -> Batches[tuple[Any, Bill]]:
        """Iterate over (batch, bill) of one chunk."""
        return self.chunks.with_bills()

    @property
    def batches_done(self) -> int:
        """Batches of the chunk that were yielded or lie before a loaded state; see ``Loader.batches_done``."""
        return self.chunks.batches_done

    def get_chunk_info(self) -> dict[str, Any]:
        """Return where the loader stands: chunk, pass, share of the data seen; see ``chunk_info``."""
        return chunk_info(self.chunks)

    def set_chunk(self, chunk: int) -> None:
        """Move to the start of a chunk; numbers past one pass belong to the next."""
        self.chunks.move_to(self.plan.chunk_start(chunk))

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader stands, in the middle of a chunk too; empty without chunks."""
        return self._loader.state_dict() if self.use_chunked else {}

    def load_state_dict(self, state: Mapping[str, Any], **overrides: Any) -> None:
        """Resume where a state was taken, on any number of ranks and workers."""
        if self.use_chunked:
            self._loader.load_state_dict(state, **overrides)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return iter(self.inner)

    def __len__(self) -> int:
        """Return the batches of the coming chunk (or the one under way), or of the standard DataLoader."""
        return len(self.inner)


def pass_chunks(loader: Loader) -> int:
    """Return the chunks that one pass takes."""
    if loader.chunk_batches is None:
        raise LoaderError("this loader has no chunks. Pass chunk_batches= when making it.")
    clock = loader.plan.clock
    # counted, not divided: sizes may have changed inside the pass
    return clock.first_chunk(loader.epoch + 1) - clock.first_chunk(loader.epoch)


def chunk_info(loader: Loader) -> dict[str, Any]:
    """Return where a loader with chunks stands.

    Returns:
        ``current_chunk`` over all passes, ``pass``, ``pass_chunk`` of ``total_chunks`` in it, ``num_batches`` and
        ``samples_in_current_chunk`` of the chunk, ``share`` of the pass yielded so far. Everything counts from 0.
    """
    plan = loader.plan
    at = plan.locate(loader.step)
    if at.chunk is None:
        raise LoaderError("this loader has no chunks. Pass chunk_batches= when making it.")
    first, steps = plan.chunk_start(at.chunk), plan.chunk_steps(at.chunk)
    return {
        "current_chunk": at.chunk,
        "total_chunks": pass_chunks(loader),
        "pass": at.epoch,
        "pass_chunk": at.chunk - plan.clock.first_chunk(at.epoch),
        "num_batches": steps,
        "samples_in_current_chunk": int(plan.clock.spans(np.arange(first, first + steps))[1].sum()),
        "share": at.offset / plan.epoch_samples,
    }


def _refuse_rebuilding(dataset: Any, batch_sampler: Any) -> None:
    """Name what happened where a framework makes a chunked loader anew from its parts: its chunks would be lost."""
    if isinstance(dataset, SourceView) or isinstance(getattr(batch_sampler, "sampler", None), PlanSampler):
        raise LoaderError(
            "a framework is making a new loader of the parts of a ChunkedDataLoader, as Lightning does to predict: it "
            "would have no chunks, and its batches no bills. Pass lading.train.lightning.plain(loader), which "
            "Lightning leaves alone, or a Loader over the whole data."
        )


def _lading_only(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without what only torch's DataLoader knows; a batch sampler cannot be honoured."""
    if arguments.get("batch_sampler") is not None:
        raise LoaderError(
            "batch_sampler= and chunk_size= were both given: a chunk is made of batches of batch_size. Drop the "
            "batch_sampler, or give it to a DataLoader without chunk_size."
        )
    if arguments.get("in_order") is False:
        raise LoaderError("in_order=False and chunk_size= were both given: batches out of order belong to no chunk.")
    return {name: value for name, value in arguments.items() if name not in _TORCH_ONLY}


_TORCH_ONLY = ("batch_sampler", "in_order", "pin_memory_device")
