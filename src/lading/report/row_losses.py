"""The loss of each row of a step, where training committed them: beside its sample, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.report.evidence import Evidence
from lading.runtime.arrow import column, numbers

I64 = NDArray[np.int64]


def row_losses(
    evidence: Evidence, step: int, attempt: int | None = None
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the slots of a step whose loss was committed, in order, and their losses; NaN where one is unknown.

    Args:
        attempt: The attempt that used it; None: the one that history has it from.
    """
    owner = evidence.owner(step) if attempt is None else attempt
    table = evidence.rows([step], "row_losses")
    mine = numbers(table["attempt"])[0] == (-1 if owner is None else owner)
    slots, losses = (numbers(table[name])[0][mine] for name in ("slot", "loss"))
    order = np.argsort(slots, kind="stable")
    return slots[order], losses[order]


def losses_at(evidence: Evidence, step: int, slots: Iterable[int], attempt: int | None = None) -> list[float | None]:
    """Return the loss that was committed for each of some slots of a step; None where none was, or it is unknown."""
    found = dict(zip(*(values.tolist() for values in row_losses(evidence, step, attempt)), strict=True))
    return [None if np.isnan(found.get(slot, np.nan)) else found[slot] for slot in slots]


def losses_of_samples(evidence: Evidence, pairs: list[tuple[int, int]], places: I64, slots: I64) -> pa.Array:
    """Return the loss that was committed for each of many samples, null where none was.

    Args:
        places: Of each sample the place of its pair, ascending.
        slots: Its slot, ascending in each step.
    """
    table = evidence.rows({step for _, step in pairs}, "row_losses")
    if not len(table):
        return pa.nulls(len(places), pa.float32())
    attempts, steps, taken, losses = (numbers(table[name])[0] for name in ("attempt", "step", "slot", "loss"))
    width = int(max(slots.max(initial=0), taken.max())) + 1
    keys, found = places * width + slots, np.full(len(places), np.nan, dtype=np.float32)
    for attempt in np.unique(attempts).tolist():
        mine = {step: place for place, (number, step) in enumerate(pairs) if number == attempt}
        rows = np.flatnonzero((attempts == attempt) & np.isin(steps, list(mine)))
        places_of, inverse = np.unique(steps[rows], return_inverse=True)
        wanted = np.array([mine[step] for step in places_of.tolist()], dtype=np.int64)[inverse] * width + taken[rows]
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        same = keys[at] == wanted if len(keys) else np.zeros(len(at), dtype=bool)
        found[at[same]] = losses[rows][same]
    return column(found, pa.float32(), ~np.isnan(found))
