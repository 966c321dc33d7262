"""Arguments of a loader, whatever its face, that are wrong by themselves: refused when it is made, in the user's words.

given ─▶ check_options, check_named ─▶ LoaderRequest ─▶ check_sources, check_plannable ─▶ Engine
         here                                            in ``checking``: sources are looked at
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from typing import Any

from lading.errors import ArgumentError, SourceError
from lading.identity import World
from lading.loader.name import column_keys
from lading.loader.state import Resume
from lading.runtime.numbers import is_number, is_whole

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
