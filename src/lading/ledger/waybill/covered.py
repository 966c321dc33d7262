"""Which files of a checkpoint its waybill covers, and their SHA-256.

Covered is every file but the waybill, claims made about it, and the marks that
training itself changes later. A link that ends in a regular file is covered (a
hub cache is links). A folder inside that is a run, or has a waybill of its own,
answers for itself.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from io import FileIO
from pathlib import Path

from lading.errors import LedgerError
from lading.ledger.waybill.waybill import CLAIMS, WAYBILL, CoveredFile
from lading.runtime.files import files_below
from lading.runtime.processes import ahead, each_in_threads

# DeepSpeed's pointer to the newest checkpoint, and what a resume from an earlier one renames.
MARKS = ("latest", "lading.json", "lading.rolled-back.json")
_NOT_COVERED = (WAYBILL, CLAIMS, *MARKS)
_DISTCP = ".distcp"
_MOST_METADATA = 1 << 28
_BLOCK, _LONG_BLOCK = 1 << 20, 1 << 23


def files_of(checkpoint: Path) -> dict[str, Path]:
    """Return the files that a waybill covers, by relative path; of a single file that one, by its name."""
    if not checkpoint.is_dir():
        return {checkpoint.name: checkpoint}
    found = files_below(checkpoint, lambda folder: not any((folder / own).exists() for own in (WAYBILL, "run.json")))
    return {name: path for name, path in sorted(found) if name not in _NOT_COVERED}


def hashed(
    files: Mapping[str, Path], is_fast: bool = False, progress: Callable[[float], None] = lambda share: None
) -> dict[str, CoveredFile]:
    """Return size and SHA-256 of files, by their names.

    Args:
        is_fast: Whether every processor reads a file, and ahead; else one thread with little memory, beside training.
        progress: Is called with the share that is done.
    """
    total, done = max(sum(path.stat().st_size for path in files.values()), 1), 0

    def covered(path: Path) -> CoveredFile:
        nonlocal done
        state, size = hashlib.sha256(), 0
        with open(path, "rb", buffering=0) as file:
            is_long = is_fast and os.fstat(file.fileno()).st_size > _LONG_BLOCK
            for block in ahead(_blocks(file, _LONG_BLOCK if is_long else _BLOCK), depth=int(is_long)):
                state.update(block)
                size, done = size + len(block), done + len(block)
                progress(min(done / total, 1.0))
        return CoveredFile(size, state.hexdigest())

    found = each_in_threads(covered, files.values()) if is_fast else list(map(covered, files.values()))
    return dict(zip(files, found, strict=True))


def _blocks(file: FileIO, size: int) -> Iterator[memoryview]:
    """Yield the content of a file: three blocks in turn, for one is hashed, one waits, and one is read."""
    for room in itertools.cycle([memoryview(bytearray(size)) for _ in range(3)]):
        if not (read := file.readinto(room)):
            return
        yield room[:read]


def check_complete(checkpoint: Path, files: Mapping[str, Path]) -> None:
    """Refuse a checkpoint of which files are not there."""
    missing = [name for name in _named_shards(checkpoint) if name not in files]
    if not files:
        raise LedgerError(f"{checkpoint} holds no file: there is nothing to describe. Save the checkpoint first.")
    if missing:
        raise LedgerError(
            f"{checkpoint} lacks {missing[0]}, which its .metadata names: another process has not written it yet, or "
            "to another disk. Wait until every process has saved, and give all of them the same folder."
        )


def _named_shards(checkpoint: Path) -> list[str]:
    """Return the files that the metadata of a distributed checkpoint names; the pickle is read, never run."""
    path = checkpoint / ".metadata"
    if not path.is_file() or path.stat().st_size > _MOST_METADATA:
        return []
    import pickletools  # here: only sharded checkpoints need it

    try:
        texts = {argument for _, argument, _ in pickletools.genops(path.read_bytes()) if isinstance(argument, str)}
    except ValueError:  # another format of metadata: it names nothing that we know
        return []
    return sorted(text for text in texts if text.endswith(_DISTCP))
