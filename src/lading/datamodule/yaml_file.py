"""Read YAML without its surprises: no objects, no key twice, ``1e-3`` is a number."""

from __future__ import annotations

import os
import re
from typing import Any

import yaml

from lading.errors import ConfigError

_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the mapping in a file; anything else is refused with file and line."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}. Pass the path of a YAML file.") from error
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a mapping of sections, found {type(values).__name__}.")
    _refuse_doubles(str(path), node)
    return _numbers(values)


def parsed(text: str) -> Any:
    """Return a value as YAML reads it.

    >>> parsed("1e-3"), parsed("[1, two]"), parsed("null")
    (0.001, [1, 'two'], None)
    """
    return _numbers(yaml.safe_load(text))


def assigned(values: dict[str, Any], assignment: str) -> dict[str, Any]:
    """Return a copy with one dotted key changed.

    >>> assigned({"train": {"seed": 1}}, "train.train_chunk_size=500")
    {'train': {'seed': 1, 'train_chunk_size': 500}}
    """
    key, equals, text = assignment.partition("=")
    path = key.strip().split(".")
    if not equals or not all(path):
        raise ConfigError(f"--set {assignment}: expected section.key=value, such as train.train_chunk_size=500.")
    try:
        value = parsed(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {assignment}: the value is not YAML: {' '.join(str(error).split())}.") from error
    return _with(values, path, value, assignment)


def _with(values: Any, path: list[str], value: Any, assignment: str) -> dict[str, Any]:
    if values is not None and not isinstance(values, dict):
        raise ConfigError(f"--set {assignment}: {path[0]} would be set inside {values!r}, which is no section.")
    inner = dict(values or {})
    inner[path[0]] = value if len(path) == 1 else _with(inner.get(path[0]), path[1:], value, assignment)
    return inner


def _numbers(value: Any) -> Any:
    """Turn ``1e-3``, a text to YAML 1.1, into the number everybody means."""
    if isinstance(value, dict):
        return {key: _numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_numbers(inner) for inner in value]
    return float(value) if isinstance(value, str) and _FLOAT.fullmatch(value) else value


def _refuse_doubles(file: str, node: Any) -> None:
    """YAML lets the last of two equal keys win in silence; half a section would be lost."""
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, inner in node.value:
            line = key.start_mark.line + 1
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                raise ConfigError(
                    f"{file}: {key.value}: stands twice, in lines {seen[key.value]} and {line}. Keep one of them."
                )
            if isinstance(key, yaml.ScalarNode):
                seen[key.value] = line
            _refuse_doubles(file, inner)
    elif isinstance(node, yaml.SequenceNode):
        for inner in node.value:
            _refuse_doubles(file, inner)
