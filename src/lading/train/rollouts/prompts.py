"""The order of prompts: which comes next, and how far it went.

    plan, step 3    slot   0  1  2  3  4  5        a group's number is the prompt's place in the run's order, so it is
                    rank   0  1  0  1  0  1        the same on every rank and after every resume

Of a stream nothing is known but the count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lading.errors import LedgerError
from lading.identity import Bill, World
from lading.ledger.log import BlockRequest
from lading.ledger.opening import blocks_to_honour
from lading.loader.request import Resume
from lading.loader.state import make_state, read_state, restored_plan
from lading.order.plan import Plan
from lading.train.rollouts.group import Prompt

_STREAM = "prompts"


class PromptOrder:
    """A place in the order of prompts.

    Args:
        plan: The order; None: prompts come from a stream, and are counted.
        world: Each rank draws the slots of its number, modulo the number of ranks.
    """

    def __init__(self, plan: Plan | None, world: World) -> None:
        self.plan, self._fresh, self._world = plan, plan, world
        self.step, self.slot = 0, 0
        self._billed: Bill | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the datasets."""
        return (_STREAM,) if self.plan is None else self.plan.names

    def next(self) -> Prompt:
        """Return the next prompt of this rank."""
        size = self._world.world_size
        if self.plan is None:
            group = self.slot * size + self._world.rank
            self.slot += 1
            return Prompt(group, _STREAM, 0, group)
        while True:
            bill = self.bill(self.step)
            for slot in range(self.slot, len(bill)):
                if slot % size == self._world.rank:
                    self.slot = slot + 1
                    return _prompt(bill, slot)
            self.step, self.slot = self.step + 1, 0

    def prompt_of(self, group: int) -> Prompt:
        """Return the prompt of a group by the number of the group."""
        if self.plan is None:
            return Prompt(group, _STREAM, 0, group)
        last = self._billed
        if last is not None and last.position <= group < last.position + len(last):
            return _prompt(last, group - last.position)
        steps, slots = self.plan.clock.steps_of(np.array([group]))
        if steps[0] < 0:
            raise LedgerError(f"there is no group {group}: no step of the plan holds a prompt at this place.")
        return _prompt(self.bill(int(steps[0])), int(slots[0]))

    def bill(self, step: int) -> Bill:
        """Return the prompts of a step of the plan, all ranks together."""
        assert self.plan is not None, "a stream has no steps"
        if self._billed is None or self._billed.step != step:
            self._billed = self.plan.bill(step)
        return self._billed

    def honour(self, blocks: Sequence[BlockRequest]) -> None:
        """Leave out, from the next prompt on, what was blocked by hand."""
        if self.plan is None and blocks:
            raise LedgerError(
                "samples of this run were blocked by hand, and its prompts come from a stream: nothing could come "
                "instead. Leave them out of the stream, and take a new folder."
            )
        if self.plan is not None:
            events = blocks_to_honour(blocks, self.plan, self.step)
            self.plan, self._billed = self.plan.with_events([*self.plan.events, *events]), None

    def state(self) -> dict[str, Any]:
        """Return the place, for a checkpoint."""
        planned = {} if self.plan is None else make_state(self.plan, self.step)
        return {"plan": planned, "slot": self.slot}

    def load(self, state: Mapping[str, Any], slot: int) -> None:
        """Stand where a state was taken; another order is refused, and every difference named."""
        if (self._fresh is None) != (not state):
            raise LedgerError(
                f"the state was taken {'without' if not state else 'with'} a plan of the prompts, these books are made "
                f"{'without' if self._fresh is None else 'with'} one. Make them as they were."
            )
        self.slot = slot
        if self._fresh is not None:
            saved = read_state(state)
            self.plan, self.step, self._billed = restored_plan(saved, self._fresh, Resume()), saved.step, None


def _prompt(bill: Bill, slot: int) -> Prompt:
    dataset = int(bill.dataset_idx[slot])
    return Prompt(bill.position + slot, bill.names[dataset], dataset, int(bill.idx[slot]))
