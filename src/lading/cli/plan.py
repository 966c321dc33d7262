"""``lading plan CONFIG``: passes per source, exhaustion and shares over time, before anything runs.

A configuration says what will be mixed, how, and for how long:

    datasets:
      code: 1_000_000                               # samples
      prose: {length: 200_000, mean_tokens: 850}
    batch_size: 1024                                # all ranks together; or batch_schedule: [[0, 512], [2000ba, 1024]]
    seed: 0
    weights: {code: .7, prose: .3}                  # or schedule:, or temperature:
    mean_tokens: {code: 900}                        # with unit: tokens; or beside the length, as above
    until: 20000ba                                  # ba steps, sp samples, ep epochs, tok tokens

YAML or JSON; it may stand under the key ``plan`` of a larger file. The JSON of
``plan.to_json()`` is read as well.
"""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from lading.cli.output import Json, answer
from lading.errors import ConfigError
from lading.order import Plan, PlannedDataset
from lading.order.batch_schedule import Duration
from lading.order.mixture.request import Mixture
from lading.order.simulation import Forecast, forecast
from lading.report import text as render
from lading.runtime.fields import (
    SIZE,
    Fields,
    FieldTable,
    Origin,
    Reader,
    brief,
    is_number,
    is_whole,
    listed,
    row_of,
    tuple_of,
)
from lading.runtime.paths import local_path
from lading.runtime.yaml_text import parse_yaml

_PLAN = ("seed", "shuffle", "window_samples", "drop_last", "chunk_batches", "lookahead_steps")
_MIXTURE = tuple(f.name for f in fields(Mixture) if f.name != "policy")  # a policy chooses while the run goes on
KEYS = tuple(dict.fromkeys(("datasets", "batch_size", "batch_schedule", "until", *_PLAN, *_MIXTURE)))


def read_plan(path: str) -> tuple[Plan, str | None]:
    """Return the plan of a configuration, and how long it is to be followed if it says so."""
    text = _file_text(path)
    if '"lading_plan"' in text:
        return Plan.from_json(text, beside=Path(path).parent), None
    found = parse_yaml(text, path)
    if isinstance(found, dict) and isinstance(found.get("plan"), dict):
        found = found["plan"]
    values = {k: v for k, v in found.items() if v is not None} if isinstance(found, dict) else {}
    if "datasets" not in values or not {"batch_size", "batch_schedule"} & set(values):
        raise ConfigError(
            f"{path}: expected the keys datasets and batch_size (or batch_schedule), at the top or under plan."
        )
    unknown = [key for key in values if key not in KEYS]
    if unknown:
        raise ConfigError(f"{path}: unknown key {listed(unknown)}; expected {', '.join(KEYS)}.")
    fields = Fields(values, Origin(path, ConfigError))
    for key in [key for key in _READERS if key in values]:  # what values mean together is checked by the plan
        _READERS[key](fields, key)
    until = values.get("until")
    return _plan(path, values), None if until is None else str(until)


def _weights(found: Fields, key: str | int) -> None:
    weights = found.value(key)
    inner = found.record(key) if isinstance(weights, dict) else found.items(key)
    for name in inner:
        inner.number(name, low=0, high=1e18)


def _schedule(found: Fields, key: str | int, read: Reader) -> None:
    """Read pairs of a point and what holds from there on."""
    tuple_of(row_of(_point, read), most=4096)(found, key)


def _point(found: Fields, key: str | int) -> None:
    if not isinstance(found.value(key), str):
        found.integer(key, low=0)


_READERS: FieldTable = {
    "seed": partial(Fields.integer, low=-(1 << 63), high=(1 << 64) - 1),
    "shuffle": Fields.text,
    "window_samples": SIZE,
    "batch_schedule": partial(_schedule, read=SIZE),
    "drop_last": Fields.flag,
    "chunk_batches": SIZE,
    "epoch_samples": SIZE,
    "lookahead_steps": partial(Fields.integer, low=0, high=1 << 20),
    "temperature": partial(Fields.number, low=0),
    "unit": Fields.text,
    "stopping": Fields.text,
    "weights": _weights,
    "schedule": partial(_schedule, read=_weights),
    "mean_tokens": _weights,
    "until": _point,
}


def steps_until(plan: Plan, until: str | None) -> int:
    """Return the steps of a plan until a point; one epoch by default."""
    if until is None:
        return plan.epoch_start(1)
    point = Duration.parse(int(until) if until.isdecimal() and len(until) < 20 else until)
    if point.unit == "ba":
        return int(point.value)
    if point.unit == "ep" and float(point.value).is_integer():
        return plan.epoch_start(int(point.value))
    if point.unit == "tok":
        raise ConfigError(
            f"until {until}: expected steps, samples or epochs (ba, sp, ep); tokens depend on the mixture."
        )
    return plan.clock.step_from(point.position(plan.clock))


