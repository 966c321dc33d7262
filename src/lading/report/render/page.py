"""One page that tells the whole run: no network, no other file, readable on a phone and in print.

Everything that comes from the run is escaped: a dataset may be called
``<script>alert(1)</script>`` and stays text.
"""

from __future__ import annotations

import importlib.resources
import json
import math
from pathlib import Path
from typing import Any

from lading.errors import ConfigError
from lading.report.render import charts
from lading.report.render.plotly import library
from lading.report.run import Run
from lading.report.summary import Summary, summarise
from lading.report.verify.verdict import Progress, silent
from lading.runtime.files import clean_up, write_aside
from lading.runtime.json import plain
from lading.runtime.shown import shown_html

_MOST_STEPS = 20_000
_MIX_BINS = 60
_SPIKES_SHOWN = 12
_STEP_COLUMNS = ("step", "update", "epoch", "fate", "loss", "samples", "attempt", "time", "batch")


def write_page(run: Run, path: Path, progress: Progress = silent) -> int:
    """Write the page of a run; return its size in bytes."""
    content = page(run, progress).encode()
    try:
        clean_up(path.parent, path.name)
        write_aside(path, content)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}. Pass -o with a file in a folder that can be written to."
        ) from error
    return len(content)


def page(run: Run, progress: Progress = silent) -> str:
    """Return the page of a run."""
    progress(0.1, "summary")
    summary = summarise(run)
    spikes = run.spikes().dicts()[:_SPIKES_SHOWN]
    progress(0.3, "mix")
    mixed = run.mix(max(1, math.ceil(run.num_steps / _MIX_BINS))).dicts()
    figures = {
        "attempts": charts.attempts_chart(run),
        "loss": charts.loss_chart(run, spikes),
        "mix": charts.mix_chart(run, mixed),
        "passes": charts.passes_chart(summary.datasets),
    }
    progress(0.6, "losses by dataset")
    if len(run.named_datasets) > 1:
        figures["dataset-loss"] = charts.dataset_loss_chart(run)
    progress(0.8, "steps")
    data = {"figures": figures, "steps": _steps(run), "fateColumn": _STEP_COLUMNS.index("fate")}
    sections = [
        _header(summary),
        _attempts(summary),
        _section("Loss", "Circles mark steps far above the median of those before them.", _chart("loss")),
        _spikes(run, spikes),
        _section("Mix over time", "Share of each dataset; dashed: what the plan meant.", _chart("mix") + _legend(run)),
        _datasets(summary),
        _dataset_loss(run, figures),
        _step_table(run),
    ]
    progress(0.95, "page")
    return _document(summary, sections, data)


def _document(summary: Summary, sections: list[str], data: dict[str, Any]) -> str:
    home = importlib.resources.files("lading.report.render")
    style, script = (home.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    # Inside a script element only "<" can end it: as \u003c it is the same JSON.
    payload = json.dumps(plain(data), separators=(",", ":")).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>{shown_html(summary.facts['run'])} · Lading</title>\n<style>{style}</style></head>\n"
        f"<body><main>{''.join(sections)}</main>\n"
        f'<script type="application/json" id="page-data">{payload}</script>\n'
        f"<script>{library()}</script>\n<script>{script}</script></body></html>\n"
    )


def _section(title: str, note: str, content: str) -> str:
    return f'<section><h2>{shown_html(title)}</h2><p class="note">{shown_html(note)}</p>{content}</section>\n'


def _chart(name: str) -> str:
    return f'<div class="chart" id="{name}"></div>'


def _legend(run: Run) -> str:
    """Return the colours of the datasets; not the charts' own legend, which has no room on a phone."""
    keys = (
        f'<li><i style="background:{charts.COLOURS[d % len(charts.COLOURS)]}"></i>{shown_html(name)}</li>'
        for d, (_, name) in enumerate(run.named_datasets)
    )
    return f'<ul class="legend">{"".join(keys)}</ul>'


def _table(columns: dict[str, str], rows: list[list[str]], classes: dict[int, str]) -> str:
    head = "".join(f'<th class="{kind}">{shown_html(heading)}</th>' for heading, kind in columns.items())
    body = ""
    for row in rows:
        cells = (f'<td class="{classes.get(i, "")}">{shown_html(cell)}</td>' for i, cell in enumerate(row))
        body += f"<tr>{''.join(cells)}</tr>"
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _number(value: Any, digits: int = 5) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–" if value is None else str(value)
    return f"{value:,}".replace(",", "\u202f") if isinstance(value, int) else f"{value:.{digits}g}"


def _header(summary: Summary) -> str:
    facts = {k: v for k, v in summary.facts.items() if k != "run" and v is not None}
    items = "".join(
        f"<div><dt>{shown_html(k)}</dt><dd>{shown_html(v if isinstance(v, str) else _number(v))}</dd></div>"
        for k, v in facts.items()
    )
    damage = "".join(f'<p class="fault">{shown_html(text)}</p>' for text in summary.damage)
    return f'<h1>{shown_html(summary.facts["run"])}</h1><dl class="facts">{items}</dl>{damage}'


