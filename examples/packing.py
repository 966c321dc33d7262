"""Pack a corpus into rows, train on them, and ask which steps saw a document.

    python examples/packing.py

The corpus is Python's own standard library: a document for each module. Nothing is
packed twice, nothing is loaded into memory, and every row knows whose tokens it holds.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import torch

from lading import Ledger, Loader, PackedRows, open_run
from lading.batch import cu_seqlens, llm_batch, max_seqlen
from lading.order.packing.rules import PackingRules
from lading.source.tokens.build import build_tokens


class Predictor(torch.nn.Module):
    """The smallest language model: the next byte from this one."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(vocab_size, vocab_size)

    def loss(self, batch) -> torch.Tensor:
        """Mean loss over the targets that are no padding."""
        real = batch.targets_segmentation > 0
        return torch.nn.functional.cross_entropy(self.table(batch.inputs)[real], batch.targets[real].long())


def main() -> None:
    """Build, pack, train, ask."""
    folder = Path(tempfile.mkdtemp(prefix="lading-packing-"))
    modules = sorted(Path(os.__file__).parent.glob("*.py"))[20:50]

    store = build_tokens(modules, folder / "tokens")
    rows = PackedRows(store, PackingRules(row_length=2048, algorithm="best_fit", overflow="split"))
    print(f"{len(store)} documents, {store.num_tokens} tokens in {len(rows)} rows, density {rows.index.density:.4f}")

    loader = Loader({"library": rows}, batch_size=8, seed=1)
    ledger = Ledger(folder / "run", loader.plan)
    loader.tracker = ledger
    model = Predictor(store.vocab_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for columns, bill in loader.with_bills():
        batch = llm_batch(columns)
        loss = model.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ledger.commit(bill, loss=loss.item())
        if bill.step % 10 == 0:
            segments = len(cu_seqlens(batch)) - 1
            print(f"step {bill.step}: loss {loss.item():.3f}, {segments} segments, longest {max_seqlen(batch)}")
    ledger.close()

    document = 7
    run = open_run(folder / "run")
    steps = [place["step"] for piece in rows.rows_of_document(document) for place in run.where("library", piece.row)]
    print(f"{modules[document].name} ({len(store[document])} tokens) was in steps {sorted(set(steps))}")
    print(f"the same from the command line: lading where {folder / 'run'} library --document {document}")


if __name__ == "__main__":
    main()
