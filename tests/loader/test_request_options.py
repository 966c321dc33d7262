"""The options of the loaders: the same to type checkers, to ``help`` and to frameworks."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

from lading import Loader, NumpyLoader
from lading.errors import LoaderError, OptionError
from lading.loader import LoaderOptions, PlainOptions
from lading.loader.request import DEFAULTS

FACES = {Loader: LoaderOptions, NumpyLoader: PlainOptions}


@pytest.mark.parametrize(("face", "options"), FACES.items())
def test_a_signature_lists_every_option(face, options):
    """Frameworks that make a loader anew by its signature would drop an option that is not there."""
    shown = inspect.signature(face).parameters

    kinds = {name: kind.__forward_arg__ for name, kind in options.__annotations__.items()}
    assert kinds.items() <= {name: p.annotation for name, p in shown.items()}.items()
    assert {name: shown[name].default for name in options.__annotations__} == {
        name: DEFAULTS.get(name) for name in options.__annotations__
    }
    assert not [p for p in shown.values() if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


@pytest.mark.parametrize("face", FACES)
def test_help_describes_every_argument_once(face):
    """The text of an option is written in one place and shown with every loader."""
    entries = re.findall(r"^    (\w[^:\n]*(?:\n        [^:\n]*)?):", inspect.getdoc(face), re.M)
    described = [name.strip() for entry in entries for name in entry.split(",")]

    assert sorted(described) == sorted(inspect.signature(face).parameters)


@pytest.mark.parametrize("face", FACES)
def test_every_argument_is_an_attribute_of_the_loader(face):
    """Lightning reads them from there: in ``vars``, under their own names, as they were given."""
    kept = {"seed": 5, "weights": [1, 2], "names": {"idx": "sample"}, "fingerprint": "full", "prefetch": 0}
    loader = face({"a": np.arange(6), "b": np.arange(4)}, 2, **kept)

    taken = set(inspect.signature(face).parameters) - {"multiprocessing_context"}  # torch keeps it, Lightning knows
    if face is Loader:
        taken -= {"batch_sampler", "sampler", "dataset", "generator", "in_order", "pin_memory_device"}
    assert taken <= set(vars(loader))
    assert kept.items() <= vars(loader).items()
    assert (loader.seed, loader.weights, loader.shuffle) == (5, [1, 2], True)


def test_an_attached_tracker_is_kept_where_frameworks_look():
    """Also where it was set later."""
    loader = NumpyLoader(np.arange(4), 2)

    loader.tracker = later = []

    assert loader.tracker is vars(loader)["tracker"] is later


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("batch_sizee", r"has no option 'batch_sizee': did you mean batch_size"),
        ("sed", r"has no option 'sed': did you mean seed"),
        ("zzz", r"has no option 'zzz': expected one of seed, window_samples, .*drop_last"),
    ],
)
def test_an_unknown_option_is_refused_with_the_names_that_are_close(face, wrong, says):
    """It is a TypeError, as of any function, and one of ours."""
    with pytest.raises(TypeError, match=f"{face.__name__} {says}") as caught:
        face(np.arange(4), 2, **{wrong: 1})

    assert isinstance(caught.value, OptionError) and isinstance(caught.value, LoaderError)
