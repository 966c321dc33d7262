"""Read some rows of a bill on the host: columns with their names beside them, and errors that name the sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import BadSampleError, LadingError, SourceError
from lading.identity import Bill
from lading.loader.gather import read_columns
from lading.source.reader import Reader

NAMES = ("idx", "dataset_idx", "is_padding")


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
    return _named(columns, bill, rows) if isinstance(columns, dict) else columns


def _columns(readers: Sequence[Reader], bill: Bill, rows: Any, seed: int) -> Any:
    return read_columns(readers, bill.dataset_idx[rows], bill.idx[rows], seed=seed, epoch=bill.epoch, names=bill.names)


def _named(columns: dict[str, Any], bill: Bill, rows: Any) -> dict[str, Any]:
    taken = [name for name in NAMES if name in columns]
    if taken:
        raise SourceError(
            f"the dataset has columns {', '.join(taken)} of its own, which Lading adds. Rename them in the dataset."
        )
    idx = bill.idx[rows]
    # 64 bits only where they are needed: JAX keeps 32 unless told otherwise.
    small = idx.astype(np.int32) if not idx.size or int(idx.max()) < 1 << 31 else idx
    return {**columns, "idx": small, "dataset_idx": bill.dataset_idx[rows], "is_padding": bill.is_padding[rows]}


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
    name, index = bill.names[int(bill.dataset_idx[row])], int(bill.idx[row])
    file = readers[int(bill.dataset_idx[row])].file_of(index)
    return BadSampleError(
        f"sample {index} of dataset {name!r}{f' ({file})' if file else ''} could not be read for batch {bill.batch_id} "
        f"of step {bill.step}: {type(error).__name__}: {error}. Mend it, or block it.",
        dataset=name,
        index=index,
        step=bill.step,
        batch_id=bill.batch_id,
        file=file,
    )
