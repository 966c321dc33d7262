"""Ledgers of version 3 are read for ever; the format changes only by decision."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lading.errors import LedgerError
from lading.ledger import LEDGER_VERSION
from lading.ledger.schema import SCHEMAS
from lading.report import open_run
from lading.report.row_losses import row_losses

GOLDEN = Path(__file__).parent / "golden" / "v3"


def test_the_version_is_what_the_golden_files_are():
    """A new version needs new golden files beside the old ones."""
    assert LEDGER_VERSION == 3


def test_a_planned_run_of_version_3_tells_what_it_told():
    """Fates, attempts, exceptions, tails."""
    run = open_run(GOLDEN / "planned")

    verdict = run.verify().to_dict()
    head = verdict.pop("head")
    assert not verdict.pop("not_yet") and verdict.pop("unsealed") == [10, 14], "what the crash left is in no seal"
    assert verdict == {"holds": True, "steps": 15, "unused": [], "digest": "053cb2970049aa47", "findings": []}
    assert head["number"] == 2
    assert run.evidence.log.launches[1].seal == run.evidence.log.seals[1]
    assert row_losses(run.evidence, 2)[1].tolist() == [0.5 * row for row in range(8)]
    assert run.history["fate"] == ["applied"] * 4 + ["skipped"] + ["applied"] * 10
    assert run.history["attempt"] == [0] * 10 + [1] * 5
    assert run.history["loss"][10:] == [0.5] * 5
    assert run.step(3).exceptions[0]["substitute"] == 5
    assert run.step(2).metrics == {"lr": 0.25}
    assert run.sql("SELECT count(*) AS n FROM batches WHERE fate = 'rolled back'")["n"] == [2]


def test_an_observed_run_of_version_3_tells_what_it_told():
    """Names and content."""
    run = open_run(GOLDEN / "observed")

    assert run.verify().holds
    assert [(r["dataset"], r["index"]) for r in run.step(4).samples] == [
        (0, 11),
        (1, 9),
        (0, 13),
        (0, 10),
        (0, 56),
        (0, 30),
        (0, 40),
        (1, 4),
    ]
    assert run.content_of(4)[0] == -9103524123659699993


@pytest.mark.parametrize(
    ("kind", "file", "schema"),
    [
        ("planned", "part-000000.parquet", SCHEMAS["batches"]),
        ("observed", "samples-000000.parquet", SCHEMAS["samples"]),
    ],
)
def test_the_columns_are_frozen(kind: str, file: str, schema: pa.Schema):
    """Names and types of version 3."""
    found = pq.read_schema(GOLDEN / kind / "ledger" / "attempt=0000" / "rank=00000" / file)

    assert found.names == schema.names
    assert [f.type for f in found] == [f.type for f in schema]


@pytest.mark.parametrize(("version", "way_out"), [(2, "before the first release"), (9, "Update Lading to read it")])
def test_another_version_is_refused(tmp_path: Path, version: int, way_out: str):
    """With one sentence, and the way out."""
    golden = (GOLDEN / "planned" / "run.json").read_bytes()
    (tmp_path / "run.json").write_bytes(golden.replace(b'_version": 3', f'_version": {version}'.encode()))

    with pytest.raises(LedgerError, match=rf"has version {version}, this Lading reads version 3\. .*{way_out}"):
        open_run(tmp_path)
