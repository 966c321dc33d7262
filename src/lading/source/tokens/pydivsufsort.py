"""Sort the suffixes of bytes, by pydivsufsort."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import missing_extra


def sorted_suffixes(text: NDArray[np.uint8]) -> NDArray[Any]:
    """Return where the suffixes of some bytes start, in the order of the suffixes."""
    try:
        from pydivsufsort import divsufsort
    except ImportError as error:
        raise missing_extra("pydivsufsort", "trace", "indexing tokens") from error
    found: NDArray[Any] = divsufsort(text)
    return found
