"""Train on a tracked loader, three epochs in one process or from a state of another: what the model received.

python track_resumed.py whole OUT     every case from the start; states of some steps and everything received to OUT
python track_resumed.py resumed OUT   every case again from each of those states; the rest of what is received
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import lading

EPOCHS, SIZE, STOPS = 3, 18, (2, 5, 7, 10)


class Noisy(Dataset):
    """Samples that draw from every global generator."""

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return index, torch.rand(1).item(), np.random.rand(), random.random()  # noqa: NPY002


class Quiet(Noisy):
    """Samples that draw from torch alone."""

    def __getitem__(self, index):
        return index, torch.rand(1).item(), 0.0, 0.0


class NumpyOrder:
    """A batch sampler that draws its order from NumPy's generator when it begins."""

    def __iter__(self):
        order = np.random.permutation(SIZE).tolist()  # noqa: NPY002
        return iter([order[start : start + 4] for start in range(0, SIZE, 4)])

    def __len__(self):
        return 5


class DrawnAsItGoes(NumpyOrder):
    """A batch sampler that draws each batch from Python's generator when it is pulled."""

    def __iter__(self):
        for _ in range(5):
            yield random.sample(range(SIZE), 4)


class Lazy(DataLoader):
    """Begins with its first batch."""

    def __iter__(self):
        yield from super().__iter__()


ORDERS = {
    "global": lambda **options: DataLoader(Noisy(), 4, shuffle=True, **options),
    "private": lambda **options: DataLoader(
        Noisy(), 4, shuffle=True, generator=torch.Generator().manual_seed(7), **options
    ),
    "numpy": lambda **options: DataLoader(Noisy(), batch_sampler=NumpyOrder(), **options),
    "as it goes": lambda **options: DataLoader(Quiet(), batch_sampler=DrawnAsItGoes(), **options),
    "lazy": lambda **options: Lazy(Noisy(), 4, shuffle=True, **options),
}
SEEDED = [seeded for count in range(4) for seeded in itertools.combinations(("torch", "numpy", "python"), count)]
CASES = {
    f"{order}, {workers} workers, seeded: {' '.join(seeded)}": (order, workers, seeded)
    for order, workers, seeded in itertools.product(ORDERS, (0, 2), SEEDED)
    if workers == 0 or len(seeded) in (0, 3) or seeded == ("torch",)
}


def seed(seeded):
    """Seed some generators, as a script does at its top; give the others anything."""
    torch.manual_seed(5) if "torch" in seeded else torch.seed()
    np.random.seed(5 if "numpy" in seeded else None)  # noqa: NPY002
    random.seed(5 if "python" in seeded else None)


def train(tracked, order, note):
    """Train to the end of the last epoch; training draws, too."""
    while tracked.epoch < EPOCHS:
        for batch in tracked:
            received = [column.tolist() for column in batch]
            draws = [torch.rand(1).item(), np.random.rand()]  # noqa: NPY002
            draws += [] if order == "as it goes" else [random.random()]
            note({"rows": received[0], "noise": received[1:], "training": draws})


def main() -> None:
    """Run all cases."""
    mode, out = sys.argv[1], Path(sys.argv[2])
    warnings.simplefilter("ignore")
    found: dict[str, object] = {}
    given = json.loads((out / "whole.json").read_text()) if mode == "resumed" else {}
    for name, (order, workers, seeded) in CASES.items():
        if mode == "whole":
            seed(seeded)
            tracked, steps, states = lading.track(ORDERS[order](num_workers=workers)), [], {}

            def note(step, steps=steps, states=states, tracked=tracked):
                steps.append(step)
                if len(steps) in STOPS:
                    states[len(steps)] = tracked.state_dict()

            train(tracked, order, note)
            found[name] = {"steps": steps, "states": states}
        else:
            rest = found[name] = {}
            for stop, state in given[name]["states"].items():
                seed(seeded)
                tracked = lading.track(ORDERS[order](num_workers=workers))
                tracked.load_state_dict(state)
                rest[stop] = []
                train(tracked, order, rest[stop].append)
    (out / f"{mode}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
