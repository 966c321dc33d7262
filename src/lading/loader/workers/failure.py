"""Errors that cross from a worker to its parent, and stay what they were.

    worker   FileNotFoundError: a.wav             ─▶  WorkerFailure: the chain of causes, and the traceback as text
    parent   WorkerError *and* FileNotFoundError  ◀─  raised from the original, with the worker's traceback as a note

``except FileNotFoundError`` catches it, and so does ``except LadingError``.
"""

from __future__ import annotations

import functools
import itertools
import pickle
import traceback
from dataclasses import dataclass
from typing import Any, TypeVar

from lading import errors
from lading.errors import LadingError, WorkerError

# Raised inside an iterator these end the loop in silence, or end the process: an error must do neither.
_CONTROL = (StopIteration, StopAsyncIteration)
E = TypeVar("E", bound=LadingError)


@dataclass(frozen=True)
class WorkerFailure:
    """What a worker sends instead of a result.

    Attributes:
        where: Who failed, doing what.
        summary: The error in one line.
        trace: The worker's traceback.
        chain: The pickled error and its causes, first the error; empty where it cannot be pickled.
    """

    where: str
    summary: str
    trace: str
    chain: tuple[bytes, ...]

    @classmethod
    def of(cls, error: BaseException, where: str) -> WorkerFailure:
        """Describe an error that has just been caught."""
        summary = f"{type(error).__name__}: {error}".rstrip(": ")
        trace = "".join(traceback.format_exception(error))
        return cls(where, summary, trace, pickled_chain(error))

    def error(self) -> BaseException:
        """Return the error to raise in the parent."""
        original = restored(self.chain)
        if isinstance(original, LadingError):
            error: BaseException = original
        else:
            error = also(WorkerError(f"{self.where}: {self.summary}"), original)
            error.__cause__ = original
        error.add_note(f"\nTraceback in the worker:\n{self.trace}")
        return error


def also(error: E, original: BaseException | None) -> E:
    """Return an error that is also an instance of the original's type, where such a type can be made.

    Args:
        error: The error to raise.
        original: What the user's code raised; its attributes are copied.
    """
    if not isinstance(original, Exception) or isinstance(original, (type(error), *_CONTROL)):
        return error
    try:
        both: E = _both(*_types(error, original))()
        both.__dict__.update({**vars(original), **vars(error)})
        both.args = error.args
        for name in ("errno", "strerror", "filename", "filename2"):
            if isinstance(original, OSError) and getattr(original, name, None) is not None:
                setattr(both, name, getattr(original, name))
        str(both)
    except Exception:
        return error
    return both


def plain(error: LadingError) -> LadingError:
    """Return an error of a type that has a name: torch's workers send the type by that, and wait for ever without."""
    known = vars(errors).values()
    kind = next(kind for kind in type(error).__mro__ if kind in known)
    return error if type(error) is kind else kind(*error.args)


def _types(*found: Any) -> list[Any]:
    return [type(error) for error in found]


@functools.lru_cache(maxsize=256)
def _both(ours: Any, theirs: Any) -> Any:
    def start(self: BaseException) -> None:
        """Take nothing: what the original's ``__init__`` keeps is copied from the original."""

    def text(self: BaseException) -> str:
        return str(self.args[0]) if self.args else ""

    def parts(self: Any) -> tuple[Any, ...]:
        state = dict(vars(self))
        if isinstance(self, OSError):
            state["_os"] = (self.errno, self.strerror, self.filename, self.filename2)
        return _rebuilt, (ours, theirs, self.args, state)

    body = {"__module__": ours.__module__, "__init__": start, "__str__": text, "__reduce__": parts}
    return type(ours.__name__, (ours, theirs), body)


def _rebuilt(ours: type, theirs: type, arguments: tuple[Any, ...], state: dict[str, Any]) -> Any:
    both = _both(ours, theirs)()
    both.args = arguments
    os_parts = state.pop("_os", ())
    for name, value in zip(("errno", "strerror", "filename", "filename2"), os_parts, strict=False):
        if value is not None:
            setattr(both, name, value)
    both.__dict__.update(state)
    return both


def pickled_chain(error: BaseException | None) -> tuple[bytes, ...]:
    """Return an error and its causes, each pickled; as far as that can be done."""
    parts: list[bytes] = []
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        part = _pickled(error) or _pickled(_Bare(type(error), str(error)))
        if part is None:
            break
        parts.append(part)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return tuple(parts)


def restored(chain: tuple[bytes, ...]) -> BaseException | None:
    """Return the error that ``pickled_chain`` took apart, with its causes; None where nothing could be pickled."""
    errors = [pickle.loads(part) for part in chain]
    for error, cause in itertools.pairwise(errors):
        error.__cause__ = cause
    return errors[0] if errors else None


def _pickled(value: Any) -> bytes | None:
    """Return the value pickled if it can also be restored: an exception with an ``__init__`` of its own may not."""
    try:
        part = pickle.dumps(value, 5)
        pickle.loads(part)
    except Exception:
        return None
    return part


class _Bare:
    """Restored as an exception of a type, without what its ``__init__`` keeps."""

    def __init__(self, kind: type[BaseException], text: str) -> None:
        self.kind, self.text = kind, text

    def __reduce__(self) -> tuple[Any, ...]:
        return _bare, (self.kind, self.text)


def _bare(kind: type[BaseException], text: str) -> BaseException:
    error = kind.__new__(kind)
    error.args = (text,)
    return error
