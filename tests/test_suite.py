"""The runner of all groups: each runs, one summary, and equal causes are told once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.mutants import mutants
from tests.suite import Outcome, launches, memory, read_report, summary

from conftest import missing

ROOT = Path(__file__).parents[1]
REPORT = """<testsuites><testsuite>
<testcase classname="a" name="x"><properties><property name="cpu" value="1.6"/></properties></testcase>
<testcase classname="a" name="y"><skipped message="no"/></testcase>
<testcase classname="a" name="z"><failure message="assert 1 == 2&#10;more">long</failure></testcase>
<testcase classname="b" name="p"><properties><property name="cpu" value="40"/></properties>
<error message="TimeoutExpired: build">long</error></testcase>
<testcase classname="b" name="q"><error message="TimeoutExpired: build">long</error></testcase>
</testsuite></testsuites>"""


def test_a_fixture_that_failed_is_one_cause():
    """28 errors behind one slow start were 28 lines."""
    counts, causes, files = read_report(REPORT)

    assert counts == {"passed": 1, "skipped": 1, "failure": 1, "error": 2}
    assert causes == {"assert 1 == 2": ["a::z"], "TimeoutExpired: build": ["b::p", "b::q"]}
    lines = list(summary({"unit": Outcome(1, 3.0, 2.0, counts, causes, files), "jax": Outcome(0)}))
    assert "unit     exit 1        1       1       2        1        3        2" in lines[1]
    assert "\nmost cpu: b 40, a 2" in lines
    assert [line for line in lines if "2 with one cause: TimeoutExpired: build" in line]


def test_every_group_runs_and_one_failure_fails_all(tmp_path):
    """``make test`` stopped at its first group: JAX's half and the launches never ran."""
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_it.py").write_text("import pytest\n\n@pytest.mark.launch\ndef test_wrong():\n    assert 0, 'told'\n")
    suite = (ROOT / "tests" / "suite.py").read_text().replace('"tests", "src/lading"', '"tests"')
    (tests / "suite.py").write_text(suite)
    for file in ("conftest.py", "pyproject.toml"):
        (tmp_path / file).write_bytes((ROOT / file).read_bytes())
    command = [sys.executable, tests / "suite.py", "unit", "launch"]

    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600)

    assert done.returncode == 1
    assert "» unit" in done.stdout and "» launch" in done.stdout
    assert "most cpu: tests.test_it 0" in done.stdout
    assert "launch, 1 with one cause: AssertionError: told" in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("source", "quickly", "at_all"),
    [
        ("pytestmark = pytest.mark.launch", True, True),
        ("@pytest.mark.launch\ndef test_a(): ...", True, True),
        ("@pytest.mark.slow\n@pytest.mark.launch\ndef test_a(): ...", False, True),
        (
            "@pytest.mark.slow\n@pytest.mark.launch\ndef test_a(): ...\n\n@pytest.mark.launch\ndef test_b(): ...",
            True,
            True,
        ),
        ("@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.launch)])\ndef test_a(x): ...", True, True),
        ("@pytest.mark.slow\ndef test_a(): ...", False, False),
    ],
)
def test_files_whose_launches_are_all_long_are_not_imported(source, quickly, at_all):
    """A file that is left out by mistake would lose its tests without a word."""
    assert (launches(source, slow=False), launches(source, slow=True)) == (quickly, at_all)


def test_every_change_of_the_mutants_can_be_made_and_its_test_exists():
    """A line that was moved ended ``make mutants``, which nobody runs before a commit."""
    for mutant in mutants():
        source = (ROOT / "src" / "lading" / mutant.file).read_text()
        assert mutant.applied(source) != source
        for test in mutant.test.split():
            file, _, name = test.partition("::")
            assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(), test


def test_a_folder_in_memory_is_used_where_it_has_room(tmp_path, monkeypatch):
    """Elsewhere tests write to a disk, as they did."""
    monkeypatch.setattr("tests.suite._ROOM", 0)
    assert memory(str(tmp_path)) == str(tmp_path)
    monkeypatch.setattr("tests.suite._ROOM", 2**62)
    assert memory(str(tmp_path)) is None
    assert memory(str(tmp_path / "nowhere")) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ModuleNotFoundError: No module named 'nothing_of_ours'", None),
        ("No module named 'pytest'", None),
        ("lading.errors.MissingExtraError: x needs torch: pip install 'lading[all]'", None),
    ],
)
def test_only_a_framework_that_is_missing_excuses_a_failure(text, name):
    """What is installed, or none of ours, does not."""
    assert missing(text) == name


def test_a_missing_framework_is_known_by_its_name(monkeypatch):
    """By Python's sentence, by Lading's, and by the extra that brings it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    assert missing("E   ModuleNotFoundError: No module named 'torch'") == "torch"
    assert missing("needs soundfile, which is not installed: pip install 'lading[audio]'") == "soundfile"
