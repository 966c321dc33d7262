"""The packing algorithms by compiled kernels: ``plain``, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.order.packing.plain import Columns
from lading.order.packing.rules import PackingRules, num_rows_bound
from lading.runtime import compiled


def index_columns(lengths: NDArray[Any], order: NDArray[Any] | None, rules: PackingRules) -> Columns:
    """Return ``row_offsets``, ``document``, ``start`` and ``size`` of an index."""
    kernels = compiled.kernels
    lengths = np.ascontiguousarray(lengths)
    asked = lengths, order, rules.row_length, rules.overflow == "truncate", rules.append_eod
    if rules.algorithm == "concat_then_split":
        columns = _empty_columns(lengths, *kernels.stream_counts(*asked))
        kernels.stream(*asked, *columns)
        return columns
    num_pieces = kernels.num_pieces(*asked)
    bound = min(num_rows_bound(lengths, rules), num_pieces)
    rows = np.empty(num_pieces, np.int32 if bound < 1 << 31 else np.int64)
    fit = kernels.first_fit if rules.algorithm == "first_fit" else kernels.best_fit
    columns = _empty_columns(lengths, fit(*asked, rules.open_rows or 0, bound, rows), num_pieces)
    kernels.group_pieces(*asked, rows, *columns)
    return columns


def _empty_columns(lengths: NDArray[Any], num_rows: int, num_pieces: int) -> Columns:
    names = np.int32 if len(lengths) < 1 << 31 else np.int64
    offsets = np.zeros(num_rows + 1, np.int64)
    return offsets, np.empty(num_pieces, names), np.empty(num_pieces, lengths.dtype), np.empty(num_pieces, np.int32)
