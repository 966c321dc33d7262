"""Arguments that must be whole numbers."""

from __future__ import annotations

from typing import TypeGuard


def is_whole(value: object, least: int | None = None) -> TypeGuard[int]:
    """Say whether a value is an integer, True and False not counted, and not below ``least``.

    >>> is_whole(3, 1), is_whole(0, 1), is_whole(True), is_whole(3.0)
    (True, False, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)
