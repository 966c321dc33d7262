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


@pytest.fixture
def leaving_face(face):
    """Skip: a JaxLoader refuses it, see below."""
    pytest.skip("its shapes are fixed")


def test_a_collate_function_that_leaves_samples_out_is_refused(face):
    """Before anything is read."""
    with pytest.raises(LoaderError, match="batches of a JaxLoader have fixed shapes"):  # noqa: F405
        face(Rows(8), 4, collate_fn=EvenOnes())  # noqa: F405
