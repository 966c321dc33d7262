"""Fetch what a bill names and make it a batch, in whichever process.

    FetchRequest (bill)  ─▶  Fetcher  ─▶  Delivery (batch, amended bill or failure)

The worker gets the bill, not bare indices: epoch and keys travel with it, so
nothing depends on which worker reads it or what it read before. What becomes of
a batch with a sample that cannot be read is in ``recovery``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from lading.errors import LadingError, SourceError
from lading.identity import Bill
from lading.identity.bill import DATASET_IDX, IDX
from lading.identity.hashing import key64
from lading.loader.failure import Failure, also
from lading.loader.gather import Arrays, RowGather, check_alike, gather_columns, gather_samples, sample_keys
from lading.order.dataset import Parts
from lading.runtime import compiled
from lading.runtime.processes import usable_cpus
from lading.source.counting import RowCounter, kept_rows
from lading.source.protocol import HoldsDocuments
from lading.source.reader import Reader, draws_nothing, provides_names, reader_of

_READ_TRIES = 3
_NOTHING_TO_PUT_BACK = contextlib.nullcontext()


class FetchRequest(NamedTuple):
    """What a worker is asked for.

    Attributes:
        bill: The rows to read.
        names: Key in a dict batch of each name column.
        blocked: By dataset number, what must not be used as a substitute.
        batch_rows: Rows of a complete global batch at the step, for faces that place batches.
    """

    bill: Bill
    names: Mapping[str, str]
    blocked: Mapping[int, frozenset[int]]
    batch_rows: int = 0


class Delivery(NamedTuple):
    """A batch, or the failure instead of it.

    Attributes:
        batch: The batch.
        bill: Its bill where it departs from the request.
        failure: The sample that could not be read.
        content: The rows of the bill where the batch is no longer just these: it is on devices.
        remark: Why the rows of the batch could not be counted; empty where they were.
    """

    batch: Any
    bill: Bill | None = None
    failure: Failure | None = None
    content: Any = None
    remark: str = ""


Delivered = tuple[FetchRequest, Delivery]


class _ReadError(Exception):
    """Reading failed; the cause is the source's own error."""


