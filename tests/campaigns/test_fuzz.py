"""Whatever a file holds, a reader returns or raises a LadingError, soon and in little memory.

    LADING_FUZZ_SEED=7 LADING_FUZZ_SECONDS=1200 pytest -m slow tests/campaigns/test_fuzz.py -s

The long form takes at least 100 000 inputs; its small twin, a few of each reader, runs with every ``make test``.
"""

from __future__ import annotations

import collections
import os
import random
import resource
import shutil
import time
import traceback
import warnings
from pathlib import Path

import pytest
from tests.campaigns.readers import TARGETS, Target

from lading.errors import LadingError

SEED = int(os.environ.get("LADING_FUZZ_SEED", "0"))
SECONDS = float(os.environ.get("LADING_FUZZ_SECONDS", "1200"))
SCALE = float(os.environ.get("LADING_FUZZ_SCALE", "1"))
MOST_SECONDS, MOST_BYTES = 2.0, 500 << 20


class Campaign:
    """Damage one file at a time of a folder and read it.

    Args:
        target: What reads.
        folder: An empty folder.
        seed: Same seed, same inputs.
    """

    def __init__(self, target: Target, folder: Path, seed: str) -> None:
        self.target, self.folder = target, folder / "input"
        self.chance = random.Random(seed)
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.faults: list[str] = []
        self.slowest = 0.0
        self.folder.mkdir()
        target.make(self.folder)
        self.files = {path: path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file()}

    def run(self, inputs: int, seconds: float) -> None:
        """Try so many inputs, or as many as there is time for."""
        self.target.read(self.folder)  # what is undamaged is read
        until = time.monotonic() + seconds
        for number in range(inputs):
            if time.monotonic() > until:
                break
            path = self.chance.choice(list(self.files))
            self._try(number, path, self.target.change(self.files[path], self.chance))

    def _try(self, number: int, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        spent, grown = self._read(number, path)
        if spent > MOST_SECONDS:  # the first use of a kernel compiles it: no fault of the input
            spent, _ = self._read(number, path, again=True)
        if spent > MOST_SECONDS or grown > MOST_BYTES:
            self.faults.append(f"input {number}, {path.name}: {spent:.1f} s, {grown >> 20} MB")
        self.slowest = max(self.slowest, spent)
        if self.folder.exists() and path.parent.exists():
            path.write_bytes(self.files[path])
        else:  # a reader that deletes is a fault of its own
            self.faults.append(f"input {number}: {path} is gone")
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
            self.target.make(self.folder)

    def _read(self, number: int, path: Path, again: bool = False) -> tuple[float, int]:
        began, memory = time.process_time(), _peak()
        try:
            self.target.read(self.folder)
            outcome = "read"
        except LadingError as error:
            outcome = "refused"
            str(error).encode()
        except Exception:
            outcome = "fault"
            self.faults.append(f"input {number}, {path.name}:\n{traceback.format_exc(limit=-4)}")
        if not again:
            self.outcomes[outcome] += 1
        return time.process_time() - began, _peak() - memory


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fuzz(name: str, folder: Path, inputs: int, seconds: float) -> Campaign:
    """Run the campaign of one reader and say what came of it."""
    campaign = Campaign(TARGETS[name], folder, f"{SEED}/{name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        campaign.run(inputs, seconds)
    counts = ", ".join(f"{count} {what}" for what, count in sorted(campaign.outcomes.items()))
    print(f"{name}: {sum(campaign.outcomes.values())} inputs, {counts}; slowest {campaign.slowest:.2f} s")
    return campaign


@pytest.mark.parametrize("name", TARGETS)
def test_a_few_damaged_inputs_are_read_or_refused(tmp_path, name):
    """The small twin: the first inputs of every reader."""
    campaign = fuzz(name, tmp_path, max(10, TARGETS[name].share // 200), 3.0)

    assert not campaign.faults, "\n\n".join(campaign.faults[:3])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_damaged_inputs_are_read_or_refused(tmp_path):
    """Only LadingErrors, no input over 2 s or 500 MB."""
    total, faults = 0, []
    whole = sum(target.share for target in TARGETS.values())
    for name, target in TARGETS.items():
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        seconds = SECONDS * max(target.share / whole, 0.08)
        campaign = fuzz(name, folder, int(target.share * SCALE), seconds)
        total += sum(campaign.outcomes.values())
        faults += [f"{name}, {text}" for text in campaign.faults]
    print(f"{total} inputs, seed {SEED}, {len(faults)} faults")

    assert not faults, "\n\n".join(faults[:10])
