"""Ledgers of version 2 are read for ever; the format changes only by decision."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lading.errors import LedgerError
from lading.ledger import LEDGER_VERSION
from lading.ledger.schema import BATCHES, SAMPLES
from lading.report import open_run

GOLDEN = Path(__file__).parent / "golden" / "v2"


def test_the_version_is_what_the_golden_files_are():
    """A new version needs new golden files beside the old ones."""
    assert LEDGER_VERSION == 2


def test_a_planned_run_of_version_2_tells_what_it_told():
    """Fates, attempts, exceptions, tails."""
    run = open_run(GOLDEN / "planned")

    verdict = run.verify().to_dict()
    head = verdict.pop("head")
    assert not verdict.pop("not_yet")
    assert verdict == {"holds": True, "steps": 15, "unused": [], "digest": "053cb2970049aa47", "findings": []}
    assert head["number"] == 1
    assert run.history["fate"] == ["applied"] * 4 + ["skipped"] + ["applied"] * 10
    assert run.history["attempt"] == [0] * 10 + [1] * 5
    assert run.history["loss"][10:] == [0.5] * 5
    assert run.step(3).exceptions[0]["substitute"] == 5
    assert run.step(2).metrics == {"lr": 0.25}
    assert run.sql("SELECT count(*) AS n FROM batches WHERE fate = 'rolled back'")["n"] == [2]


def test_an_observed_run_of_version_2_tells_what_it_told():
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
        ("planned", "part-000000.parquet", BATCHES),
        ("observed", "samples-000000.parquet", SAMPLES),
    ],
)
def test_the_columns_are_frozen(kind: str, file: str, schema: pa.Schema):
    """Names and types of version 2."""
    found = pq.read_schema(GOLDEN / kind / "ledger" / "attempt=0000" / "rank=00000" / file)

    assert found.names == schema.names
    assert [f.type for f in found] == [f.type for f in schema]


@pytest.mark.parametrize(("version", "way_out"), [(1, "before the first release"), (9, "Update Lading to read it")])
def test_another_version_is_refused(tmp_path: Path, version: int, way_out: str):
    """With one sentence, and the way out."""
    golden = (GOLDEN / "planned" / "run.json").read_bytes()
    (tmp_path / "run.json").write_bytes(golden.replace(b'_version": 2', f'_version": {version}'.encode()))

    with pytest.raises(LedgerError, match=rf"has version {version}, this Lading reads version 2\. .*{way_out}"):
        open_run(tmp_path)
