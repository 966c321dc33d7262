"""``waybill.json``: which files a checkpoint is made of, which steps of which run it learned from, and its parents.

    checkpoint-600/waybill.json       of a folder
    last.ckpt.waybill.json            of a single file

Whoever changes the weights, or puts others in their place, cannot keep the
waybill; whoever changes the waybill is no longer the parent that others name
by its SHA-256. Whatever the bytes are: a checked value, or an error.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lading.errors import CorruptLedgerError, LedgerError
from lading.ledger.launch import BASES, PARENT, Base, Parent, Range, ranges
from lading.ledger.log import sha256_of_bytes
from lading.runtime.fields import COUNT, SHA256, Fields, FieldTable, Origin, named, optional, record_of
from lading.runtime.json import known
from lading.runtime.paths import local_path

Given = str | os.PathLike[str]
WAYBILL_VERSION = 1
WAYBILL, CLAIMS = "waybill.json", "claims.jsonl"
TRAINING, MERGE, CONVERSION, IMPORT = MADE = ("training", "merge", "conversion", "import")
MOST_BYTES = 16 << 20
_LONGEST_NAME = 1024
_OF_A_WAYBILL = re.compile(r"(?:(.+)\.)?waybill\.json", re.DOTALL)


@dataclass(frozen=True)
class CoveredFile:
    """Bytes and SHA-256 of a file."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Moment(Parent):
    """Where training stood: before a step of an attempt of a run.

    Attributes:
        update: The last update that is learned from; None where none is numbered.
        plan_sha256: SHA-256 of the plan's file; None where nothing predicts the order.
        seal: The newest seal of the run then; None where there was none.
        pending: Ranges ``[first, stop)`` of earlier steps that waited for their update.
    """

    update: int | None = None
    plan_sha256: str | None = None
    seal: str | None = None
    pending: tuple[Range, ...] = ()


@dataclass(frozen=True)
class Total:
    """What was used of a dataset: samples, passes where its length is known, tokens and names where they are.

    Attributes:
        samples: How many.
        passes: How often it was gone through.
        tokens: Samples times their mean number of tokens.
        names: Digest of the names of its documents, as the store had them then.
    """

    samples: int
    passes: float | None = None
    tokens: int | None = None
    names: str | None = None


@dataclass(frozen=True)
class Waybill:
    """What a checkpoint is made of, and from.

    Attributes:
        made: ``training``, ``merge``, ``conversion`` or ``import``.
        files: Its files by relative path.
        moment: Where training stood; None where no training made it.
        parents: What it was made from; of training, what the weights were loaded from at the start.
        run_folder: Where the run lay, a hint.
        totals: What the run used of each dataset, by name; earlier runs are not in it.
        sha256: Of the waybill's file; what children know it by. "" before it is written.
    """

    made: str
    files: Mapping[str, CoveredFile]
    moment: Moment | None = None
    parents: tuple[Base, ...] = ()
    run_folder: str = ""
    totals: Mapping[str, Total] = field(default_factory=dict)
    sha256: str = ""

    def to_bytes(self) -> bytes:
        """Return the content of the file: a field a line, and a file a line."""
        moment = {} if self.moment is None else vars(self.moment)
        values: dict[str, Any] = {
            "waybill": WAYBILL_VERSION,
            "made": self.made,
            **{name: value for name, value in moment.items() if value not in (None, ())},
            "parents": [vars(parent) for parent in self.parents],
            "run_folder": self.run_folder,
            "totals": {name: known(vars(total)) for name, total in sorted(self.totals.items())},
        }
        lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in values.items() if value != ""]
        files = ",\n".join(f"  {json.dumps(name)}: {json.dumps(vars(self.files[name]))}" for name in sorted(self.files))
        return "\n".join(["{", *(line + "," for line in lines), ' "files": {', files, " }", "}", ""]).encode()


