"""``lading key``: keys that sign claims about models."""

from __future__ import annotations

from typing import Annotated

import typer

from lading.cli.output import Json, answer
from lading.report import text as render

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def keys() -> None:
    """Make keys that sign claims."""


@app.command()
def new(
    file: Annotated[str, typer.Argument(help="File of the private key; FILE.pub is the public one.", metavar="FILE")],
    as_json: Json = False,
) -> None:
    """Make an ed25519 key: FILE, for you alone (mode 0600), and FILE.pub, for everybody who checks what you sign.

    Example: lading key new ~/lading.key
    """
    from lading.report.claim.cryptography import new_key  # here: the help needs no package for it

    keyid = new_key(file).keyid
    text = f"{file} and {file}.pub: key {keyid[:16]}. Keep the first to yourself, give the second away"
    answer({"key": keyid, "private": file, "public": f"{file}.pub"}, lambda: render.line(text), as_json=as_json)
