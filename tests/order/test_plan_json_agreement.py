"""Two real ranks whose plans differ: both end at once, with the same sentence, before the first batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.launching import torchrun

DIFFERENCES = {
    "seed": "seed 1 -> 2",
    "weights": "weights or schedule (fingerprint) ",
    "length": "dataset 'code' 90 -> 91 samples",
    "batch_size": "global batch size 8 -> 16",
    "shuffle": "shuffle full -> none",
    "order_version": "order version 1 -> 99",
}


@pytest.mark.launch
def test_ranks_that_disagree_end_together(tmp_path):
    """Six kinds of disagreement, with and without a ledger; two ranks that agree train as if nothing were asked."""
    torchrun(Path(__file__).parent / "scripts" / "disagree.py", 2, tmp_path)

    ranks = [json.loads((tmp_path / f"found-{rank}.json").read_text()) for rank in range(2)]
    for what, words in DIFFERENCES.items():
        for kind in ("alone", "ledger"):
            case = [rank[f"{what} {kind}"] for rank in ranks]
            assert case[0]["error"] == case[1]["error"], (what, kind)
            assert case[0]["error"].startswith("WorldError: ranks disagree on the plan: rank 1 differs from rank 0 (")
            assert words in case[0]["error"]
            assert [found["batches"] for found in case] == [0, 0]
            assert max(found["seconds"] for found in case) < 60
        assert not list((tmp_path / f"run-{what}").glob("ledger/*"))  # no attempt was begun
    for kind in ("alone", "ledger"):
        case = [rank[f"nothing {kind}"] for rank in ranks]
        assert [(found["error"], found["batches"]) for found in case] == [("", 18), ("", 18)]
