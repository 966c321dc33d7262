"""The constants of ``permutation``, those of its compiled twin too; frozen with ``ORDER_VERSION``."""

from __future__ import annotations

import numpy as np

from lading.runtime.splitmix import GOLDEN, MASK

TABLE = 64  # up to so many elements: Fisher-Yates
FEW = 1 << 16  # up to so many: 12 rounds, above 8
ROUNDS, MORE_ROUNDS = 8, 12
ROUND_KEYS = np.array([(GOLDEN * (i + 1)) & MASK for i in range(TABLE)], dtype=np.uint64)
