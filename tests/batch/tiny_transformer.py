"""One small transformer, written once for JAX and once for torch, with the same weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch

VOCAB, WIDTH, LENGTH = 32, 16, 64


def weights(seed=0):
    """The weights as NumPy arrays: embeddings, two layers of attention and MLP, output."""
    random = np.random.default_rng(seed)

    def matrix(*shape):
        return random.normal(0, 0.3, shape).astype(np.float32)

    layers = {}
    for n in range(2):
        layers |= {f"qkv{n}": matrix(WIDTH, 3 * WIDTH), f"out{n}": matrix(WIDTH, WIDTH)}
        layers |= {f"up{n}": matrix(WIDTH, 2 * WIDTH), f"down{n}": matrix(2 * WIDTH, WIDTH)}
    return {"tokens": matrix(VOCAB, WIDTH), "places": matrix(LENGTH, WIDTH), **layers, "logits": matrix(WIDTH, VOCAB)}


def logits(space, weights, batch, *, masked=True):
    """Logits [B, T, VOCAB] on ``jax.numpy`` or ``torch``; without the mask, documents of a row see each other."""
    x = weights["tokens"][batch.inputs] + weights["places"][batch.inputs_position]
    length = batch.inputs.shape[1]
    seen = space.tril(space.ones((length, length), dtype=space.bool if space is torch else bool))[None]
    if masked:
        segments = batch.inputs_segmentation
        seen = seen & (segments[:, :, None] == segments[:, None, :])
    for n in range(2):
        q, k, v = ((x @ weights[f"qkv{n}"])[..., i * WIDTH : (i + 1) * WIDTH] for i in range(3))
        scores = space.where(seen, q @ space.swapaxes(k, 1, 2) / WIDTH**0.5, -1e9)
        attention = jax.nn.softmax(scores, -1) if space is jnp else torch.softmax(scores, -1)
        x = x + (attention @ v) @ weights[f"out{n}"]
        x = x + space.tanh(x @ weights[f"up{n}"]) @ weights[f"down{n}"]
    return x @ weights["logits"]


def loss(space, weights, batch):
    """Mean loss over the targets that are no padding."""
    found = logits(space, weights, batch)
    shifted = found - found.max(-1, keepdims=True) if space is jnp else found - found.amax(-1, keepdim=True)
    log_norm = space.log(space.exp(shifted).sum(-1))
    target = batch.targets[..., None]
    chosen = jnp.take_along_axis(shifted, target, -1) if space is jnp else shifted.gather(-1, target.long())
    real = batch.targets_segmentation > 0
    return space.where(real, log_norm - chosen[..., 0], 0.0).sum() / real.sum()


jax_step = jax.jit(jax.value_and_grad(lambda weights, batch: loss(jnp, weights, batch)))


def train_jax(batch, steps=6, rate=0.5):
    """Losses of some steps of gradient descent with JAX."""
    now, losses = {name: jnp.asarray(value) for name, value in weights().items()}, []
    for _ in range(steps):
        value, gradient = jax_step(now, batch)
        now = jax.tree.map(lambda w, g: w - rate * g, now, gradient)
        losses.append(value.item())
    return losses


def train_torch(batch, steps=6, rate=0.5):
    """Losses of some steps of gradient descent with torch."""
    now, losses = {name: torch.tensor(value, requires_grad=True) for name, value in weights().items()}, []
    optimizer = torch.optim.SGD(now.values(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(torch, now, batch)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses
