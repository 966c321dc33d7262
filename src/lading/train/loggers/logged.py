"""A ledger that also notifies loggers; to a loader and to a training loop it is the ledger.

    update(bill)  ─▶ counts of each dataset            every ``every`` commits, on rank 0:
    commit(loss)  ─▶ losses, their distance from usual ─▶ sink.scalars(values, step)

Counts are those of whole steps, all ranks together, from the plan; where nothing
predicts them (``track``), those of this rank.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lading.identity import Bill, World
from lading.ledger.ledger import Ledger
from lading.order import Event, Plan
from lading.order.counts import counts_of_steps
from lading.report.losses import SPIKE_WINDOW, spike_scores
from lading.runtime.arrays import host


class Sink(Protocol):
    """What a logger must offer to be notified of a run."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Record numbers at a step."""

    def facts(self, facts: Mapping[str, str]) -> None:
        """Record what holds for the whole run: plan, digest, folder."""

    def close(self, run: Path) -> None:
        """Write everything down; ``run`` is the run folder, for loggers that keep artifacts."""


def logged(ledger: Ledger, *sinks: Sink, every: int = 10) -> LoggedLedger:
    """Return a ledger that notifies sinks of what it records.

    Args:
        ledger: The ledger; everything it can do, the result can do.
        sinks: Loggers, such as ``TensorBoard`` or ``WandB``.
        every: Commits between two records.
    """
    return LoggedLedger(ledger, sinks, every)


class LoggedLedger:
    """A ledger and its sinks; see ``logged``."""

    def __init__(self, ledger: Ledger, sinks: Iterable[Sink], every: int = 10) -> None:
        self.ledger, self.sinks, self.every = ledger, tuple(sinks), max(1, every)
        self._plan: Plan | None = None
        self._world = World()
        self._counts: Counter[str] = Counter()  # since the last record
        self._totals: Counter[str] = Counter()  # since the start of the run
        self._lengths: dict[str, int] = {}
        self._recent: deque[float] = deque(maxlen=SPIKE_WINDOW + 1)
        self._commits, self._digest = 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ledger, name)

    def __enter__(self) -> LoggedLedger:
        self.ledger.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        was_closed = self.ledger.is_closed
        self.ledger.__exit__(*exception)
        if not was_closed:
            self._close()

    def begin(
        self, step: int, plan: Plan | None = None, world: World | None = None, loaded: Mapping[str, Any] | None = None
    ) -> Plan | None:
        """Start an iteration; what was drawn before it counts towards the passes."""
        followed = self.ledger.begin(step, plan, world, loaded)
        self._plan, self._world = plan, world or self._world
        self._totals = Counter()
        if plan is not None:
            self._lengths = {name: n for name, n in zip(plan.names, plan.parts.samples, strict=True) if name}
            before = counts_of_steps(plan, np.arange(step, dtype=np.int64)).tolist()
            self._totals = Counter({name: n for name, n in zip(plan.names, before, strict=True) if name})
            self._notify_facts({"plan": plan.fingerprint})
        self._notify_facts({"run": str(self.ledger.run_dir)})
        return followed

    # Written out, not passed on by __getattr__: a loader asks for them by protocol, which looks at the class.
    def mark(self, step: int | None = None) -> dict[str, Any] | None:
        """Return ``run``, ``attempt`` and ``launch`` for a checkpoint."""
        return self.ledger.mark(step)

    @property
    def launched(self) -> dict[str, Any] | None:
        """The attempt opened last."""
        return self.ledger.launched

    def follow(self, launched: Mapping[str, Any] | None) -> None:
        """Note in which attempt the same loader was recorded before."""
        self.ledger.follow(launched)

    def note(self, step: int, text: str) -> None:
        """Record a sentence about this attempt."""
        self.ledger.note(step, text)

    def flush(self) -> None:
        """Write down what was recorded."""
        self.ledger.flush()

    def update(self, bill: Bill, *batch: Any) -> None:
        """Record a batch and count what is in it."""
        self.ledger.update(bill, *batch)
        if self._world.rank:
            return
        whole = bill if self._plan is None or bill.world.world_size == 1 else self._plan.bill(bill.step)
        self._digest = (self._digest + whole.digest) % (1 << 64)
        for number, count in whole.counts().items():
            name = whole.names[number] if number < len(whole.names) else str(number)
            self._counts[name] += count
            self._totals[name] += count

    def event(self, event: Event) -> None:
        """Record a change of the plan."""
        self.ledger.event(event)
        if self._plan is not None:
            self._plan = self._plan.with_event(event)

    def commit(self, bills: Bill | Iterable[Bill], update: int | None = None, loss: Any = None, **metrics: Any) -> None:
        """Record an update, and every so often what the run was fed since the last record."""
        bills = bills if isinstance(bills, Bill) else list(bills)
        self.ledger.commit(bills, update=update, loss=loss, **metrics)
        if self._world.rank:
            return
        self._commits += 1
        value = None if loss is None else float(np.mean(host(loss)))
        if value is not None:
            self._recent.append(value)
        if self._commits % self.every == 0:
            last = bills if isinstance(bills, Bill) else bills[-1]
            self._record(last.step, value)

    def close(self, *, interrupted: bool = False, failed: bool = False) -> None:
        """Close the ledger and the sinks, and say how training ended. Closing twice is fine."""
        if self.ledger.is_closed:
            return
        self.ledger.close(interrupted=interrupted, failed=failed)
        self._close()

    def _record(self, step: int, loss: float | None) -> None:
        seen = sum(self._counts.values()) or 1
        values = {f"shares/{name}": count / seen for name, count in self._counts.items()}
        values |= {f"passes/{n}": self._totals[n] / length for n, length in self._lengths.items() if length}
        if loss is not None:
            score, _ = spike_scores(np.asarray(self._recent), SPIKE_WINDOW)
            values |= {"loss": loss, "spike_score": float(score[-1])}
        self._counts.clear()
        for sink in self.sinks:
            sink.scalars({f"lading/{name}": value for name, value in values.items()}, step)

    def _notify_facts(self, facts: Mapping[str, str]) -> None:
        if not self._world.rank:
            for sink in self.sinks:
                sink.facts({f"lading/{name}": text for name, text in facts.items()})

    def _close(self) -> None:
        self._notify_facts({"digest": f"{self._digest:016x}"})
        if not self._world.rank:
            for sink in self.sinks:
                sink.close(Path(self.ledger.run_dir))
