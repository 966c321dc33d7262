"""Samples that cannot be read: what to do about them, and which there were.

raise        the run stops with an error that names the sample (the default)
skip         its row becomes padding
substitute   the next sample of a fixed order takes its place
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lading.errors import BadSampleError, LoaderError
from lading.identity import Bill, Deviation
from lading.identity.sample import LEFT_OUT
from lading.loader.workers.failure import also, pickled_chain, restored

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
        """Forget amended bills, because the plan changed."""
        self._bills.clear()

    def note(self, bill: Bill) -> None:
        """Take note of a bill with deviations."""
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
