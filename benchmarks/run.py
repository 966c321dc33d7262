"""``make bench``: every case as one JSON line, ours and the peer measured in the same run.

Give names of rooms to run only those: ``python -m benchmarks.run loader order``. Rooms that take minutes are run only
when they are named. What PEERS asks of reading: ``python -m benchmarks.run hugging ranks batches workers real jax``
(about six minutes on a quiet machine); ``python -m benchmarks.table`` shows ratio and spread.
"""

from __future__ import annotations

import fnmatch
import importlib
import json
import os
import platform
import subprocess
import sys
import time
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
ONLY_BY_NAME = {"scale"}


def main(rooms: list[str]) -> None:
    """Run the benchmarks of some rooms, or of all."""
    found = sorted(p.stem.removeprefix("bench_") for p in Path(__file__).parent.glob("bench_*.py"))
    unknown = sorted(set(rooms) - set(found))
    if unknown:
        sys.exit(f"no benchmark named {', '.join(unknown)}: there are {', '.join(found)}")
    if len(rooms) != 1:
        for room in rooms or sorted(
            {*found} - ONLY_BY_NAME
        ):  # each in a process of its own: memory and caches of one must not count for another
            subprocess.run([sys.executable, "-m", "benchmarks.run", room], check=True)
        return
    RESULTS.mkdir(exist_ok=True)
    start, lines = time.perf_counter(), []
    for case in importlib.import_module(f"benchmarks.bench_{rooms[0]}").cases():
        lines.append(json.dumps({"room": rooms[0], **with_peer(case)}))
        print(lines[-1], flush=True)
    (RESULTS / f"{rooms[0]}.jsonl").write_text("\n".join(lines) + "\n")
    (RESULTS / "machine.json").write_text(json.dumps(machine()))
    print(f"# {rooms[0]}: {time.perf_counter() - start:.0f} s", file=sys.stderr)


def with_peer(case: dict[str, Any]) -> dict[str, Any]:
    """Return a result with the name of its peer; one whose peer has no name is told."""
    if case.get("peer") is None or case.get("peer_name"):
        return case
    for pattern, name in tomllib.loads((Path(__file__).parent / "peers.toml").read_text())["peers"].items():
        if fnmatch.fnmatchcase(case["case"], pattern):
            return {**case, "peer_name": name}
    print(f"# {case['case']}: its peer has no name in peers.toml, so its ratio is not shown", file=sys.stderr)
    return case


def machine() -> dict[str, Any]:
    """Return when and where the last room was measured."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "date": time.strftime("%-d %B %Y"),
        "cpus": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "grain")),
        "commit": commit.stdout.strip() or "unknown",
    }


if __name__ == "__main__":
    main(sys.argv[1:])
