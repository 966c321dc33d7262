"""The door is typed: what a user writes is checked by mypy and pyright, and a wrong word is an error."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
RIGHT = """
from lading import JaxLoader, Ledger, Loader, open_run, track


def use(data: list[int], run: str) -> None:
    loader = Loader(data, batch_size=2, seed=3, tracker=Ledger(run))
    for batch, bill in loader.with_bills():
        print(batch, bill.step, len(loader.with_bills()))
    print(open_run(run))


reveal_type(Loader)
reveal_type(track)
reveal_type(open_run)
reveal_type(JaxLoader)
reveal_type(Ledger)
"""
WRONG = """
from lading import Loader

Loader([1, 2], batch_sizee=3)
"""


def check(tool: list[str], text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a type checker on a user's file."""
    path = folder / "user.py"
    path.write_text(text)
    env = {**os.environ, "PYTHONPATH": str(SRC), "MYPYPATH": str(SRC)}
    return subprocess.run([*tool, str(path)], capture_output=True, text=True, cwd=folder, env=env, timeout=600)


def mypy() -> list[str]:
    """Return the command of mypy, as strict as it gets; its cache is this project's."""
    cache = SRC.parent / ".mypy_cache"
    return [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--cache-dir", str(cache)]


def pyright() -> list[str]:
    """Return the command of pyright."""
    pytest.importorskip("pyright", reason="pyright is not installed")
    return [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]


@pytest.mark.parametrize("tool", [mypy, pyright])
def test_public_names_are_themselves_to_a_type_checker(tool, tmp_path):
    """None of them is Any, and ordinary use is accepted."""
    found = check(tool(), RIGHT, tmp_path)

    revealed = re.findall(r"(?:Revealed type is|Type of \"\w+\" is) \"(.*)\"", found.stdout)

    assert found.returncode == 0, found.stdout
    assert len(revealed) == 5
    assert not [text for text in revealed if text in ("Any", "Unknown")], revealed


@pytest.mark.parametrize("tool", [mypy, pyright])
def test_a_misspelled_argument_is_an_error(tool, tmp_path):
    """``batch_sizee`` does not pass."""
    found = check(tool(), WRONG, tmp_path)

    assert found.returncode == 1
    assert "batch_sizee" in found.stdout
