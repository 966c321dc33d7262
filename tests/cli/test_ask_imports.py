"""A question opens what it needs and no more."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest
from tests.report.runs import record

SLOW = ("pandas", "torch", "jax", "scipy", "plotly", "lightning")
HEAVY = {"show": [], "step": [7], "where": ["code", 5], "mix": [], "verify": []}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A small run."""
    path = tmp_path_factory.mktemp("imports") / "7"
    record(path, range(20), part_rows={"batches": 8})
    return path


@cache
def opened_by(*words: object) -> list[str]:
    """Run the command in a process of its own; return the modules that were open at its end."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('\\n' + ' '.join(sys.modules), file=sys.stderr))\n"
        "from lading.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, env=environment
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stderr.splitlines()[-1].split()


@pytest.mark.parametrize("verb", HEAVY)
def test_a_question_to_a_small_run_opens_no_pandas_or_framework(run_dir, verb):
    """They take a second to import and have nothing to say."""
    modules = opened_by(verb, run_dir, *HEAVY[verb])

    assert [name for name in SLOW if name in modules] == []


def test_a_step_of_a_planned_run_needs_no_duckdb(run_dir):
    """The plan says what was in it, and one part what became of it."""
    assert "duckdb" not in opened_by("step", run_dir, 7)


def test_help_and_the_front_door_open_not_even_numpy():
    """``import lading`` costs milliseconds; a name opens its file when it is used."""
    modules = opened_by("--help")

    assert [name for name in (*SLOW, "numpy", "pyarrow", "duckdb") if name in modules] == []


@pytest.mark.parametrize("verb", ["show", "mix", "verify", "where"])
def test_questions_about_history_need_no_duckdb(run_dir, verb):
    """Steps are added up in NumPy; the database is for questions in SQL."""
    modules = opened_by(verb, run_dir, *HEAVY[verb])

    assert "duckdb" not in modules and "pyarrow.compute" not in modules
