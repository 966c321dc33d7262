"""Training that adapts, each policy on a small real problem, with the record of what it decided and why.

python benchmarks/policies.py adaptive.html        (or adaptive.png, with kaleido and a Chromium)

Two texts of different difficulty (Python's help topics, Python's own code) and tones from pure to noisy.
Everything on the CPU, in well under a minute.
"""

from __future__ import annotations

import json
import pydoc_data.topics
import sys
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots
from torch import nn

from lading import (
    Chunks,
    Columns,
    Curriculum,
    FollowLosses,
    GrowWhileImproving,
    LearningValue,
    Loader,
    Mixture,
    PaceValidation,
    SteerToShares,
    per_dataset_mean,
)
from lading.kits.adaptive import Choose
from lading.order import Reweight

CONTEXT, TONE = 8, 24


def texts() -> dict[str, Columns]:
    """Return windows of two texts: prose and code, byte by byte."""
    prose = " ".join(pydoc_data.topics.topics.values()).encode()[:60_000]
    code = Path(json.decoder.__file__).read_bytes() + Path(json.encoder.__file__).read_bytes()
    found = {}
    for name, text in (("prose", prose), ("code", code)):
        windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(text, np.uint8), CONTEXT + 1)[::3]
        found[name] = Columns(bytes=torch.from_numpy(windows.astype(np.int64)))
    return found


def tones(number: int, seed: int) -> dict[str, torch.Tensor]:
    """Return tones, from pure ones to mere noise, and their pitch."""
    generator = torch.Generator().manual_seed(seed)
    noise, pitch = torch.linspace(0, 2, number), torch.rand(number, generator=generator)
    waves = torch.sin(torch.arange(TONE) * (0.2 + pitch[:, None]))
    heard = waves + noise[:, None] * torch.randn(number, TONE, generator=generator)
    return {"wave": heard, "pitch": pitch, "noise": noise}


