"""Samples that could not be read in this process: counted, reported once, limited."""

from __future__ import annotations

import warnings
from collections import OrderedDict

from lading.errors import LoaderError
from lading.identity import Bill, Deviation

_KEPT_BILLS = 1024


class Incidents:
    """What departed from the plan.

    Args:
        max_bad: Bad samples after which the run stops.
    """

    def __init__(self, max_bad: int) -> None:
        self.max_bad = max_bad
        self.bad_samples: list[tuple[int, Deviation]] = []
        self._bills: OrderedDict[int, Bill] = OrderedDict()

    def bill(self, step: int) -> Bill | None:
        """Return the amended bill of a recent step, if it was amended."""
        return self._bills.get(step)

    def clear(self) -> None:
        """Forget amended bills; another plan goes on."""
        self._bills.clear()

    def note(self, bill: Bill) -> None:
        """Take note of a bill with deviations."""
        self._bills[bill.step] = bill
        if len(self._bills) > _KEPT_BILLS:
            self._bills.popitem(last=False)
        fresh = [(bill.step, d) for d in bill.deviations if d.reason != "blocked"]
        if fresh and not self.bad_samples:
            self._warn(bill, fresh[0][1])
        self.bad_samples += fresh
        if len({(d.dataset, d.index) for _, d in self.bad_samples}) > self.max_bad:
            raise LoaderError(
                f"more than {self.max_bad} samples could not be read; the last was {self.bad_samples[-1][1]}. "
                "Check the data, or raise max_bad."
            )

    def _warn(self, bill: Bill, bad: Deviation) -> None:
        warnings.warn(
            f"sample {bad.index} of dataset {bill.names[bad.dataset]!r} could not be read at step {bill.step} and was "
            f"{bad.kind}: {bad.reason}. Further cases are in loader.bad_samples and in the ledger.",
            stacklevel=5,
        )
