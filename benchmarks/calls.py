"""How many functions of ours run for one thing that a user does, and in how many files: what a reader must follow.

    iter(loader)    weights, 2 worker processes, a ledger in an empty folder
    first batch     the same sources, no workers, no ledger
    one batch       the same loader, in the middle of an epoch
    lading where    one sample of a run of 6 steps, through the command line

Counted are calls of Python functions whose code lies in the package, in this thread, and the files they lie in; what
runs while a module is imported is left out. ``--by-file`` and ``--by-function`` list them.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import lading
from lading import Ledger, Loader, cli

Calls = Counter[tuple[str, str]]
PACKAGE = str(Path(lading.__file__).parent) + "/"
SOURCES = {"code": np.arange(600), "prose": np.arange(300)}
WEIGHTS = {"code": 2, "prose": 1}


@contextlib.contextmanager
def counted(calls: Calls) -> Iterator[None]:
    """Count, inside the block, the calls of our functions by (file, function)."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            calls[code.co_filename.removeprefix(PACKAGE), code.co_qualname] += 1

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def starting(folder: Path) -> Calls:
    """Return the calls of ``iter(loader)``."""
    ledger, calls = Ledger(folder), Calls()
    loader = Loader(SOURCES, 8, weights=WEIGHTS, num_workers=2, tracker=ledger)
    with counted(calls):
        batches = iter(loader)
    del batches
    ledger.close()
    return calls


def nth_batch(number: int) -> Callable[[Path], Calls]:
    """Return what returns the calls of a batch."""

    def found(_: Path) -> Calls:
        calls, batches = Calls(), iter(Loader(SOURCES, 8, weights=WEIGHTS))
        for _ in range(number):
            next(batches)
        with counted(calls):
            next(batches)
        return calls

    return found


def asking(folder: Path) -> Calls:
    """Return the calls of ``lading where``."""
    calls = Calls()
    with Ledger(folder) as ledger:
        loader = Loader(SOURCES, 8, weights=WEIGHTS, tracker=ledger)
        for update, (_, bill) in zip(range(6), loader.with_bills(), strict=False):
            ledger.commit(bill, update=update, loss=1.0)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit), counted(calls):
        cli.main(["where", str(folder), "code", str(int(bill.idx[bill.dataset_idx == 0][0]))])
    return calls


CASES = {"iter(loader)": starting, "first batch": nth_batch(0), "one batch": nth_batch(5), "lading where": asking}


def main(options: list[str]) -> None:
    """Print the figures."""
    for name, found in CASES.items():
        for _ in range(2):  # once to import and compile
            with tempfile.TemporaryDirectory() as folder:
                calls = found(Path(folder) / "run")
        files = Counter[str]()
        for (file, _), count in calls.items():
            files[file] += count
        print(f"{name:14} {calls.total():5} calls in {len(files):3} files")
        if "--by-file" in options:
            print("".join(f"    {count:5}  {file}\n" for file, count in files.most_common()))
        if "--by-function" in options:
            print("".join(f"    {count:5}  {file}  {name}\n" for (file, name), count in calls.most_common()))


if __name__ == "__main__":
    main(sys.argv[1:])
