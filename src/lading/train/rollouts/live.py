"""The groups that may still be heard of: what is open, and what was decided a short while ago.

    drawn ──made──▶ open ──used──▶ applied ──used──▶ applied ...
                         ──drop──▶ stale · filtered · lost

A group is waited for from the draw to its first rollout. Decided groups are
remembered for a while: their rollouts may be used again, or reported twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lading.errors import LedgerError
from lading.ledger.tables import APPLIED
from lading.runtime.fields import Fields
from lading.train.rollouts.group import Prompt, RolloutGroup

OPEN = "open"
DROPPED = ("stale", "filtered", "lost")
_LETTERS = {OPEN: "o", APPLIED: "a", "stale": "s", "filtered": "f", "lost": "l"}
_FATES = {letter: fate for fate, letter in _LETTERS.items()}
MOST_PLACES = 1 << 20


@dataclass
class LiveGroup:
    """A group with at least one rollout.

    Attributes:
        dataset_idx: Number of the prompt's dataset.
        index: The prompt's index there.
        policy: Updates that the policy had had.
        fates: What became of each rollout so far, by its place in the group.
    """

    dataset_idx: int
    index: int
    policy: int | None
    fates: dict[int, str] = field(default_factory=dict)

    @property
    def is_decided(self) -> bool:
        """Whether none of its rollouts is open."""
        return OPEN not in self.fates.values()


class LiveGroups:
    """Which rollouts there are, and what became of them.

    Args:
        size: Most rollouts of a group: rollout = group x size + place.
        remembered: Decided groups that are remembered.
    """

    def __init__(self, size: int, remembered: int) -> None:
        self.size, self._remembered = size, remembered
        self.waiting: dict[int, Prompt | None] = {}  # drawn, and nothing made; None: drawn before a resume
        self.groups: dict[int, LiveGroup] = {}
        self._decided: dict[int, None] = {}  # in the order they were decided

    def add(self, made: RolloutGroup, prompt: Prompt) -> list[int]:
        """Take a group that was made and return the numbers of its rollouts."""
        count, known = len(made.rollouts), self.groups.get(made.group)
        places = range(made.first, made.first + count)
        if not count or made.first < 0 or places.stop > self.size:
            raise LedgerError(
                f"group {made.group} was reported with {count} rollouts from place {made.first} on: expected at least "
                f"one, in the places 0 to {self.size - 1} (group_size is {self.size}). A prompt that could not be "
                "answered is a rollout of 0 tokens, dropped with reason='error'."
            )
        if known is not None and known.policy != made.policy:
            raise LedgerError(
                f"group {made.group} was made by policy {known.policy} and is now reported by policy {made.policy}: a "
                "group has one. Draw another prompt for it."
            )
        again = [place for place in places if known is not None and place in known.fates]
        if again:
            raise LedgerError(
                f"rollout {made.group * self.size + again[0]} was reported before (group {made.group}, place "
                f"{again[0]}). Report each once; several workers of one group give `first=`."
            )
        self.waiting.pop(made.group, None)
        self._decided.pop(made.group, None)
        live = self.groups.setdefault(made.group, LiveGroup(prompt.dataset_idx, prompt.index, made.policy))
        live.fates.update(dict.fromkeys(places, OPEN))
        return [made.group * self.size + place for place in places]

    def put_back(self, groups: Mapping[int, LiveGroup | None], waiting: Mapping[int, Prompt | None]) -> None:
        """Undo ``add``: some groups are as they were before."""
        for group, before in groups.items():
            self.groups.pop(group, None)
            if before is not None:
                self.groups[group] = before
                if before.is_decided:
                    self._decided[group] = None
        self.waiting = dict(waiting)

    def of(self, rollout: int) -> LiveGroup:
        """Return the group of a rollout; refuse a rollout that nobody made, or that was forgotten."""
        group, place = divmod(rollout, self.size)
        found = self.groups.get(group)
        if found is None or place not in found.fates:
            raise LedgerError(
                f"rollout {rollout} is not known: it was never reported with made(), or its group was decided before "
                f"the last {self._remembered} groups (reusable_groups)."
            )
        return found

    def decide(self, rollouts: Iterable[int], fate: str) -> None:
        """Note what became of some rollouts."""
        places = [divmod(rollout, self.size) for rollout in rollouts]
        for group, place in places:
            self.groups[group].fates[place] = fate
        for group in dict(places):
            if self.groups[group].is_decided:
                self._decided.pop(group, None)
                self._decided[group] = None
        while len(self._decided) > self._remembered:
            forgotten = next(iter(self._decided))
            del self._decided[forgotten], self.groups[forgotten]

    def check_open(self, rollouts: Iterable[int], *, used: int | None = None) -> None:
        """Refuse rollouts that cannot be used by an update, or (without one) be dropped."""
        for rollout in rollouts:
            live = self.of(rollout)
            fate = live.fates[rollout % self.size]
            if fate != OPEN and not (used is not None and fate == APPLIED):
                raise LedgerError(
                    f"rollout {rollout} is {fate} already and cannot be {'dropped' if used is None else 'used'}: its "
                    "fate is decided once."
                )
            if used is not None and live.policy is not None and used < live.policy:
                raise LedgerError(
                    f"update {used} cannot use rollout {rollout}: a policy of {live.policy} updates made it. Number "
                    "updates from 0, and pass made() the updates that were made before."
                )

    def state(self) -> dict[str, Any]:
        """Return everything, for a checkpoint."""
        groups = [
            [g, live.dataset_idx, live.index, -1 if live.policy is None else live.policy, self._letters(live)]
            for g, live in self.groups.items()
        ]
        return {"size": self.size, "waiting": list(self.waiting), "groups": groups, "decided": list(self._decided)}

    def _letters(self, live: LiveGroup) -> str:
        return "".join(_LETTERS.get(live.fates.get(place, ""), "-") for place in range(max(live.fates) + 1))

    def load(self, state: Fields) -> None:
        """Become what a state says."""
        size = state.integer("size", low=1, high=MOST_PLACES)
        if size != self.size:
            raise state.origin.error(f"group_size was {size} and is {self.size} now. Resume with {size}.")
        self.waiting = dict.fromkeys(state.integers("waiting", low=0))
        self._decided = dict.fromkeys(state.integers("decided", low=0))
        rows, self.groups = state.items("groups"), {}
        for i in rows:
            row = rows.items(i, least=5, most=5)
            policy, letters = row.integer(3, low=-1), row.text(4, longest=size)
            if not letters or set(letters) - {*_FATES, "-"}:
                row.refuse(4, f"letters of {''.join(_FATES)}-")
            fates = {place: _FATES[letter] for place, letter in enumerate(letters) if letter != "-"}
            live = LiveGroup(row.integer(1, low=0), row.integer(2, low=0), None if policy < 0 else policy, fates)
            self.groups[row.integer(0, low=0)] = live
        unknown = [group for group in self._decided if group not in self.groups]
        if unknown:
            state.refuse("decided", "groups that are known")
