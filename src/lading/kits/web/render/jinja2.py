"""The templates: everything that comes from a run is shown as text, whatever it holds.

``shown`` spells out every character that acts, autoescape every character that is
markup. Both are applied by the environment, to every value of every template:
none can be forgotten.
"""

from __future__ import annotations

import functools
import importlib.resources
import math
from typing import Any

from lading.errors import missing_extra
from lading.runtime.fields import shown

try:
    import jinja2
    import markupsafe
except ImportError as error:
    raise missing_extra("jinja2", "report", "a page") from error

HOME = importlib.resources.files("lading.kits.web.render") / "templates"
_NARROW_SPACE = "\u202f"


def rendered(template: str, **values: Any) -> str:
    """Return a page."""
    return _environment().get_template(template).render(**values)


def asset(name: str) -> str:
    """Return the text of a file beside the templates: the style sheet, the script."""
    return HOME.joinpath(name).read_text(encoding="utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        finalize=_finalized,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number, aligned=aligned, percent=percent, words=words, short=short, moment=moment, human=human, span=span
    )
    environment.globals.update(style=lambda: markupsafe.Markup(asset("style.css")))
    return environment


def _finalized(value: Any) -> Any:
    """Return a value as templates print it; markup is only what our own macros made."""
    if isinstance(value, markupsafe.Markup):
        return value
    return shown(value) if isinstance(value, str) else value


def number(value: Any, digits: int = 5) -> str:
    """Return a number as people read it.

    >>> number(1234567), number(0.123456789), number(None)
    ('1\u202f234\u202f567', '0.12346', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}".replace(",", _NARROW_SPACE)
    return f"{value:.{digits}g}" if math.isfinite(value) else str(value)


def aligned(value: float | None, digits: int = 5) -> str:
    """Return a number for a column, with as many digits as its neighbours.

    >>> aligned(2.041), aligned(0.06223), aligned(None), aligned(3e9)
    ('2.0410', '0.062230', '–', '3e+09')
    """
    fits = isinstance(value, float) and (value == 0 or 1e-4 <= abs(value) < 10 ** (digits - 1))
    return f"{value:#.{digits}g}" if fits else number(value, digits)


def human(value: float | None) -> str:
    """Return a large number in a few characters.

    >>> human(950), human(52_134_000), human(1.2e12), human(None)
    ('950', '52.1\u202fM', '1.2\u202fT', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    for least, size, unit in ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / size:.3g}{_NARROW_SPACE}{unit}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}".replace(",", _NARROW_SPACE)


def span(seconds: float | None) -> str:
    """Return a time as people say it.

    >>> span(42.4), span(312), span(9000), span(200_000), span(None)
    ('42 s', '5 min', '2 h 30 min', '2 d 7 h', '–')
    """
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h" if hours % 24 else f"{hours // 24} d"


def percent(value: float | None, digits: int = 2) -> str:
    """Return a share in per cent."""
    return "–" if value is None else f"{100 * value:.{digits}f}{_NARROW_SPACE}%"


def moment(text: str | None) -> str | None:
    """Return a time in ISO 8601 as people read it, to the second.

    >>> moment("2026-11-16T09:25:37.536+00:00")
    '2026-11-16 09:25:37'
    """
    return None if text is None else text[:19].replace("T", " ")


def words(key: str) -> str:
    """Return the name of a field as words.

    >>> words("steps_applied")
    'steps applied'
    """
    return key.replace("_", " ")


def short(text: str, longest: int = 40) -> str:
    """Return a long text with its middle left out."""
    text = shown(text)
    return text if len(text) <= longest else f"{text[: longest - 13]}…{text[-12:]}"
