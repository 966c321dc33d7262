"""Read YAML without its surprises: no objects, no key twice, no bombs; ``1e-3`` is a number.

    a: &a [x, x]                 an alias stands for all that it repeats; a few kilobytes
    b: &b [*a, *a, *a, *a]       can mean more values than there are atoms,
    c: &c [*c]                   or contain themselves

A file is looked at in three passes, each bounded: events (size, depth, number),
nodes (what aliases stand for, keys that are there twice), values.
"""

from __future__ import annotations

import os
import re
from typing import Any

import yaml

from lading.errors import ConfigError
from lading.runtime.fields import Origin, shown
from lading.runtime.paths import local_path

MOST_BYTES = 1 << 20
MOST_EVENTS = 50_000
MOST_VALUES = 100_000
MOST_DEPTH = 64

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BEGINS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_ENDS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the mapping in a file; anything else is refused with file and line."""
    origin = Origin(local_path(path), ConfigError, "Pass the path of a YAML file.")
    try:
        text = origin.read(MOST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read: {error}. Pass the path of a YAML file.") from error
    values = parse_yaml(text, str(path))
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a mapping of sections, found {type(values).__name__}.")
    return values


def parse_yaml(text: str, file: str) -> Any:
    """Return the value of a YAML text; errors name the file it comes from.

    >>> parse_yaml("[1e-3, {a: two}, null]", "<text>")
    [0.001, {'a': 'two'}, None]
    """
    try:
        _bound_events(text, file)
        loader = _LOADER(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _Nodes(file).size_of(node, 0)
        return _numbers(loader.construct_document(node))
    except ConfigError:
        raise
    except Exception as error:  # dates, numbers and tags that make no sense raise whatever they like
        raise ConfigError(f"{file}: not YAML: {shown(' '.join(str(error).split()))}.") from error


def _bound_events(text: str, file: str) -> None:
    if len(text) > MOST_BYTES:
        raise ConfigError(f"{file}: expected at most {MOST_BYTES} characters of YAML, found {len(text)}.")
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        depth += isinstance(event, _BEGINS) - isinstance(event, _ENDS)
        if number > MOST_EVENTS or depth > MOST_DEPTH:
            raise ConfigError(
                f"{file}: expected YAML of at most {MOST_EVENTS} values, nested at most {MOST_DEPTH} deep; found more."
            )


class _Nodes:
    """Walk over nodes once each, however often aliases repeat them."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._sizes: dict[int, int] = {}

    def size_of(self, node: Any, depth: int) -> int:
        """Return the values that a node stands for, aliases written out; refuse more than memory holds easily."""
        known = self._sizes.get(id(node))
        line = f"{self._file}: line {node.start_mark.line + 1}"
        if known == 0:
            raise ConfigError(f"{line}: an alias stands for something it is part of. Write the value out.")
        if depth > MOST_DEPTH:
            raise ConfigError(f"{line}: aliases nest more than {MOST_DEPTH} deep. Write the value out.")
        if known is None:
            self._sizes[id(node)] = 0  # being looked at: whoever comes back here runs in a circle
            known = 1 + sum(self.size_of(inner, depth + 1) for inner in self._inner(node))
            self._sizes[id(node)] = known
        if known > MOST_VALUES:
            raise ConfigError(f"{line}: aliases stand for more than {MOST_VALUES} values. Use fewer of them.")
        return known

    def _inner(self, node: Any) -> list[Any]:
        if isinstance(node, yaml.MappingNode):
            self._refuse_doubles(node)
            return [inner for pair in node.value for inner in pair]
        return list(node.value) if isinstance(node, yaml.SequenceNode) else []

    def _refuse_doubles(self, node: Any) -> None:
        """YAML lets the last of two equal keys win in silence; half a section would be lost."""
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if key.value in seen:
                first = seen[key.value]
                raise ConfigError(
                    f"{self._file}: {shown(key.value)}: is there twice, in lines {first} and {line}. Keep one of them."
                )
            seen[key.value] = line


def _numbers(value: Any) -> Any:
    """Turn ``1e-3``, a text to YAML 1.1, into the number everybody means."""
    if isinstance(value, dict):
        return {key: _numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_numbers(inner) for inner in value]
    return float(value) if isinstance(value, str) and _FLOAT.fullmatch(value) else value
