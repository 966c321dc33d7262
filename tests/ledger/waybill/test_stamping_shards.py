"""Checkpoints that several processes write together."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launching import torchrun

from lading.report import open_checkpoint
from lading.report.checkpoint.check import check

SCRIPT = Path(__file__).parent / "scripts" / "dcp.py"


@pytest.mark.launch
def test_a_distributed_checkpoint_of_two_processes_has_its_waybill(tmp_path):
    """Saved together, and in the background; rank 0 covers the files of both."""
    torchrun(SCRIPT, 2, tmp_path)

    for step in (4, 6):
        opened = open_checkpoint(tmp_path / f"step-{step}")
        assert {".metadata", "__0_0.distcp", "__1_0.distcp"} <= set(opened.waybill.files)
        assert check(opened).holds
        assert opened.totals().dicts()[0]["samples"] == step * 8
        (tmp_path / f"step-{step}" / "__1_0.distcp").write_bytes(b"other")
        assert check(opened).faults[0].startswith("__1_0.distcp was changed")
