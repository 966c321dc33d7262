"""What a reader types to get somewhere: a step, a sample, a document, a run, a dataset, a sentence of a document.

48213      last      100-199      code:93412      document 7 of code      part of the name, id or digest of a run
the best of times        the documents that hold it, and when they were used
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lading.errors import LadingError
from lading.report.run import Run

_STEP = re.compile(r"(?:step\s+)?(\d{1,15}|last)")
_STRETCH = re.compile(r"(?:steps\s+)?(\d{1,15})\s*(?:-|–|to)\s*(\d{1,15})")
_SAMPLE = re.compile(r"(?P<dataset>.+?)\s*:\s*(?P<index>\d{1,18})")
_DOCUMENT = re.compile(r"doc(?:ument)?\s+(?P<document>\d{1,18})(?:\s+(?:of|in)\s+(?P<dataset>.+))?")
_MOST_HITS = 100
_LEAST_DIGITS = 6
_LEAST_WORDS = 3


def hits_in(run: Run, name: str, query: str) -> list[dict[str, Any]]:
    """Return the places in a run that a query names: steps, samples, documents, datasets."""
    text = query.strip()
    found: list[dict[str, Any]] = []
    if match := _STEP.fullmatch(text):
        step = max(run.num_steps - 1, 0) if match[1] == "last" else int(match[1])
        if step < run.num_steps or run.plan is not None:
            found.append(_hit(name, f"step/{step}", "step", str(step)))
    if (match := _STRETCH.fullmatch(text)) and int(match[1]) <= int(match[2]) and int(match[1]) < run.num_steps:
        found.append(_hit(name, f"steps/{match[1]}-{match[2]}", "steps", f"{match[1]} to {match[2]}"))
    if match := _DOCUMENT.fullmatch(text):
        wanted = [match["dataset"]] if match["dataset"] else [n for _, n in run.named_datasets]
        for dataset in wanted:
            number = _number(run, dataset)
            if number is not None:
                label = f"document {match['document']} of {run.datasets[number]}"
                found.append(_hit(name, f"document/{number}/{match['document']}", "document", label))
    elif match := _SAMPLE.fullmatch(text):
        number = _number(run, match["dataset"])
        if number is not None:
            label = f"{run.datasets[number]}:{match['index']}"
            found.append(_hit(name, f"sample/{number}/{match['index']}", "sample", label))
    for number, document in run.documents.find(text)[:_MOST_HITS]:
        label = f"document {document} of {run.datasets[number]}: {text}"
        found.append(_hit(name, f"document/{number}/{document}", "document", label))
    found += [] if found or len(text.split()) < _LEAST_WORDS else _traced(run, name, text)
    if len(text) >= 2:
        inside = [n for _, n in run.named_datasets if text.lower() in n.lower()]
        found += [_hit(name, "#live-datasets", "dataset", dataset) for dataset in inside[:_MOST_HITS]]
    return found


def _traced(run: Run, name: str, text: str) -> list[dict[str, Any]]:
    """Return the documents that hold a text, where the tokens of the run are indexed; else why they are not."""
    try:
        places = [place for span in run.trace(text, limit=_MOST_HITS).spans for place in span.places]
    except LadingError as error:
        return [_hit(name, "", "trace", f"not traced: {error}")]
    labels = {
        f"document/{run.number_of(place.dataset)}/{place.document}": f"document {place.document} of {place.dataset}"
        f"{f' ({place.id})' if place.id else ''}: {place.what}"
        for place in places
    }
    return [_hit(name, place, "trace", label) for place, label in list(labels.items())[:_MOST_HITS]]


def runs_named(glances: Mapping[str, Mapping[str, Any]], query: str) -> list[dict[str, Any]]:
    """Return the runs whose name or digest holds a text."""
    text = query.strip().lower()
    digits = text if len(text) >= _LEAST_DIGITS else "no digest"  # a step's number is in many digests by chance
    named = [n for n, row in glances.items() if text and (text in n.lower() or digits in (row["digest"] or ""))]
    return [_hit(name, "", "run", name) for name in named[:_MOST_HITS]]


def _hit(run: str, place: str, kind: str, text: str) -> dict[str, Any]:
    return {"run": run, "place": place, "kind": kind, "text": text}


def _number(run: Run, dataset: str) -> int | None:
    try:
        return run.number_of(dataset.strip())
    except LadingError:
        return None
