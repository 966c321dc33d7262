"""Split pairs into train, val and test: by shares, alike in every cluster, a question never on two sides.

    cluster 0   q7 q2 q9 q4 ...    questions shuffled inside their cluster, clusters one after another
    split        t  t  v  t ...    each goes where most is missing of the share

Because what is missing is carried from cluster to cluster, shares hold in
every cluster to about a question, and over all of them as well.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity.hashing import key64, keys64
from lading.kits.jasper.layout import SPLITS

I64 = NDArray[np.int64]


def split_pairs(questions: I64, clusters: I64, shares: tuple[float, ...], seed: int) -> dict[str, I64]:
    """Return the pair numbers of each split, in ascending order.

    Args:
        clusters: Cluster of each pair; a question with pairs in several counts for the one of its first pair.
        shares: Shares of train, val and test; a split of share 0 is empty.
    """
    if len(shares) != len(SPLITS) or not (min(shares) >= 0 < shares[0]) or abs(sum(shares) - 1) > 1e-6:
        raise SourceError(
            f"splits are {shares}, expected three shares that sum to 1, the first above 0, as (0.8, 0.1, 0.1)."
        )
    asked, first, of_pair, weights = np.unique(questions, return_index=True, return_inverse=True, return_counts=True)
    wanted = [split for split, share in zip(SPLITS, shares, strict=True) if share > 0]
    if len(asked) < len(wanted):
        raise SourceError(
            f"{len(asked)} questions cannot be split into {', '.join(wanted)}, expected at least {len(wanted)} "
            "different ones. Add questions, or give a split the share 0."
        )
    order = np.lexsort((keys64(key64(seed, "splits"), asked), clusters[first]))
    side = np.empty(len(asked), dtype=np.int64)
    side[order] = _deal(weights[order], shares)
    _fill_empty(side, weights, shares)
    return {split: np.flatnonzero(side[of_pair.reshape(-1)] == number) for number, split in enumerate(SPLITS)}


def _deal(weights: I64, shares: tuple[float, ...]) -> list[int]:
    """Give each question to the split that lacks most."""
    lacking, dealt = [0.0] * len(shares), []
    for weight in weights.tolist():
        lacking = [lack + share * weight for lack, share in zip(lacking, shares, strict=True)]
        chosen = max((n for n, share in enumerate(shares) if share > 0), key=lacking.__getitem__)
        lacking[chosen] -= weight
        dealt.append(chosen)
    return dealt


def _fill_empty(side: I64, weights: I64, shares: tuple[float, ...]) -> None:
    """Move the lightest question of the fullest split into a split that got none although it has a share."""
    for number, share in enumerate(shares):
        if share > 0 and not (side == number).any():
            fullest = np.bincount(side, minlength=len(SPLITS)).argmax()
            candidates = np.flatnonzero(side == fullest)
            side[candidates[weights[candidates].argmin()]] = number
