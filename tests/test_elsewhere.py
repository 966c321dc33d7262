"""Other people and other machines: another user, no home, odd paths, Python's switches, and what Windows lacks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
# Another user, who may read everything and write only what is theirs.
STRANGER = (
    *("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"),
    *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"),
)
# Every warning is an error, but those of typer before 0.26 about what click deprecates from 8.5 on.
STRICT = ["-W", "error", "-W", "ignore:'click:DeprecationWarning"]
ASK = """
import sys
from lading.cli import main
for words in (["step", "runs/1", "17"], ["where", "runs/1", "prose", "41"], ["verify", "runs/1"]):
    try:
        main(words)
    except SystemExit as end:
        if end.code:
            sys.exit(f"{words}: {end.code}")
main(["verify", "damaged"])
"""


def readme_example() -> str:
    """Return the first Python block of the README."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def damage(run: Path, other: Path) -> None:
    """Copy a run and change one bit of it."""
    shutil.copytree(run, other)
    part = next(other.rglob("part-*.parquet"))
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)


def trains_asks_verifies(folder: Path, python: list[str], **environment: str) -> str:
    """Train README's example in a folder, ask, verify, verify a damaged copy; return what standard error said."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "XDG"))}
    env = {**kept, "PYTHONPATH": str(SRC), "PYTHONDONTWRITEBYTECODE": "1", **environment}

    def run(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*python, "-c", code], capture_output=True, text=True, cwd=folder, env=env, timeout=600)

    trained = run(readme_example())
    assert trained.returncode == 0, trained.stderr[-3000:]
    damage(folder / "runs" / "1", folder / "damaged")
    asked = run(ASK)
    assert "holds: 188 steps of history" in asked.stdout and asked.returncode == 1, asked.stdout + asked.stderr[-3000:]
    return trained.stderr + asked.stderr


@pytest.mark.parametrize(
    ("switches", "locale"),
    [(STRICT, "C.UTF-8"), (["-O", "-P"], "C")],
    ids=["warnings", "asserts off and safe path"],
)
def test_readme_runs_under_python_s_switches_in_a_folder_with_umlauts(switches, locale, tmp_path):
    """Optimised away, strict, without the current folder on the path, whatever the shell believes about letters."""
    folder = tmp_path / "Läufe – übung #1"
    folder.mkdir()

    # With -O Python has bytecode of its own: written once, or torch is compiled by each process.
    trains_asks_verifies(folder, [sys.executable, *switches], LC_ALL=locale, PYTHONDONTWRITEBYTECODE="")


def test_readme_runs_for_a_user_without_a_home_who_may_write_nothing_else(tmp_path):
    """Every pod that runs as another user: kernels that wanted a place for a cache once ended every order."""
    if subprocess.run([*STRANGER, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs root, and setpriv")
    folder = tmp_path / "runs of others"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    elsewhere = tmp_path / "torch keeps things here"
    elsewhere.mkdir(mode=0o777)

    said = trains_asks_verifies(folder, [*STRANGER, sys.executable], HOME="/", TMPDIR=str(elsewhere))

    assert "Traceback" not in said
    assert {path.name for path in folder.iterdir()} == {"runs", "damaged", "checkpoint.pt"}


WITHOUT_POSIX = """
import concurrent.futures.thread, multiprocessing, shutil, sys, tempfile, warnings
import duckdb, numpy, pyarrow, torch  # their business
from tests.without_posix import take_away
take_away()
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import lading
assert "Lading is made for Linux" in str(said[0].message), said
from lading import Ledger, Loader, Plan, open_run
from lading.errors import LedgerError, LoaderError

ledger = Ledger("run")
loader = Loader({"a": torch.zeros(40, 2)}, batch_size=8, tracker=ledger)
for batch, bill in loader.with_bills():
    ledger.commit(bill, loss=1.0)
ledger.close()
run = open_run("run")
assert run.verify() and run.num_steps == 5
assert len(run.where("a", 3)) == 1
assert Plan.make({"a": 10}, batch_size=5).bill(1).batch_id.startswith("e0-s1")
assert len(list(Loader(torch.zeros(40, 2), batch_size=8, num_workers=2, workers="threads"))) == 5
try:
    list(Loader(torch.zeros(40, 2), batch_size=8, num_workers=2))
except LoaderError as error:
    assert "workers='threads'" in str(error), error
from lading.cli import main
main(["verify", "run"])
"""


def test_without_fork_locks_and_hard_links_plans_loaders_and_ledgers_work(tmp_path):
    """What Windows lacks, taken away; that is all that was tried."""
    env = {**os.environ, "PYTHONPATH": f"{SRC}{os.pathsep}{ROOT}"}

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX], capture_output=True, text=True, cwd=tmp_path, env=env, timeout=600
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert "holds: 5 steps" in done.stdout


SPAWNED = """
import multiprocessing, os, torch
del os.fork, os.register_at_fork
multiprocessing.get_all_start_methods = lambda: ["spawn"]
from lading import Loader

if __name__ == "__main__":
    print(sum(len(batch) for batch in Loader(torch.zeros(40, 2), batch_size=8, num_workers=2)))
"""


@pytest.mark.filterwarnings("ignore:Lading is made for Linux")
def test_without_fork_workers_are_spawned(tmp_path):
    """Where a system has sockets that hand over memory, and no fork."""
    (tmp_path / "script.py").write_text(SPAWNED)
    env = {**os.environ, "PYTHONPATH": str(SRC)}

    done = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, cwd=tmp_path, env=env, timeout=600
    )

    assert done.stdout.strip() == "40", done.stderr[-3000:]
