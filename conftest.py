"""Keep JAX out of the processes that fork.

JAX runs threads, and a process with threads must not fork: torch's workers
would inherit locks that no thread releases. So files that load JAX are run in
processes of their own (``--jax=only``), all others in processes that never
load it (``--jax=without``, which fails if one does). Without the option
everything is collected.

A file loads JAX if it says ``pytestmark = pytest.mark.jax``, or if it is named
after JAX: ``jax.py``, ``test_x_jax.py``, or below a folder ``jax``. The doors
of our packages (``__init__.py``) count too: pytest, looking for fixtures beside
their doctests, asks for every name, and a name of JAX's room loads JAX.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent / "tests"
_REPORTED: list[str] = []  # the first test that found JAX loaded


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses between the two kinds of files."""
    parser.addoption("--jax", choices=("only", "without"), help="collect only the files that load JAX, or only others")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of the other kind, and the scripts that tests start."""
    choice = config.getoption("--jax")
    if collection_path.suffix != ".py" or collection_path.name == "conftest.py":
        return None
    if _TESTS in collection_path.parents and not collection_path.name.startswith("test_"):
        return True  # --doctest-modules would import it
    if choice is None:
        return None
    return True if loads_jax(collection_path) == (choice == "without") else None


def loads_jax(path: Path) -> bool:
    """Say whether a file is marked as one that loads JAX, or named after it."""
    relative = path.relative_to(Path(__file__).parent)
    if relative.parts[0] == "src" and path.name == "__init__.py":
        return True
    return "jax" in relative.parts or relative.stem.split("_")[-1] == "jax" or "jax" in marks(path.read_text())


def marks(source: str) -> set[str]:
    """Return the markers that a module sets on all its tests, without importing it."""
    values = [
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets)
    ]
    return {node.attr for value in values for node in ast.walk(value) if isinstance(node, ast.Attribute)} - {"mark"}


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Fail the first test that finds JAX loaded where no file says that it loads it."""
    if item.config.getoption("--jax") != "without" or "jax" not in sys.modules or _REPORTED:
        return
    _REPORTED.append(item.nodeid)
    if not any(loads_jax(path) for path in {other.path for other in item.session.items}):  # named on the command line
        pytest.fail(
            "JAX is loaded under --jax=without, by this test or by a file that imports it. Mark the file: "
            "pytestmark = pytest.mark.jax"
        )
