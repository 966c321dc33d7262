"""``lading model``: what a checkpoint learned from, over all its generations.

lading model show checkpoint-600 --runs runs           lading model seen checkpoint-600 corpus 93412
lading model check checkpoint-600                      lading model stamp merged --from a --from b --made merge
lading model attest checkpoint-600 --key key           lading model claims checkpoint-600 --trust key.pub
lading model prove checkpoint-600 corpus 93412 -o proof.json
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from lading.cli.output import Json, Trust, answer, progress_bar
from lading.errors import ConfigError
from lading.ledger.waybill.waybill import checkpoint_path
from lading.report import text as render
from lading.report.checkpoint.check import check as check_checkpoint
from lading.report.checkpoint.checkpoint import OpenedCheckpoint, open_checkpoint
from lading.report.checkpoint.stamp import stamp as stamp_checkpoint
from lading.runtime.arrow import without_pandas
from lading.runtime.fields import listed
from lading.runtime.files import write_aside

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Ckpt = Annotated[str, typer.Argument(help="Folder or file of the checkpoint.", metavar="CKPT", show_default=False)]
Runs = Annotated[
    list[str] | None, typer.Option("--runs", help="Folder with runs and checkpoints in it; several times.")
]
Dataset = Annotated[str, typer.Argument(help="Name of the dataset.", metavar="DATASET", show_default=False)]
Out = Annotated[Path, typer.Option("--out", "-o", help="File to write.", show_default=False)]
Index = Annotated[int | None, typer.Argument(help="Index of the sample.", metavar="[INDEX]", min=0)]
Document = Annotated[int | None, typer.Option(help="A document instead of a row.", min=0, show_default=False)]
Id = Annotated[str | None, typer.Option("--id", help="A document by its id, or its file and line.", show_default=False)]
Packing = Annotated[
    str | None,
    typer.Option("--packing", "--store", metavar="PATH", help="Its packing index or token store.", show_default=False),
]
_DEEPEST = 16  # generations that a tree is indented by
_ANSWERS = {True: "yes", False: "no", None: "unknown"}


def _open(path: str, runs: list[str] | None, dataset: str = "", store: str | None = None) -> OpenedCheckpoint:
    """Open a checkpoint; a store is given as PATH, or as other verbs take it, DATASET=PATH."""
    without_pandas()
    return open_checkpoint(path, runs or (), {dataset: store.removeprefix(f"{dataset}=")} if store else None)


def _one_of(index: int | None, document: int | None, name: str | None) -> int | str:
    """Return the one way in which a sample was named."""
    given = [way for way in (index, document, name) if way is not None]
    if len(given) != 1:
        raise ConfigError("which sample? Expected one of INDEX, --document NUMBER, or --id with a document's name.")
    return given[0]


@app.command()
def show(ckpt: Ckpt, runs: Runs = None, as_json: Json = False) -> None:
    """Family tree of a checkpoint, and what each run used of each dataset.

    Example: lading model show checkpoints/600 --runs runs
    """
    opened = _open(ckpt, runs)
    totals = opened.totals().dicts()
    value = {"family": [asdict(member) for member in opened.family()], "totals": totals, "unknown": opened.unknown}
    columns = {"dataset": "dataset", "samples": "samples", "passes": "passes", "tokens": "tokens", "from": "of run"}
    lines = []
    for depth, member, again in opened.relatives.tree():
        name = f"{'  ' * min(depth, _DEEPEST)}{'└ ' if depth else ''}{member.where or 'a state without a waybill'}"
        lines.append(render.line(f"{name}: {member.what}{' (see above)' if again else ''}"))
    parts = [Group(*lines), render.table(totals, columns, "What it learned from")]
    parts += [_sentences({"Unknown": opened.unknown})] if opened.unknown else []
    answer(value, lambda: render.sections(*parts), as_json=as_json)


@app.command()
def check(ckpt: Ckpt, runs: Runs = None, as_json: Json = False) -> None:
    """Whether every file is as the waybill says, and the parents are. Exit code 1: something was changed or is missing.

    Example: lading model check checkpoints/600
    """
    with progress_bar(quiet=as_json) as progress:
        verdict = check_checkpoint(_open(ckpt, runs), progress)
    said = f"{'holds' if verdict.holds else 'does not hold'}: {render.counted(verdict.files, 'file')} as written"
    parts = [render.line(said), _sentences({"Wrong": verdict.faults, "Unknown": verdict.remarks})]
    if verdict.not_covered:
        parts.append(render.line(f"Not covered, added later: {listed(verdict.not_covered)}"))
    answer({"holds": verdict.holds, **vars(verdict)}, lambda: Group(*parts), as_json=as_json, holds=verdict.holds)


@app.command()
def seen(
    ckpt: Ckpt,
    dataset: Dataset,
    index: Index = None,
    document: Document = None,
    id_: Id = None,
    packing: Packing = None,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Whether the model learned from a sample, and every use. What is not found in all of its family is unknown.

    Example: lading model seen checkpoints/600 corpus 93412
    """
    named = _one_of(index, document, id_)
    opened = _open(ckpt, runs, dataset, packing)
    found = opened.seen(dataset, index, document=None if index is not None else named)
    uses = found.uses.dicts()
    value = {"answer": _ANSWERS[found.answer], "uses": uses, "unknown": list(found.unknown)}
    columns = {name: name for name in ("step", "update", "epoch", "index", "attempt", "run", "note")}
    parts: list[RenderableType] = [render.line(f"{_ANSWERS[found.answer]}: {render.counted(len(uses), 'use')}")]
    parts += [render.table(uses, columns)] if uses else []
    answer(value, lambda: Group(*parts, _sentences({"Unknown": found.unknown})), as_json=as_json)


