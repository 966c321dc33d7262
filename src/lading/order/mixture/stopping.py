"""Where a stream of draws ends when it must not repeat, or must show everything.

first_exhausted   right before the first draw that would need a second pass
all_exhausted     right after the last dataset was seen whole
"""

from __future__ import annotations

from collections.abc import Sequence

from lading.errors import MixtureError
from lading.order.mixture.tree import build_tree
from lading.order.mixture.weights import MAX_POSITION


def stream_end(lengths: Sequence[int], weights: Sequence[int], stopping: str) -> int:
    """Return the length of an epoch's stream, in samples; in big integers, as tiny weights reach far.

    >>> half = 1 << 30
    >>> stream_end([10, 100], [half, half], "first_exhausted"), stream_end([10, 100], [half, half], "all_exhausted")
    (21, 199)
    """
    tree = build_tree(weights, [0] * len(weights))
    live = [d for d, w in enumerate(weights) if w > 0]
    if stopping == "first_exhausted":
        end = min(tree.position(d, lengths[d]) for d in live)
    else:
        end = max(tree.position(d, lengths[d] - 1) + 1 for d in live)
    if not 0 < end < MAX_POSITION:
        raise MixtureError(
            f"with stopping={stopping!r} an epoch would have {end} samples: expected 1 to 2**60. "
            "Raise the smallest weight, or use stopping='restart' with epoch_samples=."
        )
    return end
