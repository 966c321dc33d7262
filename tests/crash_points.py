"""Kill an action before each of its disk calls: the action runs in forked children, one for each call.

    for number in crash_points(make, root):    # the child died before its call of that number; look at the folder
        ...                                    # ends when a child came through

Something new that writes (a build, ``lading compact``) is added by naming four functions:

    points = survives(
        prepare=lambda: copy_of_a_run(path),         # what is there before; called before every kill
        action=lambda: compact(path),                # what is killed, and done again afterwards
        look=lambda: check(open_run(path)),          # must hold after every kill, and at the end
        root=path,                                   # only files below it count; nothing else may be left in it
    )
    assert points > 10

``torn=True`` writes half of what ``os.write`` and ``os.pwrite`` are given before the kill; ``patched`` names functions
that write without Python's knowledge. ``tests/campaigns/test_crash_points.py`` has an example of every kind.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Audit events of calls that change the disk; each is raised before the call.
_CALLS = {"os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "os.truncate", "fcntl.flock"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def crash_points(
    action: Callable[[], Any], root: Path, *patched: tuple[Any, str], torn: bool = False, every: int = 1
) -> Iterator[int]:
    """Yield the number of each disk call before which a child was killed with SIGKILL.

    Args:
        action: What to do; it must do the same again after whatever the caller does between two points.
        root: Only files below this folder count.
        patched: (module, name) of functions that write without Python's knowledge, such as ``torch.save``.
        torn: Whether ``os.write`` and ``os.pwrite`` first write half of what they are given.
        every: Only every n-th call.
    """
    number = 0
    while _dies(action, root, patched, number, torn=torn):
        yield number
        number += every


def survives(
    prepare: Callable[[], Any],
    action: Callable[[], Any],
    look: Callable[[], Any],
    root: Path,
    *patched: tuple[Any, str],
    torn: bool = False,
    every: int = 1,
) -> int:
    """Kill an action before each of its disk calls, look, do it again, look again; return the number of kills.

    Args:
        prepare: Makes what is there before the action.
        action: What is killed; done again after each kill, as the next start of a user would.
        look: Raises where what is below ``root`` is not as it should be: the old, or the new.
        root: Only files below this folder count; no file aside may be left in it in the end.
        patched: (module, name) of functions that write without Python's knowledge.
        torn: Whether writes are cut in half.
        every: Only every n-th call.
    """
    kills = 0
    prepare()
    for number in crash_points(action, root, *patched, torn=torn, every=every):
        look()
        action()
        look()
        assert not leftovers(root), f"after call {number}"
        prepare()
        kills += 1
    return kills


def leftovers(root: Path) -> list[str]:
    """Return the names of files that a dead process left aside."""
    return [p.name for p in root.rglob("*") if p.name.startswith(".") or p.name.endswith((".tmp", ".aside"))]


def _dies(
    action: Callable[[], Any], root: Path, patched: tuple[tuple[Any, str], ...], number: int, *, torn: bool
) -> bool:
    child = os.fork()
    if child == 0:
        try:
            _watch(root, patched, number, torn=torn)
            action()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, f"the action failed at point {number}"
    return False


def _watch(root: Path, patched: tuple[tuple[Any, str], ...], number: int, *, torn: bool) -> None:
    left = number

    def count(before: Callable[[], Any] = lambda: None) -> None:
        nonlocal left
        if left == 0:
            before()
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event in _CALLS or (event == "open" and arguments[2] & _WRITES)
        if writes and (event == "fcntl.flock" or _is_below(root, arguments[0])):
            count()

    for module, name in ((os, "fsync"), (os, "write"), *patched):
        tears = torn and name in ("write", "pwrite")
        setattr(module, name, (_torn if tears else _counted)(getattr(module, name), count))
    sys.addaudithook(hook)


def _is_below(root: Path, path: Any) -> bool:
    # A relative path is one inside an open folder (shutil.rmtree), and so one of ours.
    return isinstance(path, str | bytes | os.PathLike) and (
        not os.path.isabs(name := os.fsdecode(path)) or name.startswith(str(root))
    )


def _counted(function: Callable[..., Any], count: Callable[[], None]) -> Callable[..., Any]:
    def counted(*arguments: Any, **named: Any) -> Any:
        count()
        return function(*arguments, **named)

    return counted


def _torn(function: Callable[..., Any], count: Callable[..., None]) -> Callable[..., Any]:
    def torn(file: int, content: Any, *arguments: Any) -> Any:
        count(lambda: function(file, bytes(content)[: len(content) // 2], *arguments))
        return function(file, content, *arguments)

    return torn
