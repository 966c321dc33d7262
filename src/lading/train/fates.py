"""What became of the batches of an update: used, or not, and why. The one place that decides it.

    batch    backward ─▶ gradients arrive in the parameters     else it taught nothing: skipped
    update   optimizer.step ─▶ the parameters change            else nothing of it was used: skipped

Both are seen where they happen, by hooks of the parameters and of the optimizer,
not in a framework's counters: those count an update that an overflow skipped, and
a batch whose training step returned early. Where hooks see nothing (an optimizer
that is none of torch's) the framework is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lading.identity import Bill

NO_GRADIENTS = "no gradients: the training step of this batch ended without a backward pass"
NO_STEP = "the optimizer made no step: the gradients were not finite, or it was passed over"


class Fates:
    """Commits the batches that an update used, and skips the others with the reason.

    Args:
        ledger: What is told.
        parameters: Returns the parameters that are trained: ``model.parameters``; none where each batch's loss is
            followed. None: batches are not watched.
        optimizers: What updates them; wrapped ones are looked into.
    """

    def __init__(
        self, ledger: Any, parameters: Callable[[], Iterable[Any]] | None = None, optimizers: Iterable[Any] = ()
    ) -> None:
        self._ledger, self._parameters = ledger, parameters
        self._bills: list[Bill] = []
        self._arrived = self._has_seen_any = False
        self._steps = 0
        self._hooks: dict[int, Any] = {}
        inner = [_innermost(optimizer) for optimizer in optimizers]
        watched = [optimizer for optimizer in inner if hasattr(optimizer, "register_step_post_hook")]
        self._sees_steps = bool(inner) and len(watched) == len(inner)
        self._handles = [optimizer.register_step_post_hook(self._stepped) for optimizer in watched]
        self._watch_new()

    @property
    def has_stepped(self) -> bool:
        """Whether an optimizer made a step since the last ``settle``."""
        return self._steps > 0

    def follow(self, loss: Any) -> None:
        """See whether a backward pass goes through the loss of the batch under way: one hook, not one a parameter."""
        if loss.requires_grad:
            loss.register_hook(self._noted)

    def trained(self, bill: Bill) -> bool:
        """Note that a batch went through the training step; return whether it gave gradients. If not, it is skipped."""
        gave = self._gave_gradients()
        self._arrived = False
        if gave:
            self._bills.append(bill)
        else:
            self._ledger.skip(bill, NO_GRADIENTS)
        return gave

    def settle(
        self,
        update: int | None = None,
        loss: Any = None,
        *,
        was_skipped: bool = False,
        reason: str = NO_STEP,
        **metrics: Any,
    ) -> bool:
        """Decide about the batches since the last time, after the optimizer's turn; return whether they were used.

        Args:
            update: Number of the update.
            loss: Its loss.
            was_skipped: What the framework says, believed where the optimizer's own step cannot be seen.
            reason: Why the step was skipped, if it was.
            **metrics: Further numbers by name.
        """
        used = self.has_stepped if self._sees_steps else not was_skipped
        bills, self._bills, self._steps = self._bills, [], 0
        if bills and used:
            self._ledger.commit(bills, update=update, loss=loss, **metrics)
        elif bills:
            self._ledger.skip(bills, reason)
        return used

    def close(self) -> None:
        """Take the hooks away."""
        for handle in (*self._handles, *self._hooks.values()):
            handle.remove()
        self._handles, self._hooks = [], {}

    def _gave_gradients(self) -> bool:
        """Say whether the batch under way gave gradients; where that cannot be seen it is taken for granted."""
        if self._arrived or self._parameters is None:
            return True
        unwatched = self._watch_new()  # made or unfrozen since
        if self._has_seen_any:
            return any(parameter.grad is not None for parameter in unwatched)
        return any(parameter.grad is not None for parameter in self._parameters())

    def _watch_new(self) -> list[Any]:
        """Watch the parameters that are not watched yet, and return them."""
        trained = [] if self._parameters is None else [p for p in self._parameters() if p.requires_grad]
        new = [parameter for parameter in trained if id(parameter) not in self._hooks]
        self._hooks |= {id(p): p.register_post_accumulate_grad_hook(self._noted) for p in new}
        return new

    def _noted(self, tensor: Any) -> None:
        self._arrived = self._has_seen_any = True

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        # A fused optimizer under a GradScaler is always called, and told whether the gradients were finite.
        found_inf = getattr(optimizer, "found_inf", None)
        self._steps += found_inf is None or not bool(found_inf)


def _innermost(optimizer: Any) -> Any:
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer
