"""Assemble JASPER batches from tables by gathering rows, never sample by sample.

pairs [B] ─┬─▶ pair_index ─▶ question_embs, source_embs      one index_select each
           ├─▶ hard_negatives [B, n_neg] ─▶ source_embs      one index_select over B * n_neg rows
           └─▶ variants [B] ─▶ three steering tables         the rows of each variant, zeros elsewhere
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lading.runtime.arrays import read_ahead_at
from lading.source.columns import Buffers
from lading.source.spec import BatchSpec, Field

STEERING = ("steering_centroid", "steering_keyword_weighted", "steering_residual")


class Tables:
    """What a batch is made of; the dataset itself is such an object."""

    device: torch.device
    use_mmap: bool
    question_embs: Tensor
    source_embs: Tensor
    pair_index: Tensor
    pair_cluster_id: Tensor
    pair_relevance: Tensor
    hard_negatives: Tensor
    negative_tiers: Tensor
    steering_centroid: Tensor
    steering_keyword_weighted: Tensor
    steering_residual: Tensor
    centroid_distances: Tensor
    steering_stack: SteeringStack | None


@dataclass(frozen=True)
class SteeringStack:
    """The three steering tables end to end with a row of zeros, so that one gather serves all four variants.

    Attributes:
        rows: [3 P + 1, D].
        tables: The three tables as views of it.
    """

    rows: Tensor
    tables: tuple[Tensor, ...]

    @classmethod
    def of(cls, tables: dict[str, Tensor]) -> SteeringStack:
        """Move the steering tables into one; each is let go as soon as it is copied."""
        count, dim = tables[STEERING[0]].shape
        rows = tables[STEERING[0]].new_zeros((len(STEERING) * count + 1, dim))
        views = []
        for number, name in enumerate(STEERING):
            views.append(rows[number * count : (number + 1) * count].copy_(tables[name]))
            tables[name] = views[-1]
        return cls(rows, tuple(views))

    def backs(self, tables: Tables) -> bool:
        """True unless a table was replaced by another tensor."""
        return all(view is table for view, table in zip(self.tables, _steering_tables(tables), strict=True))

    def places(self, pairs: NDArray[np.int64], variants: NDArray[np.int64]) -> Tensor:
        """Return the row of each pair's variant."""
        count = len(self.tables[0])
        return torch.from_numpy(np.where(variants == 0, len(self.rows) - 1, pairs + (variants - 1) * count))


def jasper_spec(embedding_dim: int | str, n_neg: int | str, n_clusters: int | None) -> BatchSpec:
    """Return what a batch must look like: the nine keys, their shapes, types and ranges.

    Args:
        embedding_dim: D, or a word where it is not known.
        n_neg: Negatives of a pair, or a word.
        n_clusters: Number of clusters; None: not known.
    """
    clusters = Field(("B",), "int64", low=0) if n_clusters is None else Field(("B",), "int64", below=n_clusters)
    row = Field(("B", embedding_dim), "float32")
    return BatchSpec(
        {
            "question_emb": row,
            "target_source_emb": row,
            "steering": row,
            "negative_embs": Field(("B", n_neg, embedding_dim), "float32"),
            "cluster_id": clusters,
            "relevance": Field(("B",), "float32", low=0, high=1),
            "centroid_distance": Field(("B",), "float32", low=0, high=2),
            "steering_variant": Field(("B",), "int64", low=0, high=3),
            "negative_tiers": Field(("B", n_neg), "int64", low=1, high=4),
        }
    )


