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
import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from lading import BatchTracker, Ledger, Loader, NumpyLoader, open_run


def use(data: list[int], run: str) -> None:
    loader = Loader(data, batch_size=2, seed=3, tracker=Ledger(run))
    for batch, bill in loader.with_bills():
        print(batch, bill.step, len(loader.with_bills()))
    print(open_run(run))


def sources(data: Dataset[int], array: npt.NDArray[np.int64], run: str) -> None:
    Loader(data, 2)
    Loader({"a": array, "b": [1, 2]}, 2, tracker=[BatchTracker(), Ledger(run)])
    NumpyLoader(torch.zeros(3), 2, tracker=None)
"""
WRONG = """
from typing import Unpack

from lading import JaxLoader, Loader, NumpyLoader
from lading.loader import LoaderOptions

Loader([1, 2], batch_sizee=3)
NumpyLoader([1, 2], 2, sed=3)
JaxLoader([1, 2], 2, pad=True)
Loader([1, 2], 2, seed="3")
Loader([1, 2], 2, pin_memory=True, workers="threads", seed=3)


def make(**options: Unpack[LoaderOptions]) -> Loader:
    return Loader([1, 2], 2, **options)


make(weights=[1], chunk_batches=2)
make(chunkbatches=2)
Loader(3, 2)
Loader([1, 2], 2, tracker="runs/1")
"""
WRONG_LINES = [7, 8, 9, 10, 19, 20, 21]


def mypy() -> list[str]:
    """Return the command of mypy, as strict as it gets; its cache is this project's."""
    cache = SRC.parent / ".mypy_cache"
    return [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--cache-dir", str(cache)]


def pyright() -> list[str]:
    """Return the command of pyright."""
    pytest.importorskip("pyright", reason="pyright is not installed")
    return [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]


def revealed() -> list[str]:
    """Return a line for each public name of each package, that shows its type."""
    return [
        f"reveal_type({door}.{name})"
        for path in sorted(SRC.rglob("*.pyi"))
        for door in [".".join(path.parent.relative_to(SRC).parts)]
        for name in re.findall(r"\w+ as (\w+)", path.read_text())
    ]


@pytest.fixture(
    scope="module", params=[pytest.param(mypy, marks=pytest.mark.needs("mypy")), pyright], ids=["mypy", "pyright"]
)
def checked(request, tmp_path_factory):
    """Return what a type checker says of a user's two files, in one run: most of it is spent on reading Lading."""
    command, folder = request.param(), tmp_path_factory.mktemp("user")
    lines = revealed()
    doors = sorted({f"import {line[12:].rpartition('.')[0]}" for line in lines})
    texts = {"right.py": "\n".join([*doors, RIGHT, *lines]), "wrong.py": WRONG}
    for name, text in texts.items():
        (folder / name).write_text(text)
    env = {**os.environ, "PYTHONPATH": str(SRC), "MYPYPATH": str(SRC)}
    done = subprocess.run([*command, *texts], capture_output=True, text=True, cwd=folder, env=env, timeout=600)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_public_names_are_themselves_to_a_type_checker(checked):
    """None of them is Any, and ordinary use is accepted."""
    shown = re.findall(r"(?:Revealed type is|Type of \"[\w.]+\" is) \"(.*)\"", checked)

    assert not re.findall(r".*right\.py:[\d:]+ (?:- )?error.*", checked)
    assert len(shown) == len(revealed()) > 150
    assert not [text for text in shown if text in ("Any", "Unknown")], shown


def test_every_option_is_known_and_no_other(checked):
    """A misspelled one, one of another loader, one of another type: on each line, and on no other."""
    assert sorted({int(n) for n in re.findall(r"wrong\.py:(\d+)[\d:]* (?:- )?error", checked)}) == WRONG_LINES, checked
    assert "batch_sizee" in checked
