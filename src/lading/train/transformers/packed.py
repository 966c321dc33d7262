"""Documents of rows that TRL packed: kept through its packing, and written down as a packing index.

    documents ─▶ tokenized ─▶ two columns of numbers beside the tokens ─▶ TRL's own packing ─▶ rows
                              document, position in it                                        │
    lading where RUN data --document 81  ◀── packing index ◀── runs of equal documents ◀──────┘

TRL packs every list column alike, so the numbers arrive where their tokens do,
whatever the strategy; Trainer drops them before the model as columns it does
not take.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lading.order.packing.file import save_index
from lading.order.packing.index import PackingIndex, lengths_hash
from lading.order.packing.rules import PackingRules

DOCUMENT, POSITION = "lading_document", "lading_position"


@contextlib.contextmanager
def documents_kept() -> Iterator[None]:
    """Let TRL's packing keep the numbers of documents inside the block."""
    from trl.trainer import sft_trainer

    module: Any = sft_trainer
    original = module.pack_dataset

    def pack_dataset(dataset: Any, *args: Any, **options: Any) -> Any:
        return original(_numbered(dataset), *args, **options)

    module.pack_dataset = pack_dataset
    try:
        yield
    finally:
        module.pack_dataset = original


def _numbered(dataset: Any) -> Any:
    """Return a tokenized dataset with the document and the position of each token beside it."""
    # A shuffled dataset keeps where its rows come from.
    order = getattr(dataset, "_indices", None)
    documents = np.arange(len(dataset)) if order is None else order.column(0).to_numpy()
    lengths = [len(tokens) for tokens in dataset["input_ids"]]
    owners = [[int(d)] * n for d, n in zip(documents, lengths, strict=True)]
    return dataset.add_column(DOCUMENT, owners).add_column(POSITION, [list(range(n)) for n in lengths])


class PackedDocuments:
    """What TRL packed, with two columns of numbers that say whose tokens a row holds; its index goes to a folder."""

    def __init__(self, dataset: Any, folder: str | Path) -> None:
        self.dataset = dataset
        self.index = packing_index(dataset)
        self._saved = save_index(self.index, Path(folder) / f"packing-{self.index.fingerprint}")

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, row: int) -> Any:
        return self.dataset[row]

    def fingerprint(self) -> str:
        """Return what identifies the rows."""
        return self.index.fingerprint

    def stored_at(self) -> str | None:
        """Return where the packing index is, for ``lading where --document``."""
        return self._saved.path


def packing_index(dataset: Any) -> PackingIndex:
    """Return which documents make up which row of a dataset packed inside ``documents_kept``."""
    offsets, document, start, size = [0], [], [], []
    for owners, positions in zip(dataset[DOCUMENT], dataset[POSITION], strict=True):
        who, where = np.asarray(owners), np.asarray(positions)
        is_first = np.ones(len(who), dtype=bool)
        is_first[1:] = (who[1:] != who[:-1]) | (where[1:] != where[:-1] + 1)
        firsts = np.flatnonzero(is_first)
        document.append(who[firsts])
        start.append(where[firsts])
        size.append(np.diff(np.append(firsts, len(who))))
        offsets.append(offsets[-1] + len(firsts))
    pieces = [np.concatenate(column) if column else np.zeros(0) for column in (document, start, size)]
    num_documents = int(pieces[0].max()) + 1 if len(pieces[0]) else 0
    tokens = np.bincount(pieces[0].astype(np.int64), weights=pieces[2], minlength=num_documents).astype(np.int64)
    row_length = max((sum(s.tolist()) for s in size), default=1)
    rules = PackingRules(row_length, algorithm="best_fit", overflow="split", append_eod=False)
    columns = (pieces[0].astype(np.int32), pieces[1].astype(np.int32), pieces[2].astype(np.int32))
    return PackingIndex(rules, num_documents, lengths_hash(tokens), np.asarray(offsets, dtype=np.int64), *columns)
