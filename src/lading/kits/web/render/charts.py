"""Charts as SVG, drawn here: readable without scripts, in any width, in light and dark.

    ┌ y ticks ┬ lines, areas and bands: SVG, stretched to the room there is  ┐
    │   HTML  │ marks that can be clicked, and ticks: HTML, placed in per cent │
    └─────────┴ x ticks ──────────────────────────────────────────────────────┘

Text and marks are no part of the stretched picture, so they keep their size on a phone. Colours are classes, which
the style sheet gives their light and dark values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

SIDE = 1000  # of the picture, whatever its size on the screen
MOST_COLOURS = 10
_ROW_HEIGHT = 22
_MOST_LANES = 40


@dataclass(frozen=True)
class Tick:
    """A number beside an axis, and where it is, in per cent."""

    place: float
    text: str


@dataclass(frozen=True)
class Mark:
    """Something at a place of the chart that can be read and clicked.

    Attributes:
        x: Place from the left, in per cent.
        y: Place from the top, in per cent; None: a line from top to bottom.
        step: The step it leads to.
        kind: A further class.
        place: Where it leads to below the run, where that is no step.
    """

    x: float
    y: float | None
    text: str
    step: int | None = None
    kind: str = ""
    place: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart, ready to be drawn.

    Attributes:
        name: Its id on the page; "": none.
        label: What it shows, for those who cannot see it.
        shapes: (class, path) of lines, areas and bands, from the back to the front.
        x: Ticks below.
        y: Ticks at the left.
        marks: What can be read and clicked.
    """

    name: str
    label: str
    height: int
    shapes: list[tuple[str, str]]
    x: list[Tick]
    y: list[Tick]
    marks: list[Mark] = field(default_factory=list)


@dataclass(frozen=True)
class Axis:
    """A range of values along a side of the picture."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Return where a value is, from 0 to ``SIDE``."""
        return SIDE * (value - self.low) / ((self.high - self.low) or 1.0)

    def percent(self, value: float) -> float:
        """Return where a value is, in per cent."""
        return round(100 * self.at(value) / SIDE, 3)

    def ticks(self, most: int, *, whole: bool = False, percent: bool = False) -> list[Tick]:
        """Return round numbers along the axis."""
        step = _round_step((self.high - self.low) / max(most, 1))
        step = max(step, 1) if whole else step
        first = math.ceil(self.low / step - 1e-9)
        values = [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]
        return [Tick(self.percent(v), _tick_text(v, step, percent)) for v in values]


def _round_step(rough: float) -> float:
    if rough <= 0 or not math.isfinite(rough):
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next((m * power for m in (1, 2, 2.5, 5) if m * power >= rough * (1 - 1e-9)), 10 * power)


def _tick_text(value: float, step: float, percent: bool) -> str:
    if percent:
        return f"{100 * value:.3g} %"
    if step < 1 or not float(step).is_integer():
        power = math.floor(math.log10(step))
        return f"{value:.{max(0, -power + (round(step / 10**power, 3) == 2.5))}f}"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if step >= size and step * 10 % size == 0:
            return f"{value / size:.6g}{unit}" if value else "0"
    return f"{value:.0f}"


