"""Arrow without pandas.

The first array that pyarrow makes of Python values imports pandas, where it is
installed, to see whether the values are a Series, and dateutil for spans of
months: a third of a second for programs that have nothing to do with either.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec


def without_pandas() -> None:
    """Let pyarrow find no pandas in this process, unless it is imported already; ``to_pandas`` will not work."""
    if "pandas" in sys.modules:
        return
    import pyarrow  # here: what asks nothing opens no Arrow

    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        pyarrow.array([0])
    finally:
        sys.meta_path.remove(absent)


class _Absent:
    """A finder that knows of two packages that they are not there."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Refuse pandas and dateutil; say nothing of others."""
        if name in ("pandas", "dateutil"):
            raise ModuleNotFoundError(f"{name} is left out of this process", name=name)
        return None
