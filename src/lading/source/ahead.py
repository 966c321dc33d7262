"""Read ahead in a thread: a few items are ready before they are asked for.

The thread works on one item at a time and can be paused between two of them, so
that the process may fork (see ``identity.forking``).
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

from lading.identity.forking import Busy

T = TypeVar("T")
THREAD_NAME = "lading-ahead"


def ahead(items: Iterator[T], depth: int) -> Iterator[T]:
    """Yield the items of an iterator that a thread runs through; at most ``depth`` of them wait.

    Args:
        items: What to run through. An error it raises is raised here, in its place.
        depth: Items that may wait; 0: no thread.
    """
    if depth <= 0:
        yield from items
        return
    ready: queue.Queue[Any] = queue.Queue(maxsize=depth)
    stopped = threading.Event()
    thread = threading.Thread(target=_run, args=(items, ready, stopped), name=THREAD_NAME, daemon=True)
    thread.start()
    try:
        while True:
            kind, value = ready.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value
    finally:
        stopped.set()
        thread.join()


def _run(items: Iterator[T], ready: queue.Queue[Any], stopped: threading.Event) -> None:
    busy, end = Busy(), object()

    def put(kind: str, value: Any) -> None:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                ready.put((kind, value), timeout=0.1)
                return

    try:
        while not stopped.is_set():
            with busy:
                item = next(items, end)
            if item is end:
                put("end", None)
                return
            put("item", item)
    except BaseException as error:
        put("error", error)
