"""Where everything of a run lies on disk.

    runs/7/
    ├── run.json                                what the run is: plans, datasets, versions, attempts
    ├── events.jsonl                            what happened to it as a whole
    └── ledger/attempt=0002/launch.json         where this life of the run began, with how many ranks
               └── rank=00001/part-000041.parquet       batches; one row a batch
                             samples-000041.parquet     names of samples, where no plan predicts them
                             manifest.jsonl             size and SHA-256 of every closed part
                             tail                       what is not in a part yet

One process writes in a rank's folder, and readers need nobody's permission.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

LEDGER_VERSION = 1

_ATTEMPT = re.compile(r"attempt=(\d+)$")
_RANK = re.compile(r"rank=(\d+)$")


@dataclass(frozen=True)
class RankFolder:
    """The folder of one rank in one attempt."""

    path: Path
    attempt: int
    rank: int

    @property
    def tail(self) -> Path:
        """What is not in a part yet."""
        return self.path / "tail"

    @property
    def manifest(self) -> Path:
        """Size and SHA-256 of every closed part."""
        return self.path / "manifest.jsonl"

    def part(self, table: str, number: int) -> Path:
        """Return the file of a closed part of ``batches`` or ``samples``."""
        return self.path / f"{'part' if table == 'batches' else table}-{number:06d}.parquet"


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run."""

    path: Path

    @property
    def description(self) -> Path:
        """What the run is."""
        return self.path / "run.json"

    @property
    def events(self) -> Path:
        """What happened to the run as a whole."""
        return self.path / "events.jsonl"

    @property
    def ledger(self) -> Path:
        """The folder of all attempts."""
        return self.path / "ledger"

    def attempt(self, attempt: int) -> Path:
        """Return the folder of an attempt."""
        return self.ledger / f"attempt={attempt:04d}"

    def launch(self, attempt: int) -> Path:
        """Return the file that says where an attempt began."""
        return self.attempt(attempt) / "launch.json"

    def rank(self, attempt: int, rank: int) -> RankFolder:
        """Return the folder of a rank in an attempt."""
        return RankFolder(self.attempt(attempt) / f"rank={rank:05d}", attempt, rank)

    def attempts(self) -> list[int]:
        """Return the numbers of the attempts on disk, in order."""
        return _numbers(self.ledger, _ATTEMPT)

    def ranks(self, attempt: int) -> list[RankFolder]:
        """Return the folders of the ranks of an attempt, in order."""
        return [self.rank(attempt, rank) for rank in _numbers(self.attempt(attempt), _RANK)]


def _numbers(folder: Path, pattern: re.Pattern[str]) -> list[int]:
    try:
        matches = [pattern.match(child.name) for child in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(match.group(1)) for match in matches if match)
