"""A torch loop for the laws of forgetting: ``forget.py OUT STEPS CASE [--resume FOLDER] [--never] [--die-at STEP]``."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from lading import Curriculum, FollowLosses, Ledger, Loader, Mixture, PackedRows, build_tokens
from lading.order.packing.rules import PackingRules

ACCUMULATE = 2
CASES = ("packing", "policy", "curriculum", "weights")


def corpus(path: Path, name: str, seed: int) -> PackedRows:
    """Short documents, packed."""
    if not (path / name).exists():
        rng = np.random.default_rng(seed)
        texts = ["".join(rng.choice(list("abcdefgh "), rng.integers(8, 30))) for _ in range(70)]
        (path / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
        build_tokens(path / f"{name}.jsonl", path / name)
    return PackedRows(path / name, PackingRules(48, "best_fit", "split"))


class Words(nn.Module):
    """Embedding, dropout, output."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Embedding(257, 12), nn.Dropout(0.2), nn.Linear(12, 257))

    def forward(self, batch: Any) -> torch.Tensor:
        """Return the mean loss over the tokens that are to be learnt."""
        loss = nn.functional.cross_entropy(
            self.layers(batch["inputs"]).transpose(1, 2), batch["targets"].long(), reduction="none"
        )
        counts = batch["targets_segmentation"] != 0
        return (loss * counts).sum() / counts.sum().clamp(min=1)


def loader_of(path: Path, case: str, never: dict[str, Any]) -> tuple[Loader, Any]:
    """Return a loader of a case, and its policy."""
    sources, policy = {"web": corpus(path, "web", 1)}, None
    options: dict[str, Any] = {}
    if case == "policy":
        sources["code"] = corpus(path, "code", 2)
        policy = FollowLosses(every_steps=2, smoothing=0)
        options["mixture"] = Mixture({"web": 1, "code": 1}, policy=policy, lookahead_steps=2)
    elif case == "curriculum":
        options["mixture"] = Curriculum(lambda source: np.arange(len(source)) % 7, until=12)
    elif case == "weights":
        options["sample_weights"] = {"web": np.arange(len(sources["web"])) % 3 + 1.0}
    return Loader(sources, global_batch_size=4, seed=3, **options, **never), policy


def train(path: Path, out: Path, steps: int, case: str, resume: Path | None, never: dict[str, Any], die_at: int) -> str:
    """Train; return the SHA-256 of weights, optimizer and random state of this rank."""
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    torch.manual_seed(rank)
    bare = Words()
    for parameter in bare.parameters():
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.AdamW(bare.parameters(), lr=1e-2)
    loader, policy = loader_of(path, case, never)
    if resume is not None:
        saved = torch.load(resume / f"rank-{rank}.pt", weights_only=True)
        bare.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["random"])
        loader.load_state_dict(json.loads(saved["loader"]))
    model = nn.parallel.DistributedDataParallel(bare) if torch.distributed.is_initialized() else bare
    loader.tracker = ledger = Ledger(out / "run", loader.plan)
    while loader.engine.step < steps:
        for batch, bill in loader.with_bills():
            loss = model(batch) / ACCUMULATE
            loss.backward()
            if policy is not None:
                policy.observe({"web": 1.0 + bill.step % 5, "code": 2.0})
            if (bill.step + 1) % ACCUMULATE == 0:
                optimizer.step()
                optimizer.zero_grad()
            ledger.commit(bill, update=bill.step // ACCUMULATE, loss=float(loss.detach()))
            if (bill.step + 1) % 4 == 0:
                save(out / f"checkpoint-{bill.step + 1}", rank, bare, optimizer, loader, ledger)
            if bill.step == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if bill.step + 1 == steps:
                break
    ledger.close()
    state = {"model": bare.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
    return hashlib.sha256(repr(hashable(state)).encode()).hexdigest()


def hashable(value: Any) -> Any:
    """Return a state as bytes and numbers."""
    if isinstance(value, torch.Tensor):
        return value.numpy().tobytes()
    if isinstance(value, dict):
        return [(key, hashable(one)) for key, one in value.items()]
    return [hashable(one) for one in value] if isinstance(value, list | tuple) else value


def save(folder: Path, rank: int, model: Any, optimizer: Any, loader: Loader, ledger: Ledger) -> None:
    """Save what a rank needs, then the waybill."""
    folder.mkdir(parents=True, exist_ok=True)
    state = loader.state_dict()
    kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
    torch.save({**kept, "loader": json.dumps(state)}, folder / f"rank-{rank}.pt")
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
    ledger.checkpoint(folder, state)


def main() -> None:
    """Train as the command line says, on every rank of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--never", type=json.loads, default={})
    parser.add_argument("--die-at", type=int, default=-1)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if "WORLD_SIZE" in os.environ:
        torch.distributed.init_process_group("gloo")
    found = train(asked.path, asked.out, asked.steps, asked.case, asked.resume, asked.never, asked.die_at)
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    asked.out.mkdir(exist_ok=True, parents=True)
    (asked.out / f"hash-{rank}").write_text(found)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
