"""What the model really got: samples of each dataset, over the run or by parts of it.

mix         samples and share of each dataset, against the weights planned for each step; in tokens, too, by the
            means of the plan, where its weights are shares of tokens
passes      how often each dataset was gone through
coverage    how many of its samples were ever used
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import ConfigError
from lading.order.counts import counts_of_steps, planned_counts
from lading.order.plan import Plan
from lading.report.evidence import Evidence
from lading.report.history import History
from lading.report.planned import SeenSamples, mark_seen
from lading.report.table import Table, schema_of
from lading.report.views import Views
from lading.report.where import newest_plan
from lading.runtime.fields import is_whole

I64 = NDArray[np.int64]
Counts = list[int | None]
Places = I64 | slice

MIX = schema_of(
    "group string, first_step int64, last_step int64, dataset string, samples int64, share float64, "
    "planned float64, tokens int64, token_share float64, token_planned float64"
)
PASSES = schema_of("dataset string, length int64, samples int64, passes float64, distinct int64, coverage float64")
_GROUPS = ("run", "epoch", "chunk", "attempt")


def mix(evidence: Evidence, history: History, views: Views, by: str | int) -> Table:
    """Return the samples of each dataset by group: ``run``, ``epoch``, ``chunk``, ``attempt`` or so many steps."""
    applied, means = history.applied, token_means(evidence)
    labels, prefix = _labels(applied, by), by if isinstance(by, str) else "steps"
    groups = _places(labels)
    counts = _counts(evidence, views, applied, labels, groups)
    rows = []
    for label, found in counts.items():
        inside = applied["step"][groups[label]]
        planned = _planned_shares(evidence, applied, groups[label])
        ends = {"first_step": int(inside.min()), "last_step": int(inside.max())}
        total, group = max(int(found.sum()), 1), _name(prefix, label, by, ends)
        in_tokens = _in_tokens(found, planned, means)
        for d, name in evidence.description.named_datasets:
            rows.append(
                {
                    "group": group,
                    **ends,
                    "dataset": name,
                    "samples": int(found[d]),
                    "share": float(found[d] / total),
                    "planned": None if planned is None else float(planned[d]),
                    **in_tokens(d),
                }
            )
    return Table.of(rows, MIX)


def token_means(evidence: Evidence) -> NDArray[np.float64] | None:
    """Return the mean tokens of a sample of each dataset, by number; None unless the weights are shares of tokens."""
    plan = newest_plan(evidence)
    if plan is None or plan.mixture is None or plan.mixture.unit != "tokens":
        return None
    means = np.zeros(len(evidence.datasets))
    for number in plan.parts.numbers:
        means[number] = plan.datasets[plan.parts.source(number)].mean_tokens or 0.0
    return means


def weighs_tokens(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Say whether rows have shares of tokens, which the weights of the mixture were given in."""
    return any(row["token_share"] is not None for row in rows)


def _in_tokens(
    counts: I64, planned: NDArray[np.float64] | None, means: NDArray[np.float64] | None
) -> Callable[[int], dict[str, Any]]:
    """Return what says tokens, their share and their planned share of a dataset; nothing where means are unknown."""
    if means is None or planned is None:
        return lambda dataset: {}
    tokens, wanted = counts * means, planned * means[: len(planned)]
    shares = [values / max(float(values.sum()), 1e-9) for values in (tokens, wanted)]
    return lambda d: {
        "tokens": round(float(tokens[d])),
        "token_share": float(shares[0][d]),
        "token_planned": float(shares[1][d]),
    }


def passes(evidence: Evidence, history: History, views: Views) -> Table:
    """Return samples used, passes and coverage of each dataset."""
    applied = history.applied
    whole = np.zeros(len(applied["step"]), dtype=np.int64)
    counts = _counts(evidence, views, applied, whole, _places(whole)).get(
        0, np.zeros(len(evidence.datasets), dtype=np.int64)
    )
    unknown: Counts = [None] * len(evidence.datasets)  # datasets that no plan has
    distinct, lengths = ([*known, *unknown] for known in _distinct(evidence, views, applied))
    rows = []
    for d, name in evidence.description.named_datasets:
        length, seen = lengths[d], distinct[d]
        rows.append(
            {
                "dataset": name,
                "length": length,
                "samples": int(counts[d]),
                "passes": int(counts[d]) / length if length else None,
                "distinct": seen,
                "coverage": seen / length if length and seen is not None else None,
            }
        )
    return Table.of(rows, PASSES)


def _labels(applied: dict[str, I64], by: str | int) -> I64:
    if is_whole(by, 1):
        return applied["step"] // by
    if by == "run":
        return np.zeros(len(applied["step"]), dtype=np.int64)
    if by in _GROUPS:
        return np.maximum(applied[str(by)], 0) if by == "chunk" else applied[str(by)]  # none: all is chunk 0
    raise ConfigError(f"by is {by!r}: expected {', '.join(_GROUPS)} or a number of steps.")


def _name(prefix: Any, label: int, by: str | int, ends: dict[str, int]) -> str:
    if by == "run":
        return "run"
    return f"{prefix} {label}" if isinstance(by, str) else f"steps {ends['first_step']}–{ends['last_step']}"


def _places(labels: I64) -> dict[int, Places]:
    """Return the places of each label, in order; a slice where they lie side by side."""
    if not len(labels):
        return {}
    in_order = bool(np.all(labels[1:] >= labels[:-1]))
    order = None if in_order else np.argsort(labels, kind="stable")
    ordered = labels if order is None else labels[order]
    bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(labels)]
    inside = [slice(first, last) for first, last in itertools.pairwise(bounds)]
    return {int(ordered[part.start]): part if order is None else order[part] for part in inside}


