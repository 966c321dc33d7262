"""Which datasets the rows of a source belong to, and whether its samples say so themselves.

TaggedDataset(dataset_idx=3)     one part, number 3
WeightedConcatDataset            a part for each dataset, numbered as they come
torch's ConcatDataset            a part for each dataset, called [0], [1] ...; the plan numbers those without a number
anything else                    one part: the source itself
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from lading.order.dataset import Part
from lading.source.protocol import InParts


def parts_of(source: Any) -> tuple[Part, ...]:
    """Return the parts a source offers; empty: it is one dataset, without a number of its own."""
    offered = source.parts if isinstance(source, InParts) else ()
    if isinstance(offered, list | tuple) and offered and all(isinstance(part, Part) for part in offered):
        return tuple(offered)
    if "torch" not in sys.modules:
        return ()
    from lading.source import torch as torch_sources  # only where torch is loaded can a source be one of its types

    return torch_sources.parts_of(source, parts_of)


def parts_called(source: Any, name: str) -> tuple[Part, ...]:
    """Return the parts of a source under their full names: ``[0]`` of ``data`` is ``data[0]``."""
    return tuple(replace(part, name=f"{name}{part.name}") for part in parts_of(source))


def provides_names(source: Any) -> bool:
    """Say whether dict samples of a source already carry ``idx`` and ``dataset_idx``."""
    if bool(getattr(source, "provides_names", False)):
        return True
    # Concatenated datasets carry names where each of them does: then each has a number.
    parts = parts_of(source)
    return bool(parts) and all(part.number is not None for part in parts)
