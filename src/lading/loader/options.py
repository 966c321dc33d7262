"""The options of the loaders, each written once: type, default and description; those that are wrong are refused here.

    NumpyLoader(sources, batch_size, **options: Unpack[PlainOptions])

Type checkers expand ``Unpack``; ``takes`` does so for everyone who asks while the program runs: ``help``, notebooks,
and Lightning, which makes loaders anew by their signatures and drops in silence what it does not see there.

    given ─▶ check_options, check_named ─▶ LoaderRequest ─▶ check_sources, check_plannable ─▶ Engine
             here: wrong by themselves                      in ``planning``: together with the sources
"""

from __future__ import annotations

import difflib
import inspect
import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from lading.errors import ArgumentError, OptionError, SourceError
from lading.identity import World
from lading.loader.name import column_keys
from lading.loader.state import Resume
from lading.runtime.fields import is_number, is_whole

if TYPE_CHECKING:
    from lading.loader.failure import BadSamplePolicy
    from lading.loader.trackers import Tracker
    from lading.order.adaptive.curriculum import Curriculum
    from lading.order.mixture.request import Mixture
    from lading.order.mixture.spec import MixtureSpec, Weights


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
        prefetch: Batches to gather ahead in a thread, without workers; None: 2 where they are large (1 MB), with JAX 2
            that wait on the devices. Code that may draw random numbers never runs there: ``random_free = True`` on a
            source says it does not.
        on_resume: What may differ between a saved run and this loader when its state is loaded.
        workers: ``"processes"``, or ``"threads"`` for sources that release the interpreter's lock while they read; they
            must be ``random_free``.
    """

    seed: int
    window_samples: int
    weights: Weights | None
    mixture: Mixture | Curriculum | MixtureSpec | Weights | None
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
    """Show options in the signature and the documentation of a loader, whose ``__init__`` ends with ``**options``.

    Args:
        kinds: ``LoaderOptions``, and what is derived from it.
    """

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
    lines = [kind.__doc__.partition("Attributes:\n")[2].rstrip() + "\n" for kind in kinds]
    before, _, after = text.partition("        options: ")
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
