"""Open the doors that need a framework only when they are used.

__getattr__, __dir__ = lazy_names(__name__, {"Loader": "lading.loader.torch.loader"})
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from lading.errors import missing_extra

# Which extra of the package brings which optional dependency.
EXTRAS = {
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "h5py": "hdf5",
    "jax": "jax",
    "lightning": "lightning",
    "numba": "fast",
    "plotly": "ui",
    "jinja2": "report",
    "starlette": "ui",
    "uvicorn": "ui",
    "ray": "ray",
    "sklearn": "jasper",
    "soundfile": "audio",
    "soxr": "audio",
    "tensorboard": "tensorboard",
    "tokenizers": "tokens",
    "torch": "torch",
    "transformers": "transformers",
    "wandb": "wandb",
    "zstandard": "tokens",
}


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a package whose names live in modules opened at first use."""

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
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

    return __getattr__, __dir__
