"""What a training loop and its books say to each other: prompts, and the rollouts that were made of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lading.errors import LedgerError
from lading.runtime.fields import whole


@dataclass(frozen=True)
class Prompt:
    """A sample to make rollouts of.

    Attributes:
        group: Number of the group that its rollouts will be: its place in the order of the plan.
        dataset: Name of its dataset.
        dataset_idx: Number of its dataset.
        index: Its index there; of a stream its place.
    """

    group: int
    dataset: str
    dataset_idx: int
    index: int


class MadeGroup(NamedTuple):
    """Some rollouts of a group: its prompt, the policy, how many there are, and the place of the first in the group."""

    group: int
    dataset_idx: int
    index: int  # type: ignore[assignment]  # shadows tuple.index, which no group needs
    policy: int | None
    rollouts: int
    first: int = 0


def contents_of(several: Iterable[bytes]) -> list[int]:
    """Return of each the first 8 bytes of the SHA-256 over its token ids, which are 8 bytes each, little-endian."""
    hashes = b"".join([hashlib.sha256(ids).digest() for ids in several])
    found: list[int] = np.frombuffer(hashes, "<i8")[::4].tolist()
    return found


def known(score: float | None) -> float | None:
    """Return a score; None where nobody could say it."""
    return None if score is None or not math.isfinite(score) else float(score)


@dataclass(frozen=True)
class Rollout:
    """One completion.

    Attributes:
        tokens: Its token ids, or only how many there are.
        reward: What it was given; NaN (recorded as unknown) where nobody could say.
        advantage: What the update will weigh it by, where it is known already.
        seconds: How long it took to make.
        text: What it says; written down only by books that keep texts.
    """

    tokens: Any
    reward: float | None = None
    advantage: float | None = None
    seconds: float | None = None
    text: str | None = None

    @property
    def counted(self) -> tuple[int, int | None, float | None, float | None, float | None]:
        """What is recorded of it: number and (where the ids are known) hash of its tokens, and its scores."""
        scores = known(self.reward), known(self.advantage), known(self.seconds)
        number = whole(self.tokens)
        if number is not None:
            return number, None, *scores
        foreign = hasattr(self.tokens, "tolist") and not isinstance(self.tokens, np.ndarray)
        ids = np.asarray(self.tokens.tolist() if foreign else self.tokens, dtype="<i8")
        if ids.ndim != 1:
            raise LedgerError(
                f"the tokens of a rollout have the shape {ids.shape}: expected a list of ids, or their number."
            )
        return len(ids), contents_of([ids.tobytes()])[0], *scores


@dataclass(frozen=True)
class RolloutGroup:
    """Rollouts of one prompt that one version of the policy made.

    Attributes:
        group: Number of the prompt's group.
        rollouts: The rollouts.
        policy: Updates that the policy had had when it made them: what update ``policy`` would change is not in it yet.
        first: Place of the first of them in the group, where several workers or ranks make one group together.
    """

    group: int
    rollouts: Sequence[Rollout]
    policy: int | None = None
    first: int = 0
