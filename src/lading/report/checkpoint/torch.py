"""What is inside a file of ``torch.save``, without its tensors' bytes and without running what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from lading.errors import LedgerError


def content(path: Path) -> Any:
    """Return the values of a file; tensors stay on disk."""
    try:
        return torch.load(path, weights_only=True, mmap=True, map_location="cpu")
    except Exception as error:  # torch raises RuntimeError, EOFError, UnpicklingError, OSError ... for other files
        raise LedgerError(f"{path} cannot be read ({error}).") from error
