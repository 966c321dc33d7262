"""Read some rows of a bill on the host: columns with their names beside them, and errors that name the sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import BadSampleError, LadingError, SourceError
from lading.identity import Bill
from lading.loader.gather import read_columns
from lading.loader.names import column_keys, missing_names
from lading.source.parts import provides_names
from lading.source.reader import Reader


def read_rows(readers: Sequence[Reader], bill: Bill, rows: NDArray[np.int64], seed: int) -> Any:
    """Return the columns of some rows; a dict gains ``idx``, ``dataset_idx`` and ``is_padding``.

    Args:
        readers: How each source is read, by dataset number.
        bill: What the batch holds.
        rows: Rows of the bill to read.
        seed: Seed of the plan, for sources that want randomness.
    """
    try:
        columns = _columns(readers, bill, rows, seed)
    except LadingError:
        raise
    except Exception as error:
        raise _bad_sample(readers, bill, rows, seed, error) from error
    if not isinstance(columns, dict):
        return columns
    own = any(provides_names(reader.source) for reader in readers)
    keys = column_keys(None, [reader.source for reader in readers], may_pad=True)
    added = missing_names(columns, bill.select(rows), keys, own=own)
    return {**columns, **{key: _small(column) for key, column in added.items()}}


def _columns(readers: Sequence[Reader], bill: Bill, rows: Any, seed: int) -> Any:
    mine = bill.select(rows)
    sources, first_rows = np.unique(mine.source_idx, return_index=True)
    names = {source: mine.name_of(row) for source, row in zip(sources.tolist(), first_rows.tolist(), strict=True)}
    return read_columns(readers, mine.source_idx, mine.rows, seed=seed, epoch=bill.epoch, names=names)


def _small(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column in 32 bits where they are enough: JAX keeps 32 by default."""
    fits = column.dtype == np.int64 and (not column.size or int(column.max()) < 1 << 31)
    return column.astype(np.int32) if fits else column


def _bad_sample(readers: Sequence[Reader], bill: Bill, rows: Any, seed: int, error: Exception) -> SourceError:
    """Read the rows one by one and name the first that fails."""
    for row in rows.tolist():
        try:
            _columns(readers, bill, np.array([row]), seed)
        except Exception as found:
            return _named_error(readers, bill, row, found)
    return SourceError(
        f"batch {bill.batch_id} of step {bill.step} could not be put together, although each of its samples can be "
        f"read alone: {type(error).__name__}: {error}. Check that samples have equal keys and shapes."
    )


def _named_error(readers: Sequence[Reader], bill: Bill, row: int, error: Exception) -> BadSampleError:
    name, index = bill.name_of(row), int(bill.idx[row])
    file = readers[int(bill.source_idx[row])].file_of(int(bill.rows[row]))
    return BadSampleError(
        f"sample {index} of dataset {name!r}{f' ({file})' if file else ''} could not be read for batch {bill.batch_id} "
        f"of step {bill.step}: {type(error).__name__}: {error}. Mend it, or block it.",
        dataset=name,
        index=index,
        step=bill.step,
        batch_id=bill.batch_id,
        file=file,
    )
