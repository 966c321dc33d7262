"""Objects that are named ``module:name``: one way to import them, one sentence for each thing that is wrong.

What a user names is imported, and so its code runs: that is what was asked for. Classes of libraries that may not be
there are looked for only (``is_a``): what is not loaded has no instances.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from lading.errors import ConfigError

_MOST_NAMES = 12


def imported(target: str, what: str, *, example: str = "train:sources", from_here: bool = False) -> Any:
    """Return the object called ``module:name``; the name may have dots.

    >>> imported("math:pi", "--number")
    3.141592653589793

    Args:
        target: Module and name.
        what: What it is for, the beginning of an error: the option, or the place in a file.
        example: A target that would be right, for the error.
        from_here: Whether what lies in the working directory can be imported, as with ``python -m``.

    Raises:
        ConfigError: It is no such name, cannot be imported, or is not there.
    """
    module, _, name = target.partition(":")
    if not module or not name:
        raise ConfigError(f"{what} {target!r}: expected MODULE:NAME, for example {example}.")
    if from_here and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return member(module, name, f"{what} {target!r}")


def member(module: str, name: str, what: str) -> Any:
    """Return an object of a module, dots in its name followed; ``what`` begins an error."""
    try:
        found: Any = importlib.import_module(module)
    except (ImportError, TypeError, ValueError) as error:  # the last two: names that are none
        raise ConfigError(
            f"{what}: {module} cannot be imported ({error}). Run it in the folder that holds it, or set PYTHONPATH."
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            names = [n for n in vars(found) if not n.startswith("_")] if hasattr(found, "__dict__") else []
            listed = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
            where = getattr(found, "__name__", type(found).__name__)
            raise ConfigError(f"{what}: {where} has no {part!r}; it has {listed or 'nothing'}. Check the name.")
        found = getattr(found, part)
    return found


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
