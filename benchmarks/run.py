"""``make bench``: every case as one JSON line, ours and the peer measured in the same run.

Give names of rooms to run only those: ``python -m benchmarks.run loader order``.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def main(rooms: list[str]) -> None:
    """Run the benchmarks of some rooms, or of all."""
    found = sorted(p.stem.removeprefix("bench_") for p in Path(__file__).parent.glob("bench_*.py"))
    unknown = sorted(set(rooms) - set(found))
    if unknown:
        sys.exit(f"no benchmark named {', '.join(unknown)}: there are {', '.join(found)}")
    if len(rooms) != 1:
        for room in rooms or found:  # each in a process of its own: memory and caches of one must not count for another
            subprocess.run([sys.executable, "-m", "benchmarks.run", room], check=True)
        return
    RESULTS.mkdir(exist_ok=True)
    start, lines = time.perf_counter(), []
    for case in importlib.import_module(f"benchmarks.bench_{rooms[0]}").cases():
        lines.append(json.dumps({"room": rooms[0], **case}))
        print(lines[-1], flush=True)
    (RESULTS / f"{rooms[0]}.jsonl").write_text("\n".join(lines) + "\n")
    print(f"# {rooms[0]}: {time.perf_counter() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
