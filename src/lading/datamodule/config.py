"""The configuration of a run: six sections, read from YAML, each value checked.

    dataset:  {class_path: ..., init_args: ...}     where the samples come from
    loader:   {batch_size: 32, ...}                 how they are put into batches
    train:    {train_chunk_size: 2000, ...}         chunk sizes, in batches; the seed
    trainer:  {max_epochs: 4, ...}                  handed to Lightning as it is
    model:    {class_path: ..., init_args: ...}     what is trained
    run:      {dir: runs/7, ...}                    run directory, ledger, mixture

An error names file, key, what was expected and what was found. A
configuration without chunk sizes means what it always meant.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lading.datamodule.component import Component
from lading.datamodule.sizes import ChunkSizes, chunk_sizes
from lading.datamodule.yaml_file import assigned, read_yaml
from lading.errors import ConfigError

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
    return ConfigError(f"{file}: {key}: expected {expected}, found {found!r}.")


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
            near = difflib.get_close_matches(str(key), allowed, n=1)
            hint = f" Did you mean {prefix}{near[0]}?" if near else ""
            raise ConfigError(f"{file}: {prefix}{key}: unknown key; expected one of {', '.join(allowed)}.{hint}")
