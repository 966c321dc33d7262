"""Is a checkpoint what its waybill says: every byte of every file, its parents, and the run that it names."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lading.ledger.waybill.covered import files_of, hashed
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
    verdict = CheckpointVerdict()
    _check_files(checkpoint, verdict, progress)
    verdict.faults += [member.problem for member in checkpoint.family()[1:] if "was changed" in member.problem]
    verdict.remarks += [why for why in checkpoint.unknown if why not in verdict.faults]
    moment = checkpoint.waybill.moment
    for run in checkpoint.runs_asked(verdict.remarks):
        launch = run.evidence.launches[run.evidence.leaf or 0]
        if moment is not None and launch.sha256 == moment.launch and launch.plan_sha256 != moment.plan_sha256:
            verdict.faults.append(f"{run.path}: attempt {launch.attempt} followed another plan than the waybill says")
    return verdict


def _check_files(checkpoint: OpenedCheckpoint, verdict: CheckpointVerdict, progress: Progress) -> None:
    known, there = checkpoint.waybill.files, files_of(checkpoint.path)
    if not checkpoint.path.is_dir() and len(known) == 1:  # a single file may have another name by now
        there = {next(iter(known)): checkpoint.path}
    looked_at = {name: path for name, path in there.items() if name in known}
    found = hashed(looked_at, 0, lambda share: progress(share, str(checkpoint.path)))
    verdict.bytes = sum(file.size for file in found.values())
    for name, file in known.items():
        if name not in found:
            verdict.faults.append(f"{name} is missing")
        elif found[name] != file:
            whose = _owner(checkpoint.path, found[name].sha256)
            what = f"it is the file of {whose}" if whose else f"its SHA-256 is {found[name].sha256[:16]}..."
            verdict.faults.append(f"{name} was changed: {what}, the waybill says {file.sha256[:16]}...")
        else:
            verdict.files += 1
    verdict.not_covered += [name for name in there if name not in known]


def _owner(checkpoint: Path, sha256: str) -> str | None:
    """Return the checkpoint beside this one whose waybill has a file with a SHA-256: two may have been exchanged."""
    for path, waybill in waybills_below(checkpoint.absolute().parent, deepest=1):
        if any(file.sha256 == sha256 for file in waybill.files.values()):
            moment = waybill.moment
            return path.name if moment is None else f"{path.name}, step {moment.step} of attempt {moment.attempt}"
    return None
