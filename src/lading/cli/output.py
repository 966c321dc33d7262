"""How verbs answer: a table for people, ``--json`` for programs, an exit code for both.

Where the source is at hand, ``--decode`` shows the samples themselves:

--decode train:sources        the object ``sources`` of train.py: a dict of datasets, one dataset, or a function
--decode code/train.py:sources    that returns either
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table

from lading.errors import ConfigError, LadingError, LedgerError
from lading.report import Run as OpenedRun, open_run as open_folder
from lading.report.summary import Summary
from lading.report.text import cell, counted, room, summary
from lading.runtime.arrow import without_pandas
from lading.runtime.fields import shown
from lading.runtime.imports import imported
from lading.runtime.json import plain
from lading.runtime.paths import local_path

_LINE_SECONDS = 30.0
if TYPE_CHECKING:
    from lading.source.looks import SourceLooks

Run = Annotated[str, typer.Argument(help="Folder of the run.", metavar="RUN", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Attempt = Annotated[
    int | None, typer.Option("--attempt", help="The history that ends with this attempt, not the newest.", min=0)
]

Stores = Annotated[
    list[str] | None,
    typer.Option("--store", metavar="DATASET=PATH", help="Where a dataset's token store lies now; names come from it."),
]
Trust = Annotated[
    list[str], typer.Option("--trust", help="Public key of somebody you trust; several times.", show_default=False)
]


def open_run(
    path: str, attempt: int | None = None, *, decodes: bool = False, stores: list[str] | None = None
) -> OpenedRun:
    """Open a run for one question, with no more imports than it needs.

    Args:
        attempt: The attempt whose history is asked for; None: the newest.
        decodes: Whether the question opens sources of the user's, which may use pandas themselves.
        stores: Where token stores lie now, as ``DATASET=PATH``.
    """
    if not decodes:
        without_pandas()
    places = dict(store.partition("=")[::2] for store in stores or ())
    if not all(places.values()):
        raise ConfigError(f"--store {', '.join(stores or ())}: expected DATASET=PATH, for instance corpus=data/tokens.")
    try:
        return open_folder(path, attempt, stores=places)
    except LedgerError:
        if (found := _runs_in(path)) and not (local_path(path) / "run.json").exists():
            raise ConfigError(
                f"{path} is no run: it holds {counted(found, 'run')}. `lading ls {path}` lists them; give one of them."
            ) from None
        raise


def _runs_in(path: str) -> int:
    """Return how many runs lie below a folder."""
    from lading.report.runs_below import runs_in  # here: only a mistake needs it

    return len(runs_in(path)) if local_path(path).is_dir() else 0


def complete_dataset(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of a run's datasets that begin as typed, for the shell."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        names = json.loads((local_path(context.params["run"]) / "run.json").read_bytes())["datasets"]
        return [name for name in names if name.startswith(incomplete) and name]
    return []


def grouped_by(text: str) -> str | int:
    """Return what --by was given: a word, or a number of steps."""
    if not text.isdecimal() and text not in ("run", "epoch", "chunk", "attempt"):
        raise ConfigError(f"--by {text}: expected run, epoch, chunk, attempt or a number of steps.")
    return int(text) if text.isdecimal() else text


def answer(value: Any, text: Callable[[], RenderableType], *, as_json: bool, holds: bool = True) -> None:
    """Print an answer and leave with its exit code."""
    if as_json:
        print(json.dumps(plain(value), indent=1))
    else:
        Console(width=room(), soft_wrap=False, highlight=False, markup=False, emoji=False).print(_Gate(text()))
    if not holds:
        raise typer.Exit(1)


def facts_table(facts: Mapping[str, Any]) -> Table:
    """Return values with their names in front, a line each."""
    found = Table(box=None, show_header=False, pad_edge=False)
    for name, value in facts.items():
        found.add_row(name.replace("_", " "), _words(value))
    return found


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return "   ".join(f"{name}: {_words(inner)}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def watched(look: Callable[[], Summary], every: float, *, as_json: bool) -> None:
    """Show a summary again as it grows, until the run is over: in place on a terminal, else a line for each change."""
    console = Console(soft_wrap=False, highlight=False, markup=False, emoji=False)
    in_place = console.is_terminal and not as_json
    before, live = "", None
    with contextlib.ExitStack() as afterwards:
        if in_place:
            from rich.live import Live  # here: only a terminal needs it

            live = afterwards.enter_context(Live(console=console, auto_refresh=False, vertical_overflow="crop"))
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                found = look()
                now = json.dumps(plain(found.to_dict()))
                if now != before:
                    _draw(found, now, live, as_json)
                before = now
                if not any(attempt["state"] == "running" for attempt in found.attempts):
                    return
                time.sleep(every)


def _draw(found: Summary, values: str, live: Any, as_json: bool) -> None:
    if live is not None:
        live.update(_Gate(summary(found)), refresh=True)
    elif as_json:
        print(values, flush=True)
    else:
        facts = {k: found.facts[k] for k in ("steps_applied", "epoch", "last_loss", "bad_samples")}
        said = ", ".join(f"{k.replace('_', ' ')} {cell(v).plain}" for k, v in facts.items() if v is not None)
        state = found.attempts[-1]["state"] if found.attempts else "empty"
        print(f"{state}: {said}", flush=True)


class _Gate:
    """The last place before a terminal: whatever is drawn, no character of it acts."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        drawn = console.render(self._inner, options)
        return [s if s.control or s.text == "\n" or s.text.isprintable() else _inert(s) for s in drawn]


