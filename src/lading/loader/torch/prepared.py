"""How a torch loader behaves among frameworks: those that take it apart, and those that prepare it.

    taken apart     dataset, batch_sampler and collate_fn carry the plan
    Accelerate      accelerator.prepare(loader)            the loader itself, with Accelerate's manners
    Ray Train       lading.train.ray.prepare(loader)       the loader itself, its batches on Ray's device

Nobody's caller is looked at. In a Ray Train worker a loop over a loader looks
like Ray's own wrapper, which reads a batch ahead: only a prepared loader, or
``with_bills()``, is iterated there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from torch.utils.data import DataLoader

from lading.errors import LoaderError
from lading.identity import Bill
from lading.loader.base import EngineLoader
from lading.loader.iteration import Batches
from lading.loader.pulls import Pulls
from lading.loader.torch.ray import Lockstep
from lading.loader.torch.rebuilt import PlanBatchSampler, PlannedCollate, SourceView
from lading.loader.torch.samplers import PlanSampler


class PreparedLoader(Lockstep, EngineLoader):
    """A loader whose parts carry the plan, and that Accelerate need not wrap.

    Attributes:
        use_stateful_dataloader: Accelerate's ``save_state`` and ``load_state`` keep the loader's state.
    """

    use_stateful_dataloader = True
    _pulls: Pulls
    _is_prepared = False

    def view(self) -> SourceView:
        """Return the sources as one dataset; made before torch's own ``__init__``."""
        engine = self.engine
        return SourceView(engine.fetcher, lambda: engine.world.rank)

    def dress(self, batch_size: int | None, users: Callable[[list[Any]], Any] | None) -> None:
        """Replace what torch made of the arguments by parts that carry the plan; after torch's own ``__init__``."""
        self._pulls = Pulls(self.engine)
        loader = cast(DataLoader[Any], self)
        sampler = cast(PlanSampler, loader.sampler)
        batches = PlanBatchSampler(sampler, batch_size, loader.drop_last, self._pulls)
        object.__setattr__(self, "batch_sampler", batches)  # torch allows no change after __init__
        loader.collate_fn = PlannedCollate(users, self._pulls)
        self._connect()

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore a copy: its parts report to it, not to nobody; on the way to a worker they are cut off."""
        vars(self).update(state)
        self._connect()

    def _connect(self) -> None:
        loader = cast(DataLoader[Any], self)
        if isinstance(loader.collate_fn, PlannedCollate):
            loader.collate_fn.reports_to(self._pulls)
            cast(SourceView, loader.dataset).collated_by(loader.collate_fn)

    def __iter__(self) -> Iterator[Any]:
        if not self._is_prepared:
            self._check_lockstep()
        return self._iterate(with_bills=False)

    def with_bills(self) -> Batches[tuple[Any, Bill]]:
        """Iterate over (batch, bill); ``len`` is that of the loader."""
        return self._iterate(with_bills=True)

    def _iterate(self, *, with_bills: bool) -> Batches[Any]:
        if not self._is_prepared:
            return self._in_place(self.engine.iterate(with_bills=with_bills))
        from lading.loader.torch.accelerate import Prepared  # Accelerate has prepared this loader, so it is there

        last = self.engine.coming().stop - 1
        return Prepared(self.engine.iterate(with_bills=True), self.plan, last, with_bills=with_bills)

    def delivered(self, batches: int = 1) -> list[Bill]:
        """Report that batches of a loader built from this one reached the training loop; return their bills.

        Only needed where such a loader has worker processes: without them deliveries are noticed.

        Args:
            batches: How many, since the last report.
        """
        return [self._pulls.deliver() for _ in range(batches)]

    def state_dict(self, before: Bill | None = None) -> dict[str, Any]:
        """Return where the loader is: the same on every rank, JSON-able, at any time.

        Args:
            before: A bill yielded since the last resume; see ``EngineLoader.state_dict``.
        """
        if self._pulls.are_unreported:
            raise LoaderError(
                "batches were pulled from this loader by another one, with workers, and none was reported as "
                "delivered: the place of the run is unknown. Call loader.delivered() after each batch, or iterate over "
                "the Lading loader itself."
            )
        return super().state_dict(before)

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Whether Accelerate leaves this loader as it is; being asked, the loader takes on its manners."""
        accelerate = sys.modules.get("accelerate.state")
        if accelerate is None or not accelerate.is_initialized():  # nobody there who could have asked
            return False
        self._is_prepared = True
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, value: bool) -> None:
        self._is_prepared = bool(value)
