"""Is the record what the plan says, sample for sample?

    files      the chain of the log, begun and manifest of each rank, SHA-256 of closed parts, CRCs of tails
    history    each step once, no step missing, digest of what was delivered = digest of what the plan says
    settled    every step by all ranks; and something was
    names      where names were kept: they hash to the digests
    rollouts   where training made its own data: each rollout is used or dropped, once, and none is lost track of
    seal       the rows of every rank that ended are those that the log sealed

Every fault names the file and the first wrong step. A tail that a crash cut
off is no fault: what it held was never called safe.
"""

from __future__ import annotations

import functools

from lading.errors import CorruptLedgerError
from lading.report.evidence import Evidence
from lading.report.verify.files import check_files
from lading.report.verify.history import check_history, check_names
from lading.report.verify.rollouts import check_rollouts
from lading.report.verify.seal import check_seal
from lading.report.verify.verdict import Verdict
from lading.runtime.blocks.progress import Progress, silent


def verify(evidence: Evidence, progress: Progress = silent, *, allow_empty: bool = False) -> Verdict:
    """Compare everything a run left on disk with itself and with its plan.

    Args:
        progress: Is called with how far it is, and what is looked at.
        allow_empty: Whether a record of nothing holds, too.
    """
    verdict = Verdict(head=evidence.log.head)
    history = functools.partial(check_history, allow_empty=allow_empty)
    for check in (check_files, history, check_names, check_rollouts, check_seal):
        try:
            check(evidence, verdict, progress)
        except CorruptLedgerError as error:  # it names the file
            if not verdict.faults:
                verdict.fault(str(error), file=evidence.run.path)
    progress(1.0, "done")
    return verdict
