"""``make bench-table``: the results of the last ``make bench`` as a page of the docs, with plots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.plots import draw

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parent.parent / "docs"
ROOMS = {
    "batches": "What a batch costs, in one process",
    "hugging": "Hugging Face datasets",
    "real": "Real work",
    "jax": "Packed rows to JAX, end to end",
    "ranks": "Many ranks, a global batch that grows with them",
    "loader": "Assembling wide batches",
    "mapped": "Mapped files",
    "workers": "Worker processes",
    "counting": "Counting rows",
    "waiting": "Waiting for data",
    "grain": "Beside Grain",
    "order": "Order",
    "mixture": "Mixtures",
    "sample_weights": "Weights of samples",
    "resume": "Resume",
    "packing": "Packing",
    "books": "What books cost",
    "startup": "A fresh process",
    "tracker": "Tracker",
    "ledger": "Ledger",
    "cli": "Command line",
    "rollouts": "Rollouts",
    "corpora": "Tokenising",
    "jasper": "JASPER",
    "chunked": "Chunks and audio",
}
HEAD = """# Benchmarks

<!-- Written by `make bench-table` from the results of `make bench`. -->

Measured on {date}: {cpus} cores, {memory:.0f} GB, {system}, Python {python}, {versions}; commit {commit}.
Ours and the peer run in turns, in the same run; figures are medians of interleaved rounds, with the lowest and highest
of ours, and the ratios of the middle half of the rounds, where they were kept. A ratio above 1 means that ours is
better, whatever the unit; on a machine like this one differences under 1.2 mean little. A goal is no peer:
`make bench-check` compares with the goals in `benchmarks/goals.toml`.

![How many times the peer](pictures/benchmark-ratios.png)

## What must not grow

The time of one bill (which samples a step has), against the size of everything. It is the whole price of an order and
of a resume. Bills of large batches, and of very many datasets, name more.

![Time of a bill against sizes](pictures/benchmark-scaling.png)
"""
WAITING = """
A training step of 2, 10 and 50 ms that waits for its batch, in percent of all time. The step is a sleep: it stands for
an accelerator, and leaves the cores to the loader. Every library has its best of several settings: 0, 1 and 2 workers,
two prefetch factors, Grain's threads and processes.

![Share of time spent waiting](pictures/benchmark-waiting.png)
"""


def rows() -> list[dict[str, Any]]:
    """Return every result of the last run."""
    return [json.loads(line) for path in sorted(RESULTS.glob("*.jsonl")) for line in path.read_text().splitlines()]


def number(value: Any) -> str:
    """Return a figure with three significant digits, or a dash."""
    if not isinstance(value, int | float):
        return "–"
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 1000 else f"{value:.3g}"


def table(results: list[dict[str, Any]]) -> str:
    """Return the results as Markdown."""
    lines = ["| case | ours | peer | who the peer is | unit | ratio |", "|---|---|---|---|---|---|"]
    for r in results:
        ours, named = number(r.get("ours")), r.get("peer_name")
        if "low" in r:
            ours += f" ({number(r['low'])} to {number(r['high'])})"
        peer, ratio = (number(r.get("peer")), number(r.get("ratio"))) if named else ("–", "–")
        if named and "spread" in r:
            ratio += f" ({number(r['spread'][0])} to {number(r['spread'][1])})"
        lines.append(f"| {r['case']} | {ours} | {peer} | {named or '–'} | {r['unit']} | {ratio} |")
    return "\n".join(lines) + "\n"


def page(results: list[dict[str, Any]], machine: dict[str, Any]) -> str:
    """Return the page of the docs."""
    parts = [HEAD.format(**machine)]
    for room, title in ROOMS.items():
        found = [r for r in results if r["room"] == room]
        if found:
            parts.append(f"\n## {title}\n{WAITING if room == 'waiting' else ''}\n{table(found)}")
    return "".join(parts)


def main() -> None:
    """Print the table; write the page and its plots."""
    results = rows()
    if not results:
        raise SystemExit("no results yet: run `make bench` first")
    print(table(results))
    machine = json.loads((RESULTS / "machine.json").read_text())
    (DOCS / "benchmarks.md").write_text(page(results, machine))
    draw(results, DOCS / "pictures")


if __name__ == "__main__":
    main()