@app.command()
def stamp(
    ckpt: Ckpt,
    run: Annotated[str | None, typer.Option(help="Folder of the run that made it.", show_default=False)] = None,
    step: Annotated[int | None, typer.Option(help="Next step when it was saved.", min=0, show_default=False)] = None,
    attempt: Annotated[int | None, typer.Option(help="Of which attempt.", min=0, show_default=False)] = None,
    parents: Annotated[
        list[str] | None, typer.Option("--from", help="A checkpoint that it was made from; several times.")
    ] = None,
    made: Annotated[str | None, typer.Option(help="merge, conversion or import.", show_default=False)] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the waybill that is there.")] = False,
    as_json: Json = False,
) -> None:
    """Make the waybill of a checkpoint that has none: from the state inside, or from what it was made of.

    Example: lading model stamp merged --from checkpoints/a --from checkpoints/b --made merge
    """
    without_pandas()
    waybill = stamp_checkpoint(
        ckpt, run=run, made=made, parents=parents or (), step=step, attempt=attempt, replace=replace
    )
    value = {"waybill": waybill.sha256, "made": waybill.made, "files": len(waybill.files)}
    text = f"{ckpt}: waybill {waybill.sha256[:16]}, {waybill.made}, {render.counted(len(waybill.files), 'file')}"
    answer(value, lambda: render.line(text), as_json=as_json)


