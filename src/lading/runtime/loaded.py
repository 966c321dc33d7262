"""Classes of libraries that may not be there: what is not loaded has no instances, so nothing is imported to ask."""

from __future__ import annotations

import sys


def is_a(value: object, *classes: str) -> bool:
    """Return whether a value is an instance of one of some public classes, each called ``module:Class``.

    >>> from fractions import Fraction
    >>> is_a(Fraction(1, 2), "fractions:Fraction"), is_a(1, "a_module_not_loaded:Class")
    (True, False)
    """
    for name in classes:
        module, _, attribute = name.partition(":")
        found = getattr(sys.modules.get(module), attribute, None)
        if isinstance(found, type) and isinstance(value, found):
            return True
    return False
