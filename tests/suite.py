"""Run groups of checks, all of them, and say once at the end what is wrong.

    make test   ─▶  unit ─▶ jax                              a group that fails does not stop the next
                    launch ────                              beside them: it mostly waits
    .ci/run     ─▶  lint ─▶ types ─▶ docs ─▶ unit ─▶ jax
                    launch ─────────────────────────
                                    └─▶  one table, every failure with its first line, exit code 1

A summary groups failures that say the same: a shared fixture that did not start is one cause, not 28. Seconds are
given twice, as the clock and as the processors counted them: only the second says how much work it was.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
CODE = ("src", "tests", "benchmarks", "examples", "conftest.py", ".ci")
# torch 2.13 with gloo now and then aborts a process while it exits, after all its work, with or without Lading
# (plain DDP: 1 of 56 runs of two processes). A launch is tried again only if a process of it ended by an abort.
ABORTED = ("terminate called without an active exception", "exitcode *: -6", "return code = -6")
RERUN = ["--reruns", "2", *(word for text in ABORTED for word in ("--only-rerun", text))]
# Each process gets its part of the files and steals at the end only: a module's fixtures are made once.
SHARED = ["-n", "2", "--dist", "worksteal"]
# JAX runs threads and torch's workers fork: files about JAX get processes of their own (see conftest.py).
PYTEST = {
    # Some tests wait, for workers and for disks: a third process computes meanwhile.
    "unit": [*SHARED, "-n", "3", "--jax=without", "--doctest-modules", "-m", "not launch{slow}", "tests", "src/lading"],
    "jax": [*SHARED, "--jax=only", "--doctest-modules", "-m", "not launch{slow}", "tests", "src/lading"],
    # Several processes that import frameworks: at load 90 some took more than ten minutes.
    "launch": [*SHARED, *RERUN, "--timeout=3600", "-m", "launch{slow}"],
}
COMMANDS = {
    "lint": [["ruff", "format", "--check", *CODE], ["ruff", "check", *CODE]],
    "types": [["mypy"]],
    "docs": [["mkdocs", "build", "--strict", "--quiet"]],
}
# Where a machine forbids Python to write bytecode, each process would compile the tests, and each that a test starts
# what changed in Lading since it was installed.
BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}
_MOST_LINES = 12
_ROOM = 6 * 2**30  # of memory: what tests that passed wrote is removed at once


@dataclass
class Outcome:
    """How a group went.

    Attributes:
        code: Its exit code.
        seconds: By the clock.
        cpu: By the processors, of all its processes that ended.
        counts: Tests by how they ended.
        causes: Tests by the first line of what went wrong.
        files: Seconds of processors by file, fixtures included.
    """

    code: int
    seconds: float = 0.0
    cpu: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    causes: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, float] = field(default_factory=dict)


def run(group: str, extra: list[str], *, slow: bool, output: IO[str] | None = None) -> Outcome:
    """Run a group and return how it went; what it prints is shown as it comes, or written to a file."""
    began = time.monotonic()
    if group in COMMANDS:
        ended = [_process([sys.executable, "-m", *command], output) for command in COMMANDS[group]]
        outcome = Outcome(max(abs(code) for code, _ in ended), cpu=sum(cpu for _, cpu in ended))
    else:
        outcome = _pytest(group, extra, output, slow=slow)
    outcome.seconds = time.monotonic() - began
    return outcome


def run_all(groups: list[str], extra: list[str], *, slow: bool) -> Iterator[tuple[str, Outcome]]:
    """Run groups in their order, launches beside the others; yield each with how it went."""
    beside = [group for group in groups if group == "launch" and len(groups) > 1]
    with ThreadPoolExecutor(1) as pool, tempfile.TemporaryFile("w+") as output:
        later = {group: pool.submit(run, group, extra, slow=slow, output=output) for group in beside}
        for group in groups:
            if group not in beside:
                print(f"» {group}", flush=True)
                yield group, run(group, extra, slow=slow)
        for group, outcome in later.items():
            print(f"» {group}, beside them", flush=True)
            went = outcome.result()
            output.seek(0)
            print(output.read(), flush=True)
            yield group, went


def _pytest(group: str, extra: list[str], output: IO[str] | None, *, slow: bool) -> Outcome:
    given = [word.format(slow="" if slow else " and not slow") for word in PYTEST[group]]
    with tempfile.TemporaryDirectory(dir=None if group == "launch" else memory()) as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
        command += ["--durations=20", f"--junitxml={report}", f"--basetemp={folder}/tests"]
        command += [*given, *(launching(slow=slow) if group == "launch" else []), *extra]
        code, cpu = _process(command, output)
        text = report.read_text() if report.exists() else "<testsuites/>"
    counts, causes, files = read_report(text)
    return Outcome(code, cpu=cpu, counts=counts, causes=causes, files=files)


def _process(command: list[str], output: IO[str] | None) -> tuple[int, float]:
    """Run a process; return its exit code, and what it and those it waited for took of the processors."""
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **BYTECODE}, stdout=output, stderr=output) as process:
        _, status, used = os.wait4(process.pid, 0)
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime


def memory(folder: str = "/dev/shm") -> str | None:
    """Return a folder in memory, if there is room: thousands of small runs are synced there at once.

    Launches, which are killed for real, write to a disk.
    """
    if not os.path.isdir(folder):
        return None
    found = os.statvfs(folder)
    is_fit = found.f_bavail * found.f_frsize >= _ROOM and not found.f_flag & os.ST_NOEXEC
    return folder if is_fit and os.access(folder, os.W_OK) else None


def launching(tests: Path = ROOT / "tests", *, slow: bool) -> list[str]:
    """Return the files that launch: to import all the others would take half a minute."""
    files = sorted(tests.rglob("test_*.py"))
    return [str(path) for path in files if launches(path.read_text(), slow=slow)]


def launches(source: str, *, slow: bool) -> bool:
    """Say whether a file has a test that launches, besides the long ones if these are not wanted."""
    if "mark.launch" not in source:
        return False
    marked = [
        [ast.unparse(mark) for mark in node.decorator_list]
        for node in ast.parse(source).body
        if hasattr(node, "decorator_list")
    ]
    left_out = [marks for marks in marked if "pytest.mark.slow" in marks and not slow]
    return source.count("mark.launch") > sum("pytest.mark.launch" in marks for marks in left_out)


def read_report(text: str) -> tuple[dict[str, int], dict[str, list[str]], dict[str, float]]:
    """Return from pytest's XML: tests by how they ended, by the first line of what went wrong; CPU seconds by file."""
    counts: dict[str, int] = defaultdict(int)
    causes: dict[str, list[str]] = defaultdict(list)
    files: dict[str, float] = defaultdict(float)
    for case in ElementTree.fromstring(text).iter("testcase"):
        bad = [found for kind in ("failure", "error") if (found := case.find(kind)) is not None]
        kind = bad[0].tag if bad else "skipped" if case.find("skipped") is not None else "passed"
        counts[kind] += 1
        cost = case.find("properties/property[@name='cpu']")
        files[case.get("classname") or ""] += 0.0 if cost is None else float(cost.get("value") or 0)
        for found in bad:
            cause = (found.get("message") or "").strip().splitlines()
            causes[cause[0][:200] if cause else "no message"].append(f"{case.get('classname')}::{case.get('name')}")
    return dict(counts), dict(causes), dict(files)


