"""Where a loader stands: the one piece of state an order needs.

round       one epoch, or one chunk where the plan has chunks
iterate     starts at the round's first step, or where a loaded state points
hand out    the last batch of a round moves the loader to the next round at once,
            because frameworks never ask for the StopIteration
break off   the next iteration starts the same round again, as torch does
"""

from __future__ import annotations

from lading.order import Plan


class Cursor:
    """The position of a loader, in steps.

    Attributes:
        next_step: The first step not yet handed out; what a state speaks of.
    """

    def __init__(self) -> None:
        self.next_step = 0
        self._round_step = 0  # a step of the round the next iteration is about
        self._resuming = False

    def bounds(self, plan: Plan) -> tuple[int, int]:
        """Return the steps ``[first, stop)`` of the round that the next iteration is about."""
        at = plan.locate(self._round_step)
        if at.chunk is not None:
            first = plan.chunk_start(at.chunk)
            return first, first + plan.chunk_steps(at.chunk)
        first = plan.epoch_start(at.epoch)
        return first, first + plan.epoch_steps(at.epoch)

    def begin(self, plan: Plan) -> range:
        """Start an iteration; return the steps it hands out."""
        first, stop = self.bounds(plan)
        start = self._round_step if self._resuming else first
        self._resuming, self._round_step, self.next_step = False, first, start
        return range(start, stop)

    def hand_out(self, step: int, stop: int) -> None:
        """Note that a step's batch left the loader; ``stop`` ends its round."""
        self.next_step = step + 1
        if self.next_step == stop:
            self._round_step = stop

    def move_to(self, step: int) -> None:
        """Continue at a step, in the middle of a round if need be."""
        self.next_step = self._round_step = step
        self._resuming = True

    def snapshot(self) -> tuple[int, int, bool]:
        """Return everything there is to know, for ``restore``."""
        return self.next_step, self._round_step, self._resuming

    def restore(self, snapshot: tuple[int, int, bool]) -> None:
        """Stand again where a snapshot was taken."""
        self.next_step, self._round_step, self._resuming = snapshot
