"""The configuration of a run: six sections, read from YAML, each value checked.

    dataset:  {class_path: ..., init_args: ...}     where the samples come from
    loader:   {batch_size: 32, ...}                 how they are put into batches
    train:    {train_chunk_size: 2000, ...}         chunk sizes, in batches; the seed
    trainer:  {max_epochs: 4, ...}                  handed to Lightning as it is
    model:    {class_path: ..., init_args: ...}     what is trained
    run:      {dir: runs/7, ...}                    run directory, ledger, mixture

An error names file, key, what was expected and what was found. A
configuration without chunk sizes means what it always meant.

Things named in a configuration: a class by its dotted path, and its arguments.

    class_path: my_project.Tones
    init_args:
      files: 20
      transform: {class_path: my_project.Louder}     components nest

This is the convention of Lightning's own command line.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lading.datamodule.sizes import ChunkSizes, chunk_sizes
from lading.errors import ConfigError, LadingError
from lading.runtime.shown import found as brief, listed
from lading.runtime.yaml_text import parse_yaml, read_yaml


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
            raise ConfigError(f"{file}: {key}: expected {expected}, found {brief(value)}.")
        unknown = [name for name in value if name not in ("class_path", "init_args")]
        if unknown or not isinstance(value.get("class_path"), str):
            found = listed(value) or "nothing"
            raise ConfigError(f"{file}: {key}: expected {expected}, found the keys {found}.")
        arguments = value.get("init_args")
        if not isinstance(arguments, Mapping | None):
            raise ConfigError(f"{file}: {key}.init_args: expected arguments by name, found {brief(arguments)}.")
        return cls(value["class_path"], dict(arguments or {}), file, key)

    def load(self) -> Any:
        """Return the class (or function) itself."""
        where = f"{self.file}: {self.key}.class_path"
        module, _, name = self.class_path.rpartition(".")
        if not module:
            raise ConfigError(f"{where}: expected a dotted path such as package.Class, found {brief(self.class_path)}.")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, TypeError, ValueError) as error:  # the last two: names that are none
            raise ConfigError(
                f"{where}: expected a class that can be imported, found {brief(self.class_path)}: {error}."
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


def assigned(values: dict[str, Any], assignment: str) -> dict[str, Any]:
    """Return a copy with one dotted key changed.

    >>> assigned({"train": {"seed": 1}}, "train.train_chunk_size=500")
    {'train': {'seed': 1, 'train_chunk_size': 500}}
    """
    key, equals, text = assignment.partition("=")
    path = key.strip().split(".")
    if not equals or not all(path):
        raise ConfigError(f"--set {assignment}: expected section.key=value, such as train.train_chunk_size=500.")
    return _with(values, path, parse_yaml(text, f"--set {assignment}"), assignment)


def _with(values: Any, path: list[str], value: Any, assignment: str) -> dict[str, Any]:
    if values is not None and not isinstance(values, dict):
        raise ConfigError(f"--set {assignment}: {path[0]} would be set inside {brief(values)}, which is no section.")
    inner = dict(values or {})
    inner[path[0]] = value if len(path) == 1 else _with(inner.get(path[0]), path[1:], value, assignment)
    return inner


Check = tuple[str, Callable[[Any], bool]]


def _whole(least: int) -> Check:
    return f"a whole number from {least} up", lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= least


def _limit(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return (isinstance(value, int) and value >= 0) or (isinstance(value, float) and 0 <= value <= 1)


_COUNT, _FROM_ZERO = _whole(1), _whole(0)
_LIMIT: Check = ("a whole number of batches, or a share from 0.0 to 1.0", _limit)
_FLAG: Check = ("true or false", lambda v: isinstance(v, bool))
_TEXT: Check = ("a text", lambda v: isinstance(v, str) and bool(v))
_NUMBER: Check = ("a number", lambda v: isinstance(v, int | float) and not isinstance(v, bool))
_WEIGHTS: Check = (
    "a weight from 0 up for each dataset, by name",
    lambda v: (
        isinstance(v, dict) and bool(v) and all(isinstance(n, str) and _NUMBER[1](w) and w >= 0 for n, w in v.items())
    ),
)

_SCHEMA: dict[str, dict[str, Check]] = {
    "loader": {
        "batch_size": _COUNT,
        "global_batch_size": _COUNT,
        "num_workers": _FROM_ZERO,
        "drop_last": _FLAG,
        "shuffle": _FLAG,
        "seed": _FROM_ZERO,
        "pin_memory": _FLAG,
        "persistent_workers": _FLAG,
        "prefetch_factor": _COUNT,
        "timeout": _NUMBER,
        "multiprocessing_context": _TEXT,
        "allow_rebatch": _FLAG,
    },
    "train": {
        "train_chunk_size": _COUNT,
        "val_chunk_size": _COUNT,
        "limit_train_batches": _LIMIT,
        "limit_val_batches": _LIMIT,
        "seed": _FROM_ZERO,
    },
    "run": {"dir": _TEXT, "ledger": _FLAG, "mixture": _WEIGHTS, "checkpoint_updates": _COUNT},
}
_TRAINER_CHECKED: dict[str, Check] = {"limit_train_batches": _LIMIT, "limit_val_batches": _LIMIT}
SECTIONS = ("dataset", "loader", "train", "trainer", "model", "run")


@dataclass(frozen=True)
class Config:
    """A checked configuration.

    Attributes:
        file: Where it came from, for errors.
        dataset: What makes the data module.
        model: What makes the model.
        loader: Arguments of the loaders.
        train: Chunk sizes, tolerated limits, seed.
        trainer: Arguments of Lightning's ``Trainer``.
        run: Run directory, ledger, mixture.
    """

    file: str = "<config>"
    dataset: Component | None = None
    model: Component | None = None
    loader: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    trainer: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, file: str = "<config>") -> Config:
        """Check a configuration that is already in memory."""
        if not isinstance(values, Mapping):
            raise wrong(file, "(whole file)", f"the sections {', '.join(SECTIONS)}", values)
        sections = {name: values[name] for name in values if values[name] is not None}
        _known(file, "", sections, SECTIONS)
        checked: dict[str, Any] = {"file": file}
        for name, value in sections.items():
            if name in ("dataset", "model"):
                checked[name] = Component.parse(value, file=file, key=name)
            else:
                checked[name] = _section(file, name, value)
        return cls(**checked)

    def sizes(self, *, train_batches: int | None = None, val_batches: int | None = None) -> ChunkSizes:
        """Apply the sizes rule; limits are read from ``trainer`` and, tolerantly, from ``train``."""
        limits = {name: self.trainer.get(name, self.train.get(name)) for name in _TRAINER_CHECKED}
        return chunk_sizes(
            self.train.get("train_chunk_size"),
            self.train.get("val_chunk_size"),
            train_batches=train_batches,
            val_batches=val_batches,
            **limits,
        )

    def trainer_arguments(self) -> dict[str, Any]:
        """Return the arguments of the trainer: limits that hold are in, those that chunking ignores are out."""
        sizes = self.sizes()
        arguments = {name: value for name, value in self.trainer.items() if name not in _TRAINER_CHECKED}
        if not sizes.enabled:
            limits = {name: getattr(sizes, name) for name in _TRAINER_CHECKED}
            arguments.update({name: value for name, value in limits.items() if value is not None})
        return arguments

    def as_dict(self) -> dict[str, Any]:
        """Return the sections as plain values, as ``--print-config`` shows them."""
        shown: dict[str, Any] = {}
        for name in SECTIONS:
            value = getattr(self, name)
            if value is not None and value != {}:
                shown[name] = value.as_dict() if isinstance(value, Component) else dict(value)
        return shown


def read_config(path: str | os.PathLike[str], assignments: Iterable[str] = ()) -> Config:
    """Read and check a YAML file.

    Args:
        path: The file.
        assignments: Changes such as ``train.train_chunk_size=500``, made before anything is checked.
    """
    values = read_yaml(path)
    for assignment in assignments:
        values = assigned(values, assignment)
    return Config.from_dict(values, file=str(path))


def wrong(file: str, key: str, expected: str, found: Any) -> ConfigError:
    """Return the error for one value."""
    return ConfigError(f"{file}: {key}: expected {expected}, found {brief(found)}.")


def _section(file: str, name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong(file, name, "a section of keys and values", value)
    schema = _SCHEMA.get(name)
    if schema is not None:
        _known(file, f"{name}.", value, schema)
    for key, (expected, holds) in (schema or _TRAINER_CHECKED).items():
        if value.get(key) is not None and not holds(value[key]):
            raise wrong(file, f"{name}.{key}", expected, value[key])
    return {key: v for key, v in value.items() if v is not None}


def _known(file: str, prefix: str, found: Iterable[str], known: Iterable[str]) -> None:
    allowed = list(known)
    for key in found:
        if key not in allowed:
            near = difflib.get_close_matches(str(key)[:80], allowed, n=1)
            hint = f" Did you mean {prefix}{near[0]}?" if near else ""
            name = f"{prefix}{listed([key])}"
            raise ConfigError(f"{file}: {name}: unknown key; expected one of {', '.join(allowed)}.{hint}")
