"""The training process of the demo: a small model of bytes, a weighted mixture, chunks with validation.

    python -m lading.kits.demo.torch RUN STEPS CHUNK_STEPS [CHECKPOINT]

    chunk of steps ─▶ validation ─▶ next chunk ...      a checkpoint every few steps, one of each chunk that is kept;
                                                        resumes from the last one, or from the one that is named

This is what a user's script looks like. It tells its parent what it does, one
JSON object a line, and does not know that it is going to be killed.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lading.kits.demo.text import BATCH, SEED, WEIGHTS, WINDOW
from lading.ledger import Ledger
from lading.loader import Loader
from lading.train import per_dataset_mean
from lading.train.torch import CHECKPOINT, load_checkpoint, save_checkpoint

WIDTH, HEADS, LAYERS = 96, 4, 2
CHECKPOINT_STEPS = 25
LEARNING_RATE = 2e-3


class TransformerBlock(nn.Module):
    """One layer of a transformer that sees only the past."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.think = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Return the states after the layer."""
        rows, length, _ = x.shape
        parts = self.attention(self.norm_1(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        found: Tensor = x + self.think(self.norm_2(x))
        return found


class ByteModel(nn.Module):
    """Predicts the next byte; about a quarter of a million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(WINDOW, WIDTH)
        self.layers = nn.Sequential(*(TransformerBlock() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, windows: Tensor) -> Tensor:
        """Return the mean loss of each window, in nats a byte."""
        inputs, targets = windows[:, :-1].long(), windows[:, 1:].long()
        x = self.bytes(inputs) + self.places(torch.arange(inputs.shape[1]))
        logits = self.head(self.norm(self.layers(x)))
        return functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none").mean(1)


def train(run: Path, steps: int, chunk_steps: int, resume_from: str = CHECKPOINT) -> None:
    """Train until ``steps``, from a checkpoint if there is one."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # threads that wait for each other crawl on a machine that is busy with something else
    data = np.load(run / "text.npz")
    sources = {name: data[f"{name}/train"] for name in WEIGHTS if f"{name}/train" in data}
    held_out = {name: data[f"{name}/val"] for name in sources}
    model = ByteModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    ledger = Ledger(run, flush_every=1, config={"model": "bytes", "width": WIDTH, "lr": LEARNING_RATE})
    weights = {name: WEIGHTS[name] for name in sources}
    loader = Loader(sources, BATCH, seed=SEED, weights=weights, chunk_batches=chunk_steps, tracker=ledger)
    validation = Loader(held_out, 64, shuffle=False)
    path = run / CHECKPOINT
    load_checkpoint(run / resume_from, model, optimizer, loader)
    tell("ready", step=loader.step, parameters=sum(p.numel() for p in model.parameters()))
    while loader.step < steps:
        for batch, bill in loader.with_bills():
            losses = model(batch)
            loss = losses.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            by_source = {f"loss/{name}": mean for name, mean in per_dataset_mean(losses, bill).items()}
            ledger.commit(bill, update=bill.step, loss=loss, row_losses=losses, **by_source)
            if (bill.step + 1) % CHECKPOINT_STEPS == 0:
                ledger.checkpoint(path, save_checkpoint(path, model, optimizer, loader, loader.step))
            tell("step", step=bill.step, chunk=bill.chunk, loss=loss.item())
        for kept in (path, run / f"chunk-{bill.chunk}.pt"):
            ledger.checkpoint(kept, save_checkpoint(kept, model, optimizer, loader, loader.step))
        tell("validated", chunk=bill.chunk, step=bill.step, losses=evaluate(model, validation))
    ledger.close()


@torch.no_grad()
def evaluate(model: ByteModel, validation: Loader) -> dict[str, float]:
    """Return the loss of each source over all of its held-out windows, in bits a byte."""
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    for batch, bill in validation.with_bills():
        means = per_dataset_mean(model(batch), bill)
        for number, size in bill.counts().items():
            name = bill.names[number]
            sums[name] = sums.get(name, 0.0) + means[name] * size / math.log(2)
            counts[name] = counts.get(name, 0) + size
    return {name: sums[name] / counts[name] for name in sums}


def tell(kind: str, **fields: Any) -> None:
    """Tell the parent what happened."""
    print(json.dumps({"kind": kind, **fields}), flush=True)


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
