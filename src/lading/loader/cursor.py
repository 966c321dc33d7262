"""Where a loader is: the one piece of state an order needs.

iteration   one epoch, or one chunk where the plan has chunks
iterate     starts at the iteration's first step, or where a loaded state points
yield       the last batch of an iteration moves the loader to the next one at once,
            because frameworks never ask for the StopIteration
break off   the next iteration starts the same epoch or chunk again, as torch does
"""

from __future__ import annotations

from lading.order import Plan


class Cursor:
    """The position of a loader, in steps.

    Attributes:
        next_step: The first step not yet yielded; what a state speaks of.
        is_iterating: Whether steps after ``next_step`` may have been requested already.
    """

    def __init__(self) -> None:
        self.next_step = 0
        self.is_iterating = False
        self._iteration_step = 0  # a step of the epoch or chunk that the next iteration covers
        self._resuming = False

    def bounds(self, plan: Plan) -> tuple[int, int]:
        """Return the steps ``[first, stop)`` that the next iteration covers."""
        at = plan.locate(self._iteration_step)
        if at.chunk is not None:
            first = plan.chunk_start(at.chunk)
            return first, first + plan.chunk_steps(at.chunk)
        first = plan.epoch_start(at.epoch)
        return first, first + plan.epoch_steps(at.epoch)

    def coming(self, plan: Plan) -> range:
        """Return the steps that an iteration would yield if it started now."""
        return self.left(range(*self.bounds(plan)))

    def left(self, whole: range) -> range:
        """Return the steps that are left of those that the next iteration covers."""
        return whole[self._iteration_step - whole.start :] if self._resuming else whole

    def begin(self, steps: range, whole: range) -> None:
        """Start an iteration over the steps that are left of some."""
        self._iteration_step = whole.start
        self._resuming, self.is_iterating, self.next_step = False, True, steps.start

    def advance(self, step: int, stop: int) -> None:
        """Note that a step's batch is yielded; ``stop`` ends its iteration."""
        self.next_step = step + 1
        if self.next_step == stop:
            self._iteration_step, self.is_iterating = stop, False

    def move_to(self, step: int) -> None:
        """Continue at a step, in the middle of an epoch or chunk if need be."""
        self.next_step = self._iteration_step = step
        self._resuming, self.is_iterating = True, False

    def snapshot(self) -> tuple[int, int, bool, bool]:
        """Return everything there is to know, for ``restore``."""
        return self.next_step, self._iteration_step, self._resuming, self.is_iterating

    def restore(self, snapshot: tuple[int, int, bool, bool]) -> None:
        """Return to where a snapshot was taken."""
        self.next_step, self._iteration_step, self._resuming, self.is_iterating = snapshot
