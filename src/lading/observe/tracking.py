"""A DataLoader watched from outside: the same batches, now with a bill for each.

    loader = lading.track(loader, run="runs/7")

    DataLoader ──▶ batch ──────────▶ batch          byte for byte the same
        └── what it pulled ──▶ bill ──▶ tracker, ledger

Nothing is predicted here (there is no plan), so names are kept as they are
observed; ``lading.observe.recording`` says how. A bill has

    step, epoch    batches yielded, passes begun: steps count on from pass to pass
    slots          rank 1 of 2 with 4 rows: 4 5 6 7      every rank is taken to hold as many rows as this one
    batch_id       the same on every rank, and after a resume; alone: other samples, another id

Nothing is believed of the sampler: it is asked again in each pass, and after a
resume the order is drawn again and compared with what was yielded before.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.errors import ConfigError, LoaderError, ResumeError
from lading.identity import Bill, World
from lading.ledger.ledger import Ledger
from lading.loader.iteration import Batches
from lading.loader.note import BeginsIterations, Tracker, Trackers
from lading.loader.state import loaded_mark, marked
from lading.loader.torch.ray import Lockstep, is_ray_worker
from lading.observe.carried import CarriedNames, CarriedPass
from lading.observe.dataloader import described, order_of, pass_length
from lading.observe.names import RowNames
from lading.observe.recording import RecordedPass, Recording
from lading.observe.track_state import Beginning, TrackedState
from lading.source.counting import kept_rows


class _Yielded(NamedTuple):
    """A batch that was yielded: its bill is made when somebody wants it."""

    step: int
    epoch: int
    position: int
    names: RowNames


def observed_bill(at: TrackedState | _Yielded, world: World, names: RowNames, datasets: tuple[str, ...]) -> Bill:
    """Return the bill of the batch yielded next; ``datasets`` are the names of the datasets, by number."""
    rows = len(names.indices)
    names.indices.setflags(write=False)  # what is written into it before the commit would be in the books
    bill = Bill(
        "",
        at.step,
        at.epoch,
        None,
        at.position,
        _slots(world.rank, rows),
        names.datasets,
        names.indices,
        names.is_padding,
        (rows - int(np.count_nonzero(names.is_padding))) * world.world_size,
        world,
        datasets,
    )
    return bill if names.kept is None else kept_rows(bill, names.kept).replace(batch_id="")


@functools.lru_cache(maxsize=64)
def _slots(rank: int, rows: int) -> NDArray[np.int64]:
    """Return the slots of a rank's rows; one array for all batches of a size, so it is read-only."""
    slots = rank * rows + np.arange(rows, dtype=np.int64)
    slots.flags.writeable = False
    return slots


