"""Law 4 of the record: no consistent rewriting of a sealed run leaves a kept head and ``verify`` as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.campaigns.rehash import rehash
from tests.campaigns.rewriting import Campaign, parts, rewrite_part

from lading.ledger import Ledger
from lading.ledger.schema import SCHEMAS
from lading.order import Plan
from lading.report import open_run

PLAN = Plan.make({"code": 700, "prose": 310}, batch_size=8, seed=3)


def consumed(path: Path) -> dict[str, Any]:
    with Ledger(path, PLAN) as ledger:
        for step in range(100):
            ledger.commit(PLAN.bill(step), update=step, loss=1.0)
    return open_run(path).verify().to_dict()


def skip_fifty(name: str, table: pa.Table) -> pa.Table:
    rows = table.to_pylist(maps_as_pydicts=None)
    for row in rows[20:70]:
        row.update(fate="skipped", update=None, loss=None, reason="overflow")
    return pa.Table.from_pylist(rows, schema=SCHEMAS[name])


@pytest.mark.parametrize("knows_the_rows", [False, True])
def test_fifty_steps_that_become_skipped_are_found_by_the_kept_head(tmp_path: Path, knows_the_rows: bool):
    """Parquet, manifest and begun consistent, the log left alone: the attack that held before there was a seal."""
    kept = consumed(tmp_path)
    assert kept["holds"] and kept["unsealed"] is None

    rewrite_part(parts(tmp_path)[0], skip_fifty)
    rehash(tmp_path)
    if knows_the_rows:
        told = [f["message"] for f in open_run(tmp_path).verify().to_dict()["findings"]]
        assert any("rows are not the 100" in text for text in told)
        _know_the_rows(tmp_path)
        rehash(tmp_path)

    found = open_run(tmp_path).verify().to_dict()
    assert (found["head"], found["digest"]) == (kept["head"], kept["digest"])
    assert not found["holds"]
    if knows_the_rows:
        assert "what the ranks of attempt 0 recorded is not what" in found["findings"][0]["message"]


def _know_the_rows(run: Path) -> None:
    """Let begun say what is stored now, as whoever reads the code would."""
    from functools import partial

    from lading.ledger.parts import pieces_of, read_closed, read_manifest
    from lading.ledger.row_hash import rows_hash
    from lading.ledger.run_folder import RunFolder

    folder = RunFolder(run).rank(0, 0)
    rows = rows_hash(pieces_of(read_manifest(folder).parts, partial(read_closed, folder), {}))
    fields = json.loads(folder.begun.read_text())
    folder.begun.write_text(json.dumps({**fields, "rows": rows.rows, "rows_sha256": rows.sha256}))


@pytest.mark.filterwarnings("ignore")
def test_a_consistent_rewriting_is_found_by_the_kept_head(tmp_path: Path):
    """The small twin of law 4: any column of any table, tails, manifests, begun."""
    campaign = Campaign(tmp_path, [("content", 1, 0), ("names", 3, 1)])

    for number in range(60):
        campaign.change(4, number)

    assert not campaign.found.failures
    assert campaign.found.figures["found"] > 40


@pytest.mark.filterwarnings("ignore")
def test_without_the_seal_rewritings_hold(tmp_path: Path, monkeypatch):
    """The campaign can fail: what the seal finds, nothing else does."""
    monkeypatch.setattr("lading.report.verify.checking.check_seal", lambda *given: None)
    campaign = Campaign(tmp_path, [("digest", 1, 0)])

    for number in range(15):
        campaign.change(4, number)

    assert len(campaign.found.failures) > 5


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore")
def test_a_thousand_consistent_rewritings_are_found_by_the_kept_head(tmp_path: Path):
    """All kinds of record, 1 and 3 ranks, killed and ended."""
    campaign = Campaign(tmp_path)

    number = 0
    while campaign.found.figures["found"] < 1000:
        campaign.change(5, number)
        number += 1

    print(dict(campaign.found.figures))
    assert not campaign.found.failures
