"""Objects that are named ``module:name``: one way to import them, one sentence for each thing that is wrong.

What a user names is imported, and so its code runs: that is what was asked for. Classes of libraries that may not be
there are looked for only (``is_a``): what is not loaded has no instances.
"""

from __future__ import annotations

import importlib
import importlib.util
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
        from_here: Whether what lies in the working directory can be imported, as with ``python -m``; then the module
            may also be a file, ``runs/7/texts.py:texts``.

    Raises:
        ConfigError: It is no such name, cannot be imported, or is not there.
    """
    module, _, name = target.partition(":")
    if not module or not name:
        raise ConfigError(f"{what} {target!r}: expected MODULE:NAME, for example {example}.")
    if from_here and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if from_here and module.endswith(".py"):
        module = _from_file(module, f"{what} {target!r}")
    return member(module, name, f"{what} {target!r}")


def _from_file(path: str, what: str) -> str:
    """Import a file by its path, and return what it is called from then on."""
    if not os.path.isfile(path):
        raise ConfigError(f"{what}: {path} is no file. Check the path.")
    name = f"{os.path.basename(path)[:-3]} ({os.path.abspath(path)})"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "a file whose name ends with .py has a loader"
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(
            f"{what}: {path} cannot be imported ({type(error).__name__}: {error}). Correct it."
        ) from error
    return name


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
