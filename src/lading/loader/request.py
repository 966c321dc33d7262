"""What the user asks of a loader, whatever its face: every option once (type, default, description), checked and kept.

    NumpyLoader(sources, batch_size, **options: Unpack[PlainOptions])

Type checkers expand ``Unpack``; ``takes`` does so for everyone who asks while the program runs: ``help``, notebooks,
and Lightning, which makes loaders anew by their signatures and drops in silence what it does not see there.

    given ─▶ check_options, check_named ─▶ LoaderRequest ─▶ check_sources, try_plan ─▶ Engine
             here: wrong by themselves                      in ``planning``: together with the sources
"""

from __future__ import annotations

import difflib
import functools
import inspect
import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from lading.errors import ArgumentError, LoaderError, MixtureError, OptionError, PlanError, SourceError
from lading.identity import World
from lading.loader.adapting import Adapting
from lading.loader.failure import BadSamplePolicy
from lading.loader.name import column_keys
from lading.order.mixture.request import Mixture
from lading.order.mixture.spec import MixtureSpec, Weights
from lading.runtime.fields import is_number, is_whole

if TYPE_CHECKING:
    from lading.loader.chunks import Chunks
    from lading.loader.note import Tracker
    from lading.order.plan import Plan


@dataclass(frozen=True)
class Resume:
    """What may differ between a saved run and the loader that resumes it.

    Attributes:
        rebatch: Whether the global batch size may: from there on it is the loader's.
        changed_plan: Whether seed, data or weights may: the loader's plan is followed from the same step on. Its order
            is another one, also where a dataset only grew: samples of the running epoch repeat or are missed.
    """

    rebatch: bool = False
    changed_plan: bool = False


class LoaderOptions(TypedDict, total=False):
    """Options of every loader.

    Attributes:
        seed: Same seed, same order, on every machine.
        window_samples: Samples of a window, with ``shuffle="window"``.
        weights: Shares of the datasets, by name or in order; an epoch is then the sum of their lengths.
        mixture: A ``Mixture`` (schedule, temperature, token weights, policy ...) or a ``Curriculum``; instead of
            ``weights``.
        sample_weights: How often a sample comes in a pass, against the others of its source: an array, a column,
            ``"balanced:label"`` (classes alike), a function of the source or a ``.npy`` file; or these by source.
        chunk_batches: Batches of a chunk, or ``Chunks`` that adapt. Each iteration then yields one chunk.
        batch_schedule: Global batch sizes that change as planned, ``[(0, 32), ("1000ba", 64)]``; instead of a size.
        blocked: Samples that are never used, ``{"data": [3, 9]}``: each is replaced by a substitute from step 0 on.
        masked: Documents of packed rows that are never used, ``{"data": [81]}``: their tokens are padding, from step 0.
        names: Keys of the name columns in dict batches (``{"idx": "sample_idx"}``), or False for none.
        tracker: Anything with ``update(bill)`` and ``flush()``: a BatchTracker, a Ledger, or several of them.
        on_bad_sample: What to do about a sample that cannot be read: ``raise``, ``skip`` or ``substitute``; by the
            name of its dataset; or a ``BadSamplePolicy`` with a limit.
        fingerprint: Content to look at for the plan: None, ``"sample"`` or ``"full"``.
        prefetch: Batches to gather ahead in a thread, without workers; None: 2 where they are large (1 MB). Code that
            may draw random numbers never runs there: ``random_free = True`` on a source says it does not.
        on_resume: What may differ between a saved run and this loader when its state is loaded.
        workers: ``"processes"``, or ``"threads"`` for sources that release the interpreter's lock while they read; they
            must be ``random_free``.
    """

    seed: int
    window_samples: int
    weights: Weights | None
    mixture: Mixture | Adapting | MixtureSpec | Weights | None
    sample_weights: Any
    chunk_batches: Any
    batch_schedule: Sequence[tuple[Any, int]] | None
    blocked: Mapping[str, Sequence[int]] | None
    masked: Mapping[str, Sequence[int]] | None
    names: Mapping[str, str] | bool | None
    tracker: Tracker | Sequence[Tracker] | None
    on_bad_sample: str | Mapping[str, str] | BadSamplePolicy
    fingerprint: str | None
    prefetch: int | None
    on_resume: Resume | None
    workers: str


