"""Say what DeepSpeed waits for.

torch marks a folder in which it compiles by a file called ``lock``. Whoever finds one waits for it to go, without a
word and without an end, also for the file of a compiler that was killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from torch.utils.cpp_extension import get_default_build_root

LOGGER = logging.getLogger(__name__)
_PATIENCE_SECONDS = 30.0


@contextlib.contextmanager
def waiting_is_named(seconds: float = _PATIENCE_SECONDS) -> Iterator[None]:
    """Name the locks of torch's compilers in the log if the block has not ended after some seconds."""
    timer = threading.Timer(seconds, _say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say() -> None:
    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())
    for lock in sorted(root.rglob("lock")):
        LOGGER.warning(
            "DeepSpeed waits for %s: another process compiles an extension (a minute or two), or one that was killed "
            "left it. If no compiler runs, remove the file.",
            lock,
        )
