"""Where everything of a run is on disk.

    runs/7/
    ├── run.json                    what the run is: its id, what is recorded, the datasets. Written once
    ├── plans/<fingerprint>.json    plans, events left out. Written once
    ├── plans/<sha256>.weights      integer weights of the samples of a source, that a plan names. Written once
    ├── log/000000.json ...         the run's log, one record a file; head.json knows the newest
    └── ledger/attempt=0002/begun/00001.json            rank 1 began, and how it ended
               └── rank=00001/part-000041.parquet       batches; one row a batch
                             samples-000041.parquet     names of samples, where no plan predicts them
                             events-000041.parquet      changes of the plan, jumps, checkpoints inside an update
                             row_losses-, rollouts-, uses-, fates-000041.parquet    where training records them
                             manifest.jsonl             size and SHA-256 of every closed part
                             tail                       what is not in a part yet
    └── texts/00001.jsonl           what the rollouts of rank 1 say, where they are kept: no part of the ledger

One process writes in a rank's folder, and readers need no lock.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

LEDGER_VERSION = 3

_ATTEMPT = re.compile(r"attempt=(\d{4,9})")
_RANK = re.compile(r"rank=(\d{5,9})")
_BEGUN = re.compile(r"(\d{5,9})\.json")
_RECORD = re.compile(r"(\d{6,9})\.json")
_PREFIXES = {"batches": "part"}


@dataclass(frozen=True)
class RankFolder:
    """The folder of one rank in one attempt."""

    path: Path
    attempt: int
    rank: int

    @cached_property
    def begun(self) -> Path:
        """The file that says that the rank began, and how it ended."""
        return self.path.parent / "begun" / f"{self.rank:05d}.json"

    @cached_property
    def tail(self) -> Path:
        """What is not in a part yet."""
        return self.path / "tail"

    @cached_property
    def manifest(self) -> Path:
        """Size and SHA-256 of every closed part."""
        return self.path / "manifest.jsonl"

    def part(self, table: str, number: int) -> Path:
        """Return the file of a closed part of a table."""
        return self.path / f"{_PREFIXES.get(table, table)}-{number:06d}.parquet"


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run."""

    path: Path

    @property
    def description(self) -> Path:
        """What the run is."""
        return self.path / "run.json"

    @cached_property
    def log(self) -> Path:
        """The folder of the run's log."""
        return self.path / "log"

    @cached_property
    def head(self) -> Path:
        """The file that knows the newest record of the log."""
        return self.log / "head.json"

    @cached_property
    def ledger(self) -> Path:
        """The folder of all attempts."""
        return self.path / "ledger"

    @property
    def texts(self) -> Path:
        """The folder of the rollouts' texts: it may be deleted, and nothing else of the run changes."""
        return self.path / "texts"

    def plan(self, fingerprint: str) -> Path:
        """Return the file of a plan."""
        return self.path / "plans" / f"{fingerprint}.json"

    def record(self, number: int) -> Path:
        """Return the file of a record of the log."""
        return self.log / f"{number:06d}.json"

    def attempt(self, attempt: int) -> Path:
        """Return the folder of an attempt."""
        return self.ledger / f"attempt={attempt:04d}"

    def begun(self, attempt: int) -> Path:
        """Return the folder in which the ranks of an attempt say that they began."""
        return self.attempt(attempt) / "begun"

    def rank(self, attempt: int, rank: int) -> RankFolder:
        """Return the folder of a rank in an attempt."""
        return RankFolder(self.attempt(attempt) / f"rank={rank:05d}", attempt, rank)

    def records(self) -> list[int]:
        """Return the numbers of the log's records on disk, in order."""
        return _numbers(self.log, _RECORD, 6)

    def attempts(self) -> list[int]:
        """Return the numbers of the attempts on disk, in order."""
        return _numbers(self.ledger, _ATTEMPT, 4)

    def ranks(self, attempt: int) -> list[RankFolder]:
        """Return the ranks of an attempt that have a folder or said that they began, in order."""
        folders = _numbers(self.attempt(attempt), _RANK, 5)
        return [self.rank(attempt, rank) for rank in sorted({*folders, *_numbers(self.begun(attempt), _BEGUN, 5)})]

    def link_out(self) -> Path | None:
        """Return a symbolic link that leads out of the folder, if there is one."""
        home = self.path.resolve()
        for folder, folders, files in os.walk(self.path):
            for name in (*folders, *files):
                path = Path(folder, name)
                if path.is_symlink() and not path.resolve().is_relative_to(home):
                    return path
        return None

    def claims(self, attempt: int) -> list[Path]:
        """Return what processes left that claimed an attempt and died before they began."""
        return sorted(self.begun(attempt).glob("claim-*.json"))


def _numbers(folder: Path, pattern: re.Pattern[str], digits: int) -> list[int]:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for match in filter(None, map(pattern.fullmatch, names)):
        number = int(match.group(1))
        if match.group(1) == f"{number:0{digits}d}":
            found.append(number)
    return sorted(found)
