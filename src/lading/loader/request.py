"""What the user asks of a loader, whatever its face: the arguments that need no framework, checked and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lading.errors import LoaderError, PlanError
from lading.loader.bad_samples import BadSamplePolicy
from lading.order.mixture.request import Mixture
from lading.order.mixture.spec import MixtureSpec
from lading.order.plan import Plan

PREFETCH_FACTOR = 2


@dataclass(frozen=True)
class WorkerRequest:
    """What the user asked of worker processes, as in torch.

    Attributes:
        num_workers: Processes; 0: none.
        prefetch_factor: Batches that each of them holds; None: 2.
        context: How they are started: a word of ``multiprocessing``, a context, or None.
    """

    num_workers: int = 0
    prefetch_factor: int | None = None
    timeout: float = 0
    worker_init_fn: Callable[[int], None] | None = None
    context: Any = None
    persistent: bool = False

    @property
    def batches(self) -> int:
        """Batches that may be on their way in the workers."""
        return self.num_workers * (self.prefetch_factor or PREFETCH_FACTOR)


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
    batch_size: int | None = None
    global_batch_size: int | None = None
    seed: int = 0
    shuffle: bool | str = True
    window_samples: int = 4096
    mixture: MixtureSpec | Mixture | None = None
    mean_tokens: Mapping[str, float] | None = None
    policy: Any = None
    lookahead_steps: int = Plan.lookahead_steps
    chunk_batches: int | None = None
    drop_last: bool = False
    pad: bool | None = None
    names: Mapping[str, str] | bool | None = None
    collate_fn: Callable[[list[Any]], Any] | None = None
    on_bad_sample: BadSamplePolicy = field(default_factory=BadSamplePolicy)
    fingerprint: str | None = None
    prefetch: int | None = None
    workers: WorkerRequest = WorkerRequest()
    plan: Plan | None = None
    marks_padding: bool = False

    def __post_init__(self) -> None:
        if self.batch_size is None and self.global_batch_size is None:
            raise PlanError("no batch size: expected batch_size= (a rank's) or global_batch_size= (all ranks').")
        if self.shuffle not in _SHUFFLES:
            raise PlanError(f"shuffle is {self.shuffle!r}: expected True, False or 'window'.")

        if self.plan is not None and self.global_batch_size is not None:
            check_plan(self.plan, self.global_batch_size, len(self.sources))

    @property
    def plan_shuffle(self) -> str:
        """The plan's word for ``shuffle``."""
        return _SHUFFLES[self.shuffle]


def named_sources(sources: Any) -> dict[str, Any]:
    """Return the sources by name; one without a name is called ``data``."""
    return dict(sources) if isinstance(sources, Mapping) else {"data": sources}


def check_plan(plan: Plan, batch: int, sources: int) -> None:
    """Refuse a ready plan that does not fit the batch size or the sources."""
    if plan.global_batch_size != batch or len(plan.datasets) != sources:
        raise LoaderError(
            f"the plan has batches of {plan.global_batch_size} rows from {len(plan.datasets)} datasets, the loader "
            f"{batch} from {sources}. Make them agree."
        )