@app.command()
def attest(
    ckpt: Ckpt,
    key: Annotated[str, typer.Option("--key", help="Your private key: lading key new FILE.", show_default=False)],
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Sign what the checkpoint learned from: its runs are sealed and verified, and claims are put beside it.

    Example: lading model attest checkpoints/600 --key ~/lading.key
    """
    from lading.report.claim.attest import attest as attest_checkpoint  # here: only these verbs need a key
    from lading.report.claim.cryptography import private_key

    without_pandas()
    with progress_bar(quiet=as_json) as progress:
        claim = attest_checkpoint(ckpt, private_key(key), runs or (), progress)
    value = {"waybill": claim.waybill, "files": len(claim.subject), "runs": [run.run for run in claim.runs]}
    told = f"{render.counted(len(claim.subject), 'file')} and {render.counted(len(claim.runs), 'run')}"
    parts = [render.line(f"{ckpt}: claimed of {told}"), _sentences({"Not known": claim.unknown, "Noted": claim.notes})]
    answer({**value, "unknown": claim.unknown, "notes": claim.notes}, lambda: Group(*parts), as_json=as_json)


@app.command()
def claims(ckpt: Ckpt, trust: Trust, runs: Runs = None, as_json: Json = False) -> None:
    """Whether somebody you trust claims something of exactly these files, and what the runs say if they are at hand.

    Exit code 1: there is no such claim, or one does not fit.

    Example: lading model claims checkpoints/600 --trust them.pub
    """
    from lading.report.claim.attest import check_claims
    from lading.report.claim.cryptography import public_key

    without_pandas()
    with progress_bar(quiet=as_json) as progress:
        verdict = check_claims(ckpt, [public_key(file) for file in trust], runs or (), progress)
    holds, said = verdict.holds, render.counted(len(verdict.claims), "claim")
    found = {"Wrong": verdict.faults, "Claimed as unknown": verdict.notes, "Noted": verdict.remarks}
    parts = [render.line(f"{'hold' if holds else 'do not hold'}: {said} by keys you trust"), _sentences(found)]
    answer({"holds": holds, **vars(verdict)}, lambda: Group(*parts), as_json=as_json, holds=holds)


@app.command()
def prove(
    ckpt: Ckpt,
    dataset: Dataset,
    out: Out,
    index: Index = None,
    document: Document = None,
    id_: Id = None,
    packing: Packing = None,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Write a proof that the model learned from a sample, or did not: for lading check-proof, anywhere.

    It rests on the newest claim beside the checkpoint; runs and their stores are opened only to find a document.

    Example: lading model prove checkpoints/600 corpus 93412 -o proof.json
    """
    from lading.report.claim.attest import newest_claim
    from lading.report.claim.proof import proof_of

    named = _one_of(index, document, id_)
    if index is None:
        index = _open(ckpt, runs, dataset, packing).sample_of(dataset, named)
    proof = proof_of(newest_claim(checkpoint_path(ckpt)), dataset, index)
    write_aside(out, proof.to_bytes())
    value = {"answer": proof.answer, "uses": proof.uses, "bytes": len(proof.to_bytes()), "key": proof.claim.keyid}
    text = f"{out}: sample {index} of {dataset!r} was {proof.answer} ({render.counted(proof.uses, 'use')})"
    answer(value, lambda: render.line(text), as_json=as_json)


@app.command()
def summary(
    ckpt: Ckpt,
    out: Out,
    purpose: Annotated[str, typer.Option("--for", help="ai-act or model-card.")] = "model-card",
    sources: Annotated[
        str | None, typer.Option(help="sources.yaml: licence, origin and more of each dataset.", show_default=False)
    ] = None,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Write what the model learned from as a page: numbers from the ledgers with their queries, texts as declared.

    Example: lading model summary checkpoints/600 --sources sources.yaml --for ai-act -o summary.md
    """
    from lading.report.disclosure.declared import NOT_DECLARED, Declared, read_declared
    from lading.report.disclosure.pages import page_of

    declared = Declared() if sources is None else read_declared(sources)
    page = page_of(_open(ckpt, runs), declared, purpose)
    write_aside(out, page.encode())
    missing = page.count(NOT_DECLARED)
    text = f"{out}: {NOT_DECLARED!r} is there {render.counted(missing, 'time')}"
    answer({"file": str(out), "for": purpose, "not_declared": missing}, lambda: render.line(text), as_json=as_json)


def _sentences(found: Mapping[str, Sequence[str]]) -> RenderableType:
    """Return sentences below their titles; a title without any is left out."""
    lines = []
    for title, texts in found.items():
        lines += [render.line(title, "bold"), *(render.line(f"  {text}") for text in texts)] if texts else []
    return Group(*lines)
