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
from lading.runtime.shown import shown

try:
    import jinja2
    import markupsafe
except ImportError as error:
    raise missing_extra("jinja2", "report", "a page") from error

HOME = importlib.resources.files("lading.kits.web.render") / "templates"
_NARROW_SPACE = "\u202f"


def rendered(template: str, **values: Any) -> str:
    """Return a page.

    Args:
        template: Name of its template.
        values: What it shows.
    """
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
    environment.filters.update(number=number, percent=percent, words=words, short=short, moment=moment)
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
