"""The verbs about rollouts: what became of them, and whether dropping was fair.

lading rollouts RUN      lading rollouts RUN --prompt math 17      lading bias RUN
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from lading.cli.output import Attempt, Json, Run, answer, open_run
from lading.errors import ConfigError
from lading.report import text as render
from lading.report.rollouts import FATES

_COLUMNS = (
    "rollout",
    "group",
    "name",
    "index",
    "policy",
    "tokens",
    "reward",
    "fate",
    "reason",
    "uses",
    "first_update",
    "age",
    "text",
)
_RARE = ("reason", "text")  # shown where a rollout has one


def rollouts(
    run: Run,
    prompt: Annotated[
        tuple[str, int] | None, typer.Option(help="Only of this prompt.", metavar="DATASET INDEX")
    ] = None,
    fate: Annotated[str | None, typer.Option(help=f"Only with this fate: {', '.join(FATES)}.")] = None,
    limit: Annotated[int, typer.Option(help="List at most so many.", min=1)] = 50,
    by_size: Annotated[bool, typer.Option("--bias", help="Whether they were dropped whatever they were.")] = False,
    attempt: Attempt = None,
    as_json: Json = False,
) -> None:
    """What became of each rollout: its prompt, policy, reward, updates, age and fate. Exit code 1: there is none.

    Of a prompt also what they say, where training kept it.

    Example: lading rollouts runs/7 --prompt math 17, or lading rollouts runs/7 --fate stale
    """
    if by_size:
        bias(run, attempt, as_json)
        return
    if fate is not None and fate not in FATES:
        raise ConfigError(f"--fate {fate!r}: expected {', '.join(FATES)}.")
    opened = open_run(run, attempt)
    every = opened.rollouts(*(prompt or ())).dicts()
    if prompt and (texts := opened.rollout_texts(*prompt)):
        every = [{**row, "text": texts.get(row["rollout"])} for row in every]
    found = every if fate is None else [row for row in every if row["fate"] == fate]
    counts = Counter(row["fate"] for row in every)
    said = ", ".join(f"{counts[name]} {name}" for name in FATES if counts[name])
    title = f"{render.counted(len(found), 'rollout')}{f' of {len(every)}' if fate else ''} ({said or 'none'})"
    columns = {name: name for name in _COLUMNS if name not in _RARE or any(row.get(name) for row in found)}
    shown = found[:limit]
    answer(found, lambda: render.table(shown, columns, title), as_json=as_json, holds=bool(found))


def bias(run: Run, attempt: Attempt = None, as_json: Json = False) -> None:
    """How often rollouts were used, by dataset, length and seconds, and whether dropping depended on the seconds.

    Example: lading bias runs/7
    """
    found = open_run(run, attempt).bias()
    columns = {"by": "by", "what": "", "decided": "decided", "applied": "applied", "rate": "rate"}
    title = f"{found.applied} of {render.counted(found.decided, 'decided rollout')} used"
    answer(
        found.to_dict(),
        lambda: Group(render.table(found.rates.dicts(), columns, title), Text(found.sentence)),
        as_json=as_json,
    )
