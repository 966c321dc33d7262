"""What the user asks of a loader, whatever its face: the arguments that need no framework, checked and kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeGuard

from lading.errors import LoaderError, MixtureError, PlanError, SourceError
from lading.loader.failure import BadSamplePolicy
from lading.loader.options import check_named, check_options
from lading.order.mixture.request import Mixture
from lading.order.mixture.spec import MixtureSpec, Weights
from lading.runtime.fields import is_whole
from lading.runtime.imports import is_a

if TYPE_CHECKING:
    from lading.loader.adaptive.chunks import Chunks
    from lading.order.adaptive.curriculum import Curriculum
    from lading.order.plan import Plan

PREFETCH = 2  # batches of the prefetch thread
WORKER_KINDS = ("processes", "threads")
PREFETCH_FACTOR = 2  # batches of each worker


@dataclass(frozen=True)
class WorkerRequest:
    """What the user asked of workers, as in torch.

    Attributes:
        num_workers: Processes or threads; 0: none.
        prefetch_factor: Batches that each of them holds; None: 2.
        context: How they are started: a word of ``multiprocessing``, a context, or None.
        kind: ``processes``, or ``threads`` for sources that release the interpreter's lock.
    """

    num_workers: int = 0
    prefetch_factor: int | None = None
    timeout: float = 0
    worker_init_fn: Callable[[int], None] | None = None
    context: Any = None
    persistent: bool = False
    kind: str = "processes"

    def __post_init__(self) -> None:
        if self.kind not in WORKER_KINDS:
            raise LoaderError(f"workers is {self.kind!r}: expected {' or '.join(map(repr, WORKER_KINDS))}.")

    @property
    def batches(self) -> int:
        """Batches that may be on their way in the workers."""
        return self.num_workers * (self.prefetch_factor or PREFETCH_FACTOR)


_WORKER_ARGUMENTS = {"context": "multiprocessing_context", "persistent": "persistent_workers", "kind": "workers"}
_SHUFFLES = {True: "full", False: "none", "window": "window", "full": "full", "none": "none"}


@dataclass(frozen=True, eq=False)
class LoaderRequest:
    """What the user asked of a loader; the same for every face.

    Attributes:
        sources: The datasets by name.
        batch_size: Samples of a batch on each rank.
        global_batch_size: Samples of a step, all ranks together; instead of ``batch_size``.
        plan: A ready plan, instead of making one of the rest.
        marks_padding: Whether dict batches always say which rows are padding, not only where padding can occur.
    """

    sources: Mapping[str, Any]
    seed: int
    shuffle: bool | str
    window_samples: int
    mixture: MixtureSpec | Mixture | Curriculum
    sample_weights: Any
    chunk_batches: Any
    batch_schedule: Sequence[Any] | None
    blocked: Mapping[str, Sequence[int]] | None
    masked: Mapping[str, Sequence[int]] | None
    drop_last: bool
    names: Mapping[str, str] | bool | None
    collate_fn: Callable[[list[Any]], Any] | None
    on_bad_sample: BadSamplePolicy
    fingerprint: str | None
    prefetch: int | None
    workers: WorkerRequest
    global_batch_size: int | None
    batch_size: int | None = None
    pad: bool | None = None
    plan: Plan | None = None
    marks_padding: bool = False

    def __post_init__(self) -> None:
        if self.batch_size is None and self.global_batch_size is None and not self.batch_schedule:
            raise PlanError("no batch size: expected batch_size= (a rank's) or global_batch_size= (all ranks').")
        for name in ("batch_size", "global_batch_size"):
            check_count(name, getattr(self, name))
        if self.batch_size is not None and self.global_batch_size is not None:
            raise PlanError(
                f"batch_size={self.batch_size} (a rank's) and global_batch_size={self.global_batch_size} (all ranks'): "
                "expected one of them."
            )
        _ = self.chunks  # refuses what is no size of chunks
        if self.shuffle not in _SHUFFLES:
            raise PlanError(f"shuffle is {self.shuffle!r}: expected True, False or 'window'.")
        if isinstance(self.mixture, Mixture):
            self.mixture.check_names(list(self.sources))
        if self.plan is not None and self.global_batch_size is not None:
            check_plan(self.plan, self.global_batch_size, len(self.sources))

    def described(self) -> str:
        """Return the sizes and the order in a few words."""
        size = f"batch_size={self.batch_size}" if self.batch_size else f"global_batch_size={self.global_batch_size}"
        return f"{size}, seed={self.seed}, shuffle={self.shuffle!r}"

    @functools.cached_property
    def chunks(self) -> Chunks | None:
        """How the run is cut into chunks, or None."""
        if self.chunk_batches is None:
            return None
        from lading.loader.adaptive.chunks import Chunks  # most runs have no chunks

        return Chunks.of(self.chunk_batches)

    @property
    def policy(self) -> Any:
        """What chooses weights during the run, or None."""
        return self.mixture.policy if isinstance(self.mixture, Mixture) else None

    @property
    def lookahead_steps(self) -> int | None:
        """Most steps on their way, as the user gave it."""
        return None if isinstance(self.mixture, MixtureSpec) else self.mixture.lookahead_steps

    def in_flight(self, depth: int) -> int:
        """Return the most steps on their way; ``depth``: batches that wait, placed, behind the workers."""
        if self.workers.num_workers:
            return self.workers.batches + (depth + 1 if depth else 0)
        return (PREFETCH if self.prefetch is None else self.prefetch) + 1

    @property
    def plan_shuffle(self) -> str:
        """The plan's word for ``shuffle``."""
        return _SHUFFLES[self.shuffle]


