"""Is a checkpoint what its waybill says: every byte of every file, its parents, and the run that it names."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lading.ledger.waybill.covered import files_of, hashed
from lading.ledger.waybill.waybill import CoveredFile
from lading.report.checkpoint.checkpoint import OpenedCheckpoint
from lading.report.checkpoint.family import waybills_below
from lading.runtime.blocks.progress import Progress, silent


@dataclass
class CheckpointVerdict:
    """What a check found.

    Attributes:
        files: Files that are as the waybill says.
        bytes: Bytes that were read.
        faults: Sentences about what is not as it says.
        not_covered: Files that were added since.
        remarks: Sentences about what could not be looked at.
    """

    files: int = 0
    bytes: int = 0
    faults: list[str] = field(default_factory=list)
    not_covered: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the waybill."""
        return not self.faults


def check(checkpoint: OpenedCheckpoint, progress: Progress = silent) -> CheckpointVerdict:
    """Read every file of a checkpoint and compare it with the waybill; look at its parents and its run."""
    path, known, there = checkpoint.path, checkpoint.waybill.files, files_of(checkpoint.path)
    if not path.is_dir() and len(known) == 1:  # a single file may have another name by now
        there = {next(iter(known)): path}
    covered = {name: file for name, file in there.items() if name in known}
    found = hashed(covered, True, lambda share: progress(share, str(path)))
    wrong = [name for name, file in known.items() if found.get(name) != file]
    verdict = CheckpointVerdict(len(known) - len(wrong), sum(file.size for file in found.values()))
    verdict.faults += [_fault(path, name, known[name], found.get(name)) for name in wrong]
    verdict.faults += [member.problem for member in checkpoint.family()[1:] if "was changed" in member.problem]
    verdict.not_covered += [name for name in there if name not in known]
    verdict.remarks += [why for why in checkpoint.unknown if why not in verdict.faults]
    for run in checkpoint.runs_asked(verdict.remarks):
        moment, launch = checkpoint.waybill.moment, run.evidence.launches[run.evidence.leaf or 0]
        if moment is not None and launch.sha256 == moment.launch and launch.plan_sha256 != moment.plan_sha256:
            verdict.faults.append(f"{run.path}: attempt {launch.attempt} followed another plan than the waybill says")
    return verdict


def _fault(checkpoint: Path, name: str, known: CoveredFile, found: CoveredFile | None) -> str:
    """Return what is wrong with a file; that of a checkpoint beside this one is named: they may have been exchanged."""
    if found is None:
        return f"{name} is missing"
    what = f"its SHA-256 is {found.sha256[:16]}..."
    for path, waybill in waybills_below(checkpoint.absolute().parent, deepest=1):
        if any(file.sha256 == found.sha256 for file in waybill.files.values()):
            moment = waybill.moment
            step = "" if moment is None else f", step {moment.step} of attempt {moment.attempt}"
            what = f"it is the file of {path.name}{step}"
            break
    return f"{name} was changed: {what}, the waybill says {known.sha256[:16]}..."
