"""The constants of the Feistel network, shared by ``permutation`` and its compiled twin ``kernels``."""

from __future__ import annotations

import numpy as np

from lading.runtime.splitmix import GOLDEN, MASK

ROUNDS = 8
ROUND_KEYS = np.array([(GOLDEN * (i + 1)) & MASK for i in range(ROUNDS)], dtype=np.uint64)