class Fetcher:
    """Make batches from requests; the same in the process and in workers.

    Args:
        sources: The datasets by name.
        seed: Seed of the plan, for keys and substitutes.
        collate_fn: Makes a batch of samples; None: columns where the sources give them, else the face's collate.
        policies: What to do about a bad sample, by number of the source.
        arrays: The face's arrays.

    Attributes:
        parts: The datasets behind the sources, as the plan numbers them; the engine sets it with its plan.
    """

    _is_in_worker = False

    def __init__(
        self,
        sources: Mapping[str, Any],
        seed: int,
        collate_fn: Callable[[list[Any]], Any] | None,
        policies: tuple[str, ...],
        arrays: Arrays,
    ) -> None:
        self.sources, self.seed, self.collate_fn = sources, seed, collate_fn
        self.policies, self.arrays = policies, arrays
        self.parts: Parts | None = None
        self._masking: tuple[Any, list[Reader]] = ((), [])

    def __getstate__(self) -> dict[str, Any]:
        kept = ("sources", "seed", "collate_fn", "policies", "arrays", "parts")
        return {**{name: vars(self)[name] for name in kept}, "_masking": ((), [])}

    @functools.cached_property
    def readers(self) -> list[Reader]:
        """How each source is read; found anew in every process."""
        return [reader_of(source, name) for name, source in self.sources.items()]

    def readers_of(self, bill: Bill) -> list[Reader]:
        """Return how each source is read for a bill: without the documents that are masked."""
        if bill.masked and bill.masked != self._masking[0]:
            self._masking = bill.masked, self.masked_readers(bill.masked)
        return self._masking[1] if bill.masked else self.readers

    def masked_readers(self, masked: tuple[tuple[int, tuple[int, ...]], ...]) -> list[Reader]:
        """Return how each source is read without some documents; refuse a source that cannot leave any out."""
        assert self.parts is not None, "the engine sets the parts with its plan"
        found = list(self.readers)
        for dataset, documents in masked:
            number, name = self.parts.source(dataset), self.parts.names[dataset]
            source = found[number].source
            if not isinstance(source, HoldsDocuments):
                raise SourceError(
                    f"documents of dataset {name!r} are masked, and it is a {type(source).__name__}, which cannot "
                    "leave a document out of a row. Give the PackedRows or Windows themselves, or block rows "
                    "(lading forget --by row)."
                )
            found[number] = reader_of(source.without(documents), name)
        return found

    @functools.cached_property
    def in_columns(self) -> bool:
        """Whether batches are gathered column by column."""
        alike = len({r.layout for r in self.readers}) == 1
        return alike and self.collate_fn is None and all(r.columns is not None for r in self.readers)

    @functools.cached_property
    def _rows(self) -> RowGather | None:
        """How whole batches are gathered at once, where they can be."""
        return RowGather.of(self.readers, self.arrays) if self.in_columns else None

    @functools.cached_property
    def _has_one_core(self) -> bool:
        """Whether this process may use one core only."""
        return usable_cpus() == 1

    @functools.cached_property
    def keyed(self) -> bool:
        """Whether any source wants keys."""
        return any(r.keyed for r in self.readers)

    @functools.cached_property
    def own_names(self) -> bool:
        """Whether any source's samples carry names themselves."""
        return any(map(provides_names, self.sources.values()))

    @functools.cached_property
    def random_free(self) -> bool:
        """Whether nothing that runs here can draw from a global random generator."""
        collates = self.collate_fn is None or draws_nothing(self.collate_fn)
        return collates and all(map(draws_nothing, self.sources.values()))

    def in_worker(self, request: FetchRequest) -> Delivery:
        """Fetch a batch in a process whose generators belong to batches alone: nothing has to be put back."""
        self._is_in_worker = True
        return self(request)

    def prepared(self) -> Fetcher:
        """Find out now how batches are read here, so that the first is as quick as any."""
        _ = self._rows, self.keyed, self.random_free
        return self

    def here(self, request: FetchRequest) -> Delivered:
        """Fetch a batch in this process, as workers do elsewhere."""
        return request, self(request)

    def __call__(self, request: FetchRequest) -> Delivery:
        """Fetch a batch."""
        try:
            return self._batch(request.bill)
        except _ReadError as error:
            return self._recover(request, error)

    def _batch(self, bill: Bill) -> Delivery:
        if self.random_free:
            return self._assemble(bill)
        with self._drawing(bill):
            return self._assemble(bill)

    def _drawing(self, bill: Bill) -> contextlib.AbstractContextManager[None]:
        """Return the block in which the global generators give the numbers of a batch."""
        if self.random_free:
            return _NOTHING_TO_PUT_BACK
        from lading.runtime.random_state import isolated_rng, seed  # opens numpy.random

        # 63 bits: torch gives a seed back as a signed number.
        key = self._rng_key(bill.epoch, bill.step, int(bill.slots[0])) >> 1
        if not self._is_in_worker:
            return isolated_rng(key)
        seed(key)
        return _NOTHING_TO_PUT_BACK

    @functools.cached_property
    def _rng_key(self) -> Callable[[int, int, int], int]:
        """Returns the key of a batch: a hash of (seed, epoch, step, first slot)."""
        prefix = key64(self.seed, "rng")
        if not compiled.enabled():
            return functools.partial(key64, prefix=prefix)
        return functools.partial(compiled.kernels.key_of_three, prefix)

    def _assemble(self, bill: Bill) -> Delivery:
        try:
            found = self._read(bill)
        except Exception as error:
            raise _ReadError from error
        return Delivery(found) if self.in_columns else self._collated(found, bill)

    def _read(self, bill: Bill) -> Any:
        keys = sample_keys(self.seed, bill) if self.keyed else None
        if self._rows is not None:
            return self._rows.batch(bill, alone=self._is_in_worker or self._has_one_core)
        if self.in_columns:
            return gather_columns(self.readers_of(bill), bill, keys, self.arrays)
        samples = gather_samples(self.readers_of(bill), bill, keys)
        return samples if self._names_of_some is None else self._alike(samples, bill)

    @functools.cached_property
    def _names_of_some(self) -> Mapping[str, str] | None:
        """The keys of names, where samples of some sources carry theirs and those of others do not."""
        named = [source for source in self.sources.values() if provides_names(source)]
        if len(named) in (0, len(self.sources)):
            return None
        own = getattr(named[0], "names", None)
        return {name: own.get(name, name) if isinstance(own, Mapping) else name for name in (IDX, DATASET_IDX)}

    def _alike(self, samples: list[Any], bill: Bill) -> list[Any]:
        """Return samples of equal keys: those without names get the bill's."""
        assert self._names_of_some is not None
        columns = {key: getattr(bill, name).tolist() for name, key in self._names_of_some.items()}
        return [
            {**{key: column[row] for key, column in columns.items()}, **sample} if isinstance(sample, dict) else sample
            for row, sample in enumerate(samples)
        ]

    @functools.cached_property
    def counter(self) -> RowCounter:
        """What compares batches with their bills."""
        return RowCounter(self.collate_fn or self.arrays.collate)

    def _collated(self, samples: list[Any], bill: Bill) -> Delivery:
        try:
            if self.collate_fn is None and len(self.sources) > 1:
                check_alike(samples, bill)
            batch = (self.collate_fn or self.arrays.collate)(samples)
            kept, remark = self.counter(batch, len(bill), bill)
            return Delivery(batch, None if kept is None else kept_rows(bill, kept), remark=remark)
        except LadingError:
            raise
        except Exception as error:
            wrong = SourceError(
                f"batch {bill.batch_id} of step {bill.step} could not be put together, although each of its samples "
                f"can be read alone: {type(error).__name__}: {error}. Check the collate_fn, and that samples have "
                "equal keys and shapes."
            )
            raise also(wrong, error) from error

    def _recover(self, request: FetchRequest, error: _ReadError) -> Delivery:
        from lading.loader.recovery import Recovery  # few batches need it

        with self._drawing(request.bill):
            one_by_one = Recovery(self._read, self.readers, self.policies, self.parts, self.seed, request.blocked)
            bill = one_by_one.amended(request.bill)
        if isinstance(bill, Failure):
            return Delivery(None, failure=bill)
        if bill is None:
            return self._read_again(request, error)
        try:
            found = self._batch(bill)
        except _ReadError as again:
            found = self._read_again(request, again, bill)
        return found if found.bill is not None else found._replace(bill=bill)

    def _read_again(self, request: FetchRequest, error: _ReadError, amended: Bill | None = None) -> Delivery:
        """Read a batch again whose samples can be read one by one: the error may not come again."""
        bill = amended or request.bill
        if {self.policies[d] for d in np.unique(bill.source_idx).tolist()} != {"raise"}:
            for _ in range(_READ_TRIES):
                try:
                    return self._batch(bill)
                except _ReadError as found:
                    error = found
        cause = error.__cause__
        if isinstance(cause, LadingError):  # it says what is wrong itself: rows that are not as many as asked for
            raise cause
        wrong = SourceError(
            f"batch {bill.batch_id} of step {bill.step} could not be read: {type(cause).__name__}: {cause}. Each of "
            "its samples can be read alone, so the error may not come again. Resume from the last state, or pass "
            "on_bad_sample='skip' or 'substitute', which read such a batch again."
        )
        raise also(wrong, cause) from cause
