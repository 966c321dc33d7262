"""The names that count are the batch's: whatever stands between, everybody books what the batch carries."""

from __future__ import annotations

import pytest
from tests.loader.named_sources import SOURCES, by_dataset, carried, named

from lading import BatchTracker, Ledger, Loader, open_run


@pytest.mark.parametrize("make", SOURCES)
def test_loader_books_what_the_batch_carries(make, tmp_path):
    """Data, name columns, bill, tracker, ledger and where all name the same samples."""
    tracker, ledger = BatchTracker(), Ledger(tmp_path)
    loader = Loader(make(), batch_size=3, tracker=[tracker, ledger])
    seen = []

    for batch, bill in loader.with_bills():
        assert carried(batch) == named(batch) == bill.samples
        seen += named(batch)
        ledger.commit(bill)
    ledger.close()

    assert tracker.samples_idx_per_dataset == by_dataset(seen)
    run = open_run(tmp_path)
    assert run.verify().holds
    recorded = run.sql("SELECT dataset, index FROM samples ORDER BY step, slot").dicts()
    assert [(row["dataset"], row["index"]) for row in recorded] == seen
    assert sorted(len(run.where(d, i)) for d, i in seen) == sorted(seen.count(s) for s in seen)
