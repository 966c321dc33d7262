"""How samples look, as pages and verbs ask for it: a line, and a preview.

``report`` reads ledgers and plans, never data. Whoever has the sources (``--decode``)
passes in something that can describe their samples; ``lading.source.looks`` does.
"""

from __future__ import annotations

from typing import Any, Protocol


class Looks(Protocol):
    """Describes samples. All return None where nothing is known, and raise nothing."""

    def describe(self, dataset: str, index: int) -> dict[str, Any] | None:
        """Return ``text`` (a line), and where they are known ``file`` and ``label``."""
        ...

    def preview(self, dataset: str, index: int) -> dict[str, Any] | None:
        """Return ``kind`` (text, image or sound), ``media_type``, and ``text`` or ``data`` (bytes)."""
        ...

    def length(self, dataset: str, index: int) -> int | None:
        """Return how long a sample is."""
        ...


def described(looks: Looks | None, dataset: str, index: int) -> dict[str, Any] | None:
    """Return what a sample looks like in a line, or None."""
    return None if looks is None else looks.describe(dataset, index)