class TrackedLoader(Lockstep):
    """The batches of a DataLoader, and what is in them. Made by ``track``.

    Attributes that are not its own are the DataLoader's.

    Attributes:
        dataloader: The DataLoader; it stays as it is.
        tracker: What is notified of every bill.
        ledger: The ledger of ``run``, or None.
    """

    def __init__(
        self,
        dataloader: Any,
        run: str | os.PathLike[str] | Ledger | None,
        tracker: Any,
        names: Sequence[str] | None,
        ids: str | tuple[str, str] | None,
        random: str,
    ) -> None:
        _check(run, tracker, names, ids, random)
        self.dataloader = dataloader
        self._recording: Recording | CarriedNames
        self._recording = Recording(self.dataloader) if ids is None else CarriedNames(dataloader, ids, names)
        self._inner: Any = self._recording.dataloader  # knows order, length and random generators
        self.tracker = tracker
        self.names = tuple(names) if names is not None else self._recording.dataset_names
        lengths = getattr(self._recording, "dataset_lengths", ())
        lengths = lengths if len(lengths) == len(self.names) else ()
        options: dict[str, Any] = {"names": self.names, "lengths": lengths}
        self.ledger: Any = Ledger(run, **options) if isinstance(run, str | os.PathLike) else run
        self._settles = self.ledger is not run
        self._known: tuple[Any, Any, Trackers] | None = None
        self._bill: Bill | _Yielded | None = None  # of the batch yielded last
        self._source = described(self._inner)
        self._begins = Beginning(self._recording, restores=random == "restore")
        self._loaded: dict[str, Any] | None = None  # the state loaded last, until its first batch is yielded
        # A mark, not the pass itself: a cycle would keep a pass's workers alive until the garbage collector comes.
        self._newest: object = None
        self._pass_length: int | None = None
        self._world: World | None = None

    @property
    def world(self) -> World:
        """This rank among how many; looked up at first use."""
        if self._world is None:
            self._world = World.current()
        return self._world

    @property
    def last_bill(self) -> Bill | None:
        """The bill of the batch yielded last."""
        if isinstance(self._bill, _Yielded):
            self._bill = observed_bill(self._bill, self.world, self._bill.names, self.names)
        return self._bill

    def __iter__(self) -> Iterator[Any]:
        self._check_lockstep()
        return self._start(with_bills=False)

    def with_bills(self) -> Batches[tuple[Any, Bill]]:
        """Iterate over (batch, bill); ``len`` is that of the loader."""
        return self._start(with_bills=True)

    def __len__(self) -> int:
        """Return the number of batches of a pass, also after a resume."""
        return len(self.dataloader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "dataloader":
            raise AttributeError(name)
        if name == "collate_fn" and is_ray_worker():  # nobody needs it but to build another loader
            raise LoaderError(
                "Ray's prepare_data_loader is building another DataLoader of the parts of a tracked one, whose batches "
                "would not be recorded. Prepare first, then track: lading.train.ray.prepare(track("
                "prepare_data_loader(dataloader, move_to_device=False), run=...)). The function itself is "
                "loader.dataloader.collate_fn."
            )
        return getattr(self.dataloader, name)

    @property
    def epoch(self) -> int:
        """The pass that the next batch belongs to."""
        return self._begins.standing.epoch

    @property
    def batches_done(self) -> int:
        """Batches of the pass that were yielded or lie before a loaded state: ``initial=`` of a tqdm bar."""
        return self._begins.standing.batch

    @property
    def step(self) -> int:
        """The number of batches yielded in the run."""
        return self._begins.standing.step

    def set_epoch(self, epoch: int) -> None:
        """Tell the epoch to the sampler and the dataset, where they want to know."""
        for part in (order_of(self._inner), self._inner.dataset):
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)

    def commit(self, update: int | None = None, loss: Any = None, **metrics: Any) -> None:
        """Record in the ledger that an update used the last batch, with its loss and other numbers."""
        if self.ledger is not None and self.last_bill is not None:
            self.ledger.commit(self.last_bill, update=update, loss=loss, **metrics)

    def skip(self, reason: str) -> None:
        """Record in the ledger that the last batch was unused, and why."""
        if self.ledger is not None and self.last_bill is not None:
            self.ledger.skip(self.last_bill, reason)

    def close(self) -> None:
        """Record the last batch as used, and close the ledger that was opened for ``run``."""
        self._settle_last()
        if self._settles and self.ledger is not None:
            self.ledger.close()

    def __enter__(self) -> TrackedLoader:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        """Close; after an exception the last batch was not used, and the ledger says how it ended."""
        if kind is None:
            self.close()
        elif self._settles and self.ledger is not None:
            self.ledger.__exit__(kind, *exception)

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader stands: flat, JSON-able, at any time.

        The batch yielded last counts as used: a state is taken after an update, not in the middle of it.
        """
        self._settle_last()
        self._listeners().flush()
        standing = self._begins.caught(self.world)
        mark = self._listeners().mark(self.step)
        return {**standing.to_state(self._source), **marked(mark or self._loaded)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where a state was taken: the next pass draws its order again and leaves out what was yielded.

        What was drawn again is compared with what was yielded when that pass begins. Random generators are set to
        where they were when the state was taken (the global ones only by ``track(random="restore")``, the default);
        whatever sets them later wins.

        Raises:
            ResumeError: The state is of other data, of a rank that drew its own order, or in the middle of an iterable,
                which has no order to go back to.
        """
        standing = TrackedState.from_state(state, self._source)
        if self._recording.is_iterable and standing.batch:
            raise ResumeError(
                f"the state was taken after {standing.batch} batches of an epoch, but {self._source} is an iterable: "
                "it cannot be entered in the middle without reading it from the start. Resume at the end of an "
                "epoch, use lading.TaggedIterableDataset(...).starting_at(batch), or a map-style dataset."
            )
        self._begins.resume(standing, self.world)
        self._loaded = loaded_mark(state)
        self._newest = self._bill = None  # what was yielded since then is rolled back

    def _start(self, *, with_bills: bool) -> Batches[Any]:
        self._newest = object()
        self._pass_length = pass_length(self._inner)
        started = TrackedPass(self, self._begins.now(self.world), self._newest, with_bills=with_bills)
        self._begins.held_by(started)
        return self._in_place(started)

    def _yielded(self, names: RowNames, mark: object, batch: Any) -> None:
        standing = self._begins.standing
        self._bill = _Yielded(standing.step, standing.epoch, standing.position, names)
        self._begins.yielded()
        standing.count(len(names.indices) * self.world.world_size)
        if mark is self._newest:  # an older pass that continues uses up steps, but not the newest pass
            standing.note(names.datasets, names.indices)
            if standing.batch == self._pass_length:
                standing.next_pass()  # frameworks never ask for the StopIteration
        if self._loaded is not None:
            ledger: Any  # without a plan
            for ledger in (tracker for tracker in self._trackers() if isinstance(tracker, BeginsIterations)):
                ledger.begin(self._bill.step, None, self.world, self._loaded)
            self._loaded = None
        if listeners := self._listeners():
            listeners.update(self.last_bill, batch)
        while self._recording.notes:
            text = self._recording.notes.pop(0)
            for ledger in (tracker for tracker in self._trackers() if isinstance(tracker, Ledger)):
                ledger.note(self._bill.step, text)

    def _settle_last(self) -> None:
        ledger = self.ledger if self._settles else None
        if ledger is not None and self.last_bill is not None and ledger.is_open(self.last_bill):
            ledger.commit(self.last_bill)

    def _finish(self, mark: object) -> None:
        if mark is self._newest and self._begins.standing.batch:
            self._begins.standing.next_pass()

    def _listeners(self) -> Trackers:
        """Return those who are notified; looked at once, not for each batch."""
        given = (self.tracker, self.ledger)
        if self._known is None or self._known[0] is not given[0] or self._known[1] is not given[1]:
            self._known = (*given, Trackers(self._trackers()))
        return self._known[2]

    def _trackers(self) -> Sequence[Any]:
        several = self.tracker if isinstance(self.tracker, list | tuple) else (self.tracker,)
        return [tracker for tracker in (*several, self.ledger) if tracker is not None]


def _check(run: Any, tracker: Any, names: Any, ids: Any, random: Any) -> None:
    """Refuse arguments of ``track`` that are not of their kind."""
    if random not in ("restore", "keep"):
        raise ConfigError(f"random is {random!r}: expected 'restore' or 'keep'.")
    if run is not None and not isinstance(run, str | os.PathLike | Tracker):
        raise ConfigError(f"run is {run!r}: expected the folder of a run, or a lading.Ledger.")
    Trackers(tracker)
    if names is not None and (isinstance(names, str) or not all(isinstance(name, str) for name in names)):
        raise ConfigError(
            f"names is {names!r}: expected the names of the datasets by number, such as ['code', 'prose']."
        )
    columns = (ids,) if isinstance(ids, str) else ids
    if ids is not None and not (
        isinstance(columns, tuple) and len(columns) in (1, 2) and all(isinstance(c, str) for c in columns)
    ):
        raise ConfigError(f"ids is {ids!r}: expected the name of a column, or two, ('dataset', 'id').")


class TrackedPass(Iterator[Any]):
    """One pass over a tracked loader."""

    def __init__(
        self, loader: TrackedLoader, batches: RecordedPass | CarriedPass | None, mark: object, *, with_bills: bool
    ) -> None:
        self._loader = loader
        self._batches = batches
        self._mark = mark
        self._with_bills = with_bills

    def __len__(self) -> int:
        """Return the batches of a whole pass."""
        return len(self._loader)

    def __next__(self) -> Any:
        self._loader._settle_last()
        if self._batches is None:
            self._batches = self._loader._begins.late(self._loader.world)
        try:
            batch, names, _ = next(self._batches)
        except StopIteration:
            self._loader._finish(self._mark)
            raise
        self._loader._yielded(names, self._mark, batch)
        return (batch, self._loader.last_bill) if self._with_bills else batch


def track(
    dataloader: Iterable[Any],
    run: str | os.PathLike[str] | Ledger | None = None,
    tracker: Any = None,
    *,
    names: Sequence[str] | None = None,
    ids: str | tuple[str, str] | None = None,
    random: str = "restore",
) -> TrackedLoader:
    """Return a loader that yields byte for byte the batches of a torch DataLoader, or of any iterable, with bills.

    Args:
        dataloader: Any torch DataLoader: map style or iterable, any sampler, collate function and workers. The index
            in a bill is the one the sampler gave, so ``dataloader.dataset[index]`` is the sample; for a dataset with
            parts (``ConcatDataset``, ``WeightedConcatDataset``, ``TaggedDataset``) it is the index in the part whose
            number ``dataset_idx`` is, as the samples say; an iterable's samples are named by who read
            them and the count (``lading.observe.names.stream_place``). With ``ids``: any iterable
            of dict batches, Ray's ``iter_torch_batches`` for instance, iterated anew in each pass.
        run: Folder of a run: where the names of the samples are recorded. A batch counts as used when the next one is
            asked for, unless ``commit`` or ``skip`` said so before. Or a ``Ledger``, to which you commit yourself.
        tracker: Anything with ``update(bill)`` and ``flush()``, a ``BatchTracker`` for instance; or several of them.
        names: Names of the datasets, by number. Default: as a Lading loader calls them, ``data`` or ``data[0]``, ...
        ids: Column of the batches that holds a number of its own for each row, which then is its name; or two columns:
            the number of the row's dataset, and its number in it. The order is the iterable's own: it is recorded, not
            predicted, and a resume inside a pass reads the head of it again and compares.
        random: ``restore``: ``load_state_dict`` sets Python's, NumPy's and torch's global generators to where they were
            when the state was taken. ``keep``: it leaves them to you. The order of a pass entered in its middle is
            drawn again in both cases.

    Returns:
        A loader; not a DataLoader by isinstance, so frameworks leave its sampler alone. With several ranks give the
        DataLoader a distributed sampler yourself.
    """
    return TrackedLoader(dataloader, run, tracker, names, ids, random)
