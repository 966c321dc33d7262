"""What is imported only when it is needed: public names of a package, objects that users name, classes to compare with.

    lazy_names    a package's stub says which names it has and where each lives; a name opens its file when used
    imported      what a user calls ``module:name``: its code runs, that is what was asked for
    is_a          classes of libraries that may not be there: what is not loaded has no instances, so nothing is opened

A lazy door is two files, and every public name is written once:

    __init__.pyi    from lading.loader.torch.loader import Loader as Loader     read by type checkers, and here
    __init__.py     __getattr__, __dir__, __all__ = lazy_names(__spec__)

A name that a module of the package also has (``pack`` in ``pack.py``) must be imported in ``__init__.py`` besides: the
module would take its place.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from lading.errors import ConfigError, missing_extra

if TYPE_CHECKING:
    from importlib.abc import FileLoader
    from importlib.machinery import ModuleSpec

_IMPORT = re.compile(r"^from (\S+) import (\([^)]*\)|.*)", re.MULTILINE)
_NAME = re.compile(r"\w+ as (\w+)")

# Which extra of the package brings which optional dependency: one of its name, or another.
_ALIKE = "accelerate deepspeed jax lightning ray mlflow tensorboard torch transformers wandb"
EXTRAS = {name: name for name in _ALIKE.split()} | {
    "h5py": "hdf5",
    "plotly": "ui",
    "jinja2": "report",
    "starlette": "ui",
    "uvicorn": "ui",
    "sklearn": "jasper",
    "soundfile": "audio",
    "soxr": "audio",
    "tokenizers": "tokens",
    "zstandard": "tokens",
}


def lazy_names(spec: ModuleSpec) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the ``__getattr__``, ``__dir__`` and ``__all__`` of a package that has a stub."""
    package, homes = spec.name, _homes(spec)

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            with uncollected():
                value = getattr(importlib.import_module(homes[name]), name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in EXTRAS:
                raise
            raise missing_extra(missing, EXTRAS[missing], f"{package}.{name}") from error
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return __getattr__, __dir__, list(homes)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Import without Python's collector: beside a framework one full collection takes longer than all our files."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _homes(spec: ModuleSpec) -> dict[str, str]:
    """Return the module of each name in a package's stub; a package in an archive is read, too."""
    stub = (spec.origin or "").rpartition(".")[0] + ".pyi"
    text = cast("FileLoader", spec.loader).get_data(stub).decode()
    return {name: home for home, names in _IMPORT.findall(text) for name in _NAME.findall(names)}


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
