"""Things named in a configuration: a class by its dotted path, and its arguments.

    class_path: my_project.Tones
    init_args:
      files: 20
      transform: {class_path: my_project.Louder}     components nest

This is the convention of Lightning's own command line. Files of s4 and its
forks give arguments beside a short name instead:

    _name_: qautoaudio                               a name we know, or class_path beside it
    path: musdb18
    bits: 8

Arguments given so are used where the class takes them, and noted where not.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lading.errors import ConfigError, LadingError
from lading.runtime.fields import brief, listed
from lading.runtime.imports import member

# Names of s4's registry that we have a class for.
S4_NAMES = {"qautoaudio": "lading.kits.chunked.QuantizedAutoregressiveAudio"}
# What files of s4 and its forks hold beside what we know; none of it is a slip of the pen.
S4_KEYS = frozenset({"defaults", "_name_", "mode", "task", "optimizer", "scheduler", "encoder", "decoder", "callbacks"})


def misspelt(key: str, known: Iterable[str]) -> str | None:
    """Return the known key that an unknown one looks like, or None where it belongs to another program.

    >>> misspelt("train_chunk_sise", ["train_chunk_size", "seed"]), misspelt("monitor", ["train_chunk_size", "seed"])
    ('train_chunk_size', None)
    """
    if key in S4_KEYS:
        return None
    near = difflib.get_close_matches(key[:80], list(known), n=1, cutoff=0.8)
    return near[0] if near and abs(len(near[0]) - len(key)) <= 2 else None


@dataclass(frozen=True)
class Component:
    """A class by dotted path, with its arguments.

    Attributes:
        class_path: Dotted path; empty where the configuration names no class that we know.
        init_args: Arguments, as the configuration gives them.
        beside: What is beside ``class_path`` and ``init_args``: arguments where the class takes them.
    """

    class_path: str
    init_args: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, Any] = field(default_factory=dict)
    file: str = "<config>"
    key: str = ""

    @classmethod
    def parse(cls, value: Any, *, file: str, key: str) -> Component:
        """Read ``{class_path, init_args}``, a bare class path, or a section of s4 with ``_name_`` and arguments."""
        value = {"class_path": value} if isinstance(value, str) else value
        if not isinstance(value, Mapping):
            raise ConfigError(f"{file}: {key}: expected a class_path (and init_args), found {brief(value)}.")
        beside = {name: inner for name, inner in value.items() if name not in ("class_path", "init_args")}
        slip = [name for name in beside if difflib.get_close_matches(str(name)[:80], ("class_path", "init_args"), n=1)]
        path = value.get("class_path", S4_NAMES.get(str(value.get("_name_")), ""))
        if slip or not isinstance(path, str):
            raise ConfigError(f"{file}: {key}: expected a class_path (and init_args), found the keys {listed(value)}.")
        arguments = value.get("init_args")
        if not isinstance(arguments, Mapping | None):
            raise ConfigError(f"{file}: {key}.init_args: expected arguments by name, found {brief(arguments)}.")
        return cls(path, dict(arguments or {}), beside, file, key)

    def load(self) -> Any:
        """Return the class (or function) itself."""
        where = f"{self.file}: {self.key}.class_path"
        if not self.class_path:
            name = self.beside.get("_name_")
            known = "" if name is None else f"; _name_ is {brief(name)}, a name of s4's registry"
            raise ConfigError(
                f"{self.file}: {self.key}: expected a class_path (and init_args), found the keys "
                f"{listed(self.beside) or 'nothing'}{known}. Name the class: {self.key}.class_path=package.Class."
            )
        module, _, name = self.class_path.rpartition(".")
        if not module:
            raise ConfigError(f"{where}: expected a dotted path such as package.Class, found {brief(self.class_path)}.")
        return member(module, name, f"{where}: expected a class that can be imported, found {brief(self.class_path)}")

    def takes(self, name: str) -> bool:
        """Say whether the class has an argument of this name."""
        return name in _parameters(self.load())

    def make(self, **more: Any) -> Any:
        """Make the thing; nested components are made first. ``more`` are arguments the configuration does not give."""
        target = self.load()
        known = _parameters(target)
        left_out = {"_name_", *self.unused()}
        beside = {name: value for name, value in self.beside.items() if name not in left_out}
        given = {f"{self.key}.init_args": self.init_args, self.key: beside}
        arguments = dict(more)
        for key, values in given.items():
            arguments.update(made(values, file=self.file, key=key))
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

    def unused(self) -> tuple[str, ...]:
        """Return what is beside the class path and is no argument of the class; a slip of the pen is refused."""
        known = _parameters(self.load())
        private = [name for name in self.beside if str(name).startswith("_")]
        if S4_NAMES.get(str(self.beside.get("_name_"))) == self.class_path:
            private.remove("_name_")  # it named the class
        if "**" in known:
            return tuple(private)
        others = [name for name in self.beside if name not in known and name not in private]
        for name in others:
            near = misspelt(str(name), known)
            if near is not None:
                raise ConfigError(
                    f"{self.file}: {self.key}.{listed([name])}: expected an argument of {self.class_path}. Did you "
                    f"mean {near}?"
                )
        return (*private, *others)

    def as_dict(self) -> dict[str, Any]:
        """Return it as the configuration has it."""
        path = {"class_path": self.class_path} if self.class_path else {}
        return {**self.beside, **path, **({"init_args": dict(self.init_args)} if self.init_args else {})}


def made(value: Any, *, file: str, key: str) -> Any:
    """Return a value with every component inside it made."""
    if isinstance(value, Mapping) and "class_path" in value:
        return Component.parse(value, file=file, key=key).make()
    if isinstance(value, str) and "${" in value:
        raise ConfigError(
            f"{file}: {key}: expected a value, found {brief(value)}. Hydra's references are not resolved here; write "
            f"the value, or pass --set {key}=..."
        )
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
