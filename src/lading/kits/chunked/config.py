"""The configuration of a run: six sections, read from YAML, each value checked.

    dataset:  {class_path: ..., init_args: ...}     where the samples come from
    loader:   {batch_size: 32, ...}                 how they are put into batches
    train:    {train_chunk_size: 2000, seed: 3}     chunk sizes, in batches; the seed of everything: also written
                                                    seed: 3, without a section; loader.seed: an order of its own
    trainer:  {max_epochs: 4, ...}                  handed to Lightning as it is
    model:    {class_path: ..., init_args: ...}     what is trained
    run:      {dir: runs/7, ...}                    run directory, ledger, mixture

An error names file, key, what was expected and what was found. A
configuration without chunk sizes means what it always meant.

Files of s4 and its forks are read as they are: sections and keys that we know
are used, a misspelling of one is refused, all others are kept and listed in
one note. Hydra's composition is not imitated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lading.errors import ConfigError, LadingError
from lading.kits.chunked.component import Component, misspelt
from lading.kits.chunked.datamodule.sizes import ChunkSizes, chunk_sizes
from lading.loader.chunks import Chunks
from lading.runtime.fields import brief, is_number, is_whole, listed
from lading.runtime.yaml_text import parse_yaml, read_yaml


def assigned(values: dict[str, Any], assignment: str) -> dict[str, Any]:
    """Return a copy with one dotted key changed; ``seed`` is the run's one seed, ``train.seed``.

    >>> assigned({"train": {"seed": 1}}, "train.train_chunk_size=500")
    {'train': {'seed': 1, 'train_chunk_size': 500}}
    >>> assigned({"train": {"seed": 1}}, "seed=3")
    {'train': {'seed': 3}}
    """
    _, equals, text = assignment.partition("=")
    path = _path(assignment)
    if not equals or not all(path):
        raise ConfigError(f"--set {assignment}: expected section.key=value, such as train.train_chunk_size=500.")
    return _with(values, path, parse_yaml(text, f"--set {assignment}"), assignment)


def _path(assignment: str) -> list[str]:
    path = assignment.partition("=")[0].strip().split(".")
    return ["train", "seed"] if path == ["seed"] else path


def _with(values: Any, path: list[str], value: Any, assignment: str) -> dict[str, Any]:
    if values is not None and not isinstance(values, dict):
        raise ConfigError(f"--set {assignment}: {path[0]} would be set inside {brief(values)}, which is no section.")
    inner = dict(values or {})
    inner[path[0]] = value if len(path) == 1 else _with(inner.get(path[0]), path[1:], value, assignment)
    return inner


Check = tuple[str, Callable[[Any], bool]]


def _whole(least: int) -> Check:
    return f"an integer from {least} up", lambda v: is_whole(v, least)


def _limit(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return (isinstance(value, int) and value >= 0) or (isinstance(value, float) and 0 <= value <= 1)


def _chunks(value: Any) -> bool:
    try:
        return Chunks.of(value) is not None
    except LadingError:
        return False


_COUNT, _FROM_ZERO = _whole(1), _whole(0)
_CHUNKS: Check = ("an integer from 1 up, or sizes that change (see lading.Chunks)", _chunks)
_CURRICULUM: Check = (
    "scores (a column or a .npy file) with start, until, pacing and power",
    lambda v: isinstance(v, dict) and "scores" in v,
)
_SAMPLE_WEIGHTS: Check = (
    "a column, balanced:column or a .npy file, or these by the names of datasets",
    lambda v: all(isinstance(given, str) and bool(given) for given in (v.values() if isinstance(v, dict) else [v])),
)
_LIMIT: Check = ("an integer of batches, or a share from 0.0 to 1.0", _limit)
_FLAG: Check = ("true or false", lambda v: isinstance(v, bool))
_TEXT: Check = ("a text", lambda v: isinstance(v, str) and bool(v))
_NUMBER: Check = ("a number", is_number)
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
        "train_chunk_size": _CHUNKS,
        "val_chunk_size": _CHUNKS,
        "monitor": _TEXT,
        "curriculum": _CURRICULUM,
        "sample_weights": _SAMPLE_WEIGHTS,
        "limit_train_batches": _LIMIT,
        "limit_val_batches": _LIMIT,
        "seed": _FROM_ZERO,
    },
    "run": {"dir": _TEXT, "ledger": _FLAG, "mixture": _WEIGHTS, "checkpoint_updates": _COUNT},
}


def described_schema() -> dict[str, dict[str, str]]:
    """Return every key that a configuration may have, by section, and what it takes."""
    component = {"class_path": "a class, package.module.Class", "init_args": "its arguments, by name"}
    checked = {name: {key: check[0] for key, check in keys.items()} for name, keys in _SCHEMA.items()}
    trainer = {"...": "any argument of lightning.Trainer, handed on as it is"}
    return {"dataset": component, **checked, "trainer": trainer, "model": dict(component)}


_TRAINER_CHECKED: dict[str, Check] = {"limit_train_batches": _LIMIT, "limit_val_batches": _LIMIT}
SECTIONS = ("dataset", "loader", "train", "trainer", "model", "run")


@dataclass(frozen=True)
class Config:
    """A checked configuration.

    Attributes:
        unused: Keys that are not ours, dotted; kept in ``others``.
        others: What these keys hold.
        changed: Keys that ``--set`` changed, dotted: they are used, or refused.
    """

    file: str = "<config>"
    dataset: Component | None = None
    model: Component | None = None
    loader: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    trainer: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)
    changed: tuple[str, ...] = ()

    @property
    def unused(self) -> tuple[str, ...]:
        """Keys that are kept and not used, dotted; those of ``dataset``, ``model`` and ``trainer`` show when made."""
        return tuple(self.others)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, file: str = "<config>") -> Config:
        """Check a configuration that is already in memory."""
        if not isinstance(values, Mapping):
            raise wrong(file, "(whole file)", f"the sections {', '.join(SECTIONS)}", values)
        sections = _one_seed(file, {name: values[name] for name in values if values[name] is not None})
        others = _foreign(file, "", sections, SECTIONS)
        checked: dict[str, Any] = {"file": file}
        for name in [name for name in sections if name in SECTIONS]:
            if name in ("dataset", "model"):
                checked[name] = Component.parse(sections[name], file=file, key=name)
            else:
                checked[name], more = _section(file, name, sections[name])
                others |= more
        return cls(**checked, others=others)

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

    def check_changed(self, unused: Iterable[str]) -> None:
        """Refuse a key that ``--set`` changed and nothing is done with; in a file such keys are only noted."""
        for key in self.changed:
            if any(key == name or key.startswith(f"{name}.") for name in unused):
                section = key.partition(".")[0]
                known = _SCHEMA.get(section, SECTIONS if section not in SECTIONS else ())
                expected = f"one of {', '.join(known)}" if known else f"an argument that {section} takes"
                raise ConfigError(f"--set {key}: nothing uses it; expected {expected}.")

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
        for key, value in self.others.items():
            section, dot, name = key.partition(".")
            (shown.setdefault(section, {}) if dot else shown)[name if dot else section] = value
        return shown


def read_config(path: str | os.PathLike[str], assignments: Iterable[str] = ()) -> Config:
    """Read and check a YAML file.

    Args:
        assignments: Changes such as ``train.train_chunk_size=500``, made before anything is checked.
    """
    values, listed = read_yaml(path), tuple(assignments)
    for assignment in listed:
        values = assigned(values, assignment)
    config = replace(Config.from_dict(values, file=str(path)), changed=tuple(".".join(_path(a)) for a in listed))
    config.check_changed(config.unused)
    return config


def _one_seed(file: str, sections: dict[str, Any]) -> dict[str, Any]:
    """Return sections with a ``seed`` outside of them inside ``train``, where everything takes it from."""
    train = sections.get("train", {})
    if "seed" not in sections or not isinstance(train, Mapping):
        return sections
    seed, other = sections["seed"], train.get("seed")
    if other is not None and other != seed:
        raise wrong(file, "seed", f"one seed: train.seed is {other!r}", seed)
    return {**{name: v for name, v in sections.items() if name != "seed"}, "train": {**train, "seed": seed}}


def wrong(file: str, key: str, expected: str, found: Any) -> ConfigError:
    """Return the error for one value."""
    return ConfigError(f"{file}: {key}: expected {expected}, found {brief(found)}.")


def _section(file: str, name: str, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keys of a section that we know, and the others by their dotted names."""
    if not isinstance(value, Mapping):
        raise wrong(file, name, "a section of keys and values", value)
    schema = _SCHEMA.get(name)
    others = {} if schema is None else _foreign(file, f"{name}.", value, schema)
    for key, (expected, holds) in (schema or _TRAINER_CHECKED).items():
        if value.get(key) is not None and not holds(value[key]):
            raise wrong(file, f"{name}.{key}", expected, value[key])
    return {key: v for key, v in value.items() if v is not None and (schema is None or key in schema)}, others


def _foreign(file: str, prefix: str, found: Mapping[Any, Any], known: Iterable[str]) -> dict[str, Any]:
    """Return what is not ours, by its dotted name; what looks like a misspelling of ours is refused."""
    allowed = list(known)
    others = {f"{prefix}{listed([key])}": value for key, value in found.items() if key not in allowed}
    for key in found:
        near = None if key in allowed else misspelt(str(key), allowed)
        if near is not None:
            raise ConfigError(
                f"{file}: {prefix}{listed([key])}: unknown key; expected one of {', '.join(allowed)}. Did you mean "
                f"{prefix}{near}?"
            )
    return others