class PlainOptions(LoaderOptions, total=False):
    """Options of a loader without torch: those of every loader, and torch's own that need no torch.

    Attributes:
        shuffle: True, False, or ``"window"`` (windows of ``window_samples`` neighbours, for locality on disk).
        drop_last: Whether an incomplete global batch at the end of an epoch is dropped.
        collate_fn: Makes a batch (with JAX: host columns) of a list of samples.
        num_workers, timeout, worker_init_fn, multiprocessing_context, prefetch_factor, persistent_workers: Worker
            processes, as in torch; they never fork a process that runs JAX.
    """

    shuffle: bool | str
    drop_last: bool
    collate_fn: Callable[[list[Any]], Any] | None
    num_workers: int
    timeout: float
    worker_init_fn: Callable[[int], None] | None
    multiprocessing_context: Any
    prefetch_factor: int | None
    persistent_workers: bool


DEFAULTS: PlainOptions = {  # None where nothing is said here
    "seed": 0,
    "window_samples": 4096,
    "on_bad_sample": "raise",
    "workers": "processes",
    "shuffle": True,
    "drop_last": False,
    "num_workers": 0,
    "timeout": 0,
    "persistent_workers": False,
}
L = TypeVar("L")


def defaults(options: Any) -> dict[str, Any]:
    """Return every option of a kind with its default."""
    return {name: DEFAULTS.get(name) for name in options.__annotations__}


def takes(*kinds: Any) -> Callable[[type[L]], type[L]]:
    """Show options in the signature and the documentation of a loader, whose ``__init__`` ends with ``**options``."""

    def shown(loader: type[L]) -> type[L]:
        init: Any = loader.__init__
        signature = inspect.signature(init)
        *own, _ = signature.parameters.values()
        types = {name: kind.__forward_arg__ for name, kind in kinds[-1].__annotations__.items()}
        only = inspect.Parameter.KEYWORD_ONLY
        more = [inspect.Parameter(n, only, default=d, annotation=types[n]) for n, d in defaults(kinds[-1]).items()]
        init.__signature__ = signature.replace(parameters=[*own, *more])
        loader.__doc__ = _described(loader.__doc__ or "", kinds)
        return loader

    return shown


