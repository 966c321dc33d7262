"""Build a token store in blocks: any executor, any number of workers, the same bytes.

    inputs ─▶ blocks ─▶ block function (read, tokenise, check, write a part) ─▶ parts ─▶ join ─▶ tokens/
                        in local processes, on Ray, or in numbered tasks

Parts lie in ``tokens.parts`` beside the store until they are joined. A build that was killed finds them there.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lading.errors import SourceError
from lading.identity.document_names import WHOLE_FILE, NamesWriter
from lading.runtime.blocks.progress import BlockProgress, Progress, silent
from lading.runtime.blocks.run import Task, run_blocks
from lading.runtime.fields import listed
from lading.runtime.files import alone, clean_up, make_folder
from lading.runtime.paths import local_path
from lading.source.tokens.block import TokenJob, TokenPart, check_digest, finished_part, mapped_part
from lading.source.tokens.inputs import default_block_bytes, find_inputs
from lading.source.tokens.read import check_split
from lading.source.tokens.store import TokenStore
from lading.source.tokens.tokenizer import TokenizerRef
from lading.source.tokens.write import TokenWriter, check_target, disk_errors, dtype_for


class JoinedElsewhere(SourceError):
    """Another process joins the parts, or has done so."""


def build_tokens(
    inputs: str | Path | Iterable[str | Path],
    out: str | Path,
    tokenizer: Any = None,
    *,
    field: str = "text",
    split: str = "file",
    id: str = "",
    overwrite: bool = False,
    workers: int = 1,
    on: str = "local",
    progress: Progress = silent,
) -> TokenStore:
    """Build a token store from text, JSONL or Parquet files.

    The bytes are the same for any number of workers. A build that was killed is resumed by the same call.

    Args:
        inputs: Files or patterns: ``.jsonl`` and ``.parquet`` hold a document a line or row, others are text; texts and
            JSONL may be compressed (``.gz``, ``.zst``).
        out: Directory to make.
        tokenizer: Makes ids of texts: a name that ``load_tokenizer`` takes, a tokenizer (also of tokenizers or
            transformers); None: bytes.
        field: Key or column of the text (or of ready token ids) in JSONL and Parquet.
        split: What a document is in a text file: the whole ``file``, a ``line``, or a ``paragraph``.
        id: Key or column of what a document is called; one that has none is called by its file and line or row.
        overwrite: Whether a token store at ``out`` is replaced.
        workers: Blocks worked on at once, each by one thread.
        on: ``local``: processes of this machine; ``ray``: tasks of a Ray cluster.
        progress: Called with the share that is done and a sentence.
    """
    job = token_job(inputs, out, tokenizer, field=field, split=split, id=id)
    check_target(job.out, overwrite=overwrite)
    with _parts(job):
        _run(job, range(len(job.blocks)), workers, on, progress)
        store = join_tokens(job, overwrite=overwrite, progress=progress)
    return store


def build_task(
    job: TokenJob, task: Task, *, overwrite: bool = False, workers: int = 1, progress: Progress = silent
) -> TokenStore | None:
    """Make the blocks of one task (of a job that is the same in all); the task that finds all blocks made joins them.

    The other arguments are those of ``build_tokens``.

    Returns:
        The store, or None while blocks of other tasks are missing or another task joins.
    """
    check_target(job.out, overwrite=overwrite)
    with _parts(job):
        _run(job, task.share(range(len(job.blocks))), workers, "local", progress)
        if missing_blocks(job):
            return None
        with contextlib.suppress(JoinedElsewhere):
            return join_tokens(job, overwrite=overwrite, progress=progress)
    return None


def token_job(
    inputs: str | Path | Iterable[str | Path],
    out: str | Path,
    tokenizer: Any = None,
    *,
    field: str = "text",
    split: str = "file",
    id: str = "",
) -> TokenJob:
    """Return what a build does; the arguments are those of ``build_tokens``."""
    check_split(split)
    files = tuple(find_inputs([inputs] if isinstance(inputs, str | Path) else inputs))
    ref = tokenizer if isinstance(tokenizer, TokenizerRef) else TokenizerRef(tokenizer)
    dtype_for(ref.get())
    return TokenJob(local_path(out).absolute(), files, ref, field, split, default_block_bytes(files), id)


def missing_blocks(job: TokenJob) -> list[int]:
    """Return the blocks that are not there."""
    return [number for number in range(len(job.blocks)) if finished_part(job, number) is None]


def join_tokens(job: TokenJob, *, overwrite: bool = False, progress: Progress = silent) -> TokenStore:
    """Make the store of all parts, once every block is there, and remove them.

    Raises:
        SourceError: Blocks are missing; they are named.
        JoinedElsewhere: Another process joins them, or has.
    """
    check_target(job.out, overwrite=overwrite)
    with _locked(job.folder):
        missing = missing_blocks(job)
        if missing:
            raise SourceError(
                f"{job.folder} lacks {len(missing)} of {len(job.blocks)} blocks ({listed(missing, 8)}), or has them of "
                "other inputs. Run the tasks that make them (block b belongs to task b mod N), then join."
            )
        with _disk(job), TokenWriter(job.out, job.tokenizer.get(), overwrite=overwrite) as writer:
            _join(job, writer, progress)
        shutil.rmtree(job.folder, ignore_errors=True)
    return TokenStore(job.out, validate=False)  # every id was checked on its way in


def _join(job: TokenJob, writer: TokenWriter, progress: Progress) -> None:
    pace = BlockProgress(len(job.blocks), sum(block.size for block in job.blocks))
    before = np.zeros(len(job.files), np.int64)  # lines of each file so far: a block counts those of its own piece
    with NamesWriter(writer.folder, list(job.file_numbers), job.id_field) as names:
        for number, block in enumerate(job.blocks):
            part = _checked_part(job, number)
            tokens, documents, ids = mapped_part(job, part)
            lengths, files, lines, sizes = documents.T
            writer.add_many(tokens, lengths, name=str(job.data(number)))
            names.add(files, np.where(lines == WHOLE_FILE, lines, lines + before[files]), sizes, ids)
            for piece, read in zip(block.pieces, part.lines, strict=True):
                before[job.file_numbers[piece.file.name]] += read
            pace.add(block.size)
            progress(pace.share, f"joining {pace.text()}")


def _checked_part(job: TokenJob, number: int) -> TokenPart:
    part = finished_part(job, number)
    if part is None:
        raise SourceError(
            f"{job.data(number)} is gone, or was made of something else: does another build write to {job.out}? Run "
            "the same again; the block is made anew."
        )
    check_digest(job, part)
    return part


def _run(job: TokenJob, numbers: Any, workers: int, on: str, progress: Progress) -> None:
    pace = BlockProgress(len(numbers), sum(job.blocks[number].size for number in numbers))
    progress(0.0, pace.text())
    part: TokenPart
    for number, part in run_blocks(job, numbers, workers=workers, on=on):
        pace.add(job.blocks[number].size, was_there=part.was_there)
        progress(pace.share, pace.text())


@contextlib.contextmanager
def _parts(job: TokenJob) -> Iterator[None]:
    """Have the folder of the parts, and leave none behind that is empty."""
    with _disk(job):
        make_folder(job.folder)
    clean_up(job.folder)
    try:
        with _disk(job):
            yield
    finally:
        with contextlib.suppress(OSError):
            job.folder.rmdir()


def _disk(job: TokenJob) -> contextlib.AbstractContextManager[None]:
    return disk_errors(job.out, " Finished blocks are kept.")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Join alone; where the parts are gone, another process has joined them."""
    if not folder.is_dir():
        raise JoinedElsewhere(f"{folder} is gone: another process joined the parts, or nothing was built.")
    with alone(folder) as ours:
        if not ours:
            raise JoinedElsewhere(f"another process is joining the parts in {folder}. Wait for it.")
        yield
