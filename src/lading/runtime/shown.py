"""Text from outside as it may be shown: what is no printable character becomes its escape.

    shown("code\\x1b[2J")    code\\x1b[2J, as eight visible characters after "code"

Names of datasets, reasons, file names and decoded samples may hold escape
sequences, control characters, bidi overrides or invisible characters.
A terminal obeys them, a browser reorders the line. They are shown instead.
"""

from __future__ import annotations

import html
import reprlib
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

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


def found(value: Any) -> str:
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
