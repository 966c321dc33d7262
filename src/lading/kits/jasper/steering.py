"""Which steering vector a pair gets in an epoch: a curriculum of probabilities and a draw without any state.

    0 zero       nothing                  ███████████████▆▅▄▃▂▁   less of it, epoch by epoch
    1 centroid   towards the cluster      ▁▂▃▄▅▆
    2 keyword    towards its keywords     ▁▂▃▄▅▆   the others keep their ratio and share the rest
    3 residual   away from the cluster    ▁▂▃▄▅▆

The variant of a pair is a function of (seed 42, epoch, pair) and of nothing
else: no worker, rank, access order or resume can change it.

A dataset that is open in several processes has one epoch and one forced variant for all of them:

    parent      set_epoch(3) ──▶ [3, -1, 0] ◀── worker 0, worker 1 ...      shared memory, three numbers

``dataset.set_epoch`` in the parent never reaches worker processes that were
started before; what lies in shared memory does. Change it between epochs only.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity.hashing import fold_int, key64, keys64
from lading.runtime.fields import is_number

VARIANTS = ("zero", "centroid", "keyword", "residual")
ALIASES = {"none": "zero", "keyword_weighted": "keyword"}
SEED = 42


def variant_number(name: str) -> int:
    """Return the number of a steering variant.

    >>> variant_number("keyword"), variant_number("keyword_weighted"), variant_number("none")
    (2, 2, 0)
    """
    known = ALIASES.get(name, name) if isinstance(name, str) else name
    if known not in VARIANTS:
        raise SourceError(
            f"Invalid steering variant: {name}. Must be one of: {', '.join(VARIANTS)} (or {', '.join(ALIASES)})."
        )
    return VARIANTS.index(known)


@dataclass(frozen=True)
class SteeringCurriculum:
    """How the share of zero steering moves from its start to its end."""

    zero_prob_start: float = 0.5
    zero_prob_end: float = 0.1
    epochs_total: float = 100

    def zero(self, epoch: int) -> float:
        """Return the probability of zero steering in an epoch."""
        progress = min(epoch / max(self.epochs_total, 1), 1.0)
        return self.zero_prob_start + (self.zero_prob_end - self.zero_prob_start) * progress


@dataclass(frozen=True)
class Steering:
    """Probabilities of the four variants by epoch, and the draw.

    Attributes:
        base: The configured probabilities, in the order of ``VARIANTS``.
        curriculum: None: the configured probabilities at every epoch.
    """

    base: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25)
    curriculum: SteeringCurriculum | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Steering:
        """Read ``steering_probabilities`` and ``curriculum``."""
        given = config.get("steering_probabilities")
        base = (0.25,) * 4 if given is None else _probabilities(given)
        return cls(base, _curriculum(config["curriculum"]) if config.get("curriculum") else None)

    def probabilities(self, epoch: int) -> dict[str, float]:
        """Return the probability of each variant in an epoch.

        >>> Steering(curriculum=SteeringCurriculum(0.5, 0.1, 100)).probabilities(0)["zero"]
        0.5
        """
        if self.curriculum is None:
            return dict(zip(VARIANTS, self.base, strict=True))
        zero = self.curriculum.zero(epoch)
        others = sum(self.base[1:])
        shares = [p / others for p in self.base[1:]] if others > 0 else [1.0, 0.0, 0.0]
        return dict(zip(VARIANTS, (zero, *((1.0 - zero) * share for share in shares)), strict=True))

    def variants(self, pairs: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Return the variant of each pair in an epoch."""
        key, thresholds = _draw(self, epoch)
        uniform = (keys64(key, pairs) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return np.searchsorted(thresholds, uniform, side="right")

    def variant(self, pair: int, epoch: int) -> int:
        """Return the variant of one pair; the same as ``variants``."""
        key, thresholds = _draw(self, epoch)
        return bisect.bisect_right(thresholds, (fold_int(key, pair) >> 11) * 2.0**-53)


@functools.lru_cache(maxsize=64)
def _draw(steering: Steering, epoch: int) -> tuple[int, tuple[float, ...]]:
    """Return the key of an epoch, and where the second, third and fourth variant begin in [0, 1).

    Dividing by the total makes a share of 0 impossible to draw, whatever the rounding.
    """
    total = np.cumsum(list(steering.probabilities(epoch).values()))
    return key64(SEED, epoch), tuple((total / total[-1])[:3].tolist())


def _probabilities(given: Any) -> tuple[float, ...]:
    if not isinstance(given, Mapping):
        raise SourceError(f"steering_probabilities is {given!r}, expected an object with {', '.join(VARIANTS)}.")
    values = [0.0] * len(VARIANTS)
    for name, value in given.items():
        values[variant_number(name)] += _share(f"steering_probabilities[{name!r}]", value)
    if not math.isclose(sum(values), 1.0, abs_tol=1e-6):
        raise SourceError(
            f"steering_probabilities sum to {sum(values):g}, expected 1: {dict(given)}. Correct config.json."
        )
    return tuple(values)


def _curriculum(given: Any) -> SteeringCurriculum:
    if not isinstance(given, Mapping):
        raise SourceError(
            f"curriculum is {given!r}, expected an object with zero_prob_start, zero_prob_end, epochs_total."
        )
    default = SteeringCurriculum()
    epochs = given.get("epochs_total", default.epochs_total)
    if not is_number(epochs) or epochs < 0:
        raise SourceError(f"curriculum['epochs_total'] is {epochs!r}, expected a number of epochs.")
    return SteeringCurriculum(
        _share("curriculum['zero_prob_start']", given.get("zero_prob_start", default.zero_prob_start)),
        _share("curriculum['zero_prob_end']", given.get("zero_prob_end", default.zero_prob_end)),
        epochs,
    )


def _share(what: str, value: Any) -> float:
    if not is_number(value) or not 0 <= value <= 1:
        raise SourceError(f"{what} is {value!r}, expected a probability from 0 to 1. Correct config.json.")
    return float(value)


EPOCH, FORCED, NEGATIVES = range(3)


class SharedSteering:
    """Epoch, forced variant and number of negative refreshes, seen by every process."""

    def __init__(self, steering: Steering, epoch: int = 0) -> None:
        self.steering = steering
        self._numbers = torch.tensor([0, -1, 0]).share_memory_()  # type: ignore[no-untyped-call]
        self.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return int(self._numbers[EPOCH])

    def set_epoch(self, epoch: int) -> None:
        """Move every process to an epoch."""
        if epoch < 0:
            raise SourceError(f"epoch is {epoch}, expected 0 or more.")
        self._numbers[EPOCH] = int(epoch)

    def force(self, variant: str | None) -> None:
        """Give every sample this variant; None: back to the curriculum."""
        self._numbers[FORCED] = -1 if variant is None else variant_number(variant)

    def refresh_negatives(self) -> int:
        """Tell every process that there are new negatives on disk; return how often there were."""
        self._numbers[NEGATIVES] += 1
        return int(self._numbers[NEGATIVES])

    def now(self) -> tuple[int, int, int]:
        """Return epoch, forced variant (-1: none) and number of refreshes, read at once."""
        epoch, forced, negatives = self._numbers.tolist()
        return epoch, forced, negatives

    def variants(self, pairs: NDArray[np.int64], epoch: int, forced: int) -> NDArray[np.int64]:
        return self.steering.variants(pairs, epoch) if forced < 0 else np.full(len(pairs), forced, dtype=np.int64)

    def variant(self, pair: int, epoch: int, forced: int) -> int:
        return self.steering.variant(pair, epoch) if forced < 0 else forced
