"""The lazy door of a package: its stub says which names it has and where each lives; a name opens its file when used.

    __init__.pyi    from lading.loader.torch.loader import Loader as Loader     read by type checkers, and here
    __init__.py     __getattr__, __dir__, __all__ = lazy_names(__spec__)

So every public name is written once. A name that a module of the package also has (``pack`` in ``pack.py``) must be
imported in ``__init__.py`` besides: the module would take its place.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from lading.errors import missing_extra

if TYPE_CHECKING:
    from importlib.abc import FileLoader
    from importlib.machinery import ModuleSpec

_IMPORT = re.compile(r"^from (\S+) import (\([^)]*\)|.*)", re.MULTILINE)
_NAME = re.compile(r"\w+ as (\w+)")

# Which extra of the package brings which optional dependency: one of its name, or another.
_ALIKE = (
    "accelerate",
    "deepspeed",
    "jax",
    "lightning",
    "ray",
    "mlflow",
    "tensorboard",
    "torch",
    "transformers",
    "wandb",
)
EXTRAS = {name: name for name in _ALIKE} | {
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
            with _uncollected():
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
def _uncollected() -> Iterator[None]:
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
