"""What must not be used: samples that others take the place of, and documents whose tokens become padding.

The substitute of an index is the next one after it, in a shuffle of its own
dataset with key ``(seed, "substitute")``, that is not blocked itself and whose
weight is not 0. A pure function, so every rank and every attempt agrees.

Masked documents do not change the order: rows stay where they are, and the
source that packs documents into rows puts padding where a masked one was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from lading.errors import PlanError
from lading.identity import Deviation
from lading.order.dataset import Parts
from lading.order.event import Block, Event, Mask, ResumeBase
from lading.order.permutation import Permutation
from lading.runtime.fields import whole

Born = Iterable[tuple[str, tuple[int, ...]]]
Kind = TypeVar("Kind", Block, Mask)


def part_substitutes(parts: Parts, number: int, seed: int, index: int, blocked: Collection[int] = ()) -> Iterator[int]:
    """Yield the samples of a dataset that may take the place of one, best first, among those its rows hold."""
    part = parts.part(number)
    ring = Permutation(part.reach, (seed, "substitute"))
    start = int(ring.inverse([index - part.first])[0])
    for turn in range(1, part.reach):
        candidate = part.first + int(ring([(start + turn) % part.reach])[0])
        if candidate not in blocked and parts.is_drawn(number, candidate):
            yield candidate


def part_substitute(parts: Parts, number: int, seed: int, index: int, blocked: Collection[int]) -> int:
    """Return the first substitute in a dataset that is not blocked."""
    part = parts.part(number)
    if index - part.first >= part.reach:  # no row holds it, so nothing has to come instead
        return index
    for found in part_substitutes(parts, number, seed, index, blocked):
        return found
    raise PlanError(
        f"all {part.reach} samples of dataset {part.name!r} are blocked: expected at least one to be left. "
        "Take the dataset out of the run, or give it weight 0."
    )


def born_blocked(blocked: Any, parts: Parts, seed: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return (dataset, ascending indices) of the samples that a plan never uses; refuse what its datasets lack."""
    found = numbers_by_name("blocked", blocked, parts)
    for name, chosen in found:
        number = parts.number_of(name)
        for index in (chosen[0], chosen[-1]):
            parts.check_index(number, index)
        part_substitute(parts, number, seed, chosen[0], chosen)  # one must be left
    return found


def numbers_by_name(field: str, given: Any, parts: Parts) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return (dataset, ascending numbers) of what was given by the name of a dataset."""
    pairs = list(given.items() if isinstance(given, Mapping) else given)
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[1], Iterable) for pair in pairs):
        raise PlanError(f'{field} is {given!r}: expected indices by the name of their dataset, {{"code": [3, 9]}}.')
    found: dict[str, tuple[int, ...]] = {}
    for name, numbers in pairs:
        chosen = [whole(number) for number in numbers]
        if None in chosen:
            raise PlanError(f"{field}[{name!r}] holds {list(numbers)[:5]}: expected the indices of samples, integers.")
        if chosen:
            found[parts.names[parts.number_of(name)]] = tuple(sorted({n for n in chosen if n is not None}))
    return tuple(sorted(found.items()))


def all_blocks(blocked: Born, events: Iterable[Event], parts: Parts) -> list[Block]:
    """Return what a plan blocks: what it was born with, at step 0, and what its events say."""
    return [*(Block(0, parts.number_of(name), indices) for name, indices in blocked), *stated(Block, events)]


def stated(kind: type[Kind], events: Iterable[Event]) -> list[Kind]:
    """Return the blocks or the masks among events, those that a resume base keeps too."""
    found = []
    for event in events:
        if isinstance(event, kind):
            found.append(event)
        elif isinstance(event, ResumeBase):
            kept = event.blocked if kind is Block else event.masked
            found += [kind(event.first_step, dataset, numbers) for dataset, numbers in kept]
    return found


class Blocklist:
    """The blocked samples of a plan, and what is delivered instead of them."""

    def __init__(self, events: Iterable[Block], parts: Parts, seed: int) -> None:
        self._events = sorted(events, key=lambda e: e.step)
        self._parts, self._seed = parts, seed
        self._maps: dict[int, dict[int, dict[int, int]]] = {}

    @property
    def change_steps(self) -> list[int]:
        """The steps at which the set of blocked samples changes."""
        return sorted({e.step for e in self._events})

    def at(self, step: int) -> dict[int, dict[int, int]]:
        """Return, by dataset number, the substitute of each index blocked at a step."""
        active = [e for e in self._events if e.step <= step]
        if len(active) not in self._maps:
            self._maps[len(active)] = {
                number: {i: part_substitute(self._parts, number, self._seed, i, frozenset(indices)) for i in indices}
                for number, indices in by_dataset(active)
            }
        return self._maps[len(active)]

    def replaced(
        self, step: int, datasets: np.ndarray, indices: np.ndarray, rows: np.ndarray, first: int = 0
    ) -> tuple[np.ndarray, np.ndarray, tuple[Deviation, ...]]:
        """Return indices and rows of a step, from a slot on, with blocked samples replaced, and what was replaced."""
        indices, rows = indices.copy(), rows.copy()
        deviations = []
        for number, table in self.at(step).items():
            for row in np.flatnonzero((datasets == number) & np.isin(indices, list(table))).tolist():
                index, instead = int(indices[row]), table[int(indices[row])]
                indices[row] = instead
                rows[row] = self._parts.row_near(number, instead, int(rows[row]))
                deviations.append(Deviation(first + row, "substituted", number, index, instead, "blocked"))
        return indices, rows, tuple(sorted(deviations, key=lambda deviation: deviation.slot))


Masked = tuple[tuple[int, tuple[int, ...]], ...]
"""(dataset, documents), both ascending."""


def born_masked(masked: Any, parts: Parts) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return (dataset, ascending documents) of the documents that a plan never uses."""
    found = numbers_by_name("masked", masked, parts)
    for name, documents in found:
        if documents[0] < 0:
            raise PlanError(f"masked[{name!r}] holds {documents[0]}: documents are counted from 0.")
    return found


def all_masks(masked: Born, events: Iterable[Event], parts: Parts) -> list[Mask]:
    """Return what a plan masks: what it was born with, at step 0, and what its events say."""
    masks = [*(Mask(0, parts.number_of(name), documents) for name, documents in masked), *stated(Mask, events)]
    return sorted(masks, key=lambda mask: mask.step)


def by_dataset(events: Iterable[Block | Mask]) -> Masked:
    """Return the samples of some blocks, or the documents of some masks, by dataset."""
    found: dict[int, set[int]] = {}
    for event in events:
        found.setdefault(event.dataset, set()).update(event.indices if isinstance(event, Block) else event.documents)
    return tuple((dataset, tuple(sorted(numbers))) for dataset, numbers in sorted(found.items()))


class Masklist:
    """The masked documents of a plan; ``masks`` in the order of steps."""

    def __init__(self, masks: list[Mask]) -> None:
        self._masks = masks
        self._known: dict[int, Masked] = {}

    def at(self, step: int) -> Masked:
        active = sum(mask.step <= step for mask in self._masks)
        if active not in self._known:
            self._known[active] = by_dataset(self._masks[:active])
        return self._known[active]
