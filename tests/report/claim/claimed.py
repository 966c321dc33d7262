"""Models that somebody claims something of: trained by real loaders, with everything that makes a step not its plan."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from lading.ledger import Ledger
from lading.loader import NumpyLoader
from lading.loader.request import Resume
from lading.report.claim.cryptography import PrivateKey, PublicKey, new_key, private_key, public_key


class Unreadable:
    """A dataset of which some samples cannot be read."""

    def __init__(self, size: int, bad: set[int]) -> None:
        self._size, self._bad = size, bad

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> dict[str, float]:
        if index in self._bad:
            raise ValueError("cannot be read")
        return {"x": float(index)}


@functools.lru_cache
def keys(folder: Path) -> tuple[PrivateKey, PublicKey]:
    """Return a key that was made in a folder."""
    new_key(folder / "key")
    return private_key(folder / "key"), public_key(folder / "key.pub")


def train(
    run: Path,
    checkpoint: Path,
    steps: int,
    *,
    state: dict[str, Any] | None = None,
    change: Any = None,
    skipped: set[int] = frozenset(),
    bad: str = "raise",
    **options: Any,
) -> tuple[dict[str, Any], list[tuple[str, int, int]]]:
    """Train some steps and save; return the state, and (dataset, index, step) of everything that an update used."""
    sources = {"code": Unreadable(31, {3, 8} if bad != "raise" else set()), "prose": Unreadable(17, set())}
    used = []
    with Ledger(run) as ledger:
        loader = NumpyLoader(
            sources, options.pop("batch_size", 4), seed=5, tracker=ledger, on_bad_sample=bad, **options
        )
        if state is not None:
            loader.load_state_dict(state, Resume(rebatch=True))
        done = 0
        while done < steps:
            for _, bill in loader.with_bills():
                if bill.step in skipped:
                    ledger.skip(bill, "overflow")
                else:
                    ledger.commit(bill, update=bill.step)
                    used += [(bill.names[sample.dataset], sample.index, bill.step) for sample in bill.samples]
                done += 1
                if change is not None and done == 2:
                    change(loader)
                if done == steps:
                    break
        state = loader.state_dict()
        checkpoint.mkdir(parents=True)
        (checkpoint / "model.bin").write_bytes(f"{run} {steps}".encode())
        ledger.checkpoint(checkpoint, state)
    return state, used
