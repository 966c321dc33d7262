"""Law: forget and replay equals never, bit for bit, where JAX trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tests.train.forgetting import STEPS, asked, clean_of, script

from lading import JaxLoader
from lading.errors import ResumeError
from lading.ledger import Ledger


def test_forget_and_replay_equals_never(tmp_path):
    """Weights and a momentum, updated by JAX; the loader is JAX's."""
    numpy = jax.numpy

    def loss(weights: Any, batch: Any) -> Any:
        logits = weights["out"].T @ weights["in"][batch["inputs"]].swapaxes(1, 2)
        nll = -jax.nn.log_softmax(logits, axis=1)
        picked = numpy.take_along_axis(nll, batch["targets"][:, None], 1)[:, 0]
        counts = batch["targets_segmentation"] != 0
        return (picked * counts).sum() / counts.sum()

    update = jax.jit(jax.value_and_grad(loss))

    def train(out: Path, resume: Path | None = None, **never: Any) -> bytes:
        keys = jax.random.split(jax.random.key(0), 2)
        weights = {
            name: jax.random.normal(key, (257, 8)).T if name == "out" else jax.random.normal(key, (257, 8))
            for name, key in zip(("in", "out"), keys, strict=True)
        }
        momentum = jax.tree.map(numpy.zeros_like, weights)
        loader = JaxLoader({"web": script.corpus(tmp_path, "web", 1)}, global_batch_size=4, seed=3, **never)
        if resume is not None:
            saved = np.load(resume / "weights.npz")
            weights, momentum = ({k: numpy.asarray(saved[f"{p}-{k}"]) for k in weights} for p in "wm")
            loader.load_state_dict(json.loads((resume / "loader.json").read_text()))
        loader.tracker = ledger = Ledger(out / "run", loader.plan)
        while loader.engine.step < STEPS:
            for batch, bill in loader.with_bills():
                value, slopes = update(weights, {k: batch[k] for k in ("inputs", "targets", "targets_segmentation")})
                momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, slopes)
                weights = jax.tree.map(lambda w, m: w - 0.1 * m, weights, momentum)
                ledger.commit(bill, update=bill.step, loss=float(value))
                if (bill.step + 1) % 4 == 0:
                    folder = out / f"checkpoint-{bill.step + 1}"
                    folder.mkdir(exist_ok=True)
                    kept = {
                        f"{p}-{k}": np.asarray(v) for p, t in (("w", weights), ("m", momentum)) for k, v in t.items()
                    }
                    np.savez(folder / "weights.npz", **kept)
                    (folder / "loader.json").write_text(json.dumps(loader.state_dict()))
                    ledger.checkpoint(folder, loader.state_dict())
                if bill.step + 1 == STEPS:
                    break
        ledger.close()
        return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((weights, momentum)))

    with_it = train(tmp_path / "a")
    found, never = asked(tmp_path / "a")
    with pytest.raises(ResumeError, match="tainted"):
        train(tmp_path / "a", tmp_path / "a" / f"checkpoint-{STEPS - 4}")

    again, control = train(tmp_path / "a", clean_of(found)), train(tmp_path / "b", **never)

    assert again == control != with_it
