"""Publish and fetch: many objects at once, resumed where they were broken off, every byte compared with its SHA-256.

    publish   hash ─▶ lading-publishing/<sha256>.json ─▶ objects ─▶ lading-published.json
    fetch     lading-published.json ─▶ files aside, from where they broke off ─▶ SHA-256 ─▶ in place, the head last

An object that is there with its size is taken for the file if every index there that names it agrees: objects are made
whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lading.errors import CorruptLedgerError, LedgerError
from lading.ledger.waybill.covered import hashed
from lading.ledger.waybill.waybill import CoveredFile
from lading.report.publish.contents import INDEX, MOST_BYTES, PART, UNDER_WAY, Index, contents_of, index_from, index_of
from lading.report.publish.obstore import ObjectStore
from lading.runtime.blocks.progress import BlockProgress, Progress, silent
from lading.runtime.fields import listed
from lading.runtime.paths import local_path

THREADS = 8


@dataclass(frozen=True)
class Transfer:
    """What was moved.

    Attributes:
        index: What there is now.
        moved: Files that were moved.
        there: Files that were there already.
    """

    index: Index
    moved: int
    there: int


def publish(path: str | os.PathLike[str], url: str, progress: Progress = silent) -> Transfer:
    """Put a run, a token store or a checkpoint under an address; what is there already is not sent again.

    Args:
        path: What to publish; a run must have ended.
        progress: Is called with how far it is.
    """
    kind, files = contents_of(path)
    store = ObjectStore(url)
    index = index_of(kind, files, progress)
    sizes = store.sizes()
    known = {name: _index(store, name) for name in sizes if name == INDEX or name.startswith(UNDER_WAY)}
    others = [name for name, one in known.items() if not one.is_of(index)]
    if others:
        raise LedgerError(f"{url} holds something else already, says {others[0]}. Take another address, or remove it.")

    def is_there(name: str) -> bool:
        named = [one.files[name] for one in known.values() if name in one.files]
        return sizes.get(name) == index.files[name].size and bool(named) and all(f == index.files[name] for f in named)

    def send(name: str) -> None:
        store.put(name, files[name])
        now = files[name].stat()
        if (now.st_size, int(now.st_mtime)) != (index.files[name].size, index.times[name]):
            raise LedgerError(f"{files[name]} was changed while it was published. Publish again when nobody writes it.")

    there = {name for name in index.files if is_there(name)}
    store.put(index.under_way, index.to_bytes())
    _each(index, there, send, lambda share, text: progress(0.5 + share / 2, text))
    store.put(INDEX, index.to_bytes())
    for name in {*known, index.under_way} - {INDEX}:
        store.delete(name)
    return Transfer(index, len(index.files) - len(there), len(there))


def fetch(url: str, folder: str | os.PathLike[str], progress: Progress = silent) -> Transfer:
    """Get what was published under an address; an object that is not what was published is named.

    Args:
        folder: A folder for it: new, empty, or left by a fetch that was broken off.
        progress: Is called with how far it is.
    """
    store, root = ObjectStore(url), local_path(folder)
    sizes = store.sizes()
    if INDEX not in sizes or any(name.startswith(UNDER_WAY) for name in sizes):
        state = "a publication is under way there, or was broken off" if sizes else "nothing was published there"
        raise LedgerError(f"{url} has no whole publication: {state}. Run `lading publish` to its end, then fetch.")
    index = _index(store, INDEX)
    _refuse_others(root, index)
    local = {name: root / name for name in index.files if (root / name).is_file()}
    found = hashed(local, is_fast=True)
    there = {name for name in local if found[name] == index.files[name]}
    changed = sorted({*local} - there)
    if changed:
        raise LedgerError(f"{root} has another {listed(changed, 3)} than {url}. Fetch into another folder.")
    wrong: list[str] = []

    def get(name: str) -> None:
        if not _download(store, name, root / name, index):
            wrong.append(name)

    _each(index, {*there, index.head}, get, progress)
    if not wrong and index.head not in there:  # without it nobody takes the folder for a run or a checkpoint
        get(index.head)
    if wrong:
        raise CorruptLedgerError(
            f"{url}: not what was published: {listed(sorted(wrong), 5)}. Size or SHA-256 is another one; the other "
            "files are kept. Publish it again, then fetch again."
        )
    return Transfer(index, len(index.files) - len(there), len(there))


def _download(store: ObjectStore, name: str, path: Path, index: Index) -> bool:
    """Get a file from where it was broken off; return whether it is what was published."""
    wanted, part = index.files[name], path.with_name(path.name + PART)
    path.parent.mkdir(parents=True, exist_ok=True)
    total, size, before = hashlib.sha256(), 0, part.stat().st_size if part.exists() else 0
    with open(part, "a+b") as file:
        file.seek(0)
        while piece := file.read(1 << 20):
            total.update(piece)
            size += len(piece)
        if size < wanted.size:
            for piece in store.pieces(name, size):
                file.write(piece)
                total.update(piece)
                size += len(piece)
                if size > wanted.size:
                    break
        file.flush()
        os.fsync(file.fileno())
    if CoveredFile(size, total.hexdigest()) != wanted:
        part.unlink()
        return bool(before) and _download(store, name, path, index)  # what was left may be of an older publication
    os.utime(part, (index.times[name], index.times[name]))  # a rank that died long ago did not just write
    os.replace(part, path)
    return True


def _refuse_others(root: Path, index: Index) -> None:
    """Refuse a folder that holds files of something else."""
    if root.exists() and not root.is_dir():
        raise LedgerError(f"{root} is a file: expected a folder to fetch into.")
    below = (Path(place, name).relative_to(root).as_posix() for place, _, names in os.walk(root) for name in names)
    strange = [name for name in below if name.removesuffix(PART) not in index.files]
    if strange:
        raise LedgerError(f"{root} holds {listed(strange, 3)}, which was not published there. Fetch into a new folder.")


def _index(store: ObjectStore, name: str) -> Index:
    return index_from(store.read(name, MOST_BYTES), f"{store.url}/{name}")


def _each(index: Index, there: set[str], act: Callable[[str], None], progress: Progress) -> None:
    """Act on each file that is not there, several at once, the largest first; the first error ends it."""
    done = BlockProgress(len(index.files), sum(file.size for file in index.files.values()))
    lock = threading.Lock()

    def one(name: str) -> None:
        if name not in there:
            act(name)
        with lock:
            done.add(index.files[name].size, was_there=name in there)
            progress(min(done.share, 1.0), done.text().replace("block", "file"))

    names = sorted(index.files, key=lambda name: (name not in there, -index.files[name].size))
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(one, names))  # after an error no other file is begun
