"""Train on packed rows with JAX: global batches on a mesh, masks by segment, an exact resume.

    python examples/jax_training.py

Each process of a larger job runs the same lines: it reads only the rows its devices hold.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp

from lading import PackedRows
from lading.batch import LLMIndexedBatch, llm_batch
from lading.loader.jax.loader import JaxLoader
from lading.order.packing.rules import PackingRules
from lading.source.tokens.build import build_tokens
from lading.testing import assert_isolated

WIDTH, ROW = 64, 256


def initial(vocab_size: int) -> dict[str, jax.Array]:
    """Weights of one attention layer between two embeddings."""
    shapes = {"tokens": (vocab_size, WIDTH), "places": (ROW, WIDTH), "qkv": (WIDTH, 3 * WIDTH)}
    shapes["out"] = (WIDTH, vocab_size)
    return {name: 0.1 * jax.random.normal(jax.random.key(len(name)), shape) for name, shape in shapes.items()}


def logits(weights: dict[str, jax.Array], batch: LLMIndexedBatch) -> jax.Array:
    """Causal attention that stays inside each document."""
    x = weights["tokens"][batch.inputs] + weights["places"][batch.inputs_position]
    q, k, v = jnp.split(x @ weights["qkv"], 3, axis=-1)
    segments = batch.inputs_segmentation
    seen = jnp.tril(jnp.ones((ROW, ROW), bool)) & (segments[:, :, None] == segments[:, None, :])
    scores = jnp.where(seen, q @ k.mT / WIDTH**0.5, -1e9)
    return (x + jax.nn.softmax(scores) @ v) @ weights["out"]


def loss_of(weights: dict[str, jax.Array], batch: LLMIndexedBatch) -> jax.Array:
    """Mean loss over the targets that are no padding."""
    scores = jax.nn.log_softmax(logits(weights, batch))
    picked = jnp.take_along_axis(scores, batch.targets[..., None], axis=-1)[..., 0]
    real = batch.targets_segmentation > 0
    return -(picked * real).sum() / real.sum()


@jax.jit
def update(weights: dict[str, jax.Array], batch: LLMIndexedBatch) -> tuple[dict[str, jax.Array], jax.Array]:
    """One step of gradient descent."""
    loss, gradient = jax.value_and_grad(loss_of)(weights, batch)
    return jax.tree.map(lambda w, g: w - g, weights, gradient), loss


def main() -> None:
    """Build, train, stop, and resume in a fresh loader."""
    folder = Path(tempfile.mkdtemp(prefix="lading-jax-"))
    store = build_tokens(sorted(Path(os.__file__).parent.glob("a*.py")), folder / "tokens", split="paragraph")
    rows = PackedRows(store, PackingRules(ROW, "best_fit", "split"))
    loader = JaxLoader({"library": rows}, global_batch_size=16, seed=1, convert=llm_batch)
    weights = initial(store.vocab_size)

    for batch, bill in loader.with_bills():
        weights, loss = update(weights, batch)
        print(f"step {bill.step}: loss {loss:.3f} on {batch.inputs.shape} tokens, {batch.inputs.sharding.spec}")
        if bill.step == 9:
            break
    assert_isolated(lambda b: logits(weights, b), batch)
    fresh = JaxLoader({"library": rows}, global_batch_size=16, seed=1, convert=llm_batch)
    fresh.set_state(loader.get_state())
    print(f"documents see only themselves; a fresh loader resumes at step {fresh.step} of {len(fresh)}")


if __name__ == "__main__":
    main()