class Trainer:
    """The least that trains: a model, an optimizer, a loss for each row."""

    def __init__(self, model: nn.Module, rate: float = 3e-3) -> None:
        self.model, self.optimizer = model, torch.optim.Adam(model.parameters(), lr=rate)

    def losses(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the loss of each row."""
        if "bytes" in batch:
            return nn.functional.cross_entropy(
                self.model(batch["bytes"][:, :-1]), batch["bytes"][:, -1], reduction="none"
            )
        return (self.model(batch["wave"])[:, 0] - batch["pitch"]).square()

    def update(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Make one update; return the loss of each row."""
        losses = self.losses(batch)
        self.optimizer.zero_grad()
        losses.mean().backward()
        self.optimizer.step()
        return losses.detach()

    def validate(self, loader: Loader) -> float:
        """Return the mean loss over a chunk of the validation data."""
        with torch.no_grad():
            return float(torch.cat([self.losses(batch) for batch in loader]).mean())


def language_model() -> nn.Module:
    """Return a model that guesses the next byte."""
    return nn.Sequential(
        nn.Embedding(256, 16), nn.Flatten(), nn.Linear(16 * CONTEXT, 96), nn.Tanh(), nn.Linear(96, 256)
    )


def listener() -> nn.Module:
    """Return a model that guesses a pitch."""
    return nn.Sequential(nn.Linear(TONE, 48), nn.Tanh(), nn.Linear(48, 1))


def mixed(policy: Any, steps: int = 240) -> dict[str, Any]:
    """Train on both texts under a policy of weights; return losses and shares along the run."""
    torch.manual_seed(0)
    mixture = Mixture({"prose": 1, "code": 1}, policy=policy, lookahead_steps=4)
    loader, trainer = Loader(texts(), 64, mixture=mixture), Trainer(language_model())
    losses: dict[str, list[float]] = {"prose": [], "code": []}
    for batch, bill in loader.with_bills():
        means = per_dataset_mean(trainer.update(batch), bill)
        if hasattr(policy, "observe"):
            policy.observe(means)
        for name, loss in means.items():
            losses[name].append(loss)
        if loader.step == steps:
            break
    events = [event for event in loader.plan.events if isinstance(event, Reweight)]
    counts = [loader.plan.counts(step) for step in range(1, steps + 1)]
    drawn = [code / (prose + code) for prose, code in counts]
    return {
        "losses": losses,
        "events": events,
        "shares": [e.weights[1] / sum(e.weights) for e in events],
        "drawn": drawn,
    }


def chunked(chunks: Any, validation_chunks: Any = 10, number: int = 40, **options: Any) -> dict[str, Any]:
    """Train on tones in chunks, validating after each; return what was measured and decided."""
    torch.manual_seed(0)
    loader = Loader(Columns(**tones(2000, 1)), 20, chunk_batches=chunks, **options)
    validation = Loader(Columns(**tones(800, 2)), 20, chunk_batches=validation_chunks)
    trainer = Trainer(listener())
    found: dict[str, Any] = {"metric": [], "steps": [], "size": [], "on": [], "noise": []}
    for _ in range(number):
        found["size"].append(len(loader))
        heard = [(trainer.update(batch).mean(), batch["noise"].mean()) for batch in loader]
        metric = trainer.validate(validation)
        on = validation.last_chunk()
        loader.validated(metric, loss=float(torch.stack([loss for loss, _ in heard]).mean()), on=on)
        validation.validated(metric)
        found["metric"].append(metric)
        found["steps"].append(loader.step)
        found["on"].append(on["stop_step"] - on["first_step"])
        found["noise"].append(float(torch.stack([noise for _, noise in heard]).mean()))
    return {**found, "events": loader.plan.events, "plan": loader.plan}


def record(name: str, events: Any, shown: int = 3) -> None:
    """Print what was decided, and why."""
    print(f"{name}: {len(events)} decisions")
    for event in list(events)[:shown]:
        print(f"  step {event.step}: {event.kind}, {event.reason}")


def picture() -> go.Figure:
    """Train under every policy and draw what came of it."""
    figure = make_subplots(
        rows=2, cols=3, subplot_titles=[" "] * 6, vertical_spacing=0.22, horizontal_spacing=0.09,
        specs=[[{"secondary_y": True}] * 3] * 2,
    )  # fmt: skip
    panels = (follow_losses, steer_to_shares, curriculum, grow_while_improving, learning_value, pace_validation)
    for number, panel in enumerate(panels):
        panel(Panel(figure, number // 3 + 1, number % 3 + 1))
    figure.update_layout(template="plotly_white", width=1560, height=900, showlegend=False)
    figure.update_layout(margin={"t": 90, "b": 60, "l": 60, "r": 60})
    return figure


def follow_losses(panel: Panel) -> None:
    """More of the text whose loss is high."""
    run = mixed(FollowLosses(every_steps=20, strength=1.0))
    panel.title("FollowLosses: more of what is learnt badly", run["events"])
    panel.line([0, *(e.step for e in run["events"])], [0.5, *run["shares"]], "share of code, chosen", shape="hv")
    for source, dash in (("prose", "dot"), ("code", "dash")):
        means = np.convolve(run["losses"][source], np.ones(20) / 20, "valid")
        panel.line(list(range(len(means))), means.tolist(), f"loss of {source} (right)", dash=dash, right=True)
    panel.axes("share", [0, 1], "loss, mean of 20 steps")


def steer_to_shares(panel: Panel) -> None:
    """Three quarters of everything drawn, whatever was drawn so far."""
    run = mixed(SteerToShares({"prose": 1, "code": 3}, every_steps=20))
    panel.title("SteerToShares: reach 0.75, and do not go beyond", run["events"])
    panel.line([0, *(e.step for e in run["events"]), 240], [0.5, *run["shares"], run["shares"][-1]],
               "share of code, chosen", shape="hv")  # fmt: skip
    panel.line(list(range(1, len(run["drawn"]) + 1)), run["drawn"], "share of code drawn so far", dash="dash")
    panel.line([0, 240], [0.75, 0.75], "target", dash="dot")
    panel.axes("share", [0, 1])


def curriculum(panel: Panel) -> None:
    """Pure tones first."""
    graded = chunked(10, mixture=Curriculum("noise", start=0.2, until=200, pacing="root"))
    plain, plan = chunked(10), graded["plan"]
    pool = [plan.order.pool_at(plan.locate(step).position) / 2000 for step in graded["steps"]]
    panel.title("Curriculum: pure tones first, everything from step 200 on", ())
    panel.line(graded["steps"], pool, "share of the tones that is in")
    panel.line(graded["steps"], graded["noise"], "mean noise of a chunk (right)", dash="dot", right=True)
    panel.line(plain["steps"], plain["noise"], "without curriculum (right)", dash="dash", right=True)
    panel.axes("share", [0, 1.35], "noise (0 pure, 2 mere noise)", [0, 2])


def grow_while_improving(panel: Panel) -> None:
    """Long chunks while it improves."""
    run = chunked(Chunks(5, resize=GrowWhileImproving(least=2, most=40)), number=24)
    panel.title("GrowWhileImproving: chunks grow while validation improves", run["events"])
    panel.line(run["steps"], run["size"], "batches of a chunk", shape="vh")
    panel.line(run["steps"], run["metric"], "validation loss (right)", dash="dot", right=True)
    panel.axes("batches", [0, 44], "validation loss")


def learning_value(panel: Panel) -> None:
    """The noisy chunks first, once their losses are known."""
    run = chunked(Chunks(10, choose=LearningValue("loss")))
    choices = [event for event in run["events"] if isinstance(event, Choose)]
    panel.title("LearningValue: highest loss first, each once a pass", choices[11:])
    for first in range(0, len(choices), 10):
        part = choices[first : first + 10]
        panel.line([e.step for e in part], [e.chosen for e in part], f"pass {first // 10}", mode="lines+markers")
    panel.axes("chunk of the data (9 is the noisiest)", [-0.5, 14])


def pace_validation(panel: Panel) -> None:
    """Often and on little while the metric moves, seldom and on more when it does not."""
    limits = {"fast": 0.15, "slow": 0.05, "least": 2}
    run = chunked(
        Chunks(5, resize=PaceValidation(**limits, most=40)), Chunks(4, resize=PaceValidation(**limits, most=20)), 24
    )
    panel.title("PaceValidation: how often, and on how much, by the trend", run["events"])
    panel.line(run["steps"], run["size"], "training batches between validations", shape="vh")
    panel.line(run["steps"], run["on"], "batches validated on", shape="vh", dash="dot")
    panel.line(run["steps"], run["metric"], "validation loss (right)", dash="dash", right=True)
    panel.axes("batches", [0, 50], "validation loss")


COLOURS = ("#2f6fb0", "#c8553d", "#3a8f5c", "#8a5fb0", "#b07c2f", "#4d4d4d")


class Panel:
    """One of the six plots: lines, named in a corner, what was decided first, and the axes."""

    def __init__(self, figure: go.Figure, row: int, column: int) -> None:
        self.figure, self.row, self.column, self.lines = figure, row, column, 0

    def title(self, text: str, events: Any) -> None:
        """Say what the policy is for, and how many decisions it made, the first with its reason; print the record."""
        record(text.split(":")[0], events)
        reason = events[0].reason.split(": ", 1)[1] if events else "planned, no decision while it runs"
        many = f"{len(events)} decisions, the first before step {events[0].step}: " if events else ""
        number = (self.row - 1) * 3 + self.column - 1
        self.figure.layout.annotations[
            number
        ].text = f"<b>{text}</b><br><span style='font-size:12px'>{many}{reason}</span>"

    def line(self, x: Any, y: Any, name: str, *, right: bool = False, mode: str = "lines", **style: Any) -> None:
        """Draw one line, named in its colour."""
        colour, place = COLOURS[self.lines], {"row": self.row, "col": self.column}
        drawn = go.Scatter(x=x, y=y, name=name, mode=mode, line={"color": colour, **style})
        self.figure.add_trace(drawn, secondary_y=right, **place)
        self.figure.add_annotation(
            text=name, x=0.98, y=0.99 - 0.065 * self.lines, showarrow=False, font={"color": colour, "size": 12},
            xref="x domain", yref="y domain", xanchor="right", yanchor="top", bgcolor="rgba(255,255,255,0.75)", **place,
        )  # fmt: skip
        self.lines += 1

    def axes(self, left: str, limits: list[float], right: str = "", right_limits: list[float] | None = None) -> None:
        """Name the axes."""
        place = {"row": self.row, "col": self.column}
        self.figure.update_xaxes(title_text="step", title_standoff=4, **place)
        self.figure.update_yaxes(title_text=left, range=limits, title_standoff=4, secondary_y=False, **place)
        self.figure.update_yaxes(
            title_text=right,
            range=right_limits,
            title_standoff=4,
            showgrid=False,
            tickmode="auto",
            nticks=6,
            tickformat=".3~g",
            secondary_y=True,
            **place,
        )


def main(path: Path) -> None:
    """Train, print the record, write the picture."""
    figure = picture()
    if path.suffix == ".html":
        figure.write_html(path, include_plotlyjs="cdn")
    else:
        figure.write_image(path)
    print("written", path)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "adaptive.html"))
