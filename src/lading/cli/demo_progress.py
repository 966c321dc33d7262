"""What the demo shows while it trains: a bar for the steps, a line for every chunk."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class Watch:
    """Shows the events of a training process; a block, once for every attempt.

    Args:
        console: Where to show them.
        steps: Steps of the whole run.
    """

    def __init__(self, console: Console, steps: int) -> None:
        self._console, self._steps = console, steps
        self._progress: Progress | None = None
        self._is_first = True

    def __enter__(self) -> Watch:
        columns = (BarColumn(30), TextColumn("{task.description}"), TimeRemainingColumn())
        self._progress = Progress(*columns, console=self._console, transient=True)
        self._progress.start()
        self._task = self._progress.add_task("starting torch", total=self._steps)
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._progress is not None
        self._progress.stop()

    def note(self, event: dict[str, Any]) -> None:
        """Show an event."""
        assert self._progress is not None
        if event["kind"] == "ready":
            self._console.print(f"  starts at step {event['step']}; {event['parameters']:,} parameters")
            self._is_first = True
        elif event["kind"] == "step":
            text = f"step {event['step']:>4} of {self._steps}  loss {event['loss']:.2f}"
            self._progress.update(self._task, completed=event["step"] + 1, description=text)
        elif event["kind"] == "validated":
            self._console.print(self._chunk_lines(event))

    def _chunk_lines(self, event: dict[str, Any]) -> str:
        losses = "".join(f"{loss:>12.2f}" for loss in event["losses"].values())
        line = f"  chunk {event['chunk']}, to step {event['step']:>4}{losses}"
        if not self._is_first:
            return line
        self._is_first = False
        names = "".join(f"{name:>12}" for name in event["losses"])
        return f"  [dim]validation, bits/byte{names}[/]\n{line}"
