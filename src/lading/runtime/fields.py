"""Values from outside: read with every field checked (type, range, length), and shown so that they do no harm.

    origin = Origin("runs/7/run.json", CorruptLedgerError, "Restore it from a copy.")
    record = origin.record(data)                  bytes ──▶ Fields
    record.integer("start_step", low=0)           one field
    record.each(TABLE)                            all of them, and no others

    TABLE = {"start_step": COUNT, "datasets": Fields.texts, "parent": nullable(record_of(Parent, PARENT)), ...}

A table has a reader for each field, and readers are put together: ``optional``
(may be absent), ``nullable`` (is there, may be null), ``given`` (either),
``tuple_of`` (a list), ``row_of`` (a list of so many items), ``record_of``.

Whatever the bytes are, the outcome is a checked value or the origin's own
error, which names file, place, what was expected and what was found. Nothing
here costs more than time and memory proportional to the (bounded) input.

Names, reasons and samples may hold escape sequences, control characters, bidi overrides or invisible characters. A
terminal obeys them, a browser reorders the line. ``shown`` gives their escapes instead: ``code\\x1b[2J``.
"""

from __future__ import annotations

import html
import json
import math
import operator
import re
import reprlib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

from lading.errors import LadingError


def whole(value: Any) -> int | None:
    """Return an integer of any kind (NumPy's, a tensor's) as Python's own; None for what is none, True and False too.

    >>> whole(3), whole(True), whole(3.0), whole("3")
    (3, None, None, None)
    """
    if type(value) is int:
        return value
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except Exception:  # a tensor of several numbers raises what it likes
        return None


def is_whole(value: object, least: int | None = None) -> TypeGuard[int]:
    """Say whether a value is an integer, True and False not counted, and not below ``least``.

    >>> is_whole(3, 1), is_whole(0, 1), is_whole(True), is_whole(3.0)
    (True, False, False, False)
    """
    number = whole(value)
    return number is not None and (least is None or number >= least)


def is_number(value: object) -> TypeGuard[float]:
    """Say whether a value is a finite number of Python's, True and False not counted.

    >>> is_number(0.5), is_number(float("nan")), is_number(True)
    (True, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)


_FOUND_CHARACTERS = 80
_PLAIN_BITS = 256


def shown(text: str) -> str:
    """Return a text in which every character can be seen and none acts: on one line, without escape sequences.

    >>> shown("caf\\u00e9 \\u4e2d"), shown("a\\nb\\u202ec")
    ('café 中', 'a\\\\nb\\\\u202ec')
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or unicodedata.category(c) == "Zs" else _escaped(c) for c in text)


def brief(value: Any) -> str:
    """Return a value from outside in short, for the end of an error message: ``found 'x'``."""
    return shown(_Brief().repr(value))


def shown_html(text: str) -> str:
    """Return a text as HTML that shows it, inside elements and quoted attributes."""
    return html.escape(shown(text))


def html_table(headings: Sequence[str], rows: Iterable[Sequence[Any]], *, more: int = 0, what: str = "rows") -> str:
    """Return rows as an HTML table, for notebooks; every value is shown as text.

    >>> html_table(["a"], [["<b>"]], more=2)
    '<table><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr></table><p>and 2 more rows</p>'
    """
    head = "".join(f"<th>{shown_html(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{shown_html(_cell(value))}</td>' for value in row)}</tr>" for row in rows)
    rest = f"<p>and {more} more {what}</p>" if more > 0 else ""
    return f"<table><tr>{head}</tr>{body}</table>{rest}"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def listed(names: Iterable[Any], most: int = 20) -> str:
    """Return names as a list in a sentence, the first of many.

    >>> listed(["code", "prose"]), listed(range(30), most=2)
    ('code, prose', '0, 1 and 28 more')
    """
    texts = [shown(str(name)[:_FOUND_CHARACTERS]) for name in names]
    return ", ".join(texts) if len(texts) <= most else f"{', '.join(texts[:most])} and {len(texts) - most} more"


def spaced(number: int) -> str:
    """Return an integer with a space between thousands."""
    return f"{number:,}".replace(",", " ")


