"""Change the heart in one line, many times: each change must be caught by the test that is named for it.

    mutants.toml   file, line before, line after, test
    make mutants   a copy of the tree, one change at a time, its test: it must fail; and pass on the copy as it is

A change whose line is no longer there is an error, too: choose another, and name the test that catches it. With
``--find`` the tests named may be files or folders, and what catches a change is printed.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "mutants.toml"
COPIED = ("src", "tests", "conftest.py", "pyproject.toml", "README.md", "examples", "docs", "CHANGELOG.md")
_MOST_SECONDS = 1800  # of a clock on the wall: others may use the machine, too
_MOST_CPU = 30  # seconds of a processor: a change may well make a loop endless
# Tests are run in processes forked from one that has imported what is not ours, which takes longer than most of them.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["numpy", "pyarrow", "duckdb", "torch"])


@dataclass(frozen=True)
class Mutant:
    """A change in one line.

    Attributes:
        file: Below ``src/lading``.
        old: Text that stands there once.
        new: What it becomes.
        test: The test that catches it.
    """

    file: str
    old: str
    new: str
    test: str

    def applied(self, text: str) -> str:
        """Return the file's text with the change; refuse one that cannot be made."""
        if text.count(self.old) != 1 or "\n" in self.old:
            found = text.count(self.old)
            raise LookupError(
                f"{self.file} has {self.old!r} {found} times, expected once, in one line. Correct the list."
            )
        return text.replace(self.old, self.new)


def mutants() -> list[Mutant]:
    """Return the list."""
    return [Mutant(**fields) for fields in tomllib.loads(LIST.read_text())["mutant"]]


def pytest(tree: Path, tests: list[str], most_cpu: int) -> tuple[int, str]:
    """Run tests of a tree on its own sources, until the first that fails; return the exit code and what was said."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "said"
        process = _PROCESSES.Process(target=_pytest, args=(tree, tests, most_cpu, said))
        process.start()
        process.join(_MOST_SECONDS)
        if process.exitcode is None:
            process.kill()
            return -1, f"did not end within {_MOST_SECONDS} s"
        return process.exitcode, said.read_text()


def _pytest(tree: Path, tests: list[str], most_cpu: int, said: Path) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (most_cpu, most_cpu + 1))
    with said.open("w") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.environ |= {"PYTHONPATH": str(tree / "src"), "HYPOTHESIS_PROFILE": "quick"}
    os.chdir(tree)
    sys.path[:0] = [str(tree), str(tree / "src")]
    main = importlib.import_module("pytest").main
    sys.exit(main(["-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=no", *tests]))


def tried(tree: Path, mutant: Mutant) -> tuple[bool, str]:
    """Make a change in a tree, run its test, undo it; return whether the test failed, and what it said last."""
    path = tree / "src" / "lading" / mutant.file
    before = path.read_text()
    try:
        path.write_text(mutant.applied(before))
        code, said = pytest(tree, mutant.test.split(), _MOST_CPU)
        if code == -signal.SIGXCPU:
            return True, f"a test that does not end: stopped after {_MOST_CPU} s of a processor"
        failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return code == 1, failed[0] if failed else said[-600:]
    except LookupError as error:
        return False, str(error)
    finally:
        path.write_text(before)


def main() -> None:
    """Try every change; exit 1 if one is not caught."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a part of the file's name")
    parser.add_argument("--find", action="store_true", help="print what caught each")
    arguments = parser.parse_args()
    chosen = [mutant for mutant in mutants() if arguments.only in mutant.file]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as home:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(2):
            trees.put(_copied(Path(home) / str(number)))

        def work(mutant: Mutant) -> tuple[Mutant, bool, str]:
            tree = trees.get()
            try:
                caught, said = tried(tree, mutant)
                if arguments.find or not caught:
                    print(
                        f"{'caught' if caught else 'NOT CAUGHT'}: {mutant.file}: {mutant.new.strip()}: {said}",
                        flush=True,
                    )
                return mutant, caught, said
            finally:
                trees.put(tree)

        sound = {test for mutant in chosen for test in mutant.test.split()}
        code, said = (0, "") if arguments.find else pytest(ROOT, sorted(sound), _MOST_SECONDS)
        if code:
            sys.exit(f"the tests must pass before anything is changed:\n{said[-3000:]}")
        with ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(work, chosen))
    left = [mutant for mutant, caught, _ in outcomes if not caught]
    print(f"{len(outcomes)} changes, {len(outcomes) - len(left)} caught, {time.monotonic() - began:.0f} s")
    sys.exit(bool(left))


def _copied(tree: Path) -> Path:
    tree.mkdir()
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / name)
    return tree


if __name__ == "__main__":
    main()
