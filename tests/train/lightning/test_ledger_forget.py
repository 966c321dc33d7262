"""Forget and replay equals never under a real Lightning trainer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import ModelCheckpoint
from tests.train.lightning.test_ledger import fit

from lading import Loader, PackedRows, build_tokens, open_run
from lading.errors import ResumeError
from lading.order.packing.rules import PackingRules
from lading.train.lightning import LedgerCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
]


class Words(LightningModule):
    """Predicts the next token from the one before."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Embedding(257, 8), torch.nn.Linear(8, 257))

    def training_step(self, batch, batch_idx):
        """Return the mean loss over the tokens that are to be learnt."""
        logits = self.layers(batch["inputs"]).transpose(1, 2)
        loss = torch.nn.functional.cross_entropy(logits, batch["targets"].long(), reduction="none")
        counts = batch["targets_segmentation"] != 0
        return (loss * counts).sum() / counts.sum()

    def configure_optimizers(self):
        """Return an optimizer with a state."""
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def trained(path: Path, out: Path, resume: str | None = None, **never: Any) -> dict[str, torch.Tensor]:
    """Train three epochs; return weights and the optimizer's state."""
    loader = Loader(
        {"web": PackedRows(path / "web", PackingRules(48, "best_fit", "split"))}, batch_size=4, seed=3, **never
    )
    saves = ModelCheckpoint(out / "saved", every_n_train_steps=2, save_top_k=-1, filename="{step}")
    trainer = fit(
        out, Words(), saves, LedgerCallback(out / "run"), loader=loader, ckpt_path=resume, accumulate_grad_batches=2
    )
    moments = trainer.optimizers[0].state_dict()["state"]
    flat = {f"{number}.{name}": value for number, state in moments.items() for name, value in state.items()}
    return {**trainer.lightning_module.state_dict(), **flat}


def test_forget_and_replay_equals_never(tmp_path):
    """Bit for bit, with accumulation; the tainted checkpoint is refused."""
    rng = np.random.default_rng(5)
    texts = ["".join(rng.choice(list("abcdefgh "), rng.integers(8, 30))) for _ in range(110)]
    (tmp_path / "web.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    build_tokens(tmp_path / "web.jsonl", tmp_path / "web")
    had = trained(tmp_path, tmp_path / "a")
    run = open_run(tmp_path / "a" / "run")
    firsts = {
        d: min(u["step"] for r in run.documents.rows_of(0, d) for u in run.where(0, r["index"])) for d in range(110)
    }
    document = next(d for d, step in firsts.items() if 6 <= step < 10)
    found = run.forget(documents=[f"web:{document}"])

    tainted = [saved["where"] for saved in found.tainted]
    with pytest.raises(ResumeError, match="tainted"):
        trained(tmp_path, tmp_path / "a", tainted[0])
    again = trained(tmp_path, tmp_path / "a", found.clean["where"])
    control = trained(tmp_path, tmp_path / "b", masked={"web": [document]})

    assert again.keys() == control.keys()
    assert all(torch.equal(again[name], control[name]) for name in again)
    assert not all(torch.equal(again[name], had[name]) for name in again)
