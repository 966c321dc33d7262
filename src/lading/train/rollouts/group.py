"""What a training loop and its books say to each other: prompts, and the rollouts that were made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
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


class CountedTokens(NamedTuple):
    """Tokens that were counted and hashed: their number, and the first 8 bytes of the SHA-256 over their ids."""

    number: int
    content: int | None

    @classmethod
    def of_bytes(cls, ids: bytes) -> CountedTokens:
        """Return what is recorded of token ids, each 8 bytes, little-endian."""
        return cls(len(ids) // 8, int.from_bytes(hashlib.sha256(ids).digest()[:8], "little", signed=True))


@dataclass(frozen=True)
class Rollout:
    """One completion.

    Attributes:
        tokens: Its token ids, or only how many there are; or both, counted.
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
    def counted(self) -> CountedTokens:
        """What is recorded of the tokens: their number, and (where the ids are known) their hash."""
        if isinstance(self.tokens, CountedTokens):
            return self.tokens
        number = whole(self.tokens)
        if number is not None:
            return CountedTokens(number, None)
        foreign = hasattr(self.tokens, "tolist") and not isinstance(self.tokens, np.ndarray)
        ids = np.asarray(self.tokens.tolist() if foreign else self.tokens, dtype="<i8")
        if ids.ndim != 1:
            raise LedgerError(
                f"the tokens of a rollout have the shape {ids.shape}: expected a list of ids, or their number."
            )
        return CountedTokens.of_bytes(ids.tobytes())


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
