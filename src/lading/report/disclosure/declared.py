"""``sources.yaml``: what its provider says of a model and of the datasets that taught it.

    model:      {name: Pico, provider: Example Ltd, licence: apache-2.0}
    datasets:
      code:     {kind: public, licence: MIT, url: "https://example.org/code", modality: text}
    processing: {copyright: robots.txt was obeyed}

Every field is a text and may be left out; a page then says "not declared". A
field that nobody would read is refused: it may be a slip of the pen.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from lading.errors import ConfigError
from lading.runtime.fields import Fields, Origin, Reader, given, named
from lading.runtime.json import known
from lading.runtime.yaml_text import read_yaml

KINDS = {
    "public": "publicly available datasets",
    "licensed": "private datasets licensed by rightsholders",
    "third-party": "private datasets of other third parties",
    "crawled": "data crawled and scraped from online sources",
    "user": "user data",
    "synthetic": "synthetic data",
    "other": "other sources",
}
MODEL = ("name", "version", "provider", "contact", "representative", "released", "licence", "languages", "description")
ABOUT = ("description", "origin", "url", "licence", "dates", "modality", "languages", "consent", "personal_data")
DATASET = ("kind", *ABOUT)
PROCESSING = ("copyright", "illegal_content", "personal_data", "other")
NOT_DECLARED = "not declared"
_LONGEST = 1 << 16

Texts = Mapping[str, str]


@dataclass(frozen=True)
class Declared:
    """What was declared; every look-up of a field gives a text.

    Attributes:
        model: Of the model.
        datasets: Of each dataset, by name.
        processing: Of how the data was prepared.
    """

    model: Texts = field(default_factory=dict)
    datasets: Mapping[str, Texts] = field(default_factory=dict)
    processing: Texts = field(default_factory=dict)

    def of(self, dataset: str, name: str) -> str:
        """Return a field of a dataset."""
        return self.datasets.get(dataset, {}).get(name, NOT_DECLARED)


def read_declared(path: str | os.PathLike[str]) -> Declared:
    """Read ``sources.yaml``, every field checked."""
    origin = Origin(str(path), ConfigError, "See the guide about summaries of training data.")
    fields = Fields(read_yaml(path), origin)
    found = Declared(**fields.each(_FIELDS))
    for name, values in found.datasets.items():
        if values.get("kind", "other") not in KINDS:
            origin.refuse(f"datasets.{name}.kind", f"one of {', '.join(KINDS)}", repr(values["kind"]))
    return found


def _texts(names: tuple[str, ...]) -> Reader:
    """Return the reader of an object of which each field that is not null is a text."""
    return given(lambda fields, key: known(fields.record(key).each(dict.fromkeys(names, given(_text)))), {})


def _text(record: Fields, name: str) -> str:
    """Return a field as text; YAML makes numbers and dates of some, and lists are enumerations."""
    value = record.value(name)
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        value = ", ".join(map(str, value))
    if isinstance(value, dict | list) or len(str(value)) > _LONGEST:
        record.refuse(name, f"a text of at most {_LONGEST} characters, or a list of texts")
    return str(value)


_FIELDS = {"model": _texts(MODEL), "datasets": given(named(_texts(DATASET)), {}), "processing": _texts(PROCESSING)}