def _plan(path: str, found: dict[str, Any]) -> Plan:
    datasets, batch, ramp = _datasets(path, found["datasets"]), found.get("batch_size"), found.get("batch_schedule")
    if ramp is None and (not is_whole(batch) or batch < 1):
        raise ConfigError(f"{path}: batch_size: expected an integer of at least 1, found {brief(batch)}.")
    request = Mixture(**{key: found[key] for key in _MIXTURE if key in found})
    simple = {key: found[key] for key in _PLAN if key in found}
    mixture = request if request.is_mixture else None
    return Plan.make(datasets, batch, batch_schedule=ramp, mixture=mixture, **simple)


def _datasets(path: str, found: Any) -> tuple[PlannedDataset, ...]:
    if not isinstance(found, dict) or not found:
        raise ConfigError(f"{path}: datasets: expected names and lengths, found {brief(found)}.")
    datasets = []
    for name, value in found.items():
        about = value if isinstance(value, dict) else {"length": value}
        length, tokens = about.get("length"), about.get("mean_tokens")
        is_mean = tokens is None or (is_number(tokens) and 0 < tokens < 1e18)
        if not is_whole(length) or not set(about) <= {"length", "mean_tokens"} or not is_mean:
            raise ConfigError(
                f"{path}: datasets.{listed([name])}: expected a number of samples, or length and mean_tokens, found "
                f"{brief(value)}."
            )
        datasets.append(PlannedDataset(str(name), length, mean_tokens=None if tokens is None else float(tokens)))
    return tuple(datasets)


def _file_text(path: str) -> str:
    try:
        return Origin(local_path(path), ConfigError, "Pass the path of a YAML or JSON file.").read().decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no text ({error}). Expected a YAML or JSON file.") from error


_COLUMNS = {
    "dataset": "dataset",
    "length": "samples",
    "samples": "drawn",
    "share": "share",
    "tokens": "tokens",
    "token_share": "of tokens",
    "passes": "passes",
    "used_up": "used up at step",
}


def plan(
    config: Annotated[str, typer.Argument(help="YAML or JSON file with datasets, batch_size and weights.")],
    until: Annotated[
        str | None, typer.Option(help="How far to look: 20000ba, 3ep, 1e6sp. Default: the file's.")
    ] = None,
    picture: Annotated[str | None, typer.Option(help="Write a picture: .html, .png or .svg.")] = None,
    max_passes: Annotated[float | None, typer.Option(help="Exit with 1 if any dataset is passed more often.")] = None,
    as_json: Json = False,
) -> None:
    """What a run would draw from each dataset, before anything runs.

    Example: lading plan plan.yaml
    """
    planned, asked = read_plan(config)
    found = forecast(planned, steps_until(planned, until or asked))
    if picture is not None:
        _draw(found, picture)
    worn = [d.dataset for d in found.datasets if max_passes is not None and d.passes > max_passes]
    value = {**found.to_dict(), "plan": planned.fingerprint, "too_many_passes": worn}
    by_tokens = planned.mixture is not None and planned.mixture.unit == "tokens"
    answer(value, lambda: _text(found, worn, max_passes, by_tokens=by_tokens), as_json=as_json, holds=not worn)


def _text(found: Forecast, worn: list[str], max_passes: float | None, *, by_tokens: bool) -> RenderableType:
    tokens = sum(d.tokens or 0 for d in found.datasets) or 1
    rows = [{**vars(d), "token_share": (d.tokens or 0) / tokens} for d in found.datasets]
    columns = (
        _COLUMNS | {"share": "of samples"} if by_tokens else {k: v for k, v in _COLUMNS.items() if k != "token_share"}
    )
    columns = {k: v for k, v in columns.items() if k != "tokens" or any(row["tokens"] is not None for row in rows)}
    lines = [f"{found.steps} steps, {found.samples} samples"]
    if found.changes:
        steps = ", ".join(map(str, found.changes[:8])) + (" ..." if len(found.changes) > 8 else "")
        lines.append(f"weights change at step {steps}")
    if worn:
        lines.append(f"more than {max_passes:g} passes: {', '.join(worn)}")
    return Group(render.table(rows, columns), Text("\n".join(lines)))


def _draw(found: Forecast, path: str) -> None:
    from lading.kits.web.render.plotly import MixturePicture  # plotly is optional and slow to import

    marks = [(step, "new weights") for step in found.changes] if len(found.changes) <= 8 else []
    marks += [(d.used_up, f"{d.dataset} used up") for d in found.datasets if d.used_up is not None][:8]
    MixturePicture("What the plan draws", found.at_steps, found.shares, passes=found.passes, marks=marks).write(path)
