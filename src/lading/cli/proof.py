"""``lading check-proof``: does a proof show what it says. For people who have neither the model nor its data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from lading.cli.output import Json, Trust, answer
from lading.report import text as render
from lading.report.forget.certificate import check_certificate


def check_proof(
    file: Annotated[Path, typer.Argument(help="proof.json", metavar="PROOF", show_default=False)],
    trust: Trust,
    as_json: Json = False,
) -> None:
    """Whether a model learned from a sample, or did not, if you believe the owner of a key. Opens nothing else.

    Exit code 1: it shows nothing.

    Example: lading check-proof proof.json --trust them.pub
    """
    from lading.report.claim import proof as proofs  # here: the help needs no package for keys
    from lading.report.claim.cryptography import public_key

    content, trusted = proofs.read_proof_file(file), [public_key(path) for path in trust]
    if not proofs.is_proof(content):
        made, keyid = check_certificate(content, trusted, file)
        lines = [*made.sentences(), f"If you believe key {keyid[:16]}."]
        answer({**vars(made), "key": keyid}, lambda: Group(*map(render.line, lines)), as_json=as_json)
        return
    shown = proofs.check_proof(content, trusted, file)
    proof, claim = shown.proof, shown.claim
    uses = [use._asdict() for use in shown.uses]
    until = [f"run {run.run[:8]}, attempt {run.attempt}, before step {run.step}" for run in claim.runs]
    value = {"answer": proof.answer, "dataset": proof.dataset, "index": proof.index, "uses": uses}
    value |= {"waybill": claim.waybill, "key": proof.claim.keyid, "until": until, "notes": claim.notes}
    parts: list[RenderableType] = [
        render.line(f"{proof.answer}: sample {proof.index} of {proof.dataset!r}, {render.counted(len(uses), 'use')}"),
        render.line(f"  if you believe key {proof.claim.keyid[:16]}"),
        render.line(f"  waybill {claim.waybill}"),
        *(render.line(f"  {one}") for one in until),
        *(render.line(f"  noted: {note}") for note in claim.notes),
    ]
    parts += [render.table(uses, {name: name for name in ("run", "attempt", "step", "epoch", "slot")})] if uses else []
    answer(value, lambda: Group(*parts), as_json=as_json)
