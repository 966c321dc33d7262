"""Two pages about what a model learned from: a summary under the EU's AI Act, and a model card. Both in Markdown.

Numbers come from the ledgers, each with the query that gives it: a Python expression over ``open_checkpoint(CKPT)``,
in a footnote. Texts come from ``sources.yaml`` (``declared``). Nothing is made up: what is missing is "not declared" or
"not known". The summary has the headings of the template that the European Commission published in July 2025 for
providers of general-purpose models.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lading.errors import ConfigError
from lading.report.checkpoint.checkpoint import OpenedCheckpoint
from lading.report.claim.consumption import problem_of
from lading.report.disclosure.declared import ABOUT, DATASET, KINDS, NOT_DECLARED, PROCESSING, Declared
from lading.runtime.fields import shown
from lading.runtime.json import known

_TOTALS = "open_checkpoint(CKPT).totals()"
_HISTORY = "open_checkpoint(CKPT).history()"
UNKNOWN = "not known"
_ORIGIN = (
    "Every number is the value of the expression in its footnote, with `from lading import open_checkpoint` and `CKPT` "
    "the path of the checkpoint: ledgers and waybills give it. Every text was declared by the provider. "
    "`lading model check CKPT` compares the files, `lading model claims CKPT --trust PUB` says who signed for them."
)


class Figures:
    """Numbers about a checkpoint that were given out, and the queries that give them."""

    def __init__(self, opened: OpenedCheckpoint) -> None:
        self._totals, self._history = opened.totals().dicts(), opened.history()
        self._opened = opened
        self._queries: dict[str, int] = {}
        self.datasets = sorted({row["dataset"] for row in self._totals})

    def total(self, name: str, dataset: str | None = None) -> str:
        """Return how many ``samples`` or ``tokens`` updates used, or how many ``passes``, of a dataset or of all."""
        found, query = self._rows(name, dataset), _summed(name, dataset)
        if not found or None in found:
            return UNKNOWN
        if name == "passes":
            return self._cited(f"{sum(found):.3f}", f"round({query}, 3)")
        return self._cited(_spaced(sum(found)), query)

    def share(self, dataset: str) -> str:
        """Return a dataset's share of all samples, in percent."""
        found, total = self._rows("samples", dataset), sum(self._rows("samples", None))
        if not total:
            return UNKNOWN
        query = f"100 * {_summed('samples', dataset)} / {_summed('samples', None)}"
        return self._cited(f"{100 * sum(found) / total:.1f}", f"round({query}, 1)") + " %"

    def used(self) -> str:
        """Return samples, tokens, steps and runs, in a line."""
        steps = self._cited(_spaced(len(self._history)), f"len({_HISTORY})")
        runs = self._cited(_spaced(len({*self._history["run"]})), f'len({{*{_HISTORY}["run"]}})')
        samples, tokens = self.total("samples"), self.total("tokens")
        return f"Samples used: {samples}; tokens: {tokens}; steps: {steps}; runs: {runs}"

    def files(self) -> str:
        """Return how many files it has, how many bytes, and the waybill that knows them, in a line."""
        sizes = [file.size for file in self._opened.waybill.files.values()]
        files = "open_checkpoint(CKPT).waybill.files"
        count = self._cited(_spaced(len(sizes)), f"len({files})")
        size = self._cited(_spaced(sum(sizes)), f"sum(file.size for file in {files}.values())")
        sha256 = self._cited(f"`{self._opened.waybill.sha256}`", "open_checkpoint(CKPT).waybill.sha256")
        return f"Files: {count}; bytes: {size}; SHA-256 of the waybill: {sha256}"

    def member(self, number: int) -> str:
        """Return what a member of the family is, itself first."""
        member, query = self._opened.family()[number], f"open_checkpoint(CKPT).family()[{number}]"
        return f"{self._cited(member.what, f'{query}.what')}, waybill {self._cited(f'`{member.key}`', f'{query}.key')}"

    def notes(self) -> list[str]:
        """Return the queries as footnotes."""
        return [f"[^{number}]: `{query}`" for query, number in self._queries.items()]

    def _rows(self, name: str, dataset: str | None) -> list[Any]:
        return [row[name] for row in self._totals if dataset in (None, row["dataset"])]

    def _cited(self, text: str, query: str) -> str:
        return f"{text}[^{self._queries.setdefault(query, len(self._queries) + 1)}]"


def _summed(name: str, dataset: str | None) -> str:
    quoted = repr(dataset).replace("`", r"\x60")  # the expression is shown between backticks
    of = "" if dataset is None else f' if r["dataset"] == {quoted}'
    return f'sum(r["{name}"] for r in {_TOTALS}{of})'


def _spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def page_of(opened: OpenedCheckpoint, declared: Declared, purpose: str) -> str:
    """Return a page about a checkpoint.

    Args:
        declared: What was said of it and of its datasets.
        purpose: ``ai-act`` or ``model-card``.
    """
    if purpose not in PAGES:
        raise ConfigError(f"--for {purpose!r}: expected one of {', '.join(PAGES)}.")
    figures = Figures(opened)
    lines = PAGES[purpose](opened, declared, figures)
    lines += [*_section("## Where the numbers come from", _ORIGIN), "", *figures.notes()]
    return "\n".join(lines) + "\n"


