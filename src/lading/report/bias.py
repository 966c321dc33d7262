"""Were rollouts dropped whatever they were, or because they were long, slow or of some dataset?

    between groups    do groups that took longer lose a larger share?    rank of the mean seconds against the share
    inside groups     of one group, are the slower rollouts the dropped ones? ranks inside the group against the fate

Both are compared with all ways to deal the same fates out, so that groups whose
rollouts stay or go together are no evidence by themselves. Two independent
scores, one p-value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.report.rollouts import FATES, RolloutHistory
from lading.report.table import Table, schema_of

RATES = schema_of("by string, what string, decided int64, applied int64, rate float64")
_BINS = 10
_WORST_PROMPTS = 5
_DOUBTFUL = 0.01
F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Bias:
    """How often decided rollouts were used.

    Attributes:
        rates: By dataset, length and seconds (tenths), and the prompts that were used least.
        p_value: How likely so strong a link of seconds and dropping is where there is none; None: nothing to compare.
        decided: Rollouts that were used or dropped.
        applied: Those that were used.
    """

    rates: Table
    p_value: float | None
    decided: int
    applied: int

    @property
    def sentence(self) -> str:
        """What the test says, in words."""
        return says(self.p_value)

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        named = {"decided": self.decided, "applied": self.applied, "p_value": self.p_value, "says": self.sentence}
        return {**named, "rates": self.rates.dicts()}


def bias(history: RolloutHistory) -> Bias:
    """Return how often rollouts were used, by what they are, and whether dropping depended on their seconds."""
    fate = history.standing["fate"]
    decided = fate <= FATES.index("filtered")
    made = {name: values[decided] for name, values in history.made.items()}
    applied, names = fate[decided] == 0, history.names[decided]
    rows = _rates("dataset", names, applied)
    rows += _rates("tokens", _tenths(made["tokens"].astype(float)), applied)
    rows += _rates("seconds", _tenths(made["seconds"]), applied)
    prompts = names + np.char.add(":", made["index"].astype(str)).astype(object)
    rows += sorted(_rates("prompt", prompts, applied), key=lambda row: (row["rate"], -row["decided"]))[:_WORST_PROMPTS]
    p_value = p_of_dropping(made["group"], made["seconds"], ~applied)
    return Bias(Table.of(rows, RATES), p_value, int(decided.sum()), int(applied.sum()))


def says(p_value: float | None) -> str:
    """Return what a p-value says, in words."""
    if p_value is None:
        return "nothing to compare: no rollout was dropped, or the seconds are unknown or all the same"
    found = f"p = {p_value:.2g}"
    if p_value < _DOUBTFUL:
        return f"dropping depends on how long a rollout took ({found}): the updates saw a biased part of what was made"
    return f"no sign that dropping depends on how long a rollout took ({found})"


def p_of_dropping(groups: NDArray[np.int64], seconds: F64, dropped: Mask) -> float | None:
    """Return the p-value of "dropping is independent of the seconds"; None where nothing can be compared."""
    known = ~np.isnan(seconds)
    groups, seconds, lost = groups[known], seconds[known], dropped[known].astype(float)
    if not len(groups):
        return None
    _, number = np.unique(groups, return_inverse=True)
    size = np.bincount(number)
    means, shares = (np.bincount(number, values) / size for values in (seconds, lost))
    between = _score(_ranks(means), shares, np.zeros(len(size), np.int64))
    inside = _score(_ranks(seconds, number), lost, number)
    scores = [score for score in (between, inside) if score is not None]
    if not scores:
        return None
    if len(scores) == 1:
        return math.erfc(abs(scores[0]) / math.sqrt(2))
    return math.exp(-sum(score * score for score in scores) / 2)


def _score(x: F64, y: F64, stratum: NDArray[np.int64]) -> float | None:
    """Return how far the sum of products stands from its mean over all permutations inside strata, in deviations."""
    size = np.bincount(stratum)
    x, y = (values - (np.bincount(stratum, values) / size)[stratum] for values in (x, y))
    of_x, of_y = np.bincount(stratum, x * x), np.bincount(stratum, y * y)
    variance = float(np.sum(of_x * of_y / np.maximum(size - 1, 1)))
    return float(x @ y) / math.sqrt(variance) if variance > 1e-12 else None


def _ranks(values: F64, stratum: NDArray[np.int64] | None = None) -> F64:
    """Return the rank of each value (inside its stratum), the mean of the ranks where several are equal."""
    order = np.lexsort((values,) if stratum is None else (values, stratum))
    ordered = values[order]
    is_first = np.ones(len(values), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    if stratum is not None:
        is_first[1:] |= stratum[order][1:] != stratum[order][:-1]
    starts = np.flatnonzero(is_first)
    stops = np.append(starts[1:], len(values))
    ranks = np.empty(len(values))
    ranks[order] = np.repeat((starts + stops - 1) / 2, stops - starts)
    return ranks


def _tenths(values: F64) -> NDArray[Any]:
    """Return the tenth that each value is in, in words; "unknown" where it is NaN."""
    labels, known = np.full(len(values), "unknown", dtype=object), ~np.isnan(values)
    if known.any():
        edges = np.unique(np.quantile(values[known], np.linspace(0, 1, _BINS + 1)))
        place = np.clip(np.searchsorted(edges, values[known], side="right") - 1, 0, max(len(edges) - 2, 0))
        ends = np.append(edges[1:], edges[-1])
        words = np.array([f"{edges[i]:.4g} to {ends[i]:.4g}" for i in range(len(edges))], dtype=object)
        labels[known] = words[place]
    return labels


def _rates(by: str, labels: NDArray[Any], applied: Mask) -> list[dict[str, Any]]:
    names, place = np.unique(labels.astype(str), return_inverse=True)
    decided, used = np.bincount(place, minlength=len(names)), np.bincount(place, applied, minlength=len(names))
    order = sorted(range(len(names)), key=lambda i: _sort_key(str(names[i])))
    return [
        {"by": by, "what": names[i], "decided": int(decided[i]), "applied": int(used[i]), "rate": used[i] / decided[i]}
        for i in order
    ]


def _sort_key(label: str) -> tuple[float, str]:
    """Return where a label is listed: tenths by their lower end."""
    try:
        return float(label.split(" to ")[0]), ""
    except ValueError:
        return math.inf, label
