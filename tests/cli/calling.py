"""Run the command line inside the test process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lading.cli import main


def lading(*arguments: object) -> int:
    """Run the command line in this process and return its exit code."""
    try:
        main([str(a) for a in arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Run the command; return its exit code, output and errors."""
    code = lading(*words)
    out, err = capsys.readouterr()
    return code, out, err


def ask(*words: object) -> tuple[int, str]:
    """Run the command in a process of its own; return its exit code and output: what is asked from the far end."""
    done = subprocess.run(
        [sys.executable, "-m", "lading", *map(str, words)], check=False, capture_output=True, text=True, timeout=300
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout
