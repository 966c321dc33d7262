"""``lading publish`` and ``lading fetch``: runs, token stores and checkpoints in an object store, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lading.cli.output import Json, answer, progress_bar
from lading.errors import LadingError
from lading.report import open_checkpoint, open_run, text as render
from lading.report.checkpoint.check import check
from lading.report.publish.contents import RUN, TOKENS, Index
from lading.runtime.arrow import without_pandas
from lading.source.tokens.store import TokenStore

Url = Annotated[
    str, typer.Argument(help="s3://bucket/prefix, gs://, az:// or file:///folder.", metavar="URL", show_default=False)
]


def publish(
    path: Annotated[str, typer.Argument(help="A run that has ended, a token store, or a checkpoint.", metavar="PATH")],
    url: Url,
    as_json: Json = False,
) -> None:
    """Put a run, a token store or a checkpoint under an address. Broken off, run it again: it resumes.

    Example: lading publish runs/7 s3://bucket/runs/7
    """
    from lading.report.publish.transfer import publish as publish_files  # here: the help needs no package for it

    with progress_bar(quiet=as_json, lines=True) as progress:
        done = publish_files(path, url, progress)
    _tell(f"{url}: {done.index.kind}", done.moved, done.there, as_json, {"url": url, "kind": done.index.kind})


def fetch(
    url: Url,
    folder: Annotated[Path, typer.Argument(help="New folder, or one of a fetch broken off.", metavar="DIR")],
    as_json: Json = False,
) -> None:
    """Get what was published, and check it as it is: the record of a run, the files of a checkpoint, every token.

    Exit code 1: an object is not what was published, or what was fetched does not hold.

    Example: lading fetch s3://bucket/runs/7 runs/7
    """
    from lading.report.publish.transfer import fetch as fetch_files

    without_pandas()
    with progress_bar(quiet=as_json, lines=True) as progress:
        done = fetch_files(url, folder, progress)
    faults = _faults(folder, done.index)
    value = {"folder": str(folder), "kind": done.index.kind, "holds": not faults, "faults": faults}
    said = f"{folder}: {done.index.kind}, {'holds' if not faults else f'does not hold: {faults[0]}'}"
    _tell(said, done.moved, done.there, as_json, value, holds=not faults)


def _faults(folder: Path, index: Index) -> list[str]:
    """Return what is wrong with what was fetched, by the hashes that it holds itself."""
    try:
        if index.kind == RUN:
            return [fault.message for fault in open_run(folder).verify(allow_empty=True).faults]
        if index.kind == TOKENS:
            TokenStore(folder, validate=True)
            return []
        single = index.head.removesuffix("waybill.json").removesuffix(".")
        return check(open_checkpoint(folder / single)).faults
    except LadingError as error:
        return [str(error)]


def _tell(text: str, moved: int, there: int, as_json: bool, value: dict[str, object], *, holds: bool = True) -> None:
    line = f"{text} ({render.counted(moved, 'file')} moved, {there} there already)"
    answer({**value, "moved": moved, "there": there}, lambda: render.line(line), as_json=as_json, holds=holds)
