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
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import ResumeError
from lading.identity import digest, total_digest
from lading.loader.state import refuse_stateful
from lading.runtime.random_state import Snapshot, packed, unpacked

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
