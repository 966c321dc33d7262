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
from lading.train.rollouts.group import MadeGroup, Prompt

DROPPED = ("stale", "filtered", "lost")
_NOT_MADE, OPEN = b"-o"
_LETTERS = {APPLIED: ord("a"), "stale": ord("s"), "filtered": ord("f"), "lost": ord("l")}
_FATES = {OPEN: "open", **{letter: fate for fate, letter in _LETTERS.items()}}
MOST_PLACES = 1 << 20


@dataclass
class LiveGroup:
    """A group with at least one rollout.

    Attributes:
        dataset_idx: Number of the prompt's dataset.
        index: The prompt's index there.
        policy: Updates that the policy had had.
        fates: A letter for each place up to the last rollout: what became of it so far.
    """

    dataset_idx: int
    index: int
    policy: int | None
    fates: bytearray = field(default_factory=bytearray)


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

    def add(self, made: MadeGroup, groups: dict[int, LiveGroup]) -> range:
        """Put a group that was made among some, which ``take`` takes, and return the numbers of its rollouts."""
        known, stop = groups.get(made.group) or self.groups.get(made.group), made.first + made.rollouts
        if not made.rollouts or made.first < 0 or stop > self.size:
            raise LedgerError(
                f"group {made.group} was reported with {made.rollouts} rollouts from place {made.first} on: expected "
                f"at least one, in the places 0 to {self.size - 1} (group_size is {self.size}). A prompt that could "
                "not be answered is a rollout of 0 tokens, dropped with reason='error'."
            )
        if known is not None and known.policy != made.policy:
            raise LedgerError(
                f"group {made.group} was made by policy {known.policy} and is now reported by policy {made.policy}: a "
                "group has one. Draw another prompt for it."
            )
        fates = b"" if known is None else known.fates
        for place in range(made.first, min(stop, len(fates))):
            if fates[place] != _NOT_MADE:
                raise LedgerError(
                    f"rollout {made.group * self.size + place} was reported before (group {made.group}, place "
                    f"{place}). Report each once; several workers of one group give `first=`."
                )
        all_fates = bytearray(fates).ljust(stop, bytes([_NOT_MADE]))
        all_fates[made.first : stop] = bytes([OPEN]) * made.rollouts
        groups[made.group] = LiveGroup(made.dataset_idx, made.index, made.policy, all_fates)
        return range(made.group * self.size + made.first, made.group * self.size + stop)

    def take(self, groups: Mapping[int, LiveGroup]) -> None:
        """Take groups with rollouts that were added."""
        self.groups.update(groups)
        for group in groups:
            self.waiting.pop(group, None)
            self._decided.pop(group, None)

    def of(self, rollout: int) -> LiveGroup:
        """Return the group of a rollout; refuse a rollout that nobody made, or that was forgotten."""
        group, place = divmod(rollout, self.size)
        found = self.groups.get(group)
        if found is None or place >= len(found.fates) or found.fates[place] == _NOT_MADE:
            raise LedgerError(
                f"rollout {rollout} is not known: it was never reported with made(), or its group was decided before "
                f"the last {self._remembered} groups (reusable_groups)."
            )
        return found

    def decide(self, rollouts: Iterable[int], fate: str) -> None:
        """Note what became of some rollouts."""
        groups, size, letter, decided = self.groups, self.size, _LETTERS[fate], {}
        for rollout in rollouts:
            group = rollout // size
            fates = decided[group] = groups[group].fates
            fates[rollout % size] = letter
        for group, fates in decided.items():
            if OPEN not in fates:
                self._decided.pop(group, None)
                self._decided[group] = None
        while len(self._decided) > self._remembered:
            forgotten = next(iter(self._decided))
            del self._decided[forgotten], self.groups[forgotten]

    def check_open(self, rollouts: Iterable[int], *, used: int | None = None) -> None:
        """Refuse rollouts that cannot be used by an update, or (without one) be dropped."""
        for rollout in rollouts:
            live = self.of(rollout)
            fate = _FATES[live.fates[rollout % self.size]]
            if fate != "open" and not (used is not None and fate == APPLIED):
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
            [g, live.dataset_idx, live.index, -1 if live.policy is None else live.policy, live.fates.decode()]
            for g, live in self.groups.items()
        ]
        return {"size": self.size, "waiting": list(self.waiting), "groups": groups, "decided": list(self._decided)}

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
            fates = bytearray(letters, "ascii", "replace")
            if not letters or set(fates) - {*_FATES, _NOT_MADE}:
                row.refuse(4, f"letters of {bytes(_FATES).decode()}-")
            live = LiveGroup(row.integer(1, low=0), row.integer(2, low=0), None if policy < 0 else policy, fates)
            self.groups[row.integer(0, low=0)] = live
        unknown = [group for group in self._decided if group not in self.groups]
        if unknown:
            state.refuse("decided", "groups that are known")
