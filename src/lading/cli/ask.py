"""The verbs that ask a run: show, step, where, mix, verify, diff, explain, block, sql, report.

lading show RUN      lading step RUN 48213      lading where RUN code 93412      lading verify RUN
"""

from __future__ import annotations

import sys
from operator import itemgetter
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from lading.cli.output import (
    Attempt,
    Decode,
    Json,
    Run,
    Stores,
    add_contents,
    answer,
    complete_dataset,
    grouped_by,
    looks_of,
    open_run,
    progress_bar,
    watched,
)
from lading.errors import ConfigError
from lading.report import Run as OpenedRun, text as render
from lading.report.documents import brief
from lading.report.mix import weighs_tokens
from lading.report.step import BATCH_ID
from lading.report.summary import summarise
from lading.report.uses import uses_of_document
from lading.report.where import FORGOTTEN, IS_BLOCKED


def show(
    run: Run,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again as it grows, until it ends.")] = False,
    every: Annotated[float, typer.Option(help="Of --watch: seconds between two looks.", min=0.05)] = 2.0,
    spikes: Annotated[bool, typer.Option("--spikes", help="The steps whose loss stands far above the usual.")] = False,
    bad: Annotated[bool, typer.Option("--bad", help="The samples that could not be used, and where.")] = False,
    attempt: Attempt = None,
    as_json: Json = False,
) -> None:
    """What a run is and how far it got.

    Example: lading show runs/7 --watch, or lading show runs/7 --spikes
    """
    if spikes or bad:
        from lading.cli import look  # here: the others do without

        (look.spikes if spikes else look.bad)(run, attempt=attempt, as_json=as_json)
        return
    if watch:
        watched(lambda: summarise(open_run(run, attempt)), every, as_json=as_json)
        return
    found = summarise(open_run(run, attempt))
    answer(found.to_dict(), lambda: render.summary(found), as_json=as_json)


def _step_number(text: str) -> int | str:
    """Return the number of a step, or a batch id, as it was typed; -1 is the last (``lading.cli`` makes it last-1)."""
    if BATCH_ID.fullmatch(text):
        return text
    number = "-1" if text == "last" else text.removeprefix("last")
    if not number.removeprefix("-").isdecimal():
        raise typer.BadParameter(
            f"{text}. Expected a number from 0, or -1 for the last step, -2 for the one before; or a batch id."
        )
    return int(number)


Step = Annotated[
    Any,
    typer.Argument(
        help="The step, from 0; -1 is the last one, -2 the one before; or the id of its batch.",
        metavar="STEP",
        show_default=False,
        parser=_step_number,
    ),
]


def _counted(run: OpenedRun, number: int | str) -> int:
    """Return the number of a step from 0, where it may be counted from the end or named by its batch."""
    if isinstance(number, str):
        return run.step(number).step
    if number < 0 <= run.num_steps + number:
        return run.num_steps + number
    if number < 0:
        raise ConfigError(f"step {number}: expected at most {run.num_steps} back, the run has so many steps.")
    return number


def step(
    run: Run,
    number: Step,
    decode: Decode = None,
    store: Stores = None,
    attempt: Attempt = None,
    as_json: Json = False,
) -> None:
    """What was in a step, and what became of it.

    Tokens are shown as text where the store they came from can say it; other samples with --decode.

    Example: lading step runs/7 48213, or lading step runs/7 -1, or lading step runs/7 e0-s17-de2f4aab
    """
    opened = open_run(run, attempt, decodes=decode is not None, stores=store)
    record = opened.step(_counted(opened, number))
    found = record.to_dict()
    texts = add_contents(opened, decode, found["samples"])
    answer(found, lambda: render.step(record, texts), as_json=as_json)


_WHERE_COLUMNS = {name: name for name in ("step", "epoch", "slot", "rank", "attempt", "fate", "note")}


