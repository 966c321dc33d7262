"""Arguments that must be integers, or numbers."""

from __future__ import annotations

import math
import operator
from typing import Any, TypeGuard


def whole(value: Any) -> int | None:
    """Return an integer of any kind (NumPy's, a tensor's) as Python's own; None for what is none, True and False too.

    >>> whole(3), whole(True), whole(3.0), whole("3")
    (3, None, None, None)
    """
    if type(value) is int:
        return value
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except Exception:  # a tensor of several numbers raises what it likes
        return None


def is_whole(value: object, least: int | None = None) -> TypeGuard[int]:
    """Say whether a value is an integer, True and False not counted, and not below ``least``.

    >>> is_whole(3, 1), is_whole(0, 1), is_whole(True), is_whole(3.0)
    (True, False, False, False)
    """
    number = whole(value)
    return number is not None and (least is None or number >= least)


def is_number(value: object) -> TypeGuard[float]:
    """Say whether a value is a finite number of Python's, True and False not counted.

    >>> is_number(0.5), is_number(float("nan")), is_number(True)
    (True, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)
