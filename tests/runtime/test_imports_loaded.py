"""Classes of libraries that may not be loaded: asked for without importing anything."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import pytest

from lading.runtime.imports import is_a


class Third(Fraction):
    """A subclass that lives elsewhere."""


@pytest.mark.parametrize(
    ("value", "classes", "expected"),
    [
        (Fraction(1, 2), ["fractions:Fraction"], True),
        (Third(1, 3), ["not_loaded:Thing", "fractions:Fraction"], True),
        (0.5, ["fractions:Fraction"], False),
        (0.5, ["fractions:gcd", "fractions:no_such_name", "math:pi"], False),
    ],
)
def test_instances_are_known_by_their_class_not_by_its_name(value, classes, expected):
    """Subclasses count; names that are no class, or are not there, do not."""
    assert is_a(value, *classes) is expected


def test_nothing_is_imported():
    """What is not loaded has no instances."""
    code = (
        "import sys; from lading.runtime.imports import is_a; is_a(1, 'wave:Wave_read'); print('wave' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
