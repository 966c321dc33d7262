"""Mix three datasets by a schedule, change the weights twice while running, and compare plan and delivery.

python examples/mixture.py mixture.html        (or mixture.png, with kaleido and a Chromium)
"""

from __future__ import annotations

import sys

import numpy as np

from lading import Mixture
from lading.kits.web.render.plotly import MixturePicture
from lading.loader import Loader
from lading.order.simulation import changes
from lading.source.columns import Columns

BATCH, STEPS, WINDOW = 256, 600, 6

SOURCES = {
    "code": Columns(tokens=np.arange(60_000)),
    "prose": Columns(tokens=np.arange(20_000)),
    "web": Columns(tokens=np.arange(500_000)),
}
SCHEDULE = [
    (0, {"code": 0.2, "prose": 0.3, "web": 0.5}),
    ("200ba", {"code": 0.4, "prose": 0.3, "web": 0.3}),
    ("400ba", {"code": 0.6, "prose": 0.2, "web": 0.2}),
]
BY_HAND = {  # after the batch of this step was yielded
    89: {"code": 0.5, "prose": 0.4, "web": 0.1},
    479: {"code": 0.1, "prose": 0.1, "web": 0.8},
}


def run(loader: Loader) -> np.ndarray:
    """Train (or pretend to) and return how many samples of each dataset every step delivered."""
    delivered = np.zeros((STEPS, len(SOURCES)), dtype=np.int64)
    for batch, bill in loader.with_bills():
        assert batch["tokens"].tolist() == bill.idx.tolist()
        delivered[bill.step] = np.bincount(bill.dataset_idx, minlength=len(SOURCES))
        if bill.step in BY_HAND:
            loader.reweight(BY_HAND[bill.step], reason="by hand")
    return delivered


def main(path: str) -> None:
    """Run, print what was planned and delivered, and draw it."""
    loader = Loader(
        SOURCES, BATCH, seed=1, mixture=Mixture(schedule=SCHEDULE, epoch_samples=BATCH * STEPS, lookahead_steps=8)
    )
    delivered = run(loader)

    plan = loader.plan
    positions = [plan.locate(step).position for step in range(STEPS)]
    planned = np.array([plan.order.weights_at(q) for q in positions]) / 2**31
    print(
        "off by at most",
        round(float(np.abs(delivered.sum(0) - planned.sum(0) * BATCH).max()), 2),
        "samples of",
        BATCH * STEPS,
    )

    windows = np.arange(0, STEPS, WINDOW)
    shares = np.add.reduceat(delivered, windows) / (BATCH * WINDOW)
    by_hand = {event.position // BATCH for event in plan.events}
    picture = MixturePicture(
        title="Three planned stages, two run-time changes: plan (lines) and delivery (dots)",
        steps=list(range(STEPS)),
        planned={name: planned[:, d] for d, name in enumerate(plan.names)},
        delivered={name: (windows + WINDOW / 2, shares[:, d]) for d, name in enumerate(plan.names)},
        marks=[(step, "by hand" if step in by_hand else "planned") for step in changes(plan, STEPS)],
    )
    print("written", picture.write(path))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "mixture.html")