def _by_attempt(applied: dict[str, I64], places: Places) -> Iterator[tuple[int, I64]]:
    """Yield the attempts that have steps at some places, each with its steps."""
    attempts, steps = applied["attempt"][places], applied["step"][places]
    bounds = [0, *(np.flatnonzero(np.diff(attempts)) + 1).tolist(), len(attempts)]
    for first, last in itertools.pairwise(bounds):
        yield int(attempts[first]), steps[first:last]


def _counts(
    evidence: Evidence, views: Views, applied: dict[str, I64], labels: I64, groups: dict[int, Places]
) -> dict[int, I64]:
    if not evidence.is_planned:
        return _named_counts(evidence, views, applied, labels)
    counts: dict[int, I64] = {}
    for label, places in groups.items():
        total = np.zeros(len(evidence.datasets), dtype=np.int64)
        for attempt, steps in _by_attempt(applied, places):
            plan = evidence.plan(attempt)
            if plan is not None:
                found = counts_of_steps(plan, steps)
                total[: len(found)] += found
        counts[label] = total
    skipped = [e for e in evidence.exceptions() if e["kind"] == "skipped"]
    for e in skipped:
        place = np.flatnonzero((applied["step"] == e["step"]) & (applied["attempt"] == e["attempt"]))
        if len(place):
            counts[int(labels[place[0]])][e["dataset"]] -= 1
    return counts


def _named_counts(evidence: Evidence, views: Views, applied: dict[str, I64], labels: I64) -> dict[int, I64]:
    views.create_samples()
    groups = np.unique(labels)
    columns = {"attempt": applied["attempt"], "step": applied["step"], "label": labels}
    views.register("label_of_step", pa.table(columns))
    if len(groups) == 1:
        label = "(SELECT any_value(label) FROM label_of_step)"
        sql = f"SELECT {label} AS label, dataset, count(*) AS n FROM used_samples GROUP BY dataset"
    else:
        sql = (
            "SELECT label, dataset, sum(n)::BIGINT AS n FROM (SELECT attempt, step, dataset, count(*) AS n FROM "
            "used_samples GROUP BY attempt, step, dataset) JOIN label_of_step USING (attempt, step) "
            "GROUP BY label, dataset"
        )
    counts = {int(g): np.zeros(len(evidence.datasets), dtype=np.int64) for g in groups}
    for row in views.query(sql).to_pylist():
        counts[row["label"]][row["dataset"]] = row["n"]
    return counts


def _planned_shares(evidence: Evidence, applied: dict[str, I64], places: Places) -> NDArray[np.float64] | None:
    """Return the shares that the weights planned for each step of a group ask for; None where no plan says any."""
    total = np.zeros(len(evidence.description.datasets), dtype=np.float64)
    for attempt, steps in _by_attempt(applied, places):
        plan = evidence.plan(attempt)
        if plan is None:
            return None
        found = planned_counts(plan, steps)
        total[: len(found)] += found
    return total / max(float(total.sum()), 1.0)


def _distinct(evidence: Evidence, views: Views, applied: dict[str, I64]) -> tuple[Counts, Counts]:
    """Return the distinct samples used, None where they are too many to count, and the length of each dataset."""
    plan = evidence.plan(evidence.spans[-1].attempt) if evidence.spans else None
    if plan is None and evidence.is_planned:
        plan = evidence.plan(max(evidence.attempts))
    if plan is None:
        known = [length or None for length in evidence.description.lengths]
        return _named_distinct(evidence, views), known + [None] * (len(evidence.datasets) - len(known))
    steps = applied["step"]
    lengths: Counts = list(plan.parts.samples)
    if _is_simple(evidence, plan, steps):
        coverage = plan.simulate(len(steps)).coverage
        return [round(coverage[name] * n) for name, n in zip(plan.names, plan.lengths, strict=True)], lengths
    seen = SeenSamples(plan.parts.samples)
    for span in evidence.spans:
        mine = evidence.plan(span.attempt)
        chosen = steps[applied["attempt"] == span.attempt]
        if mine is not None and len(chosen):
            mark_seen(mine, chosen, seen, evidence.departures_of(span.attempt))
    return [seen.count(d) for d in range(len(lengths))], lengths


def _is_simple(evidence: Evidence, plan: Plan, steps: I64) -> bool:
    """Say whether the steps are those of one plan from its first on, none left out or changed."""
    gapless = np.array_equal(steps, np.arange(len(steps)))
    changed = bool(evidence.departures) or plan.blocked_from is not None or len(evidence.plans) > 1
    return gapless and not changed and plan.parts.is_plain and plan.first_step == 0


def _named_distinct(evidence: Evidence, views: Views) -> Counts:
    views.create_samples()
    ends = views.query("SELECT dataset, max(index) AS last FROM used_samples GROUP BY dataset").to_pylist()
    lengths = {row["dataset"]: row["last"] + 1 for row in ends}
    seen = SeenSamples([lengths.get(d, 0) for d in range(len(evidence.datasets))])
    for batch in views.stream(
        "SELECT dataset, index FROM used_samples"
    ):  # counting distinct values in SQL takes 20 times
        datasets, indices = batch["dataset"].to_numpy(), batch["index"].to_numpy()  # the memory
        for dataset in np.unique(datasets).tolist():
            seen.add(dataset, indices[datasets == dataset])
    return [seen.count(d) for d in range(len(evidence.datasets))]
