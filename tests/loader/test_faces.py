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


@pytest.fixture
def leaving_face(face):
    """Give the function that makes a loader whose batches may have any number of rows."""
    return face


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"global_batch_size": 8}, r"batch_size=4 \(a rank's\) and global_batch_size=8 \(all ranks'\): expected one"),
        ({"batch_schedule": [(0, 4)]}, "batch_size=4 and batch_schedule="),
        ({"pad": "yes"}, "pad is 'yes': expected True, False or None"),
        ({"world": 3}, r"world is 3: expected World\(rank, world_size\)"),
    ],
)
def test_a_wrong_argument_of_these_faces_is_refused(face, options, text):
    """Those that JAX has not got."""
    with pytest.raises(LadingError, match=text):  # noqa: F405
        face(two(), 4, **options)  # noqa: F405


@pytest.mark.parametrize("schedule", ["soon", [(0, 0)], [4], 3])
def test_a_wrong_batch_schedule_is_refused(face, schedule):
    """When the loader is made."""
    with pytest.raises(LadingError, match="batch_schedule"):  # noqa: F405
        face(two(), None, batch_schedule=schedule)  # noqa: F405
