"""Read the code blocks of a page and run them: what the documentation shows is what happens.

    ```python                      run, in the page's namespace and folder, in order
    ```python title="train.py"     written to that file, for the commands that follow (any language)
    ```console                     `$ lading ...`, `$ python ...` and `$ torchrun ...` are run; the rest is output
    ```python title="not run: …"   not run, and the reader sees why

A page runs in a temporary folder. Expected exit codes other than 0 are said in
the output of a command: ``(exit code 1)``.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lading.cli import main
from lading.ledger import Ledger

ROOT = Path(__file__).parents[1]
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w-]+)?(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)```\s*$", re.M | re.S
)
TITLE = re.compile(r'title="([^"]+)"')
# Commands of installing and building: other tests run them, or the reader's own machine.
ELSEWHERE = ("make", "pip", "git", "cd", "deepspeed", "kill", "chromium")


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block of a page.

    Attributes:
        page: Path of the page in the repository.
        line: Line of its first line of text.
        language: What follows the fence.
        title: Its title, if it has one.
        text: The text, without the page's indentation.
    """

    page: str
    line: int
    language: str
    title: str
    text: str

    @property
    def is_run(self) -> bool:
        """Whether the block is run at all."""
        return not self.title.startswith("not run")


def pages() -> list[Path]:
    """Return every page that shows code: the README, the contributors' page, the documentation."""
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "examples" / "README.md",
        *sorted(p for p in (ROOT / "docs").rglob("*.md") if "decisions" not in p.parts),
    ]


def blocks(page: Path) -> list[CodeBlock]:
    """Return the fenced blocks of a page in order."""
    text = page.read_text()
    found = []
    for match in FENCE.finditer(text):
        indent = match["indent"]
        lines = [line.removeprefix(indent) for line in match["text"].splitlines()]
        title = TITLE.search(match["info"] or "")
        line = text[: match.start("text")].count("\n") + 1
        name = str(page.relative_to(ROOT))
        found.append(CodeBlock(name, line, match["language"] or "", title[1] if title else "", "\n".join(lines) + "\n"))
    return found


def run_page(page: Path, folder: Path) -> None:
    """Run everything a page shows, in a folder."""
    namespace: dict[str, Any] = {"__name__": "__page__"}
    with contextlib.chdir(folder), ledgers_closed():
        for block in blocks(page):
            if not block.is_run:
                continue
            if block.title and "." in block.title:
                path = Path(block.title)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
            elif block.language == "python":
                _run_python(block, page, namespace)
            elif block.language == "console":
                for command, output in commands(block.text):
                    _run_command(block, command, output)


@contextlib.contextmanager
def ledgers_closed() -> Iterator[None]:
    """Close the ledgers that a page leaves open, as the end of its process would."""
    try:
        yield
    finally:
        for thing in gc.get_objects():
            if type(thing) is Ledger:
                thing.close()


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield (command, output) of a console block."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        while "\\\n" in part:
            part = part.replace("\\\n", " ", 1)
        command, _, output = part.partition("\n")
        yield command.split("   #")[0].strip(), output


def _run_python(block: CodeBlock, page: Path, namespace: dict[str, Any]) -> None:
    source = "\n" * (block.line - 1) + block.text  # so that a traceback shows the page's own line
    exec(compile(source, str(page), "exec"), namespace)


def _run_command(block: CodeBlock, command: str, output: str) -> None:
    words = shlex.split(command)
    environment, words = _assignments(words)
    if words[0] in ELSEWHERE or words[:2] == [
        "lading",
        "ui",
    ]:  # which serves until it is stopped; tests/kits/web/ui has it
        return
    expected = int(found[1]) if (found := re.search(r"\(exit code (\d)\)", output)) else 0
    if words[0] == "lading" and not environment:
        code, said = _lading(words[1:])
    else:
        code, said = _process(words, environment)
    assert code == expected, f"{block.page}:{block.line}: `{command}` gave {code}, expected {expected}:\n{said}"
    for line in filter(None, (line.strip() for line in output.splitlines())):
        if line != "..." and not line.startswith("(exit code"):
            assert _plain(line) in _plain(said), (
                f"{block.page}:{block.line}: `{command}` did not print {line!r}:\n{said}"
            )


def _assignments(words: list[str]) -> tuple[dict[str, str], list[str]]:
    set_here = [word for word in words if re.match(r"[A-Z_]+=", word)]
    return dict(word.split("=", 1) for word in set_here), words[len(set_here) :]


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[─━]+", "", text).split())


def _lading(arguments: list[str]) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(arguments)
        except SystemExit as error:
            return int(error.code or 0), said.getvalue()
    return 0, said.getvalue()


def _process(words: list[str], environment: dict[str, str]) -> tuple[int, str]:
    known = {"python": [sys.executable], "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone"]}
    assert words[0] in known, f"`{words[0]}` is not among the commands that pages may show"
    done = subprocess.run(
        [*known[words[0]], *words[1:]],
        capture_output=True,
        text=True,
        timeout=3000,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout + done.stderr