class _Brief(reprlib.Repr):
    """``repr`` of any value in about a line, in little time."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = _FOUND_CHARACTERS

    def repr_int(self, value: int, level: int) -> str:
        """Describe integers that Python refuses to write out."""
        return repr(value) if value.bit_length() <= _PLAIN_BITS else f"an integer of {value.bit_length()} bits"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


MOST_BYTES = 1 << 26
MOST_VALUES = 5_000_000
MOST_CONTAINERS = 1_000_000
MOST_DEPTH = 64
MOST_ITEMS = 1 << 22
LONGEST_TEXT = 1 << 12
INT64_MAX = (1 << 63) - 1

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_HEX = re.compile(r"[0-9a-f]*")
_CONTAINERS = (dict, list)


@dataclass(frozen=True)
class Origin:
    """Where values come from, and how to refuse them.

    Attributes:
        file: File or thing that is read, for errors.
        error: Class of the errors.
        way_out: What the user can do about damage; the end of every error.
    """

    file: str | Path
    error: type[LadingError]
    way_out: str = ""

    def refuse(self, place: str, expected: str, found: str) -> NoReturn:
        """Raise the error for one place of the file."""
        where = f"{self.file}: {place}" if place else str(self.file)
        raise self.error(shown(f"{where}: expected {expected}, found {found}. {self.way_out}".rstrip()))

    def read(self, most_bytes: int = MOST_BYTES) -> bytes:
        """Return the content of the file; one that is missing, no file, or too large is refused."""
        path = Path(self.file)
        try:
            if path.exists() and not path.is_file():
                self.refuse("", "a file", "something else")  # a pipe would be waited for
            with open(path, "rb") as file:
                data = file.read(most_bytes + 1)
        except (OSError, ValueError) as error:
            self.refuse("", "a file that can be read", str(getattr(error, "strerror", None) or error))
        if len(data) > most_bytes:
            self.refuse("", f"at most {most_bytes} bytes", "more")
        return data

    def json(self, data: bytes | str) -> Any:
        """Return the value of a JSON text: no key twice, no NaN, and no more than memory holds easily."""
        data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        if len(data) > MOST_BYTES:
            self.refuse("", f"at most {MOST_BYTES} bytes", str(len(data)))
        containers = data.count(b"[") + data.count(b"{")
        if data.count(b",") > MOST_VALUES or containers > MOST_CONTAINERS:
            self.refuse("", f"at most {MOST_VALUES} values in {MOST_CONTAINERS} lists and objects", "more")
        try:
            value = json.loads(data.decode(), object_pairs_hook=self._object, parse_constant=self._constant)
            if _SURROGATE.search(data):  # half a character cannot be written to any file or terminal
                json.dumps(value, ensure_ascii=False).encode()
        except RecursionError:
            self.refuse("", f"JSON of at most {MOST_DEPTH} levels", "more")
        except ValueError as error:
            self.refuse("", "JSON", f"something else ({error})")
        if containers > MOST_DEPTH and _deeper_than(value, MOST_DEPTH):
            self.refuse("", f"JSON of at most {MOST_DEPTH} levels", "more")
        return value

    def record(self, data: bytes | str) -> Fields:
        return Fields(self.json(data), self)

    def items(self, data: bytes | str) -> Fields:
        """Return the items of a JSON list."""
        return Fields({"": self.json(data)}, self).items("")

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            names = [name for name, _ in pairs]
            self.refuse("", "every key once", f"{brief(next(n for n in names if names.count(n) > 1))} twice")
        return value

    def _constant(self, name: str) -> NoReturn:
        self.refuse("", "finite numbers", name)


class Fields:
    """The fields of an object that was parsed, or the items of a list, read one by one.

    Errors name the origin and the place in it.
    """

    def __init__(self, values: Any, origin: Origin, place: str = "", above: tuple[Fields, str | int] | None = None):
        if not isinstance(values, Mapping):
            origin.refuse(place, "an object with named fields", _kind(values))
        self._values: Mapping[Any, Any] = values
        self.origin, self._place, self._above = origin, place, above

    @property
    def place(self) -> str:
        """Where it is in its origin, for errors."""
        return self._place if self._above is None else self._above[0].place_of(self._above[1])

    def __contains__(self, key: str | int) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def refuse(self, key: str | int, expected: str) -> NoReturn:
        """Raise the error for one field."""
        found = brief(self._values[key]) if key in self._values else "nothing"
        self.origin.refuse(self.place_of(key), expected, found)

    def place_of(self, key: str | int) -> str:
        """Return where a field is, for errors."""
        if isinstance(key, int):
            return f"{self.place}[{key}]"
        name = key if key.isidentifier() and len(key) < 40 else brief(key).strip("'\"")
        return f"{self.place}.{name}" if self.place else name

    def only(self, *known: str) -> None:
        for key in self._values:
            if key not in known:
                self.origin.refuse(self.place_of(key), f"only the fields {', '.join(known)}", f"{brief(key)} besides")

    def each(self, table: FieldTable, *known: str) -> dict[str, Any]:
        """Read the fields of a table, name by name, and refuse others than these and ``known`` ones."""
        if not self._values.keys() <= {*known, *table}:
            self.only(*known, *table)
        return self.read(table)

    def read(self, table: FieldTable) -> dict[str, Any]:
        """Read the fields of a table, name by name, whatever else there is."""
        found = {}
        for name, read in table.items():
            found[name] = read(self, name)
        return found

    def value(self, key: str | int) -> Any:
        """Return a field as it is; only its presence is checked."""
        if key not in self._values:
            self.refuse(key, "a value")
        return self._values[key]

    def integer(self, key: str | int, *, low: int = -INT64_MAX - 1, high: int = INT64_MAX) -> int:
        """Return an integer from ``low`` to ``high``."""
        value = self._values.get(key)
        number = value if type(value) is int else whole(value)
        if number is None or not low <= number <= high:
            self.refuse(key, f"an integer from {low} to {high}")
        return number

    def number(self, key: str | int, *, low: float = -math.inf, high: float = math.inf) -> float:
        """Return a finite number from ``low`` to ``high``."""
        value = self._values.get(key)
        number = math.nan
        if is_number(value) and abs(value) < 1e300:
            number = float(value)
        if not (math.isfinite(number) and low <= number <= high):
            bounds = "" if math.isinf(low) and math.isinf(high) else f" from {low} to {high}"
            self.refuse(key, f"a finite number{bounds}")
        return number

    def flag(self, key: str | int) -> bool:
        value = self._values.get(key)
        if not isinstance(value, bool):
            self.refuse(key, "true or false")
        return value

    def text(self, key: str | int, *, choices: Sequence[str] = (), longest: int = LONGEST_TEXT) -> str:
        """Return a text; one of ``choices`` where they are given."""
        value = self._values.get(key)
        if not isinstance(value, str) or (choices and value not in choices):
            self.refuse(key, f"one of {', '.join(choices)}" if choices else "a text")
        if len(value) > longest:
            self.refuse(key, f"a text of at most {longest} characters")
        return value

    def hexadecimal(self, key: str | int, *, digits: int) -> str:
        """Return a text of exactly so many lower-case hexadecimal digits."""
        value = self._values.get(key)
        if not isinstance(value, str) or len(value) != digits or not _HEX.fullmatch(value):
            self.refuse(key, f"{digits} hexadecimal digits")
        return value

    def file_name(self, key: str | int) -> str:
        """Return the bare name of a file: no folder, no way up, no hidden file."""
        value = self.text(key, longest=255)
        if not is_bare_name(value):
            self.refuse(key, "the bare name of a file")
        return value

    def record(self, key: str | int) -> Fields:
        if not isinstance(self._values.get(key), Mapping):
            self.refuse(key, "an object with named fields")
        return Fields(self._values[key], self.origin, above=(self, key))

    def items(self, key: str | int, *, least: int = 0, most: int = MOST_ITEMS) -> Fields:
        """Return the items of a list, to be read one by one, by their numbers."""
        value = self._values.get(key)
        if not isinstance(value, list | tuple) or not least <= len(value) <= most:
            self.refuse(key, f"a list of {least} to {most} items")
        return Fields(dict(enumerate(value)), self.origin, above=(self, key))

    def records(self, key: str | int, *, least: int = 0, most: int = MOST_ITEMS) -> list[Fields]:
        """Return the fields of each object of a list."""
        items = self.items(key, least=least, most=most)
        return list(map(items.record, items._values))

    def integers(
        self,
        key: str | int,
        *,
        low: int = -INT64_MAX - 1,
        high: int = INT64_MAX,
        least: int = 0,
        most: int = MOST_ITEMS,
    ) -> tuple[int, ...]:
        """Return the integers of a list, each from ``low`` to ``high``."""
        value: Any = self._values.get(key)
        fits = type(value) is list and least <= len(value) <= most
        if fits and set(map(type, value)) <= {int} and (not value or low <= min(value) <= max(value) <= high):
            return tuple(value)  # millions of them, in little time
        items = self.items(key, least=least, most=most)
        return tuple(items.integer(i, low=low, high=high) for i in items)

    def texts(self, key: str | int, *, most: int = MOST_ITEMS) -> tuple[str, ...]:
        items = self.items(key, most=most)
        return tuple(map(items.text, items._values))


Reader = Callable[..., Any]  # of (fields, name)
FieldTable = Mapping[str, Reader]
COUNT, SIZE = partial(Fields.integer, low=0), partial(Fields.integer, low=1)
SHA256 = partial(Fields.hexadecimal, digits=64)


def optional(read: Reader, default: Any = None, **bounds: Any) -> Reader:
    """Return the reader of a field that may be absent; then it is the default. What is there is read, null, too."""
    return lambda fields, name: read(fields, name, **bounds) if name in fields._values else default


def nullable(read: Reader, **bounds: Any) -> Reader:
    """Return the reader of a field that is there and may be null."""
    return lambda fields, name: None if fields._values.get(name, name) is None else read(fields, name, **bounds)


def given(read: Reader, default: Any = None, **bounds: Any) -> Reader:
    """Return the reader of a field that may be absent or null; then it is the default."""
    return lambda fields, name: default if fields._values.get(name) is None else read(fields, name, **bounds)


def tuple_of(read: Reader, *, least: int = 0, most: int = MOST_ITEMS) -> Reader:
    """Return the reader of a list of which each item is read so."""

    def found(fields: Fields, name: str) -> tuple[Any, ...]:
        items = fields.items(name, least=least, most=most)
        return tuple(map(read, repeat(items), items._values))

    return found


def row_of(*reads: Reader) -> Reader:
    """Return the reader of a list of exactly so many items, each read in its own way."""

    def found(fields: Fields, name: str) -> tuple[Any, ...]:
        items = fields.items(name, least=len(reads), most=len(reads))
        return tuple([read(items, i) for i, read in enumerate(reads)])

    return found


def record_of(make: Callable[..., Any], table: FieldTable) -> Reader:
    """Return the reader of an object with the fields of a table, of which something is made."""
    return lambda fields, name: make(**fields.record(name).each(table))


def named(read: Reader) -> Reader:
    """Return the reader of an object whose names are free; each of its values is read so."""

    def found(fields: Fields, name: str) -> dict[Any, Any]:
        record = fields.record(name)
        return {key: read(record, key) for key in record._values}

    return found


REASON = given(Fields.text, "", longest=1 << 20)


def is_bare_name(name: str) -> bool:
    """Say whether a name stays in its folder: one component, neither empty nor hidden, nothing that cannot be seen."""
    return bool(name) and not name.startswith(".") and not set(name) & {"/", "\\"} and name.isprintable()


def _kind(value: Any) -> str:
    words = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false"}
    return "null" if value is None else words.get(type(value), type(value).__name__)


def _deeper_than(value: Any, depth: int) -> bool:
    level = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(depth):
        inner = (v.values() if isinstance(v, dict) else v for v in level)
        level = [v for values in inner for v in values if isinstance(v, _CONTAINERS)]
        if not level:
            return False
    return True
