"""``make bench-table``: the results of the last ``make bench`` as a table and a plot for the docs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parent.parent / "docs"


def rows() -> list[dict[str, Any]]:
    """Return every result of the last run."""
    return [json.loads(line) for path in sorted(RESULTS.glob("*.jsonl")) for line in path.read_text().splitlines()]


def number(value: Any) -> str:
    """Return a figure with three significant digits, or a dash."""
    return f"{value:,.3g}".replace(",", " ") if isinstance(value, int | float) else "–"


def table(results: list[dict[str, Any]]) -> str:
    """Return the results as Markdown."""
    lines = ["| case | ours | peer | unit | ratio | floor |", "|---|---|---|---|---|---|"]
    for r in results:
        figures = [number(r.get(k)) for k in ("ours", "peer", "ratio", "floor")]
        lines.append(f"| {r['case']} | {figures[0]} | {figures[1]} | {r['unit']} | {figures[2]} | {figures[3]} |")
    return "\n".join(lines) + "\n"


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Draw the ratios as an HTML page."""
    import plotly.graph_objects as go  # only the plot needs it

    shown = [r for r in results if isinstance(r.get("ratio"), int | float)]
    figure = go.Figure(go.Bar(y=[r["case"] for r in shown], x=[r["ratio"] for r in shown], orientation="h"))
    figure.update_xaxes(type="log", title="times the peer (log)")
    figure.update_layout(height=120 + 24 * len(shown), margin={"l": 320}, yaxis={"autorange": "reversed"})
    figure.write_html(path, include_plotlyjs=True)


def main() -> None:
    """Print the table and write both."""
    results = rows()
    if not results:
        raise SystemExit("no results yet: run `make bench` first")
    print(table(results))
    (RESULTS / "table.md").write_text(table(results))
    plot(results, RESULTS / "ratios.html")


if __name__ == "__main__":
    main()
