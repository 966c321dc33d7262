"""A Griffe extension: doctests in docstrings become code blocks, wherever they stand.

Without it Markdown reads ``[0, 1]`` after ``[x for x in loader]`` as a link.
"""

from __future__ import annotations

from typing import Any

import griffe


class FencedDoctests(griffe.Extension):
    """Put fences around every run of lines that begins with ``>>>``, up to the next empty line."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that was just read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return a docstring whose doctests are fenced."""
    lines: list[str] = []
    indent: str | None = None
    for line in [*text.split("\n"), ""]:
        if indent is None and line.lstrip().startswith(">>>"):
            indent = line[: len(line) - len(line.lstrip())]
            lines += ["", f"{indent}```pycon"]
        elif indent is not None and not line.strip():
            lines.append(f"{indent}```")
            indent = None
        lines.append(line)
    return "\n".join(lines[:-1])
