"""A loss spikes. What was in that batch, was it seen before, and how do we never meet it again?

    python examples/spike_hunt.py

A linear model learns from 4 000 pairs; three scraped ones are broken. The ledger leads from the spike to the
samples, they are blocked, and the resumed run does without them. No step changes its number.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lading import Ledger, Loader, open_run

BROKEN = (111, 777, 1333)


def sources() -> dict[str, list[dict[str, torch.Tensor]]]:
    """Make two datasets; three scraped targets are off by a mile."""
    rng, found = np.random.default_rng(0), {}
    for name, size in (("curated", 2500), ("scraped", 1500)):
        x = rng.normal(size=(size, 4)).astype(np.float32)
        y = x @ np.array([1.0, -2.0, 0.5, 3.0], dtype=np.float32)
        if name == "scraped":
            y[list(BROKEN)] += 300.0
        found[name] = [{"x": torch.from_numpy(a), "y": torch.tensor(b)} for a, b in zip(x, y, strict=True)]
    return found


def train(run_dir: Path, state: dict[str, Any] | None, steps: int) -> dict[str, Any]:
    """Train up to a step, and return what a checkpoint would keep."""
    ledger = Ledger(run_dir)
    loader = Loader(sources(), batch_size=32, seed=4, tracker=ledger)
    weight = torch.zeros(4)
    if state is not None:
        loader.load_state_dict(state["loader"])
        weight = state["weight"]
    while loader.step < steps:
        for batch, bill in loader.with_bills():
            error = batch["x"] @ weight - batch["y"]
            weight -= 0.05 * (batch["x"].T @ error / len(error)).clamp(-1, 1)
            ledger.commit(bill, update=bill.step, loss=(error**2).mean())
            if loader.step >= steps:
                break
    checkpoint = {"loader": loader.state_dict(), "weight": weight}
    ledger.close()
    return checkpoint


def main() -> None:
    """Find the spikes of a first epoch, block what caused them, and train a second one."""
    run_dir = Path(tempfile.mkdtemp()) / "run"
    checkpoint = train(run_dir, None, steps=125)

    run = open_run(run_dir)
    spikes = run.spikes(threshold=20)["step"]
    print(f"epoch 0: the loss spikes at steps {sorted(spikes)}")
    data, suspects = sources(), []
    for step in spikes:
        worst = max(run.step(step).samples, key=lambda row: float(data[row["name"]][row["index"]]["y"].abs()))
        suspects.append(f"{worst['name']}:{worst['index']}")
    print(f"         behind them: {', '.join(sorted(suspects))}")
    run.block(*suspects, reason="loss spikes")

    train(run_dir, checkpoint, steps=250)
    run = open_run(run_dir)
    later, verdict = [step for step in run.spikes(threshold=20)["step"] if step >= 125], run.verify()
    print(f"epoch 1: {len(later)} spikes; {verdict.steps} steps in history, the record holds: {verdict.holds}")
    for name, index in (suspect.split(":") for suspect in sorted(suspects)):
        print(f"         {name}:{index} was used at step {run.where(name, int(index))['step']} and never again")


if __name__ == "__main__":
    main()
