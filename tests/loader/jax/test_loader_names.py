"""The names that count are the batch's, on a mesh as well."""

from __future__ import annotations

import numpy as np
import pytest
from tests.loader.named_sources import SOURCES, by_dataset, carried, named

from lading import BatchTracker, JaxLoader, Ledger, open_run


@pytest.mark.parametrize("make", SOURCES)
def test_jax_loader_books_what_the_batch_carries(make, tmp_path):
    """The same on a mesh, with padded rows marked: batch, bill, tracker and ledger."""
    tracker, ledger = BatchTracker(), Ledger(tmp_path)
    loader = JaxLoader(make(), 3, tracker=[tracker, ledger])
    seen = []

    for batch, bill in loader.with_bills():
        real = ~np.asarray(batch["is_padding"])
        assert [s for s, r in zip(carried(batch), real, strict=True) if r] == named(batch) == bill.samples
        seen += named(batch)
        ledger.commit(bill)
    ledger.close()

    run = open_run(tmp_path)
    assert run.verify().holds
    assert [(row["dataset"], row["index"]) for row in run.sql("SELECT * FROM samples ORDER BY step, slot")] == seen
    assert tracker.samples_idx_per_dataset == by_dataset(seen)