def summary(outcomes: dict[str, Outcome]) -> Iterator[str]:
    """Yield the lines of one summary."""
    yield f"{'group':8} {'result':7} {'passed':>7} {'failed':>7} {'errors':>7} {'skipped':>8} {'seconds':>8} {'cpu':>8}"
    for group, o in outcomes.items():
        tests = [str(o.counts.get(kind, "")) for kind in ("passed", "failure", "error", "skipped")]
        numbers = f"{tests[0]:>7} {tests[1]:>7} {tests[2]:>7} {tests[3]:>8} {o.seconds:8.0f} {o.cpu:8.0f}"
        yield f"{group:8} {'ok' if o.code == 0 else f'exit {o.code}':7} {numbers}"
    longest = sorted(((s, name) for o in outcomes.values() for name, s in o.files.items()), reverse=True)
    if longest:
        yield "\nmost cpu: " + ", ".join(f"{name} {s:.0f}" for s, name in longest[:_MOST_LINES])
    for group, outcome in outcomes.items():
        for cause, tests in sorted(outcome.causes.items(), key=lambda item: -len(item[1])):
            yield f"\n{group}, {len(tests)} with one cause: {cause}"
            yield from (f"    {test}" for test in tests[:_MOST_LINES])
            if len(tests) > _MOST_LINES:
                yield f"    and {len(tests) - _MOST_LINES} more"


def main() -> None:
    """Run the groups named on the command line, in their order."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="+", choices=[*COMMANDS, *PYTEST])
    parser.add_argument("--slow", action="store_true", help="with the long tests")
    arguments, extra = parser.parse_known_args()
    began = time.monotonic()
    outcomes: dict[str, Outcome] = {}
    with contextlib.suppress(KeyboardInterrupt):
        for group, outcome in run_all(arguments.groups, extra, slow=arguments.slow):
            outcomes[group] = outcome
    print("\n" + "\n".join(summary(outcomes)))
    print(f"\n{time.monotonic() - began:.0f} s by the clock")
    left = [group for group in arguments.groups if group not in outcomes]
    print(f"\nnot run: {', '.join(left)}" if left else "")
    sys.exit(1 if left or any(outcome.code for outcome in outcomes.values()) else 0)


if __name__ == "__main__":
    main()