def axis_of(values: Sequence[float | None], *, from_zero: bool = False) -> Axis:
    """Return an axis that holds some values, with a little room around them."""
    finite = [v for v in values if v is not None and math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    low = min(low, 0.0) if from_zero else low
    room = (high - low) * 0.05 or abs(high) or 1.0  # of a line that does not move: round numbers around it
    return Axis(low if from_zero else low - room, high + room)


def line_path(x: Axis, y: Axis, xs: Sequence[float], ys: Sequence[float | None]) -> str:
    """Return a line through points; where a value is missing the line is interrupted."""
    parts: list[str] = []
    drawing = False
    for a, b in zip(xs, ys, strict=True):
        if b is None or not math.isfinite(b):
            drawing = False
            continue
        parts.append(f"{'L' if drawing else 'M'}{x.at(a):.0f} {SIDE - y.at(b):.0f}")
        drawing = True
    return "".join(parts)


def area_path(x: Axis, y: Axis, xs: Sequence[float], low: Sequence[float], high: Sequence[float]) -> str:
    """Return the area between two lines."""
    above = [f"{x.at(a):.0f} {SIDE - y.at(b):.0f}" for a, b in zip(xs, high, strict=True)]
    below = [f"{x.at(a):.0f} {SIDE - y.at(b):.0f}" for a, b in zip(xs, low, strict=True)]
    return f"M{'L'.join([*above, *reversed(below)])}Z" if above else ""


def _box(left: float, top: float, right: float, bottom: float) -> str:
    return f"M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}H{left:.1f}Z"


def loss_chart(page: dict[str, Any]) -> Chart:
    """Return the loss along the run: what was undone behind it, changes of weights, spikes and checkpoints marked."""
    loss, undone = page["loss"], page["undone"]
    x = Axis(0, max(page["steps"] - 1, 1))
    y = axis_of([*loss["value"], *(v for u in undone for v in u["value"])])
    shapes = [("loss", line_path(x, y, loss["step"], loss["value"]))]
    shapes += [("undone", line_path(x, y, u["step"], u["value"])) for u in undone]
    marks = _changes(x, page)
    marks += [
        Mark(x.percent(s["step"]), 100 - y.percent(s["loss"]), f"spike at step {s['step']}: {s['loss']:.5g}", s["step"])
        for s in page["spike_marks"]
        if s["loss"] is not None and math.isfinite(s["loss"])
    ]
    marks += [
        Mark(
            x.percent(max(c["step"] - 1, 0)),
            100,
            f"{c['name']}, before step {c['step']}",
            kind="saved",
            place=c["place"],
        )
        for c in page["checkpoints"]
    ]
    return Chart("loss", "loss by step", 260, shapes, x.ticks(8, whole=True), _mirrored(y.ticks(5)), marks)


def _changes(x: Axis, page: dict[str, Any]) -> list[Mark]:
    changes = [(c["step"], f"step {c['step']}: weights change, {c['what']}") for c in page["changes"]]
    return [Mark(x.percent(step), None, text) for step, text in changes]


def _mirrored(ticks: list[Tick]) -> list[Tick]:
    return [Tick(100 - tick.place, tick.text) for tick in ticks]


def attempts_chart(page: dict[str, Any]) -> Chart:
    """Return each attempt as a bar over the steps it recorded: what was kept, what was undone."""
    rows = page["attempts"][-_MOST_LANES:]
    x = Axis(0, max([page["steps"], *((row["last"] or 0) + 1 for row in rows)], default=1) or 1)
    shapes, lanes = [], []
    for place, row in enumerate(rows):
        top, bottom = ((place + edge) * SIDE / max(len(rows), 1) for edge in (0.22, 0.78))
        start, kept = row["start"], row["kept_until"]
        end = (row["last"] + 1) if row["last"] is not None else start
        shapes.append(("undone-band", _box(x.at(min(kept, end)), top, x.at(end), bottom)))
        shapes.append(("kept-band", _box(x.at(start), top, x.at(kept), bottom)))
        lanes.append(Tick((place + 0.5) * 100 / len(rows), str(row["attempt"])))
    return Chart(
        "attempts", "steps of each attempt", _ROW_HEIGHT * max(len(rows), 1), shapes, x.ticks(8, whole=True), lanes
    )


def mix_chart(page: dict[str, Any]) -> Chart:
    """Return the share of each dataset along the run, one upon the other; dashed: what the plan says."""
    mix = page["mix"]
    xs = [(a + b) / 2 for a, b in zip(mix["first_step"], mix["last_step"], strict=True)]
    if len(xs) > 1:  # whole parts: from the first step to the last
        xs[0], xs[-1] = mix["first_step"][0], mix["last_step"][-1]
    elif xs:
        xs = [mix["first_step"][0], mix["last_step"][0]]
    x, y = Axis(0, max(page["steps"] - 1, 1)), Axis(0, 1)
    areas, dashes = [], []
    below, planned = [0.0] * len(xs), [0.0] * len(xs)
    for number, row in enumerate(mix["datasets"]):
        share, plan = (v * 2 if v is not None and len(v) == 1 else v for v in (row["share"], row["planned"]))
        above = [min(a + b, 1.0) for a, b in zip(below, share, strict=True)]
        areas.append((f"area c{row['colour']}", area_path(x, y, xs, below, above)))
        below = above
        if plan is not None and number < len(mix["datasets"]) - 1:
            planned = [a + b for a, b in zip(planned, plan, strict=True)]
            dashes.append(("plan", line_path(x, y, xs, planned)))
    ticks, label = _mirrored(y.ticks(4, percent=True)), "share of each dataset by step"
    return Chart("mix", label, 220, [*areas, *dashes], x.ticks(8, whole=True), ticks, _changes(x, page))


def lines_chart(name: str, lines: list[dict[str, Any]], steps: int, height: int = 170) -> Chart:
    """Return some lines along the run.

    Args:
        lines: ``step`` and ``value`` of each, and its ``colour`` where that is not its place.
    """
    x, y = Axis(0, max(steps - 1, 1)), axis_of([v for line in lines for v in line["value"]])
    colours = [line.get("colour", number % MOST_COLOURS) for number, line in enumerate(lines)]
    shapes = [(f"line c{c}", line_path(x, y, n["step"], n["value"])) for c, n in zip(colours, lines, strict=True)]
    return Chart("", name, height, shapes, x.ticks(5, whole=True), _mirrored(y.ticks(4)))


def sparkline(values: Sequence[float | None]) -> str:
    """Return the path of a small line without axes."""
    return line_path(Axis(0, max(len(values) - 1, 1)), axis_of(values), range(len(values)), values)


def uses_chart(page: dict[str, Any]) -> Chart:
    """Return the uses of a sample along the run, past and planned, as marks that lead to their steps."""
    end = max([page["steps"], page["planned_until"] or 0, 1])
    x = Axis(0, end)
    shapes = [("reached-band", _box(0, 470, x.at(page["steps"]), 530)), ("track-band", _box(0, 490, SIDE, 510))]
    marks = [
        Mark(x.percent(u["step"]), 50.0, f"step {u['step']}: {u['fate']}", u["step"], u["fate"].replace(" ", "-"))
        for u in page["uses"]
    ]
    return Chart("uses-along", "uses by step", 34, shapes, x.ticks(8, whole=True), [], marks)


def compare_chart(page: dict[str, Any]) -> Chart:
    """Return the losses of two runs above each other, the first difference marked."""
    drawn = lines_chart("loss of both runs", page["losses"], page["num_steps"], 260)
    first = page["first_difference"]
    x = Axis(0, max(page["num_steps"] - 1, 1))
    marks = [] if first is None else [Mark(x.percent(first), None, f"first difference: step {first}")]
    return replace(drawn, name="compare", x=x.ticks(8, whole=True), marks=marks)


def rollout_charts(page: dict[str, Any]) -> dict[str, Chart]:
    """Return what became of rollouts along the run, how old they were when they were used, and what they earned."""
    found, x = page["rollouts"], Axis(0, max(page["steps"] - 1, 1))
    ages, rewards, starts = found["ages"], found["rewards"], found["fates"]["step"]
    edges = [edge for pair in zip(starts, [*starts[1:], page["steps"]], strict=True) for edge in pair]
    below, areas = [0.0] * len(edges), []
    for row in found["fates"]["lines"]:
        above = [low + share for low, share in zip(below, (s for s in row["share"] for _ in "ab"), strict=True)]
        areas.append((f"area {row['fate']}", area_path(x, Axis(0, 1), edges, below, above)))
        below = above

    def drawn(name: str, label: str, y: Axis, shapes: list[tuple[str, str]], **ticks: bool) -> Chart:
        return Chart(name, f"{label} by step", 150, shapes, x.ticks(8, whole=True), _mirrored(y.ticks(4, **ticks)))

    high, reward = axis_of(ages["highest"], from_zero=True), axis_of(rewards["mean"])
    lines = [(f"line c{c}", line_path(x, high, ages["step"], ages[name])) for c, name in ((9, "highest"), (0, "mean"))]
    earned = [("line c4", line_path(x, reward, rewards["step"], rewards["mean"]))]
    return {
        "fates": drawn("fates", "share of each fate", Axis(0, 1), areas, percent=True),
        "ages": drawn("ages", "age", high, lines),
        "rewards": drawn("rewards", "mean reward", reward, earned),
    }


def groups_chart(page: dict[str, Any]) -> Chart:
    """Return the reward of each rollout of a prompt by the policy that made it, as marks that lead to its row."""
    rows = [row for group in page["groups"] for row in group["rollouts"]]
    rows = [row for row in rows if row["reward"] is not None and row["policy"] is not None]
    policies = [row["policy"] for row in rows] or [0]
    x, y = Axis(min(policies) - 1, max(policies) + 1), axis_of([row["reward"] for row in rows])
    marks = [
        Mark(
            x.percent(row["policy"]),
            100 - y.percent(row["reward"]),
            f"rollout {row['rollout']}: reward {row['reward']:.4g}, {row['fate']}",
            kind=row["fate"],
            place=f"sample/{page['dataset']}/{page['index']}#rollout-{row['rollout']}",
        )
        for row in rows
    ]
    return Chart("groups-along", "reward by policy", 160, [], x.ticks(8, whole=True), _mirrored(y.ticks(4)), marks)
