"""Read the rows of a batch one by one, where they could not be read together, and go on without the bad ones.

    row 0 1 2 3 4    ─▶  2 fails  ─▶  raise         the failure
                                      skip          0 1 1 3 4, row 2 is padding
                                      substitute    0 1 s 3 4, s the next sample of a fixed order that can be read

What becomes of a sample is the policy of its source; whatever is done to it is a deviation in the bill.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lading.errors import SourceError
from lading.identity import Bill, Deviation
from lading.loader.failure import Failure
from lading.order.dataset import Parts
from lading.order.substitute import part_substitutes
from lading.source.reader import Reader

_SUBSTITUTE_TRIES = 100


@dataclass(frozen=True)
class Recovery:
    """Amends the bill of a batch that could not be read.

    Attributes:
        read: Reads the rows of a bill, or raises the source's own error.
        readers: How each source is read.
        policies: What to do about a bad sample, by number of the source.
        parts: The datasets behind the sources; the engine sets them with its plan.
        seed: Seed of the plan, for substitutes.
        blocked: By dataset number, what must not be used as a substitute.
    """

    read: Callable[[Bill], Any]
    readers: Sequence[Reader]
    policies: tuple[str, ...]
    parts: Parts | None
    seed: int
    blocked: Mapping[int, frozenset[int]]

    def amended(self, bill: Bill) -> Bill | Failure | None:
        """Return the bill of what can be read instead; a failure that is to be raised; None where no row is bad."""
        failures = {row: found for row in range(len(bill)) if (found := self._attempt(bill, row)) is not None}
        for row, failure in failures.items():
            if self.policies[failure.source] == "raise":
                return failure
            bill = self._without(bill, row, failure, failures.keys())
        return bill if failures else None

    def _attempt(self, bill: Bill, row: int) -> Failure | None:
        """Read one row alone; return what went wrong."""
        chosen = bill.select(np.array([row]))
        try:
            self.read(chosen)
        except Exception as error:
            source = int(chosen.source_idx[0])
            text = f"{type(error).__name__}: {error}"
            file = self.readers[source].file_of(int(chosen.rows[0]))
            sample = int(chosen.dataset_idx[0]), int(chosen.idx[0])
            return Failure(*sample, file, text, traceback.format_exc(), source, error)
        return None

    def _without(self, bill: Bill, row: int, failure: Failure, bad_rows: Collection[int]) -> Bill:
        """Return the bill with a bad row skipped or substituted."""
        slot, was_padding = int(bill.slots[row]), bool(bill.is_padding[row])
        good = next((r for r in range(len(bill)) if r not in bad_rows), None)
        chosen = np.arange(len(bill))
        if self.policies[failure.source] == "skip":
            if good is None:
                bill = self._substituted(bill, row, failure)
            else:
                chosen[row] = good
            is_padding = bill.is_padding.copy()
            is_padding[row] = True
            bill = bill.select(chosen, slots=bill.slots, is_padding=is_padding)
            deviation = Deviation(slot, "skipped", failure.dataset, failure.index, None, failure.error)
        else:
            bill = self._substituted(bill, row, failure)
            instead = int(bill.idx[row])
            deviation = Deviation(slot, "substituted", failure.dataset, failure.index, instead, failure.error)
        return bill if was_padding else bill.replace(deviations=(*bill.deviations, deviation))

    def _substituted(self, bill: Bill, row: int, failure: Failure) -> Bill:
        """Return the bill with the first sample in a bad one's place that can be read."""
        assert self.parts is not None, "the engine sets the parts with its plan"
        blocked = self.blocked.get(failure.dataset, frozenset())
        tries = 0
        for candidate in part_substitutes(self.parts, failure.dataset, self.seed, failure.index, blocked):
            changed = self._with_index(bill, row, candidate)
            if self._attempt(changed, row) is None:
                return changed
            tries += 1
            if tries == _SUBSTITUTE_TRIES:
                break
        name = self.parts.names[failure.dataset]
        raise SourceError(
            f"sample {failure.index} of dataset {name!r} cannot be read ({failure.error}), "
            f"nor can {tries} others tried in its place. The dataset seems broken as a whole: check its files."
        )

    def _with_index(self, bill: Bill, row: int, index: int) -> Bill:
        """Return the bill with another sample of the same dataset in a row."""
        assert self.parts is not None
        idx = bill.idx.copy()
        idx[row] = index
        if bill.source_rows is None:
            return bill.replace(idx=idx)
        sources, rows = bill.source_idx, bill.rows.copy()
        rows[row] = self.parts.row_near(int(bill.dataset_idx[row]), index, int(rows[row]))
        return bill.replace(idx=idx, source_rows=(sources, rows))