def where(
    run: Run,
    dataset: Annotated[
        str | None,
        typer.Argument(help="Name or number of the dataset.", show_default=False, autocompletion=complete_dataset),
    ] = None,
    index: Annotated[int | None, typer.Argument(help="Index of the sample.", show_default=False)] = None,
    document: Annotated[int | None, typer.Option(help="A document of a packed dataset instead of a row.")] = None,
    id_: Annotated[str | None, typer.Option("--id", help="A document by its id, or its file and line.")] = None,
    store: Stores = None,
    until: Annotated[int | None, typer.Option(help="Also where the plan will use it, up to this step.")] = None,
    attempt: Attempt = None,
    as_json: Json = False,
) -> None:
    """Every step that used a sample or a document. Exit code 1: none did; 2: that is not known.

    Example: lading where runs/7 code 93412 --until 60000, or lading where runs/7 --id https://example.org/7
    """
    opened = open_run(run, attempt, stores=store)
    number = None if dataset is None else opened.number_of(dataset)
    if id_ is None and (number is None or (document is None and index is None)):
        raise ConfigError("which sample? Expected DATASET and INDEX, DATASET and --document, or --id.")
    columns = {"index": "row", "tokens": "tokens", **_WHERE_COLUMNS}
    if id_ is not None:
        held, what, named = opened.documents.find(id_, number), id_, None
        found = [use for document in held for use in _uses(opened, *document, until)]
        if not held or (opened.documents.missing and not found):
            raise opened.documents.not_known(id_, number)
        columns = {"dataset": "dataset", "document": "document", **columns}
    elif number is not None and document is not None:
        found, what = _uses(opened, number, document, until), f"document {document} of {dataset}"
        named = opened.documents.name(number, document)
    elif number is not None and index is not None:
        found, what = opened.where(number, index, until=until).dicts(), f"{dataset}:{index}"
        columns, named = _WHERE_COLUMNS, brief(opened.documents.of(number, index))
    for why in opened.documents.missing.values():
        print(f"lading: {why}", file=sys.stderr)
    _tell_uses(found, columns, f"{what} ({named})" if named else what, as_json=as_json)


def _uses(run: OpenedRun, number: int, document: int, until: int | None) -> list[dict[str, Any]]:
    """Return the uses of the samples that hold a document."""
    found = uses_of_document(run, number, document, until)
    return [{**row, "dataset": run.datasets[number], "document": document} for row in found]


def _tell_uses(found: list[dict[str, Any]], columns: dict[str, str], what: str, *, as_json: bool) -> None:
    if not any(map(itemgetter("note"), found)):
        columns = {key: heading for key, heading in columns.items() if key != "note"}
    fates = list(map(itemgetter("fate"), found))
    used, left = fates.count("applied"), fates.count("bad") + fates.count("skipped")
    title = f"{what}: used {render.counted(used, 'time')}" + (f", {left} bad or skipped" if left else "")
    held = not {IS_BLOCKED, FORGOTTEN}.issuperset(fates)
    answer(found, lambda: render.table(found, columns, title, whole=("note",)), as_json=as_json, holds=held)


_MIX_COLUMNS = {"group": "", "dataset": "dataset", "samples": "samples", "share": "share", "planned": "planned"}

_TOKEN_MIX_COLUMNS = {
    "group": "",
    "dataset": "dataset",
    "samples": "samples",
    **render.TOKEN_SHARES,
    "tokens": "tokens",
}


def mix(
    run: Run,
    by: Annotated[str, typer.Option(help="run, epoch, chunk, attempt, or a number of steps.")] = "run",
    attempt: Attempt = None,
    as_json: Json = False,
) -> None:
    """What the model got of each dataset, against the plan: in samples, or in tokens if the weights are of tokens.

    Example: lading mix runs/7 --by epoch
    """
    opened = open_run(run, attempt)
    found = opened.mix(grouped_by(by)).dicts()
    columns = _TOKEN_MIX_COLUMNS if weighs_tokens(found) else _MIX_COLUMNS
    columns = columns if by != "run" else {k: v for k, v in columns.items() if k != "group"}
    answer(
        found,
        lambda: Group(render.table(found, columns), *render.decision_counts(opened.decisions()["kind"])),
        as_json=as_json,
    )


def verify(
    run: Run,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="A run that committed nothing holds, too.")
    ] = False,
    attempt: Attempt = None,
    as_json: Json = False,
) -> None:
    """Whether the record is what the plan says, sample for sample. Exit code 1: it is not.

    Samples are compared by name, their bytes only with record="content". The digest is a check against accidents, no
    commitment: keep the head that is printed elsewhere, it commits to every row that was sealed before it.

    Example: lading verify runs/7
    """
    with progress_bar(quiet=as_json) as progress:
        opened = open_run(run, attempt)
        verdict = opened.verify(progress, allow_empty=allow_empty)
    answer(verdict.to_dict(), lambda: render.verdict(verdict), as_json=as_json, holds=verdict.holds)


