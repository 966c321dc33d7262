"""Values that every JSON reader accepts."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import numpy as np
import torch
from hypothesis import given, strategies as st

from lading.runtime.json import plain

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
)


@given(values)
def test_plain_values_are_strict_json(value):
    """No NaN, no infinity, and plain again what was plain before."""
    found = plain(value)

    assert json.loads(json.dumps(found, allow_nan=False)) == found == plain(found)


def test_numbers_of_frameworks_and_types_of_python_are_written():
    """One rule for the tracker's file, the trainer's log, the page and the command line."""
    found = plain(
        {
            "loss": torch.tensor(float("inf")),
            "row": np.array([1.5, np.nan]),
            "n": np.int64(3),
            "day": datetime.date(2026, 1, 2),
            "path": Path("runs/7"),
        }
    )

    assert found == {"loss": None, "row": [1.5, None], "n": 3, "day": "2026-01-02", "path": "runs/7"}
