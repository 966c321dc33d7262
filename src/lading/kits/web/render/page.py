"""One page that tells the whole run: one file, no script, no network; readable on a phone, in the dark and in print.

It is the page that ``lading ui`` shows of a run, without the links: the same values, the same template.
Everything that comes from the run is shown as text: a dataset may be called
``<script>alert(1)</script>`` and stays a name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lading.errors import ConfigError
from lading.kits.web.pages.curves import metric_charts
from lading.kits.web.pages.run import MOST_DRAWN, run_page
from lading.kits.web.render import charts
from lading.kits.web.render.jinja2 import rendered
from lading.report.losses import SPIKE_WINDOW
from lading.report.run import Run
from lading.runtime.blocks.progress import Progress, silent
from lading.runtime.files import clean_up, write_aside
from lading.source.looks import SourceLooks

_LOSS_PARTS = 40
_DECISIONS = 20


def write_page(run: Run, path: Path, progress: Progress = silent, looks: SourceLooks | None = None) -> int:
    """Write the page of a run; return its size in bytes."""
    content = page(run, progress, looks).encode()
    try:
        clean_up(path.parent, path.name)
        write_aside(path, content)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}. Pass -o with a file in a folder that can be written to."
        ) from error
    return len(content)


def page(run: Run, progress: Progress = silent, looks: SourceLooks | None = None) -> str:
    """Return the page of a run."""
    values = run_page(run, lambda share, what: progress(0.7 * share, what), looks)
    progress(0.7, "losses by dataset")
    if len(run.named_datasets) > 1 and values["loss"]["step"] and not run.has_dataset_losses:
        values["dataset_loss"] = dataset_losses(run, values)
    values["metrics"] = metric_charts(run)
    values["verdict"] = run.verify(lambda share, what: progress(0.8 + 0.15 * share, what)).to_dict()
    progress(0.95, "page")
    return run_html(run, values)


def run_html(run: Run, values: dict[str, Any], *, name: str | None = None, base: str = "", **more: Any) -> str:
    """Return the page of a run, static or as a page of a site.

    Args:
        values: What ``run_page`` returned.
        name: What the run is called; None: as its folder is.
        base: Address of the run on the site; "": no site, no links.
        more: Further values of the template.
    """
    drawn: dict[str, Any] = {
        "loss": charts.loss_chart(values),
        "mix": charts.mix_chart(values),
        "attempts": charts.attempts_chart(values),
    }
    if values["rollouts"]:
        drawn |= charts.rollout_charts(values)
    if "dataset_loss" in values:
        drawn["dataset_loss"] = charts.lines_chart("loss of each dataset", values["dataset_loss"], values["steps"], 220)
    drawn["metrics"] = [
        (metric, charts.lines_chart(metric["name"], metric["lines"], values["steps"]))
        for metric in values.get("metrics", ())
    ]
    return rendered(
        "run.html",
        page={**values, **_for_people(run, values, base)},
        charts=drawn,
        name=name or run.path.resolve().name,
        base=base,
        window=SPIKE_WINDOW,
        version=lading_version(),
        **{"site": False, "others": False, "later": False, **more},
    )


def _for_people(run: Run, values: dict[str, Any], base: str) -> dict[str, Any]:
    """Return what the template needs beyond the values: colours, links, what a reader wants to know first."""
    colours = {row["dataset"]: row["colour"] for row in values["mix"]["datasets"]}
    datasets = [{**row, "colour": colours.get(row["dataset"], MOST_DRAWN)} for row in values["datasets"]]
    for row in datasets if values["mix"]["unit"] == "tokens" else ():  # weighed by tokens: bars and plan are of tokens
        row |= {"of_samples": row["share"], "share": row["token_share"] or 0.0, "planned": row["token_planned"]}
    return {
        "details": {**({} if base else {"folder": str(run.path)}), **_details(run, values)},
        "seconds_left": _seconds_left(values),
        "detail_links": {"steps": f"{base}/step/last"} if base and values["steps"] else {},
        "datasets": datasets,
        "largest_share": max([1e-9, *(max(d["share"], d["planned"] or 0.0) for d in datasets)]),
        "numbers": {name: number for number, name in run.named_datasets},
        "blocked_together": _together(values["blocked"]),
        "decisions": run.decisions().dicts()[-_DECISIONS:],
    }


def _together(blocked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return blocked samples by since when and why: many were blocked at once, as a rule."""
    found: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for row in blocked:
        found.setdefault((row["step"], row["reason"]), []).append(row)
    return [{"step": step, "reason": reason, "samples": rows} for (step, reason), rows in found.items()]


def _details(run: Run, values: dict[str, Any]) -> dict[str, Any]:
    """Return the small print of a run: where and how it ran, and what stands for its record."""
    facts, attempts, head = values["facts"], values["attempts"], values["head"]
    hosts = list(dict.fromkeys(attempt["host"] for attempt in reversed(attempts)))
    said = {key: facts[key] for key in ("steps_skipped", "steps_used_again", "steps_left_behind", "bad_samples")}
    return {
        "host": None if not hosts else hosts[0] + (f" and {len(hosts) - 1} more" if len(hosts) > 1 else ""),
        "ranks": attempts[-1]["ranks"] if attempts else None,
        "command": values.get("command"),
        "settings": ", ".join(f"{name} {value}" for name, value in run.evidence.description.config.items()),
        "began_(UTC)": attempts[0]["began"] if attempts else None,
        "attempts": len(attempts),
        "checkpoints": values["checkpoint_count"],
        "blocked_samples": values["blocked_count"],
        **said,
        "order": facts["order"],
        "plan": ", ".join(values["plans"]) or None,
        "record": facts["record"],
        "digest": values["digest"],
        "head_of_the_log": None if head is None else f"{head[0]} · {head[1][:16]}",
        "history_of_attempt": facts["history_of_attempt"],
        "plan_changed": facts["plan_changed"],
        "noted": facts["noted"],
    }


def _seconds_left(values: dict[str, Any]) -> float | None:
    """Return the time to the end of the epoch at the pace of late, of a run that goes on."""
    length = values["length"]
    left, pace = length["epoch_steps_left"], length["steps_per_second"]
    return left / pace if values["state"] == "running" and left is not None and pace else None


def dataset_losses(run: Run, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return how much more than the mean of all batches those cost that are rich in a dataset, along the run.

    Batches are all there is where training committed no ``loss/<dataset>``, and every one holds a bit of everything.
    """
    rows = run.losses(by="dataset", bins=_LOSS_PARTS).dicts()
    means = _part_means(rows)
    lines = []
    for drawn in values["mix"]["datasets"]:
        mine = [row for row in rows if row["dataset"] == drawn["dataset"] and row["loss"] is not None]
        if mine:
            steps = [(row["first_step"] + row["last_step"]) / 2 for row in mine]
            loss = [row["loss"] - means.get(row["first_step"], 0.0) for row in mine]
            lines.append({"name": drawn["dataset"], "colour": drawn["colour"], "step": steps, "value": loss})
    return lines


def _part_means(rows: list[dict[str, Any]]) -> dict[int, float]:
    """Return the mean loss of each part of the run, all datasets together."""
    totals: dict[int, list[float]] = {}
    for row in rows:
        if row["loss"] is not None:
            total = totals.setdefault(row["first_step"], [0.0, 0.0])
            total[0] += row["loss"] * row["samples"]
            total[1] += row["samples"]
    return {first: weighted / samples for first, (weighted, samples) in totals.items() if samples}


def lading_version() -> str:
    """Return the version of Lading, for the foot of a page."""
    from lading import __version__  # here: the front door opens this package

    return __version__