def diff(
    run: Run,
    other: Annotated[str, typer.Argument(help="Folder of the other run.", metavar="OTHER", show_default=False)],
    attempt: Attempt = None,
    as_json: Json = False,
) -> None:
    """Whether two runs hold the same, and if not, from which step on. Exit code 1: they do not.

    Example: lading diff runs/7 runs/8
    """
    found = open_run(run, attempt).compare(other)
    answer(found.to_dict(), lambda: render.comparison(found), as_json=as_json, holds=found.equal)


def explain(
    run: Run,
    number: Step,
    around: Annotated[int, typer.Option(help="Steps before and after it to show.")] = 5,
    decode: Decode = None,
    store: Stores = None,
    attempt: Attempt = None,
    as_json: Json = False,
) -> None:
    """Everything around a step: samples, shares, exposures, losses.

    Example: lading explain runs/7 48213 --decode train:sources
    """
    opened = open_run(run, attempt, decodes=decode is not None, stores=store)
    lengths = None if decode is None else looks_of(decode).length
    found = opened.explain(_counted(opened, number), around=around, lengths=lengths)
    values = found.to_dict()
    texts = add_contents(opened, decode, values["samples"])

    def told() -> RenderableType:
        shown = render.explanation(found)
        columns = {"slot": "slot", "name": "dataset", "index": "index", "content": "content"}
        return shown if texts is None else render.sections(shown, render.table(values["samples"], columns, "Content"))

    answer(values, told, as_json=as_json)


def block(
    run: Run,
    specs: Annotated[
        list[str] | None,
        typer.Argument(
            help="dataset:index, dataset:first-last or step:number.", metavar="SAMPLE...", show_default=False
        ),
    ] = None,
    document: Annotated[
        list[str] | None,
        typer.Option(help="Every row that holds a part of this document.", metavar="DATASET:NUMBER"),
    ] = None,
    store: Stores = None,
    reason: Annotated[str, typer.Option(help="Why, for the record.")] = "",
    as_json: Json = False,
) -> None:
    """Use samples no more, from the next attempt's first step on; deterministic substitutes take their places.

    Example: lading block runs/7 code:93412 step:48213 --reason "broken markup"
    """
    opened = open_run(run, stores=store)
    rows = [spec for named in document or () for spec in _rows_of(opened, named)]
    if not specs and not rows:
        raise ConfigError("which samples? Expected SAMPLE..., or --document with a document that has tokens.")
    asked = opened.block(*(specs or ()), *rows, reason=reason)
    new = [f"{opened.datasets[sample.dataset]}:{sample.index}" for sample in asked]
    verb = "is" if len(new) == 1 else "are"
    text = (
        f"{render.counted(len(new), 'sample')} {verb} blocked from the next attempt on"
        if new
        else "all of them were blocked already"
    )
    answer({"blocked": new}, lambda: Text(text), as_json=as_json)


def _rows_of(run: OpenedRun, named: str) -> list[str]:
    """Return the rows that hold a part of a document, as ``block`` names samples."""
    dataset, colon, number = named.rpartition(":")
    if not colon or not number.isdigit():
        raise ConfigError(f"--document {named!r}: expected DATASET:NUMBER, such as web:81.")
    owner = run.number_of(dataset)
    return [f"{run.datasets[owner]}:{row['index']}" for row in run.documents.rows_of(owner, int(number))]


def sql(
    run: Run,
    query: Annotated[str, typer.Argument(help="SQL over batches, history and samples.", show_default=False)],
    steps: Annotated[str | None, typer.Option(help="FIRST:STOP, the steps whose samples are worked out.")] = None,
    attempt: Attempt = None,
    as_json: Json = False,
) -> None:
    """Ask DuckDB over batches, history and samples.

    Example: lading sql runs/7 "SELECT epoch, avg(loss) FROM history GROUP BY epoch"
    """
    found = open_run(run, attempt).sql(query, steps=_bounds(steps))
    answer(found.dicts(), lambda: render.table(found, {c: c for c in found.columns}), as_json=as_json)


def _bounds(steps: str | None) -> tuple[int, int] | None:
    if steps is None:
        return None
    first, colon, stop = steps.partition(":")
    if not colon or not first.isdigit() or not stop.isdigit():
        raise ConfigError(f"--steps {steps!r}: expected FIRST:STOP, for instance 100:200.")
    return int(first), int(stop)
