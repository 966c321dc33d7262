"""Forget and replay equals never under a real Trainer: packed rows, accumulation, dropout, ``num_items_in_batch``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from lading import PackedRows, build_tokens, open_run
from lading.errors import ResumeError
from lading.order.packing.rules import PackingRules
from lading.train.transformers import account


def collated(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Inputs, and labels that are ignored where nothing is to be learnt."""
    inputs, targets, segments = (
        torch.tensor(np.stack([row[name] for row in rows])).long()
        for name in ("inputs", "targets", "targets_segmentation")
    )
    return {"input_ids": inputs, "labels": torch.where(segments == 0, -100, targets)}


def trainer(path: Path, out: Path, workers: int = 0, **never: Any) -> Trainer:
    """Return a trainer of 12 updates of two steps, a checkpoint every second."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 257, "n_positions": 48, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=256, eos_token_id=256, loss_type="ForCausalLM"))
    arguments = TrainingArguments(
        str(out), per_device_train_batch_size=3, gradient_accumulation_steps=2, max_steps=12, save_steps=2, seed=4,
        use_cpu=True, report_to=[], disable_tqdm=True, remove_unused_columns=False, learning_rate=1e-2,
        dataloader_num_workers=workers,
    )  # fmt: skip
    rows = PackedRows(path / "web", PackingRules(48, "best_fit", "split"))
    made = Trainer(model, arguments, train_dataset=rows, data_collator=collated)
    return account(made, out / "run", **never)


def final(trained: Trainer, out: Path) -> list[Any]:
    """Weights, optimizer and random state at the end."""
    folder = out / "checkpoint-12"
    optimizer = torch.load(folder / "optimizer.pt", weights_only=True)["state"]
    random = torch.load(folder / "rng_state.pth", weights_only=False)["cpu"]
    return [*trained.model.state_dict().values(), *(t for s in optimizer.values() for t in s.values()), random]


def test_forget_and_replay_equals_never(tmp_path):
    """Bit for bit; the tainted checkpoint is refused by name, the model that had it is another one."""
    rng = np.random.default_rng(5)
    texts = ["".join(rng.choice(list("abcdefgh "), rng.integers(8, 30))) for _ in range(120)]
    (tmp_path / "web.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    build_tokens(tmp_path / "web.jsonl", tmp_path / "web")
    first = trainer(tmp_path, tmp_path / "a")
    first.train()
    had = final(first, tmp_path / "a")
    run = open_run(tmp_path / "a" / "run")
    name, uses = run.datasets[0], {}
    for document in range(120):
        uses[document] = min(u["step"] for r in run.documents.rows_of(0, document) for u in run.where(0, r["index"]))
    document = next(d for d, step in uses.items() if 9 <= step < 16)
    found = run.forget(documents=[f"{name}:{document}"])

    with pytest.raises(ResumeError, match="tainted"):
        trainer(tmp_path, tmp_path / "a").train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-10"))
    again = trainer(tmp_path, tmp_path / "a", workers=1)
    again.train(resume_from_checkpoint=found.clean["where"])
    control = trainer(tmp_path, tmp_path / "b", masked={name: [document]})
    control.train()

    pairs = list(zip(final(again, tmp_path / "a"), final(control, tmp_path / "b"), strict=True))
    assert all(torch.equal(one, other) for one, other in pairs)
    assert not all(torch.equal(one, other) for one, (other, _) in zip(had, pairs, strict=True))
    assert open_run(tmp_path / "a" / "run").verify().holds
