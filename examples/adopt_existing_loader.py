"""Keep the loader you have: audit it, add one line, and ask afterwards what the model was trained on.

python examples/adopt_existing_loader.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

import lading
from lading.observe.tracking import TrackedLoader


def make_loader(*, drop_last: bool = False) -> DataLoader:
    """An ordinary loader, as it stands in a thousand projects: two datasets, shuffled. (Try: lading audit.)"""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(1000, 8, generator=generator)
    targets = inputs.sum(dim=1, keepdim=True)
    targets[777] = 1e4  # a broken label, somewhere in the data
    clean, scraped = TensorDataset(inputs[:700], targets[:700]), TensorDataset(inputs[700:], targets[700:])
    return DataLoader(ConcatDataset([clean, scraped]), batch_size=32, shuffle=True, drop_last=drop_last)


def train(loader: TrackedLoader, epochs: int, stop_at: int | None = None) -> dict | None:
    """An ordinary loop; only ``commit`` is new, so that the ledger knows the losses."""
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    while loader.epoch < epochs:
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            loader.commit(loss=loss)
            if loader.step == stop_at:
                return loader.state_dict()  # belongs into your checkpoint
    return None


def main(folder: Path) -> None:
    """Audit, train, crash, resume, ask."""
    torch.manual_seed(1)
    for finding in lading.audit(make_loader(drop_last=True)):
        print(finding, "\n")
    assert not lading.audit(make_loader())

    tracker = lading.BatchTracker()
    loader = lading.track(make_loader(), run=folder, tracker=tracker, names=["clean", "scraped"])  # the one line
    state = train(loader, epochs=3, stop_at=40)
    loader.close()
    print("stopped after step 39; seen so far:", tracker.n_samples_per_dataset)

    torch.manual_seed(2)  # another process, other random numbers: the order is drawn again and compared
    loader = lading.track(make_loader(), run=folder, names=["clean", "scraped"])
    loader.load_state_dict(state)
    train(loader, epochs=3)
    loader.close()

    run = lading.open_run(folder)
    print("every step recorded, each once:", run.verify().holds, "- steps:", run.num_steps)
    worst = max(run.history, key=lambda row: row["loss"])
    print(f"the loss was {worst['loss']:.0f} at step {worst['step']}: was it sample 77 of 'scraped'?")
    steps = [place["step"] for place in run.where("scraped", 77)]
    print("sample 77 of 'scraped' was used at steps", steps, "-", "yes" if worst["step"] in steps else "no")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "run")
