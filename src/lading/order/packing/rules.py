"""How documents are put into rows: the rules an index is made by, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import PackingError
from lading.runtime.fields import is_whole

ALGORITHMS = ("first_fit", "best_fit", "concat_then_split")
OVERFLOWS = ("error", "split", "truncate")


@dataclass(frozen=True)
class PackingRules:
    """How documents are put into rows.

    Args:
        row_length: Tokens in a row.
        algorithm: ``first_fit``, ``best_fit`` or ``concat_then_split``.
        overflow: What happens to a document longer than a row: ``error``, ``split``, or ``truncate`` to the row.
        open_rows: Rows that may be open at once; when one more is needed, the oldest is closed. None: any number.
        append_eod: Whether an end-of-document token is added (documents may bring their own).
        sort_window: Documents that are sorted by length before they are placed; 0 keeps them in their order.
    """

    row_length: int
    algorithm: str = "first_fit"
    overflow: str = "error"
    open_rows: int | None = None
    append_eod: bool = True
    sort_window: int = 0

    def __post_init__(self) -> None:
        _choice("algorithm", self.algorithm, ALGORITHMS)
        _choice("overflow", self.overflow, OVERFLOWS)
        _whole("row_length", self.row_length, 1)
        _whole("sort_window", self.sort_window, 0)
        if self.open_rows is not None:
            _whole("open_rows", self.open_rows, 1)
        if self.algorithm == "concat_then_split" and (self.open_rows is not None or self.sort_window):
            raise PackingError(
                "concat_then_split keeps one stream in order, so open_rows and sort_window mean nothing to it. "
                "Leave them out, or choose first_fit or best_fit."
            )


def num_rows_bound(lengths: NDArray[Any], rules: PackingRules) -> int:
    """Return a number of rows that no algorithm exceeds: two rows in sequence are together more than one full."""
    total = int(lengths.sum(dtype=np.int64)) + len(lengths)
    return 2 * (total // rules.row_length) + 2


def _choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise PackingError(f"{name}={value!r} is unknown: expected one of {', '.join(map(repr, choices))}.")


def _whole(name: str, value: int, least: int) -> None:
    if not is_whole(value, least) or value >= 1 << 31:
        raise PackingError(f"{name}={value!r}: expected an integer from {least} to 2**31 - 1.")
