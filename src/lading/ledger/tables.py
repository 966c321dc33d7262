"""The tables of a ledger: their columns, what rows may hold, and how few bytes a row takes.

    batches      one row a rank and batch: about 12 bytes, 8 of digest, 3 to 4 of loss, up to 1 of time
    samples      one row a sample, where no plan predicts it: 3.5 bytes of shuffled index, little else
    events       one row a change of the plan, jump, or checkpoint inside an update; rank 0's alone
    row_losses   one row a sample whose own loss was committed
    rollouts     one row a completion of a prompt
    uses         one row a rollout and update that used it
    fates        one row a rollout that no update used any more

Every table has a ``step``, its first column: what a resume undoes is told by it. Columns that rise evenly are stored
as differences, columns of few values as runs. Frozen by golden files: a change here is a new ``LEDGER_VERSION``.
Nothing here needs Arrow: rows are written to the tail, and looked at, without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.ledger.limits import TIMES

APPLIED, DELIVERED, SKIPPED = "applied", "delivered", "skipped"
ROLLED_BACK, LEFT_BEHIND = "rolled back", "left behind"  # worked out by readers, never stored
PENDING_REASON = "pending at the checkpoint"

# Kinds of columns: integers of 8 and 4 bytes, floats of 4, milliseconds since 1970, texts, and floats of 8 by name.
INT64, INT32, FLOAT32, TIME, TEXT, MAP = "int64", "int32", "float32", "time", "text", "map"

# What rows may hold: whoever made the files may have written anything into them.
_INT32, _INT64 = (1 << 31) - 1, (1 << 63) - 1
_STEP, _SMALL, _LARGE, _ANY = (0, (1 << 62) - 1), (0, _INT32), (0, _INT64), (-_INT64 - 1, _INT64)


@dataclass(frozen=True)
class TableFormat:
    """One table.

    Attributes:
        columns: Its columns and their kinds, in order.
        ranges: Least and largest value of its columns of integers and times.
        words: Columns that must be there, with the words they may hold; None: any text.
        rising: Columns that are stored as differences.
        few_values: Columns that are stored as runs.
        may_miss: Columns with a range that may be null.
        group_rows: Rows of a row group.
        part_rows: Rows at which a rank closes a part.
    """

    columns: Mapping[str, str]
    ranges: Mapping[str, tuple[int, int]]
    words: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    rising: tuple[str, ...] = ("step",)
    few_values: tuple[str, ...] = ()
    may_miss: tuple[str, ...] = ()
    group_rows: int = 1 << 14
    part_rows: int = 1 << 16


FORMATS = {
    "batches": TableFormat(
        {
            "step": INT64,
            "update": INT64,
            "epoch": INT32,
            "chunk": INT32,
            "position": INT64,
            "samples": INT32,
            "digest": INT64,
            "content": INT64,
            "fate": TEXT,
            "loss": FLOAT32,
            "time": TIME,
            "metrics": MAP,
            "reason": TEXT,
            "exceptions": TEXT,
        },
        {
            "step": _STEP,
            "update": _LARGE,
            "epoch": _SMALL,
            "chunk": _SMALL,
            "position": _STEP,
            "samples": _SMALL,
            "digest": _ANY,
            "time": TIMES,
        },
        {"fate": (APPLIED, DELIVERED, SKIPPED)},
        rising=("step", "update", "epoch", "chunk", "position", "samples", "time"),
        few_values=("fate", "reason"),
        may_miss=("update", "chunk"),
    ),
    "samples": TableFormat(
        {"step": INT64, "slot": INT32, "dataset": INT32, "index": INT64, "content": INT64},
        {"step": _STEP, "slot": _SMALL, "dataset": _SMALL, "index": _LARGE},
        rising=("step", "slot", "index"),
        few_values=("dataset",),
        group_rows=1 << 18,
        part_rows=1 << 20,
    ),
    "events": TableFormat(
        {"step": INT64, "kind": TEXT, "event": TEXT, "time": TIME},
        {"step": _STEP, "time": TIMES},
        {"kind": None, "event": None},
        rising=("step", "time"),
        few_values=("kind",),
    ),
    "row_losses": TableFormat(
        {"step": INT64, "slot": INT32, "loss": FLOAT32},
        {"step": _STEP, "slot": _SMALL},
        rising=("step", "slot"),
        group_rows=1 << 18,
        part_rows=1 << 20,
    ),
    "rollouts": TableFormat(
        {
            "step": INT64,
            "rollout": INT64,
            "group": INT64,
            "dataset": INT32,
            "index": INT64,
            "policy": INT64,
            "tokens": INT32,
            "content": INT64,
            "reward": FLOAT32,
            "advantage": FLOAT32,
            "seconds": FLOAT32,
            "time": TIME,
        },
        {
            "step": _STEP,
            "rollout": _LARGE,
            "group": _LARGE,
            "dataset": _SMALL,
            "index": _LARGE,
            "policy": _LARGE,
            "tokens": _SMALL,
            "time": TIMES,
        },
        rising=("step", "rollout", "group", "index", "policy", "tokens", "time"),
        few_values=("dataset",),
        may_miss=("policy",),
        group_rows=1 << 16,
        part_rows=1 << 18,
    ),
    "uses": TableFormat(
        {"step": INT64, "slot": INT32, "rollout": INT64, "update": INT64, "weight": FLOAT32},
        {"step": _STEP, "slot": _SMALL, "rollout": _LARGE, "update": _LARGE},
        rising=("step", "slot", "rollout", "update"),
        group_rows=1 << 16,
        part_rows=1 << 18,
    ),
    "fates": TableFormat(
        {"step": INT64, "rollout": INT64, "fate": TEXT, "reason": TEXT, "time": TIME},
        {"step": _STEP, "rollout": _LARGE, "time": TIMES},
        {"fate": (APPLIED, "stale", "filtered", "lost")},
        rising=("step", "rollout", "time"),
        few_values=("fate", "reason"),
        group_rows=1 << 16,
        part_rows=1 << 18,
    ),
}
TABLES = tuple(FORMATS)


def check_range(name: str, column: str, values: NDArray[Any], known: NDArray[np.bool_]) -> None:
    """Refuse numbers of a column that no ledger writes."""
    (low, high), may_miss = FORMATS[name].ranges[column], column in FORMATS[name].may_miss
    if known.all():
        if len(values) == 0 or (values.min() >= low and values.max() <= high):
            return  # as a rule
    elif not may_miss:
        raise ValueError(f"row {int(np.flatnonzero(~known)[0])} has no {column}")
    wrong = np.flatnonzero(known & ((values < low) | (values > high)))
    if len(wrong):
        raise ValueError(f"row {int(wrong[0])} has {column} {values[wrong[0]]}, expected {low} to {high}")


def check_words(name: str, column: str, found: set[str]) -> None:
    """Refuse texts of a column that no ledger writes."""
    words = FORMATS[name].words[column]
    strange = set() if words is None else found - set(words)
    if strange:
        raise ValueError(f"a row has {column} {next(iter(strange))!r}, expected one of {', '.join(words or ())}")
