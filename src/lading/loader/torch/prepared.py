"""What a torch loader offers to those who take it apart or prepare it: Accelerate, and whatever rebuilds loaders."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, cast

from torch.utils.data import DataLoader

from lading.errors import LoaderError
from lading.identity import Bill
from lading.loader.base import EngineLoader
from lading.loader.iteration import Batches
from lading.loader.pulls import Pulls
from lading.loader.torch.rebuilt import PlanBatchSampler, PlannedCollate, SourceView
from lading.loader.torch.samplers import PlanSampler

_WITHOUT_EFFECT = ("split_batches", "dispatch_batches")


class PreparedLoader(EngineLoader):
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
        return self._iterate(with_bills=False, holds_one=asks_for_one_more(sys._getframe(1)))

    def with_bills(self) -> Batches[tuple[Any, Bill]]:
        """Iterate over (batch, bill); ``len`` is that of the loader."""
        return self._iterate(with_bills=True)

    def _iterate(self, *, with_bills: bool, holds_one: bool = False) -> Batches[Any]:
        if not self._is_prepared or holds_one:
            return self.engine.iterate(with_bills=with_bills, holds_one=holds_one)
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
        if "accelerate" not in sys.modules:
            return False
        if not self._is_prepared:
            self._is_prepared = True
            _warn_of_options(sys._getframe(1).f_locals.get("self"))
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, value: bool) -> None:
        self._is_prepared = bool(value)


def asks_for_one_more(frame: FrameType | None) -> bool:
    """Say whether Ray's wrapper iterates: it asks for a batch before it passes on the one before, on any device.

    Args:
        frame: Who called ``iter``; a loader that passes it on to one inside is allowed in between.
    """
    for _ in range(2):
        if frame is None:
            return False
        caller, module = frame.f_code.co_qualname, frame.f_globals.get("__name__", "")
        if caller.startswith("_WrappedDataLoader.") and module.startswith("ray."):  # f_locals would keep the loader
            return True
        frame = frame.f_back
    return False


def _warn_of_options(accelerator: Any) -> None:
    """Say which options of an Accelerator have no effect on this loader."""
    asked = getattr(accelerator, "dataloader_config", None)
    found = [name for name in _WITHOUT_EFFECT if getattr(asked, name, None)]
    if found:
        warnings.warn(
            f"{' and '.join(found)} has no effect on a Lading loader: its plan gives every rank its share and marks "
            "the padding.",
            stacklevel=4,
        )
