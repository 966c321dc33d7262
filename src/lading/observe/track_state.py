"""Where a tracked loader stands: enough to draw the order of its epoch again and to prove it is the same.

    load_state_dict           ──▶  random generators as they were when the state was taken
    first batch: epoch 3,
    120 batches in            ──▶  draw again from the random numbers of the epoch's start
                                   leave out 120 batches, without loading them
                                   compare the digest of what was left out
                                   global generators back to where they were found
    first batch of an epoch   ──▶  as if nothing had happened

A foreign sampler promises nothing, so nothing is believed: where the digest
differs, the sampler cannot be resumed, and the error says so.

A pass begins anew, or inside the one that a state was taken in (``Beginning``):

now     iter(loader)                   anew: random numbers are drawn, as ``iter(dataloader)`` would
late    the first batch is wanted      after a resume: from the state's own snapshot, so it can wait until then
          ├─ anew                      the state was taken between two passes
          └─ inside                    draw the order again, leave out what was yielded, compare, put back
"""

from __future__ import annotations

import contextlib
import functools
import json
import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.errors import InexactResumeWarning, ResumeError
from lading.identity import World, digest, total_digest
from lading.loader.state import refuse_stateful
from lading.observe.carried import CarriedNames, CarriedPass
from lading.observe.dataloader import draws_in_workers, order_of, told_epoch
from lading.observe.recording import RecordedPass, Recording
from lading.runtime.random_state import GLOBAL, Snapshot, capture, packed, restore, same, unpacked

STATE_VERSION = 2

# Names wait for their digest, so that its fixed cost is shared by many batches.
_DIGESTED_AT_ONCE = 256


@dataclass
class TrackedState:
    """The place of a tracked loader in its run.

    Attributes:
        epoch: Passes begun before the current one.
        step: Batches yielded in the run.
        position: Samples yielded in the run, all ranks together.
        batch: Batches yielded in the current pass.
        digest: Additive digest of the names yielded in the current pass, by place in the pass.
        samples: Samples yielded in the current pass, on this rank.
        sampler_epoch: What the sampler was given as its epoch, or None.
        starts_workers: Whether the pass drew a seed for its workers; persistent ones had theirs before.
        began: Where the random numbers were when the pass began, as ``capture`` gives it; of a pass that has none yet
            nothing is kept.
        now: Where they were when the state was taken.
        rank: The rank whose random numbers and samples these are.
        drawn_from: The global generators that the order was drawn from, where there are several ranks.
    """

    epoch: int = 0
    step: int = 0
    position: int = 0
    batch: int = 0
    digest: int = 0
    samples: int = 0
    sampler_epoch: int | None = None
    starts_workers: bool = True
    began: Snapshot = field(default_factory=dict)
    now: Snapshot = field(default_factory=dict)
    rank: int = 0
    drawn_from: str = ""
    _fresh: list[tuple[NDArray[Any], NDArray[Any]]] = field(default_factory=list)

    def count(self, rows_of_all_ranks: int) -> None:
        """Move the run past one batch."""
        self.position += rows_of_all_ranks
        self.step += 1

    def note(self, datasets: NDArray[Any], indices: NDArray[Any]) -> None:
        """Move the current pass past one batch."""
        self._fresh.append((datasets, indices))
        if len(self._fresh) == _DIGESTED_AT_ONCE:
            self._digest_fresh()
        self.batch += 1

    def next_pass(self) -> None:
        """Move to the start of the next pass."""
        self.epoch += 1
        self.batch = self.digest = self.samples = 0
        self._fresh.clear()
        self.began = {}

    def _digest_fresh(self) -> None:
        if self._fresh:
            datasets, indices = (np.concatenate(column) for column in zip(*self._fresh, strict=True))
            self._fresh.clear()
            self.digest = total_digest([self.digest, names_digest(self.samples, datasets, indices)])
            self.samples += len(indices)

    def to_state(self, source: str) -> dict[str, Any]:
        """Return a flat state of fixed keys, as distributed checkpoints need it."""
        self._digest_fresh()
        return {
            "version": STATE_VERSION,
            "source": source,
            "epoch": self.epoch,
            "step": self.step,
            "position": self.position,
            "batch": self.batch,
            "digest": f"{self.digest:016x}",
            "samples": self.samples,
            "sampler_epoch": -1 if self.sampler_epoch is None else self.sampler_epoch,
            "starts_workers": int(self.starts_workers),
            "rank": self.rank,
            "drawn_from": self.drawn_from,
            "random_began": json.dumps(packed(self.began)),
            "random_now": json.dumps(packed(self.now)),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], source: str) -> TrackedState:
        """Rebuild a standing; refuse the state of another loader."""
        refuse_stateful(state)
        if state.get("version") != STATE_VERSION:
            raise ResumeError(
                f"the state has version {state.get('version')!r}: expected {STATE_VERSION}, as lading.track writes it."
            )
        if state["source"] != source:
            raise ResumeError(
                f"the state belongs to other data: it was taken from {state['source']}, this loader reads {source}. "
                "Samples would repeat or be missed; load it into the loader it was taken from."
            )
        return cls(
            epoch=int(state["epoch"]),
            step=int(state["step"]),
            position=int(state["position"]),
            batch=int(state["batch"]),
            digest=int(state["digest"], 16),
            samples=int(state["samples"]),
            sampler_epoch=None if state["sampler_epoch"] < 0 else int(state["sampler_epoch"]),
            starts_workers=bool(state["starts_workers"]),
            began=unpacked(json.loads(state["random_began"])),
            now=unpacked(json.loads(state["random_now"])),
            rank=int(state["rank"]),
            drawn_from=str(state["drawn_from"]),
        )


