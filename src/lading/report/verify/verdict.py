"""What ``verify`` has to say: findings, each with its file and step, and whether the record holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lading.runtime.blocks.progress import Progress as Progress


@dataclass(frozen=True)
class Remark:
    """One thing that ``verify`` has to say.

    Attributes:
        level: ``fault`` (the record is not what it should be) or ``note``.
        message: What, in one sentence.
        file: The file at fault.
        step: The first wrong step.
    """

    level: str
    message: str
    file: str | None = None
    step: int | None = None


@dataclass
class Verdict:
    """What ``verify`` found.

    Attributes:
        findings: Faults and notes, in the order they were found.
        steps: Steps of history that were compared.
        digest: Sum of their digests: equal for equal runs, whatever their world size.
        unused: Steps of history that no update used: a checkpoint was taken between their delivery and their update.
        head: Number and SHA-256 of the log's newest record, an anchor for those who keep it elsewhere.
        unsealed: First and last step of what ranks that run no more recorded and no seal holds; None: all is sealed.
        not_yet: What there is of a run that goes on and has committed nothing so far; "" otherwise.
    """

    findings: list[Remark] = field(default_factory=list)
    steps: int = 0
    digest: int = 0
    unused: list[int] = field(default_factory=list)
    head: tuple[int, str] | None = None
    unsealed: tuple[int, int] | None = None
    not_yet: str = ""

    @property
    def holds(self) -> bool:
        """Whether there is no fault."""
        return not self.faults

    @property
    def faults(self) -> list[Remark]:
        """The findings that make it not hold."""
        return [f for f in self.findings if f.level == "fault"]

    def fault(self, message: str, *, file: Any = None, step: int | None = None) -> None:
        """Add a fault."""
        self.findings.append(Remark("fault", message, None if file is None else str(file), step))

    def note(self, message: str, *, file: Any = None, step: int | None = None) -> None:
        """Add a note."""
        self.findings.append(Remark("note", message, None if file is None else str(file), step))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able fields."""
        return {
            "holds": self.holds,
            "not_yet": bool(self.not_yet),
            "steps": self.steps,
            "unused": self.unused,
            "digest": f"{self.digest:016x}",
            "head": None if self.head is None else {"number": self.head[0], "sha256": self.head[1]},
            "unsealed": None if self.unsealed is None else list(self.unsealed),
            "findings": [vars(f) for f in self.findings],
        }
