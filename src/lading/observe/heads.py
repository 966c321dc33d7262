"""The first batch of each worker: two that are equal mean that each worker reads the whole stream."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

from lading.errors import SourceError, UnshardedStreamWarning
from lading.identity.content import content_hash


class Heads:
    """Compares how the workers of a stream begin.

    Args:
        stream: The dataset.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = type(stream).__name__
        self._hashes: dict[int, str] = {}
        self._is_known = False

    def look(self, worker: int, batch: Any) -> str | None:
        """Take the first batch of a worker; where another one began with the same, warn and return the warning."""
        if self._is_known or worker in self._hashes:
            return None
        with contextlib.suppress(SourceError):  # nothing that can be hashed
            self._hashes[worker] = content_hash(batch)
        other = next(
            (w for w, found in self._hashes.items() if w != worker and found == self._hashes.get(worker)), None
        )
        if other is None:
            return None
        self._is_known = True
        text = (
            f"workers {other} and {worker} of a DataLoader began with equal batches: each of them seems to read all of "
            f"the {self._stream}, and every sample to be trained on once by each. `lading audit` says for sure. Let "
            "the stream read a part only, by torch.utils.data.get_worker_info(), or use one worker."
        )
        warnings.warn(text, UnshardedStreamWarning, stacklevel=5)
        return text
