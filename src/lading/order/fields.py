"""Read the fields of stored plans and events one by one, each checked and named.

What a file or a state holds may be any JSON. A reader says what was expected,
what was found and where, instead of failing with a KeyError far from the cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lading.errors import PlanError

LIMIT = 1 << 63


class Fields:
    """The fields of one JSON object.

    Args:
        value: What the JSON holds; refused if it is no object.
        where: What it is, for messages: "the plan", "a reweight event".
    """

    def __init__(self, value: Any, where: str) -> None:
        self.where = where
        if not isinstance(value, Mapping):
            raise PlanError(f"{where} is {_short(value)}: expected an object with named fields. It may be damaged.")
        self.value = value

    def only(self, *names: str) -> None:
        """Refuse fields that nobody reads: they may come from a newer Lading."""
        unknown = sorted(str(name) for name in self.value if name not in names)
        if unknown:
            raise PlanError(
                f"{self.where} has the unknown field {', '.join(map(repr, unknown[:5]))}: expected {', '.join(names)}. "
                "It may come from a newer Lading; update this one."
            )

    def integer(self, name: str, least: int = 0, default: Any = None) -> int:
        """Return an integer of at least ``least``."""
        value = self.value.get(name, default)
        if not _is_integer(value) or not least <= value < LIMIT:
            raise self.wrong(name, f"an integer of at least {least}" if least > -LIMIT else "an integer")
        return int(value)

    def optional_integer(self, name: str, least: int = 0) -> int | None:
        """Return an integer, or None where there is none."""
        return None if self.value.get(name) is None else self.integer(name, least)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string."""
        value = self.value.get(name, default)
        if not isinstance(value, str):
            raise self.wrong(name, "a string")
        return value

    def flag(self, name: str) -> bool:
        """Return a boolean."""
        value = self.value.get(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def integers(self, name: str, least: int = 0) -> tuple[int, ...]:
        """Return a list of integers."""
        value = self.value.get(name)
        if not isinstance(value, list | tuple) or not all(_is_integer(v) and least <= v < LIMIT for v in value):
            raise self.wrong(name, f"a list of integers of at least {least}" if least > -LIMIT else "a list of integers")
        return tuple(int(v) for v in value)

    def pairs(self, name: str) -> tuple[tuple[int, int], ...]:
        """Return a list of pairs of integers; none where the field is missing."""
        value = self.value.get(name, ())
        if not isinstance(value, list | tuple) or not all(
            isinstance(v, list | tuple) and len(v) == 2 and all(_is_integer(n) and 0 <= n < LIMIT for n in v)
            for v in value
        ):
            raise self.wrong(name, "a list of pairs of integers")
        return tuple((int(a), int(b)) for a, b in value)

    def items(self, name: str) -> list[Any]:
        """Return a list of anything."""
        value = self.value.get(name)
        if not isinstance(value, list | tuple):
            raise self.wrong(name, "a list")
        return list(value)

    def inner(self, name: str, where: str) -> Fields | None:
        """Return the fields of an object inside this one, or None where there is none."""
        value = self.value.get(name)
        return None if value is None else Fields(value, where)

    def wrong(self, name: str, expected: str) -> PlanError:
        """Return the error for a field that is not what it should be."""
        found = _short(self.value[name]) if name in self.value else "nothing"
        return PlanError(f"{name} of {self.where} is {found}: expected {expected}. It may be damaged.")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
