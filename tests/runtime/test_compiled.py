"""Numba is imported where it pays, and used where it is there."""

from __future__ import annotations

import sys

import pytest

from lading.runtime import compiled


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch):
    """Leave the choice of this process as it was."""
    monkeypatch.setattr(compiled, "_forgone", False)
    monkeypatch.setattr(compiled, "_available", lambda: True)


def test_few_values_need_no_numba(monkeypatch):
    """The plain versions are done before it is imported; many values are worth it."""
    monkeypatch.delitem(sys.modules, "numba", raising=False)

    compiled.expect(1000)
    assert not compiled.enabled()

    compiled.expect(10**7)
    assert compiled.enabled()


def test_numba_is_used_where_it_was_imported_already(monkeypatch):
    """Its price is paid."""
    monkeypatch.setitem(sys.modules, "numba", object())

    compiled.expect(0)

    assert compiled.enabled()
