"""The hot loops that were compiled ahead, where they are.

A kernel never stands alone: beside it is a plain NumPy or Python version with the same result to the last bit, and
callers choose by ``enabled()``. The kernels are C (``src/kernels``), one file for every Python from 3.11 on; they are
serial, check the lengths and bounds of what they are given, and let other threads run while they work for long.
``LADING_COMPILED=0`` takes the plain versions.
"""

from __future__ import annotations

import importlib
import os
from typing import Any


def _opened() -> Any:
    if os.environ.get("LADING_COMPILED") == "0":
        return None
    try:
        return importlib.import_module("lading._kernels")
    except ModuleNotFoundError:  # a plain wheel: no compiler where it was made
        return None


kernels: Any = _opened()


def enabled() -> bool:
    """Say whether compiled kernels are used in this process."""
    return kernels is not None
