"""What belongs to a run, a token store or a checkpoint that is published, and the index that lists it.

lading-published.json           kind, and {relative path: size, sha256, time}; written last
lading-publishing/<sha256>.json the same, written first, and removed in the end: what a broken publication was about
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lading.errors import CorruptLedgerError, LedgerError
from lading.ledger.begun import lives
from lading.ledger.description import KnownRun
from lading.ledger.log import sha256_of_bytes
from lading.ledger.run_folder import RunFolder
from lading.ledger.seal import unsealed
from lading.ledger.waybill import waybill as waybills
from lading.ledger.waybill.covered import files_of, hashed
from lading.ledger.waybill.waybill import CoveredFile
from lading.runtime.blocks.progress import Progress, silent
from lading.runtime.fields import COUNT, SHA256, Fields, FieldTable, Origin
from lading.runtime.files import files_below, json_bytes
from lading.runtime.paths import local_path

RUN, TOKENS, CHECKPOINT = KINDS = ("run", "tokens", "checkpoint")
INDEX, UNDER_WAY = "lading-published.json", "lading-publishing/"
PART = ".lading-part"  # of a file that is being fetched
MOST_BYTES = 1 << 26
_VERSION = 1
_HEADS = {RUN: "run.json", TOKENS: "tokens.json"}


@dataclass(frozen=True)
class Index:
    """What was published.

    Attributes:
        kind: ``run``, ``tokens`` or ``checkpoint``.
        files: Bytes and SHA-256 by relative path.
        times: When each was changed last, in seconds since 1970.
    """

    kind: str
    files: Mapping[str, CoveredFile]
    times: Mapping[str, int]

    @property
    def head(self) -> str:
        """The file without which nobody takes the others for what they are: fetched last."""
        return _HEADS.get(self.kind) or min(_waybills(self.files), key=len)

    def to_bytes(self) -> bytes:
        """Return the content of the index."""
        files = {name: {**vars(file), "time": self.times[name]} for name, file in sorted(self.files.items())}
        return json_bytes({"lading_published": _VERSION, "kind": self.kind, "files": files})

    @property
    def under_way(self) -> str:
        """What it is called while it is put there."""
        return f"{UNDER_WAY}{sha256_of_bytes(self.to_bytes())}.json"

    def is_of(self, other: Index) -> bool:
        """Say whether it is a publication of the same thing as another, if perhaps of another time."""
        return (self.kind, self.files.get(self.head)) == (other.kind, other.files.get(other.head))


def index_from(content: bytes, file: str) -> Index:
    """Return an index, every field checked."""
    origin = Origin(file, CorruptLedgerError, "Publish again, or ask who published it.")
    if len(content) > MOST_BYTES:
        origin.refuse("", f"at most {MOST_BYTES} bytes", "more")
    values = origin.record(content).each(_FIELDS)
    files: Fields = values["files"]
    found, times = {}, {}
    for name in files:
        folders = ("/".join(name.split("/")[:n]) for n in range(1, name.count("/") + 1))
        if not waybills.is_relative(name) or name.endswith(PART) or any(folder in files for folder in folders):
            origin.refuse(files.place_of(name), "the relative path of a file", repr(name))
        fields = files.record(name).each(_FILE)
        times[name] = fields.pop("time")
        found[name] = CoveredFile(**fields)
    index = Index(values["kind"], found, times)
    if values["lading_published"] != _VERSION or (index.kind in _HEADS and index.head not in found):
        origin.refuse("", f"version {_VERSION} of an index, with the head of a {index.kind}", "something else")
    if index.kind == CHECKPOINT and not _waybills(found):
        origin.refuse("files", "the waybill of the checkpoint", "none")
    return index


def _waybills(names: Iterable[str]) -> list[str]:
    return [name for name in names if waybills.described_by(Path(name)) is not None]


def contents_of(path: str | os.PathLike[str]) -> tuple[str, dict[str, Path]]:
    """Return what a path holds, and its files by relative path; refuse a run that is being written."""
    folder = local_path(path)
    if (folder / _HEADS[RUN]).is_file():
        return RUN, _run_files(RunFolder(folder))
    if (folder / _HEADS[TOKENS]).is_file():
        return TOKENS, dict(sorted(files_below(folder)))
    checkpoint = waybills.checkpoint_path(path)
    waybills.read_waybill(checkpoint)  # says how to make one
    files = files_of(checkpoint)
    beside = [waybills.own_path(checkpoint, name) for name in (waybills.WAYBILL, waybills.CLAIMS)]
    return CHECKPOINT, {**files, **{file.name: file for file in beside if file.is_file()}}


def _run_files(run: RunFolder) -> dict[str, Path]:
    for (attempt, rank), begun in unsealed(run, KnownRun(run).log()).items():
        if lives(run.rank(attempt, rank), begun):
            raise LedgerError(
                f"rank {rank} of attempt {attempt} is running: process {begun.process[0]} on {begun.host} writes to "
                f"{run.path}. Expected a run that has ended: publish it then."
            )
    ours = (run.path / "plans", run.log, run.ledger)
    files = files_below(run.path, lambda folder: any(folder.is_relative_to(part) for part in ours))
    return {name: path for name, path in sorted(files) if "/" in name or path == run.description}


def index_of(kind: str, files: Mapping[str, Path], progress: Progress = silent) -> Index:
    """Hash files; those of a checkpoint must be what its waybill says."""
    found = hashed(files, True, lambda share: progress(share / 2, "hashing"))
    index = Index(kind, found, {name: int(path.stat().st_mtime) for name, path in files.items()})
    if kind == CHECKPOINT:
        head = files[index.head]
        for name, file in waybills.read_waybill(waybills.checkpoint_path(head)).files.items():
            if found.get(name) != file:
                raise CorruptLedgerError(f"{name} is missing, or not what {head} says: run `lading model check`.")
    return index


_FILE: FieldTable = {"size": COUNT, "sha256": SHA256, "time": COUNT}
_FIELDS: FieldTable = {
    "lading_published": Fields.integer,
    "kind": partial(Fields.text, choices=KINDS),
    "files": Fields.record,
}
