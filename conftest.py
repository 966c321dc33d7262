"""Keep JAX out of the processes that fork.

JAX runs threads, and a process with threads must not fork: torch's workers
would inherit locks that nobody releases. So files that have to do with JAX are
run in processes of their own (``--jax=only``), all others in processes that
never load it (``--jax=without``). Without the option everything is collected.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent / "tests"
# These speak of JAX but start it in other processes only.
_ELSEWHERE = {"test_docs.py", "test_examples.py", "test_demo.py"}
_ABOUT_JAX = re.compile(r"\bjax\b|_jax\b|\bjax_|\bJaxLoader\b|\borbax\b|\bgrain\b")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses between the two kinds of files."""
    parser.addoption("--jax", choices=("only", "without"), help="collect only the files about JAX, or only the others")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of the other kind, and the scripts that tests start."""
    choice = config.getoption("--jax")
    if collection_path.suffix != ".py" or collection_path.name == "conftest.py":
        return None
    if _TESTS in collection_path.parents and not collection_path.name.startswith("test_"):
        return True  # --doctest-modules would import it
    if choice is None:
        return None
    about_jax = collection_path.name not in _ELSEWHERE and bool(_ABOUT_JAX.search(collection_path.read_text()))
    return True if about_jax == (choice == "without") else None