def gather_batch(
    tables: Tables, numbers: NDArray[np.int64], variants: NDArray[np.int64], buffers: Buffers
) -> dict[str, Tensor]:
    """Return the batch of some pairs, each with its steering variant; large columns lie in unused memory."""
    pairs = torch.from_numpy(numbers).to(tables.device)
    rows = tables.pair_index.index_select(0, pairs)
    negatives = tables.hard_negatives.index_select(0, pairs)
    if tables.use_mmap and tables.device.type == "cpu":
        _read_ahead(tables.question_embs, rows[:, 0])
        _read_ahead(tables.source_embs, torch.cat([rows[:, 1], negatives.view(-1)]))
    out = _columns(tables, len(numbers), negatives.shape[1], buffers)
    torch.index_select(tables.question_embs, 0, rows[:, 0], out=out["question_emb"])
    torch.index_select(tables.source_embs, 0, rows[:, 1], out=out["target_source_emb"])
    torch.index_select(tables.source_embs, 0, negatives.view(-1), out=out["negative_embs"].flatten(0, 1))
    stack = tables.steering_stack
    if stack is not None and stack.backs(tables):
        torch.index_select(stack.rows, 0, stack.places(numbers, variants).to(tables.device), out=out["steering"])
    else:
        _steer(tables, pairs, variants, out["steering"])
    return {
        **out,
        "cluster_id": tables.pair_cluster_id.index_select(0, pairs),
        "relevance": tables.pair_relevance.index_select(0, pairs),
        "centroid_distance": tables.centroid_distances.index_select(0, pairs),
        "steering_variant": torch.from_numpy(variants).to(tables.device),
        "negative_tiers": tables.negative_tiers.index_select(0, pairs),
    }


def _read_ahead(table: Tensor, rows: Tensor) -> None:
    """Announce rows of a mapped table; if one of them is not there, the gather says so."""
    size = table.shape[1] * table.element_size()
    read_ahead_at(table.data_ptr(), rows.numpy() * np.int64(size), size)


def _columns(tables: Tables, rows: int, n_neg: int, buffers: Buffers) -> dict[str, Tensor]:
    """Return the four large columns, to be filled."""
    dim = tables.question_embs.shape[1]
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("question_emb", "target_source_emb", "steering"), (rows, dim))
    shapes["negative_embs"] = rows, n_neg, dim
    if tables.device.type != "cpu":
        return {key: torch.empty(shape, device=tables.device) for key, shape in shapes.items()}
    made = buffers.borrow(shapes, lambda: {key: np.empty(shape, np.float32) for key, shape in shapes.items()})
    return {key: torch.from_numpy(array) for key, array in made.items()}


def gather_sample(tables: Tables, pair: int, variant: int) -> dict[str, Tensor]:
    """Return one pair; every value is a copy, because a mapped row must not be written to."""
    question, source = tables.pair_index[pair].tolist()
    row = tables.question_embs[question].clone()
    return {
        "question_emb": row,
        "target_source_emb": tables.source_embs[source].clone(),
        "steering": _steering_tables(tables)[variant - 1][pair].clone() if variant else torch.zeros_like(row),
        "negative_embs": tables.source_embs[tables.hard_negatives[pair]],
        "cluster_id": tables.pair_cluster_id[pair].clone(),
        "relevance": tables.pair_relevance[pair].clone(),
        "centroid_distance": tables.centroid_distances[pair].clone(),
        "steering_variant": torch.tensor(variant, device=tables.device),
        "negative_tiers": tables.negative_tiers[pair].clone(),
    }


def _steer(tables: Tables, pairs: Tensor, variants: NDArray[np.int64], out: Tensor) -> None:
    """Fill in the steering of each row from separate tables, as mapped ones are."""
    for number, table in enumerate((None, *_steering_tables(tables))):
        rows = torch.from_numpy(np.flatnonzero(variants == number)).to(tables.device)
        if table is None:
            out.index_fill_(0, rows, 0.0)
        elif len(rows) == len(out):
            torch.index_select(table, 0, pairs, out=out)
        elif len(rows):
            out.index_copy_(0, rows, table.index_select(0, pairs[rows]))


def _steering_tables(tables: Tables) -> tuple[Tensor, Tensor, Tensor]:
    return tables.steering_centroid, tables.steering_keyword_weighted, tables.steering_residual
