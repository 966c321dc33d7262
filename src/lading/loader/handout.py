"""Hand batches out one by one, each with its bill.

A batch counts as delivered the moment it is handed out: the loader moves on,
the tracker is told, and only then does the caller get it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from lading.errors import BadSampleError
from lading.identity import Bill
from lading.loader.engine import Delivered
from lading.loader.fetch import Failure

if TYPE_CHECKING:
    from lading.loader.loader import Loader


class LoaderIterator(Iterator[Any]):
    """One round of a loader.

    Args:
        loader: The loader that is moved on.
        stream: The batches of the round.
        stop: Step that ends the round.
        with_bills: Whether to give (batch, bill) or the batch alone.
    """

    def __init__(
        self, loader: Loader, stream: Generator[Delivered, None, None], stop: int, *, with_bills: bool
    ) -> None:
        self._loader, self._stream, self._stop, self._with_bills = loader, stream, stop, with_bills

    def __next__(self) -> Any:
        order, delivery = next(self._stream)
        if delivery.failure is not None:
            self._stream.close()  # ends workers and threads now, not when the traceback is forgotten
            raise bad_sample(order.bill, delivery.failure)
        bill = delivery.bill or order.bill
        self._loader.hand_out(bill, self._stop, self, delivery.batch)
        return (delivery.batch, bill) if self._with_bills else delivery.batch


def bad_sample(bill: Bill, failure: Failure) -> BadSampleError:
    """Return the error that names a sample that could not be read."""
    name = bill.names[failure.dataset]
    file = f" ({failure.file})" if failure.file else ""
    error = BadSampleError(
        f"sample {failure.index} of dataset {name!r}{file} could not be read for batch {bill.batch_id} of step "
        f"{bill.step}: {failure.error}. Mend it, or pass on_error='skip' or 'substitute'.",
        dataset=name,
        index=failure.index,
        step=bill.step,
        batch_id=bill.batch_id,
        file=failure.file,
    )
    error.add_note(failure.trace)
    return error
