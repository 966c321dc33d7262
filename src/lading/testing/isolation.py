"""Prove that packed documents do not see each other.

    row        a a a b b c c ·
    perturb          x x            every token of one document
    compare    = = = ~ ~ = = ·      its own outputs must change, no other's may

The leak that people keep finding: an attention mask, a convolution, a recurrent
state or a normalisation that reaches over the border of a document.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.batch.llm import LLMBatch
from lading.runtime.arrays import as_int32, framework, host, namespace


def assert_isolated(
    model: Callable[[Any], Any], batch: LLMBatch, *, tolerance: float = 1e-5, max_documents: int = 4
) -> None:
    """Raise an ``AssertionError`` if changing one document changes what a model says about another in its row.

    Args:
        model: Takes the batch and returns an array [B, T, ...] (torch, JAX or NumPy): logits or losses per position.
        batch: Packed rows, of which at least one holds two documents.
        tolerance: Largest change that counts as none, relative to the largest output.
        max_documents: Places in the row that are tried, spread from the first document to the last.
    """
    segments = host(batch.inputs_segmentation)
    if segments.ndim != 2 or int(segments.max(initial=0)) < 2:
        raise AssertionError(
            "no row holds two documents, so nothing could leak. Pack shorter documents, or use longer rows."
        )
    before = _outputs(model, batch, segments)
    allowed = tolerance * max(1.0, float(np.abs(before).max(initial=0)))
    if np.abs(_outputs(model, batch, segments) - before).max(initial=0) > allowed:
        raise AssertionError(
            "the model answers the same batch differently each time, so a leak cannot be distinguished from chance. "
            "Switch dropout off (model.eval()), or pass a fixed key."
        )
    has_two = segments.max(axis=1) >= 2
    for number in _spread(int(segments.max()), max_documents):
        _assert_one(model, batch, before, (segments == number) & has_two[:, None], allowed)


def _spread(last: int, count: int) -> list[int]:
    return sorted(set(np.linspace(1, last, min(count, last)).round().astype(int).tolist()))


def _assert_one(
    model: Callable[[Any], Any], batch: LLMBatch, before: NDArray[Any], chosen: NDArray[np.bool_], allowed: float
) -> None:
    segments = host(batch.inputs_segmentation)
    changed = batch.replace(inputs=_perturbed(batch.inputs, chosen))
    change = np.abs(_outputs(model, changed, segments) - before)
    if chosen.any() and change[chosen].max(initial=0) <= allowed:
        raise AssertionError(
            "the model does not react to other tokens at all, so a leak cannot be seen. "
            "Check that it reads batch.inputs and that its weights are not zero."
        )
    touched = chosen.any(axis=1)
    leaks: NDArray[np.bool_] = (change > allowed) & ~chosen & (segments > 0) & np.asarray(touched)[:, None]
    if leaks.any():
        row, position = (int(place[0]) for place in np.nonzero(leaks))
        mine, theirs = int(segments[row][chosen[row]][0]), int(segments[row, position])
        raise AssertionError(
            f"documents leak: changing the tokens of segment {mine} in row {row} changed the output for segment "
            f"{theirs} at position {position} by {change[row, position]:.3g} (allowed {allowed:.3g}). Mask attention "
            "by inputs_segmentation, and reset recurrent states at get_document_borders()."
        )


def _perturbed(inputs: Any, chosen: NDArray[np.bool_]) -> Any:
    """Return the inputs with each chosen token replaced by another one of the batch: it stays in the vocabulary."""
    tokens = host(inputs)
    known = np.unique(tokens)
    if len(known) < 2:
        raise AssertionError("the batch holds one token only, so nothing can be changed. Pass real or random tokens.")
    others = known[(np.searchsorted(known, tokens) + 1) % len(known)]
    changed = np.where(chosen, others, tokens)
    if framework(inputs) == "torch":
        return as_int32(changed, inputs).to(inputs.dtype)
    return namespace(inputs).asarray(changed, dtype=inputs.dtype)


def _outputs(model: Callable[[Any], Any], batch: LLMBatch, segments: NDArray[Any]) -> NDArray[np.float64]:
    """Return one number for each position: what a model says there, features summed with fixed weights."""
    found: NDArray[np.float64] = host(model(batch)).astype(np.float64)
    if found.shape[:2] != segments.shape:
        raise AssertionError(
            f"the model returns an array of shape {found.shape} for rows of {segments.shape}, expected [B, T, ...]: "
            "outputs for each position. Return the logits, not the mean loss."
        )
    flat = found.reshape(*segments.shape, -1)
    # Unequal weights, so that changes of several features cannot cancel out.
    found = flat @ np.linspace(1.0, 2.0, flat.shape[-1]) if flat.shape[-1] > 1 else flat[..., 0]
    return found