def names_digest(first: int, datasets: NDArray[Any], indices: NDArray[Any]) -> int:
    """Return the digest of names at the places of a pass from ``first`` on."""
    return digest(np.arange(first, first + len(indices)), datasets, indices)


_INEXACT = (
    "the workers of this DataLoader draw the random numbers of this epoch from its beginning again, because it was "
    "resumed in the middle: samples and their order are the same, what is drawn for them in workers is not. Resume at "
    "the end of an epoch, read without workers, or use lading.Loader, whose random numbers belong to batches; a "
    "dataset that draws nothing says so with random_free = True."
)


class _Idle(NamedTuple):
    """A pass that yielded nothing so far: who holds it, and where random numbers were before and after it began."""

    owner: Callable[[], Any]
    before: Snapshot
    after: Snapshot


class Beginning:
    """Where a tracked loader stands, and how its next pass begins there.

    Args:
        recording: What is read.
        restores: Whether a resume sets the global generators.

    Attributes:
        standing: The place in the run.
    """

    def __init__(self, recording: Recording | CarriedNames, *, restores: bool) -> None:
        self._recording, self._restores = recording, restores
        self._inner: Any = recording.dataloader  # knows order, length and random generators
        self.standing = TrackedState()
        self._is_resumed = False
        self._idle: _Idle | None = None

    def resume(self, standing: TrackedState, world: World) -> None:
        """Stand where a state was taken; refuse that of a rank that drew its own order."""
        is_own = standing.rank == world.rank
        if not is_own and standing.drawn_from:
            raise ResumeError(
                f"this is the state of rank {standing.rank}, loaded on rank {world.rank}, and its order was drawn "
                f"from {standing.drawn_from}'s global generator, which each rank has for itself: samples would repeat "
                "or be missed. Save and load a state on every rank, or give the loader a DistributedSampler."
            )
        restore({n: s for n, s in standing.now.items() if n not in GLOBAL or (is_own and self._restores)}, self._inner)
        self.standing, self._is_resumed = standing, True

    def caught(self, world: World) -> TrackedState:
        """Return the place in the run with all that a state keeps of random numbers."""
        standing = self.standing
        if not self._is_resumed:
            if standing.batch == 0:
                self._note_start()
            standing.rank, standing.drawn_from = world.rank, self._recording.drawn_from
        standing.now = capture(self._inner)
        return standing

    def now(self, world: World) -> RecordedPass | CarriedPass | None:
        """Begin a pass where ``iter`` is called; None: it begins with its first batch."""
        self._recording.world = world
        return None if self._is_resumed else self._anew()

    def held_by(self, started: Any) -> None:
        """Say who holds the pass that has begun."""
        if self._idle is not None:
            self._idle = self._idle._replace(owner=weakref.ref(started))

    def late(self, world: World) -> RecordedPass | CarriedPass:
        """Begin a pass where its first batch is wanted."""
        is_inside = self._is_resumed and self.standing.batch
        batches = self._inside(world) if is_inside else self._anew(is_resumed=self._is_resumed)
        self._is_resumed = False  # only now: a resume that was refused is refused again
        return batches

    def yielded(self) -> None:
        """Note that the newest pass has yielded a batch."""
        self._idle = None

    def _anew(self, *, is_resumed: bool = False) -> RecordedPass | CarriedPass:
        """Begin a pass just as ``iter(dataloader)`` would: random numbers are drawn now."""
        if self.standing.batch:
            self.standing.next_pass()  # the pass before was broken off
        idle = self._idle
        if idle is not None and idle.owner() is None and same(capture(self._inner), idle.after):
            # Lightning calls iter() once only to see whether it can: as if it had not.
            restore(idle.before, self._inner)
        # The seed of persistent workers was drawn in an earlier pass; here it is drawn now, and must not count.
        has_seed = is_resumed and not self.standing.starts_workers
        self._note_start()
        self.standing.began = began = capture(self._inner)
        batches = self._recording.start(rewind=functools.partial(restore, began, self._inner) if has_seed else None)
        self.standing.starts_workers &= not has_seed
        self._idle = _Idle(lambda: None, began, capture(self._inner))
        return batches

    def _note_start(self) -> None:
        """Note what a pass that begins now depends on, beside random numbers."""
        self.standing.sampler_epoch = told_epoch(self._inner)
        self.standing.starts_workers = self._recording.starts_workers

    def _inside(self, world: World) -> RecordedPass | CarriedPass:
        """Enter a pass in its middle: draw its order as when it began, and leave the global generators as they are."""
        standing, sampler = self.standing, order_of(self._inner)
        # Between epochs the training loop says which one comes; in the middle of one there is no choice.
        if standing.sampler_epoch is not None and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(standing.sampler_epoch)
        began = functools.partial(restore, standing.began, self._inner)
        with contextlib.ExitStack() as put_back:  # once: when the loader has caught up, or where it cannot
            put_back.callback(restore, capture())
            began()
            rewind = None if standing.starts_workers else began
            batches = self._recording.start(standing.batch, rewind, put_back.close)
            skipped = batches.catch_up()
        if skipped is not None and names_digest(0, skipped.datasets, skipped.indices) != standing.digest:
            raise ResumeError(_another_order(sampler, standing, world))
        if draws_in_workers(self._inner):
            self._recording.notes.append(_INEXACT)
            warnings.warn(_INEXACT, InexactResumeWarning, stacklevel=4)
        return batches


def _another_order(sampler: Any, standing: TrackedState, world: World) -> str:
    if standing.rank != world.rank:
        return (
            f"this is the state of rank {standing.rank}, loaded on rank {world.rank}, which had other samples: nothing "
            "says that they come again. Save and load a state on every rank, or resume at the end of an epoch."
        )
    return (
        f"the {type(sampler).__name__} gave other samples when its first {standing.batch} batches were drawn again: "
        "samples would repeat or be missed. It takes random numbers that no state can bring back; give it a seeded "
        "torch.Generator, or set_epoch, or use lading.Loader, whose order is a pure function."
    )
