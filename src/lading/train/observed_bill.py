"""The bill of a batch that nobody planned: made from what was seen when it came.

step, epoch    batches handed out, passes begun
slots          rank 1 of 2 with 4 rows: 4 5 6 7      every rank is taken to hold as many rows as this one
batch_id       the same on every rank, and after a resume
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lading.identity import Bill, World, fingerprint
from lading.loader.recorded_names import RowNames
from lading.train.tracked_state import Standing


class ObservedBills:
    """Makes the bills of one loader.

    Args:
        source: What is read, in words.
        batch_size: Samples of a batch, where the loader says so.
        names: Names of the datasets, by number.
    """

    def __init__(self, source: str, batch_size: int | None, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._id_key = int(fingerprint([source, batch_size, list(names)])[:8], 16)

    def bill(self, at: Standing, world: World, names: RowNames) -> Bill:
        """Return the bill of the batch handed out next."""
        rows = len(names.indices)
        return Bill(
            batch_id=f"e{at.epoch}-s{at.step}-{zlib.crc32(at.step.to_bytes(8, 'little'), self._id_key):08x}",
            step=at.step,
            epoch=at.epoch,
            chunk=None,
            position=at.position,
            slots=_slots(world.rank, rows),
            dataset_idx=names.datasets,
            idx=names.indices,
            is_padding=names.is_padding,
            global_size=(rows - int(np.count_nonzero(names.is_padding))) * world.world_size,
            world=world,
            names=self._names,
        )


@functools.lru_cache(maxsize=64)
def _slots(rank: int, rows: int) -> NDArray[np.int64]:
    """Return the slots of a rank's rows; one array for all batches of a size, so nobody may write to it."""
    slots = rank * rows + np.arange(rows, dtype=np.int64)
    slots.flags.writeable = False
    return slots
