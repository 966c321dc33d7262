"""Real text for the demo, from the machine it runs on: Python's own library, cut into windows of bytes.

    code          the library's modules, as they are
    docstrings    what they say about themselves
    comments      what their authors say to each other
    manual        the language reference that comes with ``help()``; small, so that it comes round again

Nothing is downloaded. One fault is planted: the samples of one dataset that the plan puts into one step hold random
bytes. What was trained on lies in ``text.npz``, with the fault; ``--decode RUN/texts.py:texts`` shows it.
"""

from __future__ import annotations

import ast
import importlib
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lading.order import Mixture, Plan

Windows = NDArray[np.uint8]

WINDOW, BATCH, SEED = 128, 16, 7
WEIGHTS = {"code": 0.4, "docstrings": 0.25, "comments": 0.1, "manual": 0.25}
_BYTES = {"code": 1_600_000, "docstrings": 800_000, "comments": 400_000, "manual": 128_000}
_LEAST_WINDOWS = 200
_HELD_OUT = 20  # one window in so many is kept for validation
_SHOWN = 44
_SHOWS = '''"""What the samples of this run hold: lading ui RUN --decode RUN/texts.py:texts"""

from pathlib import Path

from lading.kits.demo.text import texts_in


def texts():
    return texts_in(Path(__file__).parent)
'''
_DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Texts:
    """Windows of bytes, read as text: what ``--decode`` shows, short enough for a terminal of 80 columns."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> str:
        words = " ".join(self.windows[index].tobytes().decode("utf-8", errors="replace").split())
        return words if len(words) <= _SHOWN else words[: _SHOWN - 1] + "…"


def texts_in(run: Path) -> dict[str, Texts]:
    """Return the training text of a demo's run by source, readable."""
    with np.load(run / "text.npz") as stored:
        return {name.partition("/")[0]: Texts(stored[name]) for name in stored if name.endswith("/train")}


def samples_of(text: dict[str, tuple[Windows, Windows]], step: int) -> list[tuple[str, int]]:
    """Return the samples of the largest dataset that the plan puts into a step: it knows before anything runs."""
    lengths = {name: len(train) for name, (train, _) in text.items()}
    plan = Plan.make(lengths, batch_size=BATCH, seed=SEED, mixture=Mixture({name: WEIGHTS[name] for name in lengths}))
    return [(name, index) for name, index in plan.bill(step).ids if name == max(lengths, key=lengths.__getitem__)]


def write_text(run: Path, text: dict[str, tuple[Windows, Windows]], faulty: Iterable[tuple[str, int]]) -> None:
    """Write what the demo trains on, some samples of it overwritten with random bytes, and who shows it."""
    noise = np.random.default_rng(0)
    for name, index in faulty:
        text[name][0][index] = noise.integers(0, 256, WINDOW + 1, dtype=np.uint8)
    named = {
        f"{name}/{part}": rows for name, pair in text.items() for part, rows in zip(("train", "val"), pair, strict=True)
    }
    np.savez(run / "text.npz", **named)  # type: ignore[arg-type]
    (run / "texts.py").write_text(_SHOWS)


def collect() -> dict[str, tuple[Windows, Windows]]:
    """Return (training, validation) windows by source; sources this Python does not have are left out."""
    parts: dict[str, list[str]] = {name: [] for name in WEIGHTS}
    for text in _modules():
        parts["code"].append(text)
        parts["docstrings"] += _docstrings(text)
        parts["comments"] += _comments(text)
    parts["manual"] = _manual()
    whole = {name: _windows("\n\n".join(found), _BYTES[name]) for name, found in parts.items()}
    return {name: _split(windows) for name, windows in whole.items() if len(windows) >= _LEAST_WINDOWS}


def _modules() -> Iterator[str]:
    """Yield modules of the standard library, by name, until there is enough code."""
    size = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        yield text
        size += len(text)
        if size > 2 * _BYTES["code"]:
            return


def _docstrings(text: str) -> list[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, _DEFINITIONS))
    return [docstring for docstring in found if docstring]


def _comments(text: str) -> list[str]:
    stripped = (line.strip() for line in text.splitlines())
    return ["\n".join(line[1:].strip() for line in stripped if line.startswith("# "))]


def _manual() -> list[str]:
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        return []  # some distributions leave it out
    return [topics[name] for name in sorted(topics)]


def _windows(text: str, most: int) -> Windows:
    """Return the text as overlapping windows: the last byte of one is the first of the next."""
    data = np.frombuffer(text.encode("utf-8")[:most], dtype=np.uint8)
    rows = max((len(data) - 1) // WINDOW, 0)
    starts = np.arange(rows, dtype=np.int64)[:, None] * WINDOW
    return data[starts + np.arange(WINDOW + 1)] if rows else np.empty((0, WINDOW + 1), dtype=np.uint8)


def _split(windows: Windows) -> tuple[Windows, Windows]:
    held_out = np.arange(len(windows)) % _HELD_OUT == 0
    return windows[~held_out], windows[held_out]
