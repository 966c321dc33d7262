"""Two pages about what a model learned from: a summary under the EU's AI Act, and a model card. Both in Markdown.

Numbers come from the ledgers (``figures``), texts from ``sources.yaml`` (``declared``); nothing is made up: what is
missing is "not declared" or "not known". The summary has the headings of the template that the European Commission
published in July 2025 for providers of general-purpose models.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from lading.errors import ConfigError
from lading.report.checkpoint.checkpoint import OpenedCheckpoint
from lading.report.claim.consumption import problem_of
from lading.report.disclosure.declared import DATASET, KINDS, NOT_DECLARED, Declared
from lading.report.disclosure.figures import Figures, table
from lading.runtime.fields import shown

_ORIGIN = (
    "Every number is the value of the expression in its footnote, with `from lading import open_checkpoint` and `CKPT` "
    "the path of the checkpoint: ledgers and waybills give it. Every text was declared by the provider. "
    "`lading model check CKPT` compares the files, `lading model claims CKPT --trust PUB` says who signed for them."
)
_FIELDS = [name for name in DATASET if name != "kind"]


def page_of(opened: OpenedCheckpoint, declared: Declared, purpose: str) -> str:
    """Return a page about a checkpoint.

    Args:
        opened: The checkpoint.
        declared: What was said of it and of its datasets.
        purpose: ``ai-act`` or ``model-card``.
    """
    if purpose not in PAGES:
        raise ConfigError(f"--for {purpose!r}: expected one of {', '.join(PAGES)}.")
    figures = Figures(opened)
    lines = PAGES[purpose](opened, declared, figures)
    lines += ["", "## Where the numbers come from", "", _ORIGIN, "", *figures.notes()]
    return "\n".join(lines) + "\n"


def _ai_act(opened: OpenedCheckpoint, declared: Declared, figures: Figures) -> list[str]:
    said = _Said(declared)
    modalities = {declared.of(name, "modality") for name in figures.datasets}
    return [
        "# Public summary of training content",
        "",
        "## 1. General information",
        "",
        "### 1.1 Provider",
        "",
        *said.model({"provider": "Provider", "contact": "Contact", "representative": "Authorised representative"}),
        "",
        "### 1.2 Model",
        "",
        *said.model({"name": "Model", "version": "Version", "released": "Placed on the market", "licence": "Licence"}),
        f"- {figures.files()}",
        *_family(opened, figures),
        "",
        "### 1.3 Modalities, size and characteristics of the training data",
        "",
        f"- Modalities: {_md(', '.join(sorted(modalities, key=lambda m: (m == NOT_DECLARED, m))))}",
        f"- {figures.used()}",
        *said.model({"languages": "Languages", "description": "Other characteristics"}),
        *_sizes(figures),
        "",
        "## 2. Data sources",
        *_sources(declared, figures),
        "",
        "## 3. Data processing",
        "",
        *said.processing({"copyright": "3.1 Respect of reservations of rights (text and data mining)"}),
        *said.processing({"illegal_content": "3.2 Removal of illegal content"}),
        *said.processing({"personal_data": "3.3 Personal data", "other": "3.3 Other information"}),
        *_unknown(opened, declared, figures),
    ]


def _sources(declared: Declared, figures: Figures) -> list[str]:
    lines: list[str] = []
    by_kind = {kind: [n for n in figures.datasets if declared.of(n, "kind") == kind] for kind in [*KINDS, NOT_DECLARED]}
    for number, (kind, names) in enumerate(by_kind.items(), start=1):
        if kind == NOT_DECLARED and not names:
            continue
        title = KINDS.get(kind, "sources whose kind is not declared")
        lines += ["", f"### 2.{number} {title[0].upper()}{title[1:]}", ""]
        lines += [] if names else ["None declared."]
        for name in names:
            used = f"{figures.samples(name)} samples, {figures.share(name)} of all, {figures.passes(name)} passes"
            lines += [f"- **{_md(name)}**: {used}"]
            lines += [f"    - {_title(key)}: {_md(declared.of(name, key))}" for key in _FIELDS]
    return lines


def _model_card(opened: OpenedCheckpoint, declared: Declared, figures: Figures) -> list[str]:
    said, model = _Said(declared), declared.model
    languages = model["languages"].split(", ") if "languages" in model else None
    front = {"license": model.get("licence"), "language": languages, "model_name": model.get("name")}
    known = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in front.items() if value is not None]
    return [
        *(["---", *known, "---", ""] if known else []),
        f"# {_md(model.get('name', 'Model card'))}",
        "",
        *said.model({"description": "Description", "provider": "Provider", "contact": "Contact", "version": "Version"}),
        *said.model({"released": "Released", "licence": "Licence", "languages": "Languages"}),
        f"- {figures.files()}",
        "",
        "## Training data",
        "",
        f"{figures.used()}.",
        *_sizes(figures),
        "",
        *table(
            ["dataset", *map(_title, DATASET)],
            [[_md(name), *(_md(declared.of(name, key)) for key in DATASET)] for name in figures.datasets],
        ),
        "",
        "## How the data was prepared",
        "",
        *said.processing({"copyright": "Rights", "illegal_content": "Illegal content"}),
        *said.processing({"personal_data": "Personal data", "other": "Other"}),
        "",
        "## Made from",
        "",
        *_family(opened, figures),
        *_unknown(opened, declared, figures),
    ]


PAGES: dict[str, Callable[[OpenedCheckpoint, Declared, Figures], list[str]]] = {
    "ai-act": _ai_act,
    "model-card": _model_card,
}


def _sizes(figures: Figures) -> list[str]:
    rows = [
        [_md(n), figures.samples(n), figures.share(n), figures.passes(n), figures.tokens(n)] for n in figures.datasets
    ]
    return ["", *table(["dataset", "samples used", "share", "passes", "tokens"], rows)]


def _family(opened: OpenedCheckpoint, figures: Figures) -> list[str]:
    lines = [f"- Made by {opened.waybill.made}: {figures.member(0)}"]
    parents = range(1, len(opened.family()))
    return lines + ([f"- Depends on: {figures.member(n)}" for n in parents] or ["- No parents"])


def _unknown(opened: OpenedCheckpoint, declared: Declared, figures: Figures) -> list[str]:
    lines = [problem_of(member) for member in opened.family() if member.problem]
    lines += [f"dataset {name!r} is not declared at all" for name in figures.datasets if name not in declared.datasets]
    lines += [f"{name!r} is declared, and was not used" for name in declared.datasets if name not in figures.datasets]
    return ["", "## What is not known", "", *([f"- {_md(line)}" for line in lines] or ["- Nothing is missing."])]


class _Said:
    """Lines with what was declared."""

    def __init__(self, declared: Declared) -> None:
        self._declared = declared

    def model(self, fields: dict[str, str]) -> list[str]:
        """Return a line for each field of the model."""
        return [f"- {label}: {_md(self._declared.model.get(key, NOT_DECLARED))}" for key, label in fields.items()]

    def processing(self, fields: dict[str, str]) -> list[str]:
        """Return a line for each field about the preparation of the data."""
        return [f"- {label}: {_md(self._declared.processing.get(key, NOT_DECLARED))}" for key, label in fields.items()]


def _title(key: str) -> str:
    return key.replace("_", " ")


def _md(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line."""
    flat = shown(" ".join(text.split()))
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in flat)
