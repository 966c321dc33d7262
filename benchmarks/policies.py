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
    Reweight,
    SteerToShares,
    per_dataset_mean,
)
from lading.order import Choose

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
    return {"losses": losses, "events": events, "shares": [e.weights[1] / sum(e.weights) for e in events]}


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
    titles = ("FollowLosses", "SteerToShares", "Curriculum", "GrowWhileImproving", "LearningValue", "PaceValidation")
    figure = make_subplots(rows=2, cols=3, subplot_titles=titles, vertical_spacing=0.16, horizontal_spacing=0.07)
    follow = mixed(FollowLosses(every_steps=20, strength=1.0))
    steer = mixed(SteerToShares({"prose": 1, "code": 3}, every_steps=20))
    for column, (name, run) in enumerate((("FollowLosses", follow), ("SteerToShares", steer)), 1):
        record(name, run["events"])
        steps = [event.step for event in run["events"]]
        line(figure, 1, column, [0, *steps], [0.5, *run["shares"]], "share of code", shape="hv")
        for source, dash in (("prose", "dot"), ("code", "dash")):
            means = np.convolve(run["losses"][source], np.ones(20) / 20, "valid") / 6
            line(figure, 1, column, list(range(len(means))), means.tolist(), f"loss of {source} / 6", dash=dash)
    graded = chunked(10, mixture=Curriculum("noise", start=0.2, until=200, pacing="root"))
    plain = chunked(10)
    pool = [graded["plan"].order.pool_at(graded["plan"].locate(step).position) / 2000 for step in graded["steps"]]
    line(figure, 1, 3, graded["steps"], pool, "share that is in")
    line(figure, 1, 3, graded["steps"], [n / 2 for n in graded["noise"]], "noise of the chunk / 2", dash="dot")
    line(figure, 1, 3, plain["steps"], [n / 2 for n in plain["noise"]], "without curriculum", dash="dash")
    grown = chunked(Chunks(5, resize=GrowWhileImproving(least=2, most=40)), number=24)
    record("GrowWhileImproving", grown["events"])
    line(figure, 2, 1, grown["steps"], grown["size"], "batches of a chunk", shape="vh")
    line(figure, 2, 1, grown["steps"], [100 * m for m in grown["metric"]], "metric · 100", dash="dot")
    chosen = chunked(Chunks(10, choose=LearningValue("loss")))
    choices = [event for event in chosen["events"] if isinstance(event, Choose)]
    record("LearningValue", choices[10:])
    steps = [event.step for event in choices]
    line(figure, 2, 2, steps, [event.chosen for event in choices], "chunk of the data", mode="lines+markers")
    paced = chunked(
        Chunks(5, resize=PaceValidation(fast=0.15, slow=0.05, least=2, most=40)),
        Chunks(4, resize=PaceValidation(fast=0.15, slow=0.05, least=2, most=20)),
        number=24,
    )
    record("PaceValidation", paced["events"])
    line(figure, 2, 3, paced["steps"], paced["size"], "training batches between validations", shape="vh")
    line(figure, 2, 3, paced["steps"], paced["on"], "validation batches", shape="vh", dash="dot")
    line(figure, 2, 3, paced["steps"], [100 * m for m in paced["metric"]], "metric · 100", dash="dash")
    figure.update_layout(template="plotly_white", width=1500, height=820)
    return figure


COLOURS = ("#2f6fb0", "#c8553d", "#3a8f5c", "#8a5fb0", "#b07c2f", "#4d4d4d")


def line(figure: go.Figure, row: int, column: int, x: Any, y: Any, name: str, **how: Any) -> None:
    """Draw one line, named at its end."""
    drawn = [trace for trace in figure.data if trace.legendgroup == f"{row}{column}"]
    style = {"color": COLOURS[len(drawn)], "dash": how.get("dash", "solid"), "shape": how.get("shape", "linear")}
    trace = go.Scatter(x=x, y=y, name=name, mode=how.get("mode", "lines"), line=style, legendgroup=f"{row}{column}")
    figure.add_trace(trace, row=row, col=column)
    axes = {"xref": "x domain", "yref": "y domain", "row": row, "col": column}
    text = {
        "text": name,
        "x": 0.02,
        "y": 0.99 - 0.07 * len(drawn),
        "showarrow": False,
        "font": {"color": style["color"]},
    }
    figure.add_annotation(**text, **axes, xanchor="left", yanchor="top", bgcolor="rgba(255,255,255,0.7)")
    figure.update_layout(showlegend=False)


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