def _inert(segment: Segment) -> Segment:
    return Segment("\n".join(map(shown, segment.text.split("\n"))), segment.style, segment.control)


@contextlib.contextmanager
def progress_bar(*, quiet: bool, lines: bool = False) -> Iterator[Callable[[float, str], None]]:
    """Show how far something long is, on stderr and only to people; with ``lines`` in the logs of batch jobs, too."""
    if quiet or not sys.stderr.isatty():
        yield _seldom() if lines and not quiet else lambda share, what: None
        return
    from rich.progress import BarColumn, Progress, TextColumn  # here: programs that read our output need no bar

    columns = (BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda share, what: bar.update(task, completed=share, description=shown(what))


def _seldom() -> Callable[[float, str], None]:
    """Return a progress callback that writes a line at most every half minute, and at the end."""
    last = time.monotonic()

    def write(share: float, what: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_SECONDS or share >= 1:
            last = time.monotonic()
            print(f"{share:4.0%}  {shown(what)}", file=sys.stderr, flush=True)

    return write


Decode = Annotated[
    str | None,
    typer.Option("--decode", metavar="MODULE:NAME", help="Show the samples, from these sources; also FILE.py:NAME."),
]


def looks_of(target: str) -> SourceLooks:
    """Return what describes the samples of the sources that ``--decode`` names."""
    from lading.source.looks import SourceLooks  # here: most questions are about names

    found = imported(target, "--decode", from_here=True)
    sources = found() if callable(found) and not hasattr(found, "__getitem__") else found
    return SourceLooks(sources, f"--decode {target!r}")


def add_contents(run: OpenedRun, decode: str | None, rows: list[dict[str, Any]]) -> list[str] | None:
    """Give samples their ``content`` as short texts, and return these; None where nothing is known to say it.

    Args:
        decode: The sources; None: token stores say what they can.
        rows: The samples, as they will be answered.
    """
    if decode is None:
        texts = _stored_contents(run, rows)
    else:
        looks = looks_of(decode)
        texts = [looks.line(row["name"], row["index"]) for row in rows]
    if texts is not None:
        rows[:] = [{**row, "content": text} for row, text in zip(rows, texts, strict=True)]
    return texts


def _stored_contents(run: OpenedRun, rows: list[dict[str, Any]]) -> list[str] | None:
    found = {row["name"]: _stored(run, row["dataset"]) for row in rows if row["name"]}
    if not any(source is not None for source in found.values()):
        return None
    from lading.source.looks import SourceLooks  # here, for the same reason

    looks = SourceLooks({name: source for name, source in found.items() if source is not None})
    return [looks.line(row["name"], row["index"]) if found.get(row["name"]) is not None else "" for row in rows]


def _stored(run: OpenedRun, number: int) -> Any:
    """Return the rows of a dataset whose tokens can be read as text; None where there are none."""
    corpus = run.documents.corpus(number)
    if corpus.store is None or not (corpus.store / "tokens.bin").exists():
        return None
    from lading.source.tokens.packed import PackedRows  # here: only runs over tokens need them
    from lading.source.tokens.store import TokenStore

    with contextlib.suppress(LadingError):  # names were answered; what cannot be read shows no text
        store = TokenStore(corpus.store, validate=False)
        if store.readable:
            return store if corpus.packing is None else PackedRows(store, corpus.packing)
    return None
