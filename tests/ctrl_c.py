"""Press Ctrl-C wherever Python would notice it: once at each place, one run after the other.

    for run in pressed(make, act): ...     # make() prepares, act(made) is broken off; ends when an act came through

CPython looks for signals after a call of C code, where a function begins and where a loop goes on.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
_CALLS = {number for name, number in dis.opmap.items() if name.startswith("CALL")}
_LOOKS = _CALLS | {dis.opmap["RESUME"], dis.opmap["JUMP_BACKWARD"]}


def pressed(make: Callable[[], T], act: Callable[[T], Any]) -> Iterator[T]:
    """Yield what was made for each act that Ctrl-C broke off, at a later place each time."""
    number, here = 0, inspect.currentframe()
    assert here is not None
    here.f_trace_opcodes = True  # Python 3.12 asks for it where a trace begins
    while True:
        made, press = make(), _Press(number)
        sys.settrace(press)
        try:
            act(made)
        except KeyboardInterrupt:
            sys.settrace(None)
            yield made
        else:
            return
        finally:
            sys.settrace(None)
        number += 1


class _Press:
    """Follows the bytecode of Lading and of Python's threads; raises at one of the places where Python looks."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._before: dict[FrameType, int] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            if frame.f_back is not None:
                self._before.pop(frame.f_back, None)  # after a call of Python's code it does not look
            if frame.f_globals["__name__"].partition(".")[0] not in ("lading", "threading"):
                return None
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        elif event == "opcode":
            if self._before.get(frame) in _LOOKS:
                self._left -= 1
                if self._left < 0:
                    raise KeyboardInterrupt
            self._before[frame] = frame.f_code.co_code[frame.f_lasti]
        elif event == "return":
            self._before.pop(frame, None)
        return self
