"""What ``verify`` says of runs, worked out beside the pages: who asks learns how far it is, and waits for nothing."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lading.errors import LadingError
from lading.report.run import Run

_AGAIN_SECONDS = 60.0
_PATIENCE_SECONDS = 1.0


@dataclass
class Verification:
    """One run being verified, or verified.

    Attributes:
        version: What the run was.
        share: How much of the work is done, from 0 to 1.
        done: Set when it has ended.
        found: The verdict; None: not yet, or it could not be.
        problem: Why there is none.
        ended: When it ended, on the process's clock.
    """

    version: str
    share: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)
    found: dict[str, Any] | None = None
    problem: LadingError | None = None
    ended: float = 0.0

    def run(self, path: Path) -> None:
        try:
            self.found = Run(path).verify(self._progress, allow_empty=True).to_dict()
        except LadingError as error:
            self.problem = error
        finally:
            self.ended = time.monotonic()
            self.done.set()

    def _progress(self, share: float, what: str) -> None:
        self.share = share


class Verdicts:
    """The verdicts on some runs: each run is verified once for what it is now, one that goes on once a minute."""

    def __init__(self) -> None:
        self._known: dict[str, Verification] = {}
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # one at a time: each takes a whole processor

    def of(self, path: Path, version: str, patience: float = _PATIENCE_SECONDS) -> dict[str, Any]:
        """Return the verdict on a run, or ``verifying``: how much of the work is done.

        Args:
            version: What the run is now.
            patience: Seconds to wait for it.
        """
        work = self._work(path, version)
        if not work.done.wait(patience):
            return {"verifying": round(work.share, 3)}
        if work.problem is not None:
            raise work.problem
        return work.found or {}

    def _work(self, path: Path, version: str) -> Verification:
        with self._lock:
            known = self._known.get(str(path))
            is_old = known is not None and known.done.is_set() and time.monotonic() - known.ended > _AGAIN_SECONDS
            if known is None or (is_old and known.version != version):
                known = self._known[str(path)] = Verification(version)
                threading.Thread(target=self._verify, args=(known, path), daemon=True).start()
            return known

    def _verify(self, work: Verification, path: Path) -> None:
        with self._turn:
            work.run(path)
