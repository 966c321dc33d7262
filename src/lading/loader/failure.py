"""What fails while samples are read: errors that cross from a worker and stay what they were, and samples that are bad.

    worker   FileNotFoundError: a.wav             ─▶  WorkerFailure: the chain of causes, and the traceback as text
    parent   WorkerError *and* FileNotFoundError  ◀─  raised from the original, with the worker's traceback as a note

``except FileNotFoundError`` catches it, and so does ``except LadingError``. A sample that cannot be read is a
``Failure``; the policy says what follows:

    raise        the run stops with an error that names the sample (the default)
    skip         its row becomes padding
    substitute   the next sample of a fixed order takes its place
"""

from __future__ import annotations

import functools
import itertools
import pickle
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from lading import errors
from lading.errors import BadSampleError, LadingError, LoaderError, WorkerError
from lading.identity import Bill, Deviation
from lading.identity.bill import LEFT_OUT

# Raised inside an iterator these end the loop in silence, or end the process: an error must do neither.
_CONTROL = (StopIteration, StopAsyncIteration)
E = TypeVar("E", bound=LadingError)


@dataclass(frozen=True)
class WorkerFailure:
    """What a worker sends instead of a result.

    Attributes:
        where: Who failed, doing what.
        chain: The pickled error and its causes, first the error; empty where it cannot be pickled.
    """

    where: str
    summary: str
    trace: str
    chain: tuple[bytes, ...]

    @classmethod
    def of(cls, error: BaseException, where: str) -> WorkerFailure:
        summary = f"{type(error).__name__}: {error}".rstrip(": ")
        trace = "".join(traceback.format_exception(error))
        return cls(where, summary, trace, pickled_chain(error))

    def error(self) -> BaseException:
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
        original: What the user's code raised; its attributes are copied.
    """
    if not isinstance(original, Exception) or isinstance(original, (type(error), *_CONTROL)):
        return error
    try:
        kinds: tuple[Any, Any] = (type(error), type(original))
        both: E = _both(*kinds)()
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


POLICIES = ("raise", "skip", "substitute")
_KEPT_BILLS = 1024


@dataclass(frozen=True)
class BadSamplePolicy:
    """What to do about samples that cannot be read.

    Attributes:
        action: ``raise``, ``skip`` or ``substitute``; or by the name of the dataset, ``raise`` for those not named.
        limit: Bad samples after which the run stops all the same.
    """

    action: str | Mapping[str, str] = "raise"
    limit: int = 100

    @classmethod
    def of(cls, given: Any) -> BadSamplePolicy:
        """Return the policy meant by a word, a dict of words or a policy."""
        return given if isinstance(given, BadSamplePolicy) else cls(given)

    def by_source(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the action for each source, by number; refuse words and names that do not exist."""
        names = tuple(names)
        chosen = self.action if isinstance(self.action, Mapping) else dict.fromkeys(names, self.action)
        found = tuple(chosen.get(name, "raise") for name in names)
        unknown = sorted({*map(str, found)} - {*POLICIES}) or sorted({*chosen} - {*names})
        if unknown:
            raise LoaderError(
                f"on_bad_sample has {', '.join(map(repr, unknown))}: expected one of {', '.join(POLICIES)}, or a dict "
                f"with names among {', '.join(names)}."
            )
        return found


@dataclass(frozen=True)
class Failure:
    """A sample that could not be read.

    Attributes:
        original: What its source raised; pickled as ``chain``, as far as it can be.
        chain: The same where it came from another process.
    """

    dataset: int
    index: int
    file: str
    error: str
    trace: str
    source: int
    original: BaseException | None = None
    chain: tuple[bytes, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "original": None, "chain": self.chain or pickled_chain(self.original)}


def bad_sample_error(bill: Bill, failure: Failure) -> BadSampleError:
    """Return the error that names a sample that could not be read; it is also of the type that the source raised."""
    name = bill.names[failure.dataset]
    file = f" ({failure.file})" if failure.file else ""
    error = BadSampleError(
        f"sample {failure.index} of dataset {name!r}{file} could not be read for batch {bill.batch_id} of step "
        f"{bill.step}: {str(failure.error).rstrip('.')}. Fix it, block it, or pass on_bad_sample='skip' or "
        "'substitute'.",
        dataset=name,
        index=failure.index,
        step=bill.step,
        batch_id=bill.batch_id,
        file=failure.file,
    )
    original = failure.original or restored(failure.chain)
    error = also(error, original)
    error.__cause__ = original
    if original is not failure.original:
        error.add_note(failure.trace)
    return error


class BadSamples:
    """The samples that this process could not read.

    Args:
        limit: Bad samples after which the run stops.

    Attributes:
        found: (step, deviation) of each.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.found: list[tuple[int, Deviation]] = []
        self._bills: OrderedDict[int, Bill] = OrderedDict()

    def bill(self, step: int) -> Bill | None:
        """Return the amended bill of a recent step, if it was amended."""
        return self._bills.get(step)

    def clear(self) -> None:
        self._bills.clear()

    def note(self, bill: Bill) -> None:
        self._bills[bill.step] = bill
        if len(self._bills) > _KEPT_BILLS:
            self._bills.popitem(last=False)
        fresh = [(bill.step, d) for d in bill.deviations if d.reason not in ("blocked", LEFT_OUT)]
        if fresh and not self.found:
            self._warn(bill, fresh[0][1])
        self.found += fresh
        if len({(d.dataset, d.index) for _, d in self.found}) > self.limit:
            raise LoaderError(
                f"more than {self.limit} samples could not be read; the last was {self.found[-1][1]}. "
                "Check the data, or raise the limit: on_bad_sample=BadSamplePolicy(..., limit=...)."
            )

    def _warn(self, bill: Bill, bad: Deviation) -> None:
        warnings.warn(
            f"sample {bad.index} of dataset {bill.names[bad.dataset]!r} could not be read at step {bill.step} and was "
            f"{bad.kind}: {bad.reason}. Further cases are in loader.bad_samples and in the ledger.",
            stacklevel=5,
        )
