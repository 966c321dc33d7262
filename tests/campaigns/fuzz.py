"""Whatever a file holds, a reader returns or raises a LadingError, soon and in little memory.

    python -m tests.campaigns.fuzz SEED SECONDS [FIRST]      prints the figures as one JSON line (see ``running``)

A unit takes a thousandth of the shares that ``readers`` gives to each reader: 100 inputs of all of them. Every input is
limited to 2 s and 500 MB, measured one by one.
"""

from __future__ import annotations

import contextlib
import functools
import random
import shutil
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.campaigns.readers import TARGETS, Target
from tests.campaigns.running import Found, main

from lading.errors import LadingError

MOST_SECONDS, MOST_BYTES = 2.0, 500 << 20
HANGS_SECONDS = 60.0


class Campaign:
    """Damage one file at a time of a folder and read it.

    Args:
        name: Of the reader.
        target: What reads.
        folder: An empty folder.
    """

    def __init__(self, name: str, target: Target, folder: Path) -> None:
        self.name, self.target, self.folder = name, target, folder / "input"
        self.folder.mkdir(parents=True)
        target.make(self.folder)
        self.files = self._content()
        target.read(self.folder)  # what is undamaged is read; kernels are compiled
        assert self._content() == self.files, "the reader writes"

    def _content(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file()}

    def run(self, seed: str, inputs: int, seconds: float = 1e9) -> Found:
        """Try so many inputs, or as many as there is time for."""
        chance, found, until = random.Random(seed), Found(), time.monotonic() + seconds
        for number in range(inputs):
            if time.monotonic() > until:
                break
            path = chance.choice(list(self.files))
            data = self.target.change(self.files[path], chance)
            problem, outcome = self._try(path, data, found)
            found.figures["inputs"] += 1
            found.figures[f"{self.name}: {outcome}"] += 1
            if problem:
                found.failures.append(f"{self.name}, {seed}, input {number}, {path.name}: {problem}")
        return found

    def _try(self, path: Path, data: bytes, found: Found) -> tuple[str, str]:
        path.write_bytes(data)
        if self.target.mend is not None:
            self.target.mend(self.folder)
        problem, outcome, spent, grown = self._read()
        if not problem and spent > MOST_SECONDS:  # a kernel may have been compiled for it: no fault of the input
            problem, outcome, spent, _ = self._read()
        found.raise_most("seconds", round(spent, 2))
        found.raise_most("MB", grown >> 20)
        if not problem and (spent > MOST_SECONDS or grown > MOST_BYTES):
            problem = f"{spent:.1f} s, {grown >> 20} MB"
        if self.target.mend is not None or not path.parent.exists():
            shutil.rmtree(self.folder)
            for name, content in self.files.items():
                name.parent.mkdir(parents=True, exist_ok=True)
                name.write_bytes(content)
        else:
            path.write_bytes(self.files[path])
        return problem, outcome

    def _read(self) -> tuple[str, str, float, int]:
        return measured(lambda: self.target.read(self.folder))


def measured(read: Callable[[], object]) -> tuple[str, str, float, int]:
    """Read something; return what is wrong, the outcome, seconds and bytes."""
    problem, outcome, memory = "", "read", _resident()
    began = time.process_time()
    try:
        with _alarm():
            read()
    except LadingError as error:
        outcome = "refused"
        str(error).encode()
    except Exception:
        problem, outcome = f"\n{traceback.format_exc(limit=-4)}", "fault"
    return problem, outcome, time.process_time() - began, _peak() - memory


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    """End an input that hangs."""

    def ring(*_: Any) -> None:
        raise TimeoutError(f"still reading after {HANGS_SECONDS:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, HANGS_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _resident() -> int:
    """Forget the peak of memory; return what is in use."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS:")


def _peak() -> int:
    return _status("VmHWM:")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


@functools.cache
def campaigns(home: Path) -> dict[str, Campaign]:
    """Make the valid inputs of every reader, once in a process."""
    return {name: Campaign(name, target, home / str(number)) for number, (name, target) in enumerate(TARGETS.items())}


def hundred_inputs(home: Path, seed: int, number: int) -> Found:
    """Try a hundred inputs, of every reader its share."""
    found = Found()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, campaign in campaigns(home).items():
            share = campaign.target.share
            inputs = share * (number + 1) // 1000 - share * number // 1000
            found.add(campaign.run(f"{seed}/{name}/{number}", inputs))
    return found


if __name__ == "__main__":
    from tests.campaigns import fuzz

    main(fuzz.hundred_inputs)
