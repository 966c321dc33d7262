"""What readers of a ledger take. The writer clips, escapes and clamps by it: whatever it accepts can be read.

readable("half a character \\ud83d")     half a character \\ud83d, its escape written out
now_milliseconds()                      0 where the clock stands before 1970
"""

from __future__ import annotations

import time

LONGEST_REASON = 1 << 16
TIMES = 0, 253_402_300_799_999  # milliseconds, to the end of year 9999
_CUT = " [...]"


def readable(text: object, longest: int = LONGEST_REASON) -> str:
    """Return a text as every file can hold it: half characters escaped, at most so many characters.

    >>> readable("caf\\u00e9"), readable("x" * 40, longest=12)
    ('café', 'xxxxxx [...]')
    """
    found = str(text)[: longest + 1].encode("utf-8", "backslashreplace").decode()
    return found if len(found) <= longest else (found[: longest - len(_CUT)] + _CUT)[:longest]


def now_milliseconds() -> int:
    """Return the time as rows hold it."""
    now = time.time_ns() // 1_000_000
    return now if TIMES[0] <= now <= TIMES[1] else min(max(now, TIMES[0]), TIMES[1])


def now_seconds() -> float:
    """Return the time as records hold it."""
    return now_milliseconds() / 1000
