"""Be of a torch class to those who ask, without importing torch.

class Rows:
    @property
    def __class__(self):
        return torch_class(type(self), "ConcatDataset")

isinstance(Rows(), torch.utils.data.ConcatDataset)      True once torch is loaded, because isinstance looks at
                                                        __class__, too
"""

from __future__ import annotations

import functools
import sys
from typing import Any


def torch_class(cls: Any, name: str) -> type:
    """Return what ``__class__`` of an object shows: its own, which is also one of ``torch.utils.data`` if loaded."""
    return _joined(cls, name) if "torch.utils.data" in sys.modules else cls


def restored(cls: Any, fields: dict[str, Any]) -> Any:
    """Return an object with these fields: for ``__reduce__``, because pickle's own way trips over ``__class__``."""
    made = cls.__new__(cls)
    vars(made).update(fields)
    return made


@functools.cache
def _joined(cls: Any, name: str) -> type:
    parent = getattr(sys.modules["torch.utils.data"], name)
    return type(cls.__name__, (cls, parent), {"__module__": cls.__module__})
