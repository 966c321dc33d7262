"""Objects that the user names."""

from __future__ import annotations

import os
import sys

import pytest

from lading.errors import ConfigError
from lading.runtime.imports import imported


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("math", r"--decode 'math': expected MODULE:NAME, for example train:sources\."),
        (":x", "expected MODULE:NAME"),
        ("nowhere_at_all:x", r"nowhere_at_all cannot be imported \(No module named 'nowhere_at_all'\)"),
        ("math:missing", "math has no 'missing'; it has acos, "),
        ("os:path.missing", r"--decode 'os:path.missing': posixpath has no 'missing'"),
        ("..:x", "cannot be imported"),
    ],
)
def test_what_is_wrong_with_a_name_is_said_in_one_sentence(target, says):
    """The same words wherever a name can be given."""
    with pytest.raises(ConfigError, match=says):
        imported(target, "--decode")


def test_names_with_dots_and_modules_of_the_working_directory_are_found(tmp_path, monkeypatch):
    """As ``python -m`` would find them, and only where that is asked for."""
    (tmp_path / "lying_here.py").write_text("class A:\n    b = 5\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", os.getcwd())])

    with pytest.raises(ConfigError, match="cannot be imported"):
        imported("lying_here:A.b", "--decode")
    assert imported("lying_here:A.b", "--decode", from_here=True) == 5