def _attempts(summary: Summary) -> str:
    columns = {"attempt": "", "began (UTC)": "word", "from": "", "to": "", "ranks": "", "kept": "", "rolled back": "",
               "state": "word", "host": "word"}  # fmt: skip
    keys = ("attempt", "began", "start", "last", "ranks", "kept", "rolled_back", "state", "host")
    rows = [[v if isinstance(v := a[k], str) else _number(v) for k in keys] for a in summary.attempts]
    table = _table(columns, rows, {1: "word", 7: "word", 8: "word"})
    note = "Each life of the run over the steps it recorded. What a resume from an earlier state undid is rolled back."
    return _section("Attempts", note, _chart("attempts") + table)


def _datasets(summary: Summary) -> str:
    columns = {"dataset": "word", "length": "", "samples": "", "share": "", "passes": "", "distinct": "", "seen": ""}
    rows = [
        [
            d["dataset"],
            _number(d["length"]),
            _number(d["samples"]),
            f"{d['share']:.2%}",
            _number(d["passes"]),
            _number(d["distinct"]),
            "–" if d["coverage"] is None else f"{d['coverage']:.2%}",
        ]
        for d in summary.datasets
    ]
    note = "How often each dataset was gone through, and how much of it was ever used."
    return _section("Coverage and passes", note, _chart("passes") + _table(columns, rows, {0: "name"}))


def _dataset_loss(run: Run, figures: dict[str, Any]) -> str:
    if "dataset-loss" not in figures:
        return ""
    note = (
        "The metric loss/<dataset> where training committed one; else how much more than the mean the batches cost "
        "that are rich in a dataset."
    )
    return _section("Loss per dataset", note, _chart("dataset-loss") + _legend(run))


def _spikes(run: Run, spikes: list[dict[str, Any]]) -> str:
    if not spikes:
        return _section("Spikes", "No loss stands far above those before it.", "")
    usual = {row["dataset"]: row["planned"] if row["planned"] is not None else row["share"] for row in run.mix()}
    rows = []
    for spike in spikes:
        names = run.step(spike["step"]).samples
        shares = {name: names["name"].count(name) / max(len(names), 1) for _, name in run.named_datasets}
        ranked = sorted(shares, key=lambda n: shares[n] - (usual.get(n) or 0), reverse=True)[:3]
        held = "; ".join(
            f"{charts.short(n)} {shares[n]:.0%} (usually {usual.get(n) or 0:.0%})" for n in ranked if shares[n]
        )
        first = ", ".join(f"{charts.short(row['name'])}:{row['index']}" for row in names.dicts()[:6])
        numbers = [_number(spike["step"]), _number(spike["loss"]), _number(spike["usual"]), _number(spike["score"], 3)]
        rows.append([*numbers, held, first + (" …" if len(names) > 6 else "")])
    columns = {
        "step": "",
        "loss": "",
        "usual": "",
        "z-score": "",
        "what stands out": "word",
        "first samples": "word",
    }
    note = "The worst first. Ask `lading explain RUN STEP` for all of it."
    return _section("Spikes", note, _table(columns, rows, {4: "long", 5: "long"}))


def _steps(run: Run) -> list[list[Any]]:
    """Return the rows of the step table: the newest steps of history."""
    table = run.sql(f"SELECT * FROM (FROM history ORDER BY step DESC LIMIT {_MOST_STEPS}) ORDER BY step").dicts()
    plan = run.plan
    return [
        [
            row["step"],
            row["update"],
            row["epoch"],
            row["fate"],
            None if row["loss"] is None else _number(float(row["loss"])),
            row["samples"],
            row["attempt"],
            f"{row['time']:%Y-%m-%d %H:%M:%S}",
            plan.batch_id(row["epoch"], row["step"]) if plan is not None else None,
        ]
        for row in table
    ]


def _step_table(run: Run) -> str:
    head = "".join(f'<th class="{"word" if name == "fate" else ""}">{name}</th>' for name in _STEP_COLUMNS)
    pager = (
        '<div class="pager"><button id="back" type="button">‹ back</button><span id="place"></span>'
        '<button id="next" type="button">next ›</button>'
        '<input id="goto" type="number" min="0" placeholder="go to step" aria-label="go to step"></div>'
    )
    table = f'<div class="scroll"><table id="steps"><thead><tr>{head}</tr></thead><tbody></tbody></table></div>'
    beyond = run.num_steps > _MOST_STEPS
    note = f"The last {_MOST_STEPS} steps; the ledger has all of them." if beyond else "Every step of history."
    return _section("Steps", note, pager + table)
