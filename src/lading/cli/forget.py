"""``lading forget``: a model that never had it.

lading forget RUN --document web:81 --same-text 50 --dry-run       what it takes
lading forget RUN --document web:81 --reason "request 17"          recorded; then resume from the clean checkpoint
lading forget RUN --certify --against CONTROL --key me -o certificate.json    after the replay
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from lading.cli.output import Json, Run, Stores, answer, open_run
from lading.errors import ConfigError
from lading.report import text as render
from lading.report.claim.envelope import compact, sealed_in
from lading.report.forget import certificate as certificates
from lading.report.forget.forget import Forgetting
from lading.runtime.files import write_aside

_DOCUMENTS = {"dataset": "dataset", "document": "document", "id": "id", "why": ""}


def forget(
    run: Run,
    document: Annotated[list[str] | None, typer.Option(help="A document: DATASET:NUMBER, or its id.")] = None,
    sample: Annotated[list[str] | None, typer.Option(help="dataset:index, dataset:first-last or step:number.")] = None,
    same_text: Annotated[
        int | None, typer.Option(help="Also documents that share so many tokens side by side.", min=1)
    ] = None,
    by: Annotated[str, typer.Option(help="document: padding instead of its tokens; row: substitutes.")] = "document",
    reason: Annotated[str, typer.Option(help="Why, for the record.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it takes, record nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Also more than 1 % of a dataset.")] = False,
    runs: Annotated[list[str] | None, typer.Option("--runs", help="Where derived models are; several times.")] = None,
    store: Stores = None,
    certify: Annotated[bool, typer.Option("--certify", help="After the replay: write what can be certified.")] = False,
    against: Annotated[str | None, typer.Option(help="Of --certify: the control run.", show_default=False)] = None,
    key: Annotated[str | None, typer.Option(help="Of --certify: the key that signs it.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Of --certify: the file.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Let the next attempt leave samples or documents out, and refuse every state that learned from them.

    Resumed from the clean checkpoint that is named, the run trains again as one would have that never had them: the
    same plan, packing, seeds and code with blocked= or masked= from step 0. It is not what a corpus without them
    would have given: that packs otherwise.

    Example: lading forget runs/7 --document web:81 --same-text 50 --dry-run
    """
    opened = open_run(run, stores=store)
    if certify:
        other = None if against is None else open_run(against, stores=store)
        _certified(certificates.certify(opened, other, tuple(runs or ())), key, out, as_json=as_json)
        return
    found = opened.forget(
        documents=document or (),
        samples=sample or (),
        shared_tokens=same_text,
        by=by,
        reason=reason,
        runs=runs or (),
        dry_run=dry_run,
        yes=yes,
    )
    answer(found.to_dict(), lambda: Group(*_told(found)), as_json=as_json)


def _certified(made: certificates.Certificate, key: str | None, out: Path | None, *, as_json: bool) -> None:
    """Write a certificate, signed where a key is given, and say it in words."""
    if out is None:
        raise ConfigError("where is the certificate to go? Expected -o certificate.json.")
    content = made.to_bytes()
    if key is not None:
        from lading.report.claim.cryptography import private_key  # here: only those who sign need the package

        own = private_key(key)
        content = compact(sealed_in(content, own.public.keyid, own.sign).to_dict())
    write_aside(out, content + b"\n")
    value = {**vars(made), "file": str(out), "signed": key is not None}
    answer(value, lambda: Group(*(render.line(text) for text in made.sentences())), as_json=as_json)


def _told(found: Forgetting) -> list[RenderableType]:
    documents: list[dict[str, Any]] = [
        {**document, "why": "asked for" if document["asked"] else "shares text"} for document in found.documents
    ]
    parts: list[RenderableType] = [render.table(documents, _DOCUMENTS, "To be forgotten")] if documents else []
    if found.samples:
        parts.append(render.table(found.samples, {"dataset": "dataset", "index": "index"}, "Blocked"))
    if found.first_step is not None:
        start = f"{found.clean['where']} (step {found.clean['step']})" if found.clean else "step 0, without a state"
        parts.append(render.line(f"first used at step {found.first_step}; resume from {start}"))
        parts.append(render.line(f"replayed: {found.replay_steps} steps, {found.share:.0%} of the run"))
    for checkpoint in found.tainted:
        gone = "" if checkpoint["is_there"] else ", gone"
        parts.append(render.line(f"tainted: {checkpoint['where']} (step {checkpoint['step']}{gone})"))
    parts += [render.line(f"tainted, made of it: {where}") for where in found.derived]
    parts += [render.line(note) for note in found.notes]
    recorded = "recorded: the next attempt leaves it out" if found.recorded else "nothing was recorded"
    return [*parts, render.line(recorded, "bold")]
