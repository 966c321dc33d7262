"""The suite of all loaders on JAX, which keeps to processes of its own."""

from __future__ import annotations

import pytest
from tests.loader.face_cases import *  # noqa: F403

from lading import JaxLoader


@pytest.fixture
def face():
    """Give the function that makes a loader."""

    def make(sources, batch, *, pad=True, **options):
        return JaxLoader(sources, batch, **options)  # it always pads: shapes are static

    return make
