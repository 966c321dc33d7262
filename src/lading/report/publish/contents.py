"""What belongs to a run, a token store or a checkpoint that is published, and the index that lists it.

lading-published.json           kind, and {relative path: size, sha256, time}; written last
lading-publishing/<sha256>.json the same, written first, and removed in the end: what a broken publication was about
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lading.errors import CorruptLedgerError, LedgerError
from lading.ledger.begun import lives
from lading.ledger.description import read_description
from lading.ledger.log import read_log, sha256_of_bytes
from lading.ledger.run_folder import RunFolder
from lading.ledger.seal import unsealed
from lading.ledger.waybill.covered import files_of, hashed
from lading.ledger.waybill.waybill import CLAIMS, WAYBILL, CoveredFile, checkpoint_path, is_relative, read_waybill
from lading.runtime.blocks.progress import Progress, silent
from lading.runtime.fields import COUNT, SHA256, Fields, FieldTable, Origin
from lading.runtime.files import is_aside, json_bytes
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
        own = [name for name in self.files if name == WAYBILL or name.endswith(f".{WAYBILL}")]
        return _HEADS.get(self.kind) or min(own, key=len)

    def to_bytes(self) -> bytes:
        """Return the content of the index."""
        files = {name: {**vars(file), "time": self.times[name]} for name, file in sorted(self.files.items())}
        return json_bytes({"lading_published": _VERSION, "kind": self.kind, "files": files})

    @property
    def sha256(self) -> str:
        """What a publication that is under way is called by."""
        return sha256_of_bytes(self.to_bytes())


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
        if not is_relative(name) or name.endswith(PART) or any(folder in files for folder in folders):
            origin.refuse(files.place_of(name), "the relative path of a file", repr(name))
        fields = files.record(name).each(_FILE)
        times[name] = fields.pop("time")
        found[name] = CoveredFile(**fields)
    index = Index(values["kind"], found, times)
    if values["lading_published"] != _VERSION or (index.kind in _HEADS and index.head not in found):
        origin.refuse("", f"version {_VERSION} of an index, with the head of a {index.kind}", "something else")
    if index.kind == CHECKPOINT and not any(name.endswith(WAYBILL) for name in found):
        origin.refuse("files", "the waybill of the checkpoint", "none")
    return index


def contents_of(path: str | os.PathLike[str]) -> tuple[str, dict[str, Path]]:
    """Return what a path holds, and its files by relative path; refuse a run that is being written."""
    folder = local_path(path)
    if (folder / _HEADS[RUN]).is_file():
        return RUN, _run_files(RunFolder(folder))
    if (folder / _HEADS[TOKENS]).is_file():
        return TOKENS, dict(sorted(_below(folder, "")))
    checkpoint = checkpoint_path(path)
    read_waybill(checkpoint)  # says how to make one
    files = files_of(checkpoint)
    beside = [checkpoint / name if checkpoint.is_dir() else Path(f"{checkpoint}.{name}") for name in (WAYBILL, CLAIMS)]
    return CHECKPOINT, {**files, **{file.name: file for file in beside if file.is_file()}}


def _run_files(run: RunFolder) -> dict[str, Path]:
    description = read_description(run)
    for (attempt, rank), begun in unsealed(run, read_log(run, description.sha256)).items():
        if lives(run.rank(attempt, rank), begun):
            raise LedgerError(
                f"rank {rank} of attempt {attempt} is running: process {begun.process[0]} on {begun.host} writes to "
                f"{run.path}. Expected a run that has ended: publish it then."
            )
    parts = [folder for folder in (run.path / "plans", run.log, run.ledger) if folder.is_dir()]
    files = {name: path for folder in parts for name, path in _below(folder, f"{folder.name}/")}
    return {run.description.name: run.description, **dict(sorted(files.items()))}


def _below(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _below(Path(entry.path), f"{prefix}{entry.name}/")
            elif entry.is_file() and not is_aside(entry.name):
                yield f"{prefix}{entry.name}", Path(entry.path)


def index_of(kind: str, files: Mapping[str, Path], progress: Progress = silent) -> Index:
    """Hash files; those of a checkpoint must be what its waybill says."""
    total, read = max(sum(path.stat().st_size for path in files.values()), 1), 0

    def heard(more: int) -> None:
        nonlocal read
        read += more
        progress(read / total / 2, "hashing")

    index = Index(
        kind, hashed(dict(files), 0, heard), {name: int(path.stat().st_mtime) for name, path in files.items()}
    )
    if kind == CHECKPOINT:
        path = files[index.head]
        known = read_waybill(
            path.parent if path.name == WAYBILL else path.with_name(path.name.removesuffix(f".{WAYBILL}"))
        )
        wrong = [name for name, file in known.files.items() if index.files.get(name) != file]
        if wrong:
            raise CorruptLedgerError(f"{wrong[0]} is missing, or not what {path} says: run `lading model check`.")
    return index


_FILE: FieldTable = {"size": COUNT, "sha256": SHA256, "time": COUNT}
_FIELDS: FieldTable = {
    "lading_published": Fields.integer,
    "kind": partial(Fields.text, choices=KINDS),
    "files": Fields.record,
}


def differs(one: Index, other: Index) -> bool:
    """Say whether two publications are of different things."""
    head: Any = one.files.get(one.head)
    return one.kind != other.kind or other.files.get(other.head) != head