def refuse_unknown(loader: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse options that a loader does not have, and name those that may be meant."""
    arguments = list(known)
    for name in given:
        if name not in arguments:
            near = difflib.get_close_matches(name, arguments)
            meant = f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(arguments)}."
            raise OptionError(f"{loader} has no option {name!r}: {meant}")


def _described(text: str, kinds: Iterable[Any]) -> str:
    """Return a documentation in which the description of each option stands for the line about ``options``."""
    texts = [inspect.cleandoc(kind.__doc__) for kind in kinds]  # Python 3.13 does so by itself
    lines = [one.partition("Attributes:\n")[2] + "\n" for one in texts]
    before, _, after = inspect.cleandoc(text).partition("    options: ")
    return before + "".join(lines) + after.partition("\n")[2]


_FLAGS = ("drop_last", "persistent_workers", "pin_memory")
_FUNCTIONS = ("collate_fn", "worker_init_fn", "convert")
_COUNTS = {"num_workers": 0, "prefetch": 0, "prefetch_factor": 1}  # by name: the least


def check_options(given: Mapping[str, Any]) -> None:
    """Refuse options that are not of their kind; those that make up a plan are refused by that."""
    for name, least in _COUNTS.items():
        value = given.get(name)
        if value is not None and not is_whole(value, least):
            raise ArgumentError(f"{name} is {value!r}: expected an integer of at least {least}.")
    for name in _FLAGS:
        if not isinstance(given.get(name, False), bool):
            raise ArgumentError(f"{name} is {given[name]!r}: expected True or False.")
    for name in _FUNCTIONS:
        if given.get(name) is not None and not callable(given[name]):
            raise ArgumentError(f"{name} is {given[name]!r}: expected a function.")
    if not isinstance(given.get("pad"), bool | None):
        raise ArgumentError(f"pad is {given['pad']!r}: expected True, False or None (only with several ranks).")
    if not isinstance(given.get("world"), World | None):
        raise ArgumentError(f"world is {given['world']!r}: expected World(rank, world_size), or None to look it up.")
    check_resume(given.get("on_resume"))
    _check_workers(given)
    column_keys(given.get("names"), (), may_pad=True)


def check_resume(on_resume: Any) -> None:
    """Refuse what says nothing about a resume."""
    if not isinstance(on_resume, Resume | None):
        raise ArgumentError(
            f"on_resume is {on_resume!r}: expected lading.Resume(...), such as Resume(rebatch=True) or "
            "Resume(changed_plan=True)."
        )


def _check_workers(given: Mapping[str, Any]) -> None:
    timeout, context = given.get("timeout", 0), given.get("multiprocessing_context")
    if not is_number(timeout) or timeout < 0:
        raise ArgumentError(f"timeout is {timeout!r}: expected seconds, 0 or more.")
    methods = multiprocessing.get_all_start_methods()
    if isinstance(context, str) and context not in methods:
        raise ArgumentError(
            f"multiprocessing_context is {context!r}: expected one of {', '.join(methods)}, or a context."
        )
    for name in ("persistent_workers", "prefetch_factor"):
        if given.get(name) and not given.get("num_workers"):
            raise ArgumentError(f"{name}={given[name]!r} is about workers, and there are none. Pass num_workers=, too.")


def check_named(sources: Mapping[str, Any]) -> None:
    """Refuse a text or a path where a dataset should be, and nothing at all."""
    if not sources:
        raise SourceError("sources is empty: expected a dataset, or several by name, {'a': ..., 'b': ...}.")
    for name, source in sources.items():
        if isinstance(source, str | bytes | os.PathLike):
            raise SourceError(
                f"dataset {name!r} is {str(source)[:80]!r}, a {type(source).__name__}: expected the dataset itself. "
                "Open it first: lading.Windows for a file of tokens, lading.Columns(x=np.load(...)) for arrays, "
                "datasets.load_dataset for Hugging Face's."
            )


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
        plan: A ready plan, instead of making one of the rest.
        marks_padding: Whether dict batches always say which rows are padding, not only where padding can occur.
    """

    sources: Mapping[str, Any]
    seed: int
    shuffle: bool | str
    window_samples: int
    mixture: MixtureSpec | Mixture | Adapting
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
            value = getattr(self, name)
            if value is not None and not is_whole(value, 1):
                raise PlanError(f"{name} is {value!r}: expected an integer of at least 1.")
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
        if self.chunk_batches is None:
            return None
        from lading.loader.chunks import Chunks  # most runs have no chunks

        return Chunks.of(self.chunk_batches)

    @property
    def policy(self) -> Any:
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
    """Return the request that the arguments of a face make, by name; those it has no room for belong to the face."""
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


def asked_mixture(weights: Weights | None, mixture: Any) -> Mixture | MixtureSpec | Adapting:
    """Return the mixture meant by ``weights=`` or ``mixture=``, which takes weights or a curriculum, too."""
    if mixture is None:
        return Mixture(weights)
    if weights is not None:
        raise MixtureError("weights= and mixture= were both given: expected one. Pass mixture=Mixture(weights, ...).")
    return mixture if isinstance(mixture, Mixture | MixtureSpec | Adapting) else Mixture(mixture)


def first_size(batch_schedule: Sequence[tuple[Any, int]] | None) -> int | None:
    """Return the batch size that a schedule begins with."""
    is_pairs = (
        isinstance(batch_schedule, list | tuple) and batch_schedule and isinstance(batch_schedule[0], list | tuple)
    )
    return batch_schedule[0][1] if is_pairs and batch_schedule else None


def check_plan(plan: Plan, batch: int, sources: int) -> None:
    """Refuse a ready plan that does not fit the batch size or the sources."""
    if plan.global_batch_size != batch or len(plan.datasets) != sources:
        raise LoaderError(
            f"the plan has batches of {plan.global_batch_size} rows from {len(plan.datasets)} datasets, the loader "
            f"{batch} from {sources}. Make them agree."
        )
