"""Say which sources and functions draw no random numbers: their batches need none, and a thread may read ahead.

    its own word                                    ``random_free``, True or False; a subclass with code of its own may
                                                    do more, so it says it again
    arrays, tensors, lists, tuples, ranges          nothing runs but a look-up
    TensorDataset, Subset, ConcatDataset            of sources that draw nothing; not their subclasses
    a Hugging Face dataset                          unless it has a transform

Anything else may draw from the global generators. Nothing is imported: a framework that is not loaded has no datasets.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def draws_nothing(source: Any) -> bool:
    """Say whether reading a source, or calling a function, draws from no global random generator.

    >>> draws_nothing([1, 2]), draws_nothing(print)
    (True, False)
    """
    word = _own_word(source)
    if word is not None:
        return word
    return isinstance(source, np.ndarray) or type(source) in (list, tuple, range) or _is_known(source)


def _own_word(source: Any) -> bool | None:
    """Return what a source says of itself; not what a wrapper passes on from the source inside it."""
    if "random_free" in getattr(source, "__dict__", ()):
        return bool(source.random_free)
    for kind in type(source).__mro__:
        if "random_free" in vars(kind):
            return bool(source.random_free)
        if any(callable(value) and name != "__init__" for name, value in vars(kind).items()):
            return None  # code of its own: what the classes it builds on say is not said of it
    return None


def _is_known(source: Any) -> bool:
    kind = type(source)
    torch: Any = sys.modules.get("torch.utils.data")
    if torch is not None:
        if isinstance(source, sys.modules["torch"].Tensor) or kind is torch.TensorDataset:
            return True
        if kind is torch.Subset:
            return draws_nothing(source.dataset)
        if kind is torch.ConcatDataset:
            return all(map(draws_nothing, source.datasets))
    hugging_face: Any = sys.modules.get("datasets")
    return kind is getattr(hugging_face, "Dataset", None) and source.format["type"] != "custom"
