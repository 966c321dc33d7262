"""Which files of a checkpoint its waybill covers, and their SHA-256.

Covered is every file but the waybill, claims made about it, and the marks that
training itself changes later. A link that ends in a regular file is covered (a
hub cache is links). A folder inside that is a run, or has a waybill of its own,
answers for itself.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

from lading.errors import LedgerError
from lading.ledger.waybill.waybill import CLAIMS, WAYBILL, CoveredFile, is_relative
from lading.runtime.files import files_below
from lading.runtime.processes import usable_cpus

# DeepSpeed's pointer to the newest checkpoint, and what a resume from an earlier one renames.
MARKS = ("latest", "lading.json", "lading.rolled-back.json")
_NOT_COVERED = (WAYBILL, CLAIMS, *MARKS)
_DISTCP = ".distcp"
_MOST_METADATA = 1 << 28
_BLOCK, _BLOCK_AHEAD = 1 << 20, 1 << 23


def files_of(checkpoint: Path) -> dict[str, Path]:
    """Return the files that a waybill covers, by relative path; of a single file that one, by its name."""
    if not checkpoint.is_dir():
        return {checkpoint.name: checkpoint}
    found = files_below(checkpoint, lambda folder: not any((folder / own).exists() for own in (WAYBILL, "run.json")))
    return {name: path for name, path in sorted(found) if name not in _NOT_COVERED}


def hashed(
    files: Mapping[str, Path], threads: int = 1, progress: Callable[[float], None] = lambda share: None
) -> dict[str, CoveredFile]:
    """Return size and SHA-256 of files.

    Args:
        files: Their paths by name.
        threads: Files that are read at once; 0: as many as there are processors.
        progress: Is called with the share that is done.
    """
    total, done = max(sum(path.stat().st_size for path in files.values()), 1), 0

    def hash_file(path: Path) -> CoveredFile:
        nonlocal done
        state, size = hashlib.sha256(), 0
        with open(path, "rb", buffering=0) as file:
            is_long = os.fstat(file.fileno()).st_size > _BLOCK_AHEAD
            for block in _blocks_ahead(file) if is_long and threads != 1 else _blocks(file):
                state.update(block)
                size, done = size + len(block), done + len(block)
                progress(min(done / total, 1.0))
        return CoveredFile(size, state.hexdigest())

    if threads == 1:
        return {name: hash_file(path) for name, path in files.items()}
    with ThreadPoolExecutor(threads or usable_cpus()) as pool:
        return dict(zip(files, pool.map(hash_file, files.values()), strict=True))


def _blocks(file: FileIO) -> Iterator[memoryview]:
    """Yield the content of a file that is short, or read beside training: one thread, little memory."""
    room = memoryview(bytearray(_BLOCK))
    while read := file.readinto(room):
        yield room[:read]


def _blocks_ahead(file: FileIO) -> Iterator[memoryview]:
    """Yield the content of a file, as fast as it is hashed: another thread reads the next block meanwhile."""
    now, then = (memoryview(bytearray(_BLOCK_AHEAD)) for _ in range(2))
    with ThreadPoolExecutor(1) as reader:
        ahead = reader.submit(file.readinto, now)
        while read := ahead.result():
            ahead = reader.submit(file.readinto, then)
            yield now[:read]
            now, then = then, now


def check_names(checkpoint: Path, files: dict[str, Path]) -> None:
    """Refuse a checkpoint that no waybill can describe, or of which files are not there."""
    strange = [name for name in files if not is_relative(name)]
    missing = [name for name in _named_shards(checkpoint) if name not in files]
    if strange:
        raise LedgerError(f"{checkpoint} has a file called {strange[0]!r}, which no waybill can name. Rename it.")
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
