"""The suite of all loaders on torch and NumPy. A new face passes it by being added to the list."""

from __future__ import annotations

import pytest
from tests.loader.face_cases import *  # noqa: F403

from lading import Loader, NumpyLoader


def torch_face(sources, batch, **options):
    """Make a torch loader."""
    return Loader(sources, batch, **options)


def numpy_face(sources, batch, **options):
    """Make a NumPy loader."""
    return NumpyLoader(sources, batch, **options)


@pytest.fixture(params=[torch_face, numpy_face], ids=["torch", "numpy"])
def face(request):
    """Give the function that makes a loader."""
    return request.param
