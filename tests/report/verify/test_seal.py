"""The chain of seals, where records of the log are missing, too."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from lading.ledger.launch import Seal
from lading.report.verify import seal
from lading.report.verify.verdict import Verdict


def test_a_seal_of_an_attempt_without_a_launch_is_a_fault_not_a_traceback():
    """The log's record of the launch was altered; what the ranks say is not what was sealed."""
    begun = SimpleNamespace(rows=1, attempt=1, rank=0)
    rank = SimpleNamespace(folder=SimpleNamespace(attempt=1, rank=0), begun=begun, last_step=lambda: 3)
    run = SimpleNamespace(record=lambda number: Path("log/000002.json"))
    log = SimpleNamespace(seals={2: Seal("ab" * 32, 2)})
    evidence, verdict = SimpleNamespace(ranks=[rank], log=log, run=run, launches={}), Verdict()

    seal._check_chain(evidence, verdict)
    seal._say_unsealed(evidence, verdict)

    assert not verdict.holds and "log/000002.json" in str(verdict.findings[0].message)