def checkpoint_path(given: Any) -> Path:
    """Return the checkpoint that a user means: a folder, a file, or a link to one; its waybill means it, too."""
    path = local_path(given)
    path = described_by(path) or path
    if not path.exists():
        raise LedgerError(f"there is no checkpoint {path}: expected a folder or a file of weights. Check the path.")
    return path


def described_by(path: Path) -> Path | None:
    """Return what the waybill of this name is about: its folder, or the file beside it; None of other names."""
    found = _OF_A_WAYBILL.fullmatch(path.name)
    return None if found is None else path.with_name(found[1]) if found[1] else path.parent


def own_path(checkpoint: Path, name: str = WAYBILL) -> Path:
    """Return where the waybill of a checkpoint is written, or another file about it: never where a link leads."""
    return checkpoint / name if checkpoint.is_dir() else checkpoint.with_name(f"{checkpoint.name}.{name}")


def waybill_path(checkpoint: Path) -> Path:
    """Return where the waybill of a checkpoint lies; a link that has none of its own has its target's."""
    own = own_path(checkpoint)
    is_link = checkpoint.is_symlink() and not checkpoint.is_dir()
    return own_path(checkpoint.resolve()) if is_link and not own.exists() else own


def read_waybill(checkpoint: Path) -> Waybill:
    """Read the waybill of a checkpoint."""
    path = waybill_path(checkpoint)
    if not path.exists():
        raise LedgerError(
            f"{checkpoint} has no waybill: expected {path}. It was saved without one, or the process was ended before "
            "it was written. Make one: `lading model stamp CKPT --run RUN` from the state inside; of weights that came "
            "from elsewhere `lading model stamp CKPT --made import`."
        )
    return waybill_at(path)


def waybill_at(path: Path) -> Waybill:
    """Read a waybill by the path of its file."""
    origin = Origin(path, CorruptLedgerError, "Restore it from a copy, or make another with `lading model stamp`.")
    return waybill_from(origin.read(MOST_BYTES), origin)


def waybill_from(content: bytes, origin: Origin) -> Waybill:
    """Return a waybill with every field checked."""
    fields = origin.record(content)
    of_moment = _MOMENT if "run" in fields else {}
    values = fields.each({**_FIELDS, **of_moment})
    moment = Moment(**{name: values.pop(name) for name in of_moment}) if of_moment else None
    if values.pop("waybill") != WAYBILL_VERSION:
        fields.refuse("waybill", f"version {WAYBILL_VERSION}, which this Lading reads")
    found = Waybill(**values, moment=moment, sha256=sha256_of_bytes(content))
    for name in found.files:
        if not is_relative(name):
            fields.record("files").refuse(name, "only names that are relative paths of files inside the checkpoint")
    if (found.made == TRAINING) != (moment is not None):
        fields.refuse("run", "the run of a checkpoint that was trained, and of no other")
    if found.made in (MERGE, CONVERSION) and not found.parents:
        fields.refuse("parents", f"what the {found.made} was made from")
    return found


_COVERED: FieldTable = {"size": COUNT, "sha256": SHA256}
_TOTAL: FieldTable = {
    "samples": COUNT,
    "passes": optional(Fields.number, low=0),
    "tokens": optional(COUNT),
    "names": optional(Fields.hexadecimal, digits=16),
}
_FIELDS: FieldTable = {
    "waybill": COUNT,
    "made": partial(Fields.text, choices=MADE),
    "files": named(record_of(CoveredFile, _COVERED)),
    "parents": BASES,
    "run_folder": optional(Fields.text, ""),
    "totals": named(record_of(Total, _TOTAL)),
}
_MOMENT: FieldTable = {
    **PARENT,
    "update": optional(COUNT),
    "plan_sha256": optional(SHA256),
    "seal": optional(SHA256),
    "pending": optional(ranges, ()),
}


def is_relative(name: str) -> bool:
    """Say whether a name stays inside its folder: no way up, no root, nothing that cannot be seen."""
    parts = name.split("/")
    usual = name.isprintable() and "\\" not in name and len(name) <= _LONGEST_NAME
    return usual and not any(part in ("", ".", "..") for part in parts)
