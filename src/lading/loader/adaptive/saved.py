"""What a state keeps of policies, every field checked."""

from __future__ import annotations

from functools import partial
from typing import Any

from lading.runtime.fields import Fields, FieldTable, given, named, optional, record_of


def read_policies(fields: Fields) -> dict[str, Any]:
    """Return what the policies remember; empty without one."""
    table = {**_STEPS, **_POLICY, **_CHUNKS} if "kind" in fields else _CHUNKS
    return _present(**fields.each(table))


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _ended(fields: Fields, name: str) -> list[int]:
    return list(fields.integers(name, low=0, least=5, most=5))


_STEPS: FieldTable = {"last_step": partial(Fields.integer, low=-1)}
_POLICY: FieldTable = {"kind": Fields.text, "state": named(Fields.value)}
_OF_CHUNKS: FieldTable = {
    **_STEPS,
    "ended": optional(_ended),
    "resize": given(record_of(dict, _POLICY)),
    "choose": given(record_of(dict, _POLICY)),
}
_CHUNKS: FieldTable = {"chunks": given(record_of(_present, _OF_CHUNKS))}
