"""Frozen dataclasses that are JAX pytrees, whenever JAX comes.

    jax loaded already    the class is registered where it is made
    jax loaded later      a watcher in ``sys.meta_path`` registers all waiting classes when ``import jax`` ends
    jax never loaded      nothing happens, nothing is imported

A batch made before ``import jax`` must work under ``jit`` as well, so registering
when an instance is made would come too late; hence the watcher. It steps aside
before it asks the other finders, changes nothing in how JAX is found, and removes
itself when it has done its work.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar, dataclass_transform

_C = TypeVar("_C", bound=type[Any])


@dataclass_transform(frozen_default=True, eq_default=False)
def batch_class(cls: _C, *, kw_only: bool = False) -> _C:
    """Make a frozen dataclass of arrays that is a JAX pytree; ``==`` stays identity."""
    made = dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=kw_only)(cls)
    if not hasattr(made, "replace"):
        made.replace = _replace
    register(made)
    return made  # type: ignore[return-value]


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False)
def dataclass_kwonly(cls: _C) -> _C:
    """Make a frozen dataclass of arrays with keyword-only fields, a ``replace`` method, and a JAX pytree.

    A field with ``metadata={"pytree_node": False}`` is part of the structure, not a leaf.

    >>> @dataclass_kwonly
    ... class Pair:
    ...     left: object
    ...     right: object = None
    >>> Pair(left=1).replace(right=2).right
    2
    """
    return batch_class(cls, kw_only=True)


def _replace(self: Any, **changes: Any) -> Any:
    return dataclasses.replace(self, **changes)


def register(cls: type) -> None:
    """Register a class with JAX: now if JAX is loaded, else when it is."""
    if "jax" in sys.modules:
        # Loaded already, so this imports nothing new; it waits where another thread is still importing JAX.
        _register_with(importlib.import_module("jax.tree_util"), cls)
        return
    watcher = next((finder for finder in sys.meta_path if isinstance(finder, _JaxWatcher)), None)
    if watcher is None:
        watcher = _JaxWatcher()
        sys.meta_path.insert(0, watcher)
    watcher.waiting.append(cls)


def _register_with(tree_util: ModuleType, cls: type) -> None:
    fields = [field for field in dataclasses.fields(cls) if field.init]
    leaves = [field.name for field in fields if field.metadata.get("pytree_node", True)]
    structure = [field.name for field in fields if not field.metadata.get("pytree_node", True)]
    tree_util.register_dataclass(cls, data_fields=leaves, meta_fields=structure)


class _JaxWatcher(importlib.abc.MetaPathFinder):
    """Let JAX be found as ever, and register the waiting classes once it has been executed."""

    def __init__(self) -> None:
        self.waiting: list[type] = []
        self.searching = False

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "jax" or self.searching:
            return None
        self.searching = True  # so that the search below does not come back here
        try:
            spec = importlib.util.find_spec("jax")
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _AfterLoading(spec.loader, self)
        return spec  # many only ask whether JAX is there, so keep watching until it is executed


class _AfterLoading(importlib.abc.Loader):
    """Let the real loader do its work, then register the classes that waited for it."""

    def __init__(self, loader: Any, watcher: _JaxWatcher) -> None:
        self._loader, self._watcher = loader, watcher

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        # Whoever asks JAX for its loader (resource readers, tracebacks) should meet the real one.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)  # if it fails, keep watching: a second ``import jax`` may succeed
        if self._watcher in sys.meta_path:
            sys.meta_path.remove(self._watcher)
        for cls in self._watcher.waiting:
            _register_with(module.tree_util, cls)
