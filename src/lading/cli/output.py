"""How verbs answer: a table for people, ``--json`` for programs, an exit code for both."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn

Run = Annotated[str, typer.Argument(help="Folder of the run.", metavar="RUN", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


def answer(value: Any, text: Callable[[], RenderableType], *, as_json: bool, holds: bool = True) -> None:
    """Print an answer and leave with its exit code."""
    if as_json:
        print(json.dumps(plain(value), indent=1))
    else:
        Console(soft_wrap=False, highlight=False).print(text())
    if not holds:
        raise typer.Exit(1)


def plain(value: Any) -> Any:
    """Return a value that every JSON reader accepts: no NaN, no types of Python's own."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


@contextlib.contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Callable[[float, str], None]]:
    """Show how far something long is, on stderr and only to people."""
    if quiet or not sys.stderr.isatty():
        yield lambda share, what: None
        return
    columns = (BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda share, what: bar.update(task, completed=share, description=what)
