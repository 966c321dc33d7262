"""Things named in a configuration: a class by its dotted path, and its arguments.

    class_path: my_project.Tones
    init_args:
      files: 20
      transform: {class_path: my_project.Louder}     components nest

This is the convention of Lightning's own command line.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lading.errors import ConfigError, LadingError


@dataclass(frozen=True)
class Component:
    """A class by dotted path, with its arguments.

    Attributes:
        class_path: Dotted path.
        init_args: Arguments, as the configuration gives them.
        file: Configuration it stands in, for errors.
        key: Where it stands there.
    """

    class_path: str
    init_args: Mapping[str, Any] = field(default_factory=dict)
    file: str = "<config>"
    key: str = ""

    @classmethod
    def parse(cls, value: Any, *, file: str, key: str) -> Component:
        """Read ``{class_path, init_args}``, or a bare class path."""
        value = {"class_path": value} if isinstance(value, str) else value
        expected = "a class_path (and init_args)"
        if not isinstance(value, Mapping):
            raise ConfigError(f"{file}: {key}: expected {expected}, found {value!r}.")
        unknown = [name for name in value if name not in ("class_path", "init_args")]
        if unknown or not isinstance(value.get("class_path"), str):
            found = ", ".join(map(str, value)) or "nothing"
            raise ConfigError(f"{file}: {key}: expected {expected}, found the keys {found}.")
        arguments = value.get("init_args")
        if not isinstance(arguments, Mapping | None):
            raise ConfigError(f"{file}: {key}.init_args: expected arguments by name, found {arguments!r}.")
        return cls(value["class_path"], dict(arguments or {}), file, key)

    def load(self) -> Any:
        """Return the class (or function) itself."""
        where = f"{self.file}: {self.key}.class_path"
        module, _, name = self.class_path.rpartition(".")
        if not module:
            raise ConfigError(f"{where}: expected a dotted path such as package.Class, found {self.class_path!r}.")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"{where}: expected a class that can be imported, found {self.class_path!r}: {error}."
            ) from error

    def takes(self, name: str) -> bool:
        """Say whether the class has an argument of this name."""
        return name in _parameters(self.load())

    def make(self, **more: Any) -> Any:
        """Make the thing; nested components are made first. ``more`` are arguments the configuration does not give."""
        target = self.load()
        arguments = {**more, **made(self.init_args, file=self.file, key=f"{self.key}.init_args")}
        known = _parameters(target)
        unknown = [name for name in arguments if name not in known]
        if unknown and "**" not in known:
            raise ConfigError(
                f"{self.file}: {self.key}.init_args.{unknown[0]}: expected an argument of {self.class_path} "
                f"({', '.join(known) or 'it takes none'}), found {unknown[0]!r}."
            )
        try:
            return target(**arguments)
        except LadingError as error:
            raise ConfigError(f"{self.file}: {self.key}: {error}") from error
        except TypeError as error:
            raise ConfigError(
                f"{self.file}: {self.key}.init_args: {self.class_path} cannot be made: {error}."
            ) from error

    def as_dict(self) -> dict[str, Any]:
        """Return it as the configuration has it."""
        return {"class_path": self.class_path, **({"init_args": dict(self.init_args)} if self.init_args else {})}


def made(value: Any, *, file: str, key: str) -> Any:
    """Return a value with every component inside it made."""
    if isinstance(value, Mapping) and "class_path" in value:
        return Component.parse(value, file=file, key=key).make()
    if isinstance(value, Mapping):
        return {name: made(inner, file=file, key=f"{key}.{name}") for name, inner in value.items()}
    if isinstance(value, list):
        return [made(inner, file=file, key=f"{key}[{i}]") for i, inner in enumerate(value)]
    return value


def _parameters(target: Any) -> list[str]:
    """Return the names of the arguments; ``**`` stands for any."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return ["**"]
    return ["**" if p.kind is p.VAR_KEYWORD else p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