def request_of(given: Mapping[str, Any]) -> LoaderRequest:
    """Return the request that the arguments of a face make.

    Args:
        given: Every argument by its name; those that the request has no room for belong to the face.
    """
    check_options(given)
    workers = {f.name: given[_WORKER_ARGUMENTS.get(f.name, f.name)] for f in fields(WorkerRequest)}
    made = {
        "sources": named_sources(given["sources"]),
        "mixture": asked_mixture(given["weights"], given["mixture"]),
        "on_bad_sample": BadSamplePolicy.of(given["on_bad_sample"]),
        "workers": WorkerRequest(**workers),
    }
    return LoaderRequest(**{f.name: given[f.name] for f in fields(LoaderRequest) if f.name in given} | made)


def named_sources(sources: Any) -> dict[str, Any]:
    """Return the sources by name; one without a name is called ``data``."""
    if isinstance(sources, Mapping):
        named = {str(name): source for name, source in sources.items()}
        check_named(named)
        return named
    if isinstance(sources, list | tuple) and sources and all(map(_is_dataset, sources)):
        raise SourceError(
            f"sources is a {type(sources).__name__} of {len(sources)} datasets: expected one dataset, or several by "
            'name. Pass {"a": ..., "b": ...}, or torch.utils.data.ConcatDataset(...) for one order over all of them.'
        )
    check_named({"data": sources})
    return {"data": sources}


def _is_dataset(item: Any) -> bool:
    """Say whether an item of a list is a dataset, not a sample: samples are arrays, containers and texts."""
    if isinstance(item, Mapping | list | tuple | str | bytes | range) or hasattr(type(item), "shape"):
        return False
    return hasattr(item, "__len__") and hasattr(item, "__getitem__")


def asked_mixture(weights: Weights | None, mixture: Any) -> Mixture | MixtureSpec | Curriculum:
    """Return the mixture meant by ``weights=`` or ``mixture=``, which takes weights or a curriculum, too."""
    if mixture is None:
        return Mixture(weights)
    if weights is not None:
        raise MixtureError("weights= and mixture= were both given: expected one. Pass mixture=Mixture(weights, ...).")
    return mixture if isinstance(mixture, Mixture | MixtureSpec) or is_curriculum(mixture) else Mixture(mixture)


def is_curriculum(mixture: object) -> TypeGuard[Curriculum]:
    """Say whether what was given as a mixture is a curriculum."""
    return is_a(mixture, "lading.order.adaptive.curriculum:Curriculum")


def first_size(batch_schedule: Sequence[tuple[Any, int]] | None) -> int | None:
    """Return the batch size that a schedule begins with."""
    is_pairs = (
        isinstance(batch_schedule, list | tuple) and batch_schedule and isinstance(batch_schedule[0], list | tuple)
    )
    return batch_schedule[0][1] if is_pairs and batch_schedule else None


def check_count(name: str, value: Any) -> None:
    """Refuse what is no number of something."""
    if value is not None and not is_whole(value, 1):
        raise PlanError(f"{name} is {value!r}: expected an integer of at least 1.")


def check_plan(plan: Plan, batch: int, sources: int) -> None:
    """Refuse a ready plan that does not fit the batch size or the sources."""
    if plan.global_batch_size != batch or len(plan.datasets) != sources:
        raise LoaderError(
            f"the plan has batches of {plan.global_batch_size} rows from {len(plan.datasets)} datasets, the loader "
            f"{batch} from {sources}. Make them agree."
        )