def _ai_act(opened: OpenedCheckpoint, declared: Declared, figures: Figures) -> list[str]:
    model, processing = declared.model, declared.processing
    modalities = {declared.of(name, "modality") for name in figures.datasets}
    return [
        "# Public summary of training content",
        *_section("## 1. General information"),
        *_section("### 1.1 Provider", *_said(model, "provider", "contact", representative="Authorised representative")),
        *_section("### 1.2 Model", *_said(model, name="Model", version="Version", released="Placed on the market")),
        *_said(model, "licence"),
        f"- {figures.files()}",
        *_family(opened, figures),
        *_section("### 1.3 Modalities, size and characteristics of the training data"),
        "",
        f"- Modalities: {_md(', '.join(sorted(modalities, key=lambda m: (m == NOT_DECLARED, m))))}",
        f"- {figures.used()}",
        *_said(model, "languages", description="Other characteristics"),
        *_sizes(figures),
        *_section("## 2. Data sources"),
        *_sources(declared, figures),
        *_section("## 3. Data processing"),
        "",
        *_said(processing, copyright="3.1 Respect of reservations of rights (text and data mining)"),
        *_said(processing, illegal_content="3.2 Removal of illegal content"),
        *_said(processing, personal_data="3.3 Personal data", other="3.3 Other information"),
        *_unknown(opened, declared, figures),
    ]


def _sources(declared: Declared, figures: Figures) -> list[str]:
    lines: list[str] = []
    by_kind = {kind: [n for n in figures.datasets if declared.of(n, "kind") == kind] for kind in [*KINDS, NOT_DECLARED]}
    for number, (kind, names) in enumerate(by_kind.items(), start=1):
        if kind == NOT_DECLARED and not names:
            continue
        title = KINDS.get(kind, "sources whose kind is not declared")
        lines += [
            *_section(f"### 2.{number} {title[0].upper()}{title[1:]}"),
            "",
            *([] if names else ["None declared."]),
        ]
        for name in names:
            samples, passes = figures.total("samples", name), figures.total("passes", name)
            lines += [f"- **{_md(name)}**: {samples} samples, {figures.share(name)} of all, {passes} passes"]
            lines += [f"    - {_title(key)}: {_md(declared.of(name, key))}" for key in ABOUT]
    return lines


def _model_card(opened: OpenedCheckpoint, declared: Declared, figures: Figures) -> list[str]:
    model = declared.model
    languages = model["languages"].split(", ") if "languages" in model else None
    front = known({"license": model.get("licence"), "language": languages, "model_name": model.get("name")})
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in front.items()]
    rows = [[_md(name), *(_md(declared.of(name, key)) for key in DATASET)] for name in figures.datasets]
    return [
        *(["---", *lines, "---", ""] if lines else []),
        f"# {_md(model.get('name', 'Model card'))}",
        "",
        *_said(model, "description", "provider", "contact", "version", "released", "licence", "languages"),
        f"- {figures.files()}",
        *_section("## Training data", f"{figures.used()}."),
        *_sizes(figures),
        "",
        *_table(["dataset", *map(_title, DATASET)], rows),
        *_section("## How the data was prepared", *_said(declared.processing, *PROCESSING, copyright="Rights")),
        *_section("## Made from", *_family(opened, figures)),
        *_unknown(opened, declared, figures),
    ]


PAGES = {"ai-act": _ai_act, "model-card": _model_card}


def _section(title: str, *lines: str) -> list[str]:
    return ["", title, *(["", *lines] if lines else [])]


def _sizes(figures: Figures) -> list[str]:
    rows = [
        [_md(n), figures.total("samples", n), figures.share(n), figures.total("passes", n), figures.total("tokens", n)]
        for n in figures.datasets
    ]
    return ["", *_table(["dataset", "samples used", "share", "passes", "tokens"], rows)]


def _family(opened: OpenedCheckpoint, figures: Figures) -> list[str]:
    lines = [f"- Made by {opened.waybill.made}: {figures.member(0)}"]
    parents = range(1, len(opened.family()))
    return lines + ([f"- Depends on: {figures.member(n)}" for n in parents] or ["- No parents"])


def _unknown(opened: OpenedCheckpoint, declared: Declared, figures: Figures) -> list[str]:
    lines = [problem_of(member) for member in opened.family() if member.problem]
    lines += [f"dataset {name!r} is not declared at all" for name in figures.datasets if name not in declared.datasets]
    lines += [f"{name!r} is declared, and was not used" for name in declared.datasets if name not in figures.datasets]
    return _section("## What is not known", *([f"- {_md(line)}" for line in lines] or ["- Nothing is missing."]))


def _said(texts: Mapping[str, str], *names: str, **labels: str) -> list[str]:
    """Return a line with what was declared for each field; those with a label of its own last, or in their place."""
    every = {name: _title(name).capitalize() for name in names} | labels
    return [f"- {label}: {_md(texts.get(name, NOT_DECLARED))}" for name, label in every.items()]


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return a table in Markdown, cells as they are."""
    names = list(headings)
    lines = [names, ["---"] * len(names), *map(list, rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _title(key: str) -> str:
    return key.replace("_", " ")


def _md(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line."""
    flat = shown(" ".join(text.split()))
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in flat)
