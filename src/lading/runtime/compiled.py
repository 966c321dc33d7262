"""Say whether hot loops run compiled.

A kernel never stands alone: beside it is a plain NumPy or Python version with
the same result to the last bit, and callers choose by ``enabled()``. Kernels
live in files named ``kernels``, which import Numba and are opened at first
use; they are serial (a parallel one in the parent kills forked workers),
release the GIL, and are cached on disk. ``LADING_NUMBA=0`` switches them off.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys

_FEW = 150_000  # values that the plain versions have worked out before Numba is imported
_forgone = False


def enabled() -> bool:
    """Say whether compiled kernels are used in this process."""
    return not _forgone and _available()


def expect(values: int) -> None:
    """Choose for a process that works out so many values (samples, say): few need no Numba, unless it is imported."""
    global _forgone
    _forgone = values <= _FEW and "numba" not in sys.modules


@functools.cache
def _available() -> bool:
    return os.environ.get("LADING_NUMBA", "1") != "0" and importlib.util.find_spec("numba") is not None
