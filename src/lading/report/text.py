"""Answers as text for people: tables that fit the terminal, colours that mean something.

green applied    yellow skipped    magenta rolled back    cyan delivered    dim planned
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from lading.report.compare import Comparison
from lading.report.documents import brief
from lading.report.explain import Explanation
from lading.report.mix import weighs_tokens
from lading.report.step import StepRecord
from lading.report.summary import Summary
from lading.report.verify.verdict import Verdict
from lading.runtime.fields import shown

COLOURS = {
    "applied": "green",
    "skipped": "yellow",
    "rolled back": "magenta",
    "delivered": "cyan",
    "planned": "dim",
    "running": "green",
    "ended": "green",
    "crashed": "red",
    "failed": "red",
    "bad": "red",
    "blocked": "red",
    "forgotten": "red",
}
TOKEN_SHARES = {"share": "of samples", "token_share": "of tokens", "token_planned": "planned"}
_MOST_ROWS = 200
_FEW = 10
_WIDE = 110  # columns of a terminal that has room for times, too
_LEAST_WIDTH = 12
_UNBOUNDED = 10_000
_EXPOSED = {"slot": "slot", "dataset": "dataset", "index": "index", "loss": "loss", "length": "length"}
_EXPOSED |= {"earlier": "seen before", "last_step": "last at", "stands_out": "stands out", "held": "documents"}


def table(
    rows: Iterable[Mapping[str, Any]],
    columns: Mapping[str, str],
    title: str = "",
    whole: Sequence[str] = (),
    uncut: Sequence[str] = (),
) -> RenderableType:
    """Return rows as a table that fits the terminal: long names lose their middle, numbers lose nothing.

    Args:
        columns: Key in the rows, and the heading it gets.
        title: What the table shows.
        whole: Columns that take as many lines as they need instead.
        uncut: Columns that others make room for.
    """
    listed = list(rows)
    if title and not listed:  # it says that there are none
        return Group(*_titled(title))
    cells = [{key: cell(row.get(key), key) for key in columns} for row in listed[:_MOST_ROWS]]
    headings, numeric = dict(zip(columns, map(line, columns.values()), strict=True)), _numeric(listed, columns)
    widths = _widths([headings, *cells], [key for key in columns if key not in numeric and key not in uncut])
    if widths is None:
        return Group(*_titled(title), *(fields({columns[k]: c for k, c in row.items()}, gap=True) for row in cells))
    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for key, heading in headings.items():
        justify = "right" if key in numeric else "left"
        fit = {"no_wrap": key not in whole, "overflow": "fold", "width": widths[key]}
        drawn.add_column(heading, justify=justify, **fit)  # type: ignore[arg-type]
    for row in cells:
        fits = {key for key, text in row.items() if key in whole or len(text) <= widths[key]}
        drawn.add_row(*[text if key in fits else _fitted(text, widths[key]) for key, text in row.items()])
    left = len(listed) - _MOST_ROWS
    more = [Text(f"… and {left} more (use --json for all)", style="dim")] if left > 0 else []
    return Group(*_titled(title), drawn, *more)


def room() -> int | None:
    """Return the columns there are; None: those of the terminal. What goes into a pipe or a file is never cut."""
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else _UNBOUNDED


def line(text: str, style: str = "") -> Text:
    """Return a text as one line that is shown and never obeyed: no markup, no escape sequence, no second line."""
    return Text(shown(text), style=style)


def _numeric(rows: list[Mapping[str, Any]], columns: Iterable[str]) -> set[str]:
    """Return the columns that hold a number in some row."""
    found = set()
    for key in columns:
        for row in rows:
            if isinstance(row.get(key), int | float) and not isinstance(row[key], bool):
                found.add(key)
                break
    return found


def _widths(rows: list[dict[str, Text]], words: list[str]) -> dict[str, int] | None:
    """Return the width of each column, headings included; None where not even shortened words would fit."""
    wanted = dict.fromkeys(rows[0], 0)
    for row in rows:
        for key, text in row.items():
            wanted[key] = max(wanted[key], len(text))
    left = (room() or shutil.get_terminal_size().columns) - 3 * (len(wanted) - 1)  # blanks between them
    while sum(wanted.values()) > left:
        widest = max(words, key=lambda k: wanted[k], default=None)
        if widest is None or wanted[widest] <= _LEAST_WIDTH:
            return None
        wanted[widest] -= 1
    return wanted


def _fitted(text: Text, width: int) -> Text:
    """Return a text that is too long with its middle left out."""
    tail = (width - 1) // 2
    return Text(f"{text.plain[: width - 1 - tail]}…{text.plain[-tail:]}", style=text.style)


def _titled(title: str) -> list[RenderableType]:
    return [line(title, "bold")] if title else []


def sections(*parts: RenderableType) -> RenderableType:
    """Return parts with an empty line between two of them."""
    spaced = [part for pair in zip(parts, [Text("")] * len(parts), strict=True) for part in pair]
    return Group(*spaced[:-1])


def cell(value: Any, key: str = "") -> Text:
    """Return one value as text; what the data says is never read as markup."""
    if value is None:
        return Text("–", style="dim")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if key in ("share", "planned", "usual_share", "coverage", "token_share", "token_planned"):
        return Text(f"{value:.2%}")
    if key in ("passes", "ratio", "score"):
        return Text(f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}")
    if key in ("digest", "content") and isinstance(value, int):
        return Text(f"{value & (2**64 - 1):016x}")
    if isinstance(value, float):
        return Text(f"{value:.5g}")
    if isinstance(value, int):
        return Text(f"{value:,}".replace(",", " ") if abs(value) >= 10_000 else str(value))
    return line(str(value), COLOURS.get(str(value), "") if key in ("fate", "state") else "")


def fields(pairs: Mapping[str, Any], *, gap: bool = False) -> RenderableType:
    """Return named values, one a line; with ``gap`` an empty line after them."""
    drawn = RichTable.grid(padding=(0, 2))
    drawn.add_column(style="dim", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in pairs.items():
        if value is not None and value != "":
            text = value if isinstance(value, Text) else cell(value, "fate" if name == "fate" else "")
            drawn.add_row(line(name), text)
    return Group(drawn, Text("")) if gap else drawn


def summary(found: Summary) -> RenderableType:
    """Return what a run is and how far it got."""
    parts: list[RenderableType] = [
        fields({name.replace("_", " "): value for name, value in found.facts.items()}),
        table(
            found.datasets,
            {
                "dataset": "dataset",
                "length": "length",
                "samples": "samples",
                **(TOKEN_SHARES if weighs_tokens(found.datasets) else {"share": "share"}),
                "passes": "passes",
                "coverage": "seen",
            },
            "Datasets",
        ),
        table([_with_undone(attempt) for attempt in found.attempts], _attempt_columns(), "Attempts"),
    ]
    if found.bad:
        parts.append(bad(found.bad[:_FEW], f"{counted(len(found.bad), 'bad sample')}{_first(found.bad)}"))
    if found.blocked:
        rows = [{**row, "since": "the next attempt" if row["step"] is None else row["step"]} for row in found.blocked]
        columns = {"dataset": "dataset", "index": "index", "since": "since step", "reason": "why"}
        title = f"{counted(len(rows), 'blocked sample')}{_first(rows)}"
        parts.append(table(rows[:_FEW], columns, title))
    if found.skipped:
        columns = {"step": "step", "attempt": "attempt", "reason": "why"}
        total = found.facts["steps_skipped"] or len(found.skipped)
        parts.append(table(found.skipped[:_FEW], columns, f"{counted(total, 'skipped step')}{_first(found.skipped)}"))
    if found.damage:
        parts.append(Text(f"{counted(len(found.damage), 'damaged file')}; run `lading verify`", style="bold red"))
    return sections(*parts)


def _with_undone(attempt: Mapping[str, Any]) -> dict[str, Any]:
    """Return an attempt that was killed with a lower bound: what it did in its last moments is on no disk."""
    undone = attempt["rolled_back"]
    return {**attempt, "rolled_back": undone if attempt["rolled_back_is_exact"] else f"at least {undone}"}


def _attempt_columns() -> dict[str, str]:
    columns = {"attempt": "attempt", "continues": "continues", "began": "began (UTC)", "start": "from", "last": "to"}
    columns |= {"ranks": "ranks", "kept": "kept", "rolled_back": "rolled back", "state": "state"}
    if shutil.get_terminal_size().columns < _WIDE:
        del columns["began"]
    return columns


def _first(rows: Sequence[Any]) -> str:
    return f", the first {_FEW}" if len(rows) > _FEW else ""


def counted(number: int, what: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "time"), counted(0, "bad sample"), counted(3, "step")
    ('1 time', '0 bad samples', '3 steps')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def bad(rows: Iterable[Mapping[str, Any]], title: str = "") -> RenderableType:
    """Return bad samples as a table."""
    columns = {"dataset": "dataset", "index": "index", "step": "step", "attempt": "attempt", "kind": "kind"}
    return table(rows, {**columns, "substitute": "instead", "kept": "in history", "reason": "why"}, title)


def step(record: StepRecord, contents: Sequence[str] | None = None) -> RenderableType:
    """Return everything known of a step.

    Args:
        contents: What each sample holds, where the sources are at hand.
    """
    known = ("epoch", "chunk", "update", "fate", "reason", "attempt", "loss")
    about = {
        "step": record.step,
        "batch": record.batch_id,
        **{name: getattr(record, name) for name in known},
        **record.metrics,
        "time": record.time,
        "digest": record.digest,
        "against plan": record.agreement,
    }
    parts: list[RenderableType] = [fields(about)]
    columns = {"slot": "slot", "rank": "rank", "name": "dataset", "index": "index"}
    rows = record.samples.dicts()
    carried = sum(row["loss"] is not None for row in rows)
    if carried:
        columns["loss"] = "loss"
    if any(row["note"] for row in rows):
        columns["note"] = "note"
    if any(row["documents"] for row in rows):
        columns["held"] = "documents"
        rows = [{**row, "held": brief(row["documents"])} for row in rows]
    if contents is not None:
        columns["content"] = "content"
        rows = [{**row, "content": text} for row, text in zip(rows, contents, strict=True)]
    title = counted(len(rows), "sample") + (f", {carried} with a loss of their own" if carried else "")
    parts.append(table(rows, columns, title, whole=("note",)))
    if record.earlier:
        parts.append(
            table(
                record.earlier,
                {"attempt": "attempt", "fate": "fate", "loss": "loss", "time": "time"},
                "In other attempts",
            )
        )
    return sections(*parts, *(line(why, "yellow") for why in record.unnamed))


def verdict(found: Verdict) -> RenderableType:
    """Return what ``verify`` found."""
    lines: list[RenderableType] = []
    for finding in found.findings:
        style = "bold red" if finding.level == "fault" else "yellow"
        place = f" (first wrong step {finding.step})" if finding.level == "fault" and finding.step is not None else ""
        lines.append(line(f"{finding.level}: {finding.message}{place}", style))
    word = "holds" if found.holds else "does not hold"
    history = f"{counted(found.steps, 'step')} of history, digest {found.digest:016x}"
    if found.unused:
        listed = ", ".join(map(str, found.unused[:8])) + (" ..." if len(found.unused) > 8 else "")
        text = f"{len(found.unused)} of its steps were used by no update, pending at the checkpoint: {listed}"
        lines.insert(0, Text(text, style="bold yellow"))
    lines.append(
        Text(
            f"not yet: {found.not_yet}, and the run goes on" if found.not_yet and found.holds else f"{word}: {history}",
            style="bold red" if not found.holds else "bold yellow" if found.not_yet else "bold green",
        )
    )
    if found.unsealed is not None:
        first, last = found.unsealed
        lines.append(Text(f"steps {first} to {last} are not sealed yet: lading seal RUN", style="yellow"))
    if found.head is not None:
        lines.append(Text(f"head: {found.head[0]} {found.head[1]}", style="dim"))
    return Group(*lines)


def comparison(found: Comparison) -> RenderableType:
    """Return how two runs differ."""
    if found.equal:
        return Text(f"equal: {found.common_steps} steps, digest {found.digests[0]}", style="bold green")
    if found.kind == "nothing":
        return Text("nothing to compare: neither run has a step in its history", style="bold red")
    words = {
        "names": "hold different samples",
        "fates": "hold the same samples, and their fates differ",
        "content": "hold the same samples with different bytes",
    }
    what = words.get(found.kind or "", "are not in both")
    first = Text(f"differ from step {found.first_difference} on: steps {what}", style="bold red")
    facts = {
        "steps": f"{found.steps[0]} and {found.steps[1]}, {found.common_steps} in both",
        "different": found.differing_steps,
        "digests": " and ".join(found.digests),
        "plans": "; ".join(found.plan_differences),
    }
    columns, title = {name: name for name in ("slot", "left", "right")}, f"Step {found.first_difference}"
    return sections(Group(first, fields(facts)), *([table(found.samples, columns, title)] if found.samples else []))


def decision_tables(rows: list[dict[str, Any]]) -> list[RenderableType]:
    """Return the decisions that changed a plan as a table; nothing where there were none."""
    columns = {"step": "step", "kind": "kind", "decided": "decided", "reason": "reason"}
    title = f"The last {counted(len(rows), 'decision')}"
    return [table(rows, columns, title, whole=("decided", "reason"))] if rows else []


def decision_counts(kinds: Sequence[str]) -> list[RenderableType]:
    """Return how many decisions of each kind changed a plan, in one line; nothing where there were none."""
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    return [Text(f"decisions while it ran: {counts}; `lading explain` says why")] if kinds else []


def explanation(found: Explanation) -> RenderableType:
    """Return everything around a step."""
    record = found.record
    facts = {
        "step": record.step,
        "batch": record.batch_id,
        **{name: getattr(record, name) for name in ("epoch", "update", "fate", "reason", "loss")},
        "usual loss": found.usual_loss,
        "z-score": found.score,
        "against plan": record.agreement,
    }
    names = {row["slot"]: brief(row["documents"]) for row in record.samples}
    seen = [{**row, "held": names[row["slot"]]} for row in found.ranked]
    if len({row["length"] for row in seen}) == 1:  # all alike: it tells nothing
        seen = [{**row, "length": None} for row in seen]
    fresh = sum(row["earlier"] == 0 for row in seen)
    return sections(
        fields(facts),
        _shares(found.shares.dicts()),
        table(
            seen,
            _known(seen, _EXPOSED, ("loss", "length", "stands_out", "held")),
            f"{counted(len(seen), 'sample')}, {fresh} of them never used before",
        ),
        table(found.around, {"step": "step", "update": "update", "loss": "loss"}, "Losses around it"),
        *decision_tables(found.decisions.dicts()),
    )


def _shares(rows: list[dict[str, Any]]) -> RenderableType:
    """Return what a step holds of each dataset; what it was to hold only where that was left to chance."""
    columns = {"dataset": "dataset", "samples": "samples", "share": "share", "usual_share": "usual", "ratio": "ratio"}
    listed = [{**row, "usual_share": row["usual"]} for row in rows]
    return table(listed, _known(listed, columns, ("usual_share", "ratio")), "Shares")


def _known(rows: list[dict[str, Any]], columns: dict[str, str], optional: tuple[str, ...]) -> dict[str, str]:
    """Return the columns without those of which no row knows anything."""
    return {k: v for k, v in columns.items() if k not in optional or any(row.get(k) is not None for row in rows)}
