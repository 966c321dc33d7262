"""``lading tokens``: build, pack, show and check corpora of tokens.

lading tokens build corpus/*.jsonl --out tokens/
lading tokens pack tokens/ --row-length 2048 --algorithm best_fit --overflow split
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from lading.cli.output import Json, answer
from lading.errors import SourceError
from lading.order.packing.file import index_for, open_index
from lading.order.packing.index import PackingIndex
from lading.order.packing.rules import PackingRules
from lading.source.tokens.build import build_tokens
from lading.source.tokens.store import TokenStore
from lading.source.tokens.tokenizer import load_tokenizer

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Store = Annotated[Path, typer.Argument(help="Directory of the token store.", metavar="TOKENS", show_default=False)]


@app.command()
def build(
    inputs: Annotated[list[Path], typer.Argument(help="Text, .jsonl or .parquet files.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Directory to make.", show_default=False)],
    tokenizer: Annotated[str, typer.Option(help="'byte', or 'package.module:object' of your own.")] = "byte",
    field: Annotated[str, typer.Option(help="Key or column of the text, or of ready token ids.")] = "text",
    split: Annotated[str, typer.Option(help="A document of a text file: file, line or paragraph.")] = "file",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the store.")] = False,
    as_json: Json = False,
) -> None:
    """Build a token store from text, JSONL or Parquet files."""
    store = build_tokens(inputs, out, load_tokenizer(tokenizer), field=field, split=split, overwrite=overwrite)
    _tell(_store_facts(store), as_json)


@app.command()
def pack(
    tokens: Store,
    row_length: Annotated[int, typer.Option(help="Tokens in a row.", show_default=False)],
    algorithm: Annotated[str, typer.Option(help="first_fit, best_fit or concat_then_split.")] = "best_fit",
    overflow: Annotated[str, typer.Option(help="A document longer than a row: error, split or truncate.")] = "error",
    open_rows: Annotated[int | None, typer.Option(help="Rows that may be open at once.", show_default=False)] = None,
    sort_window: Annotated[int, typer.Option(help="Documents sorted by length before they are placed.")] = 0,
    append_eod: Annotated[bool, typer.Option(help="Whether documents get an end-of-document token.")] = True,
    as_json: Json = False,
) -> None:
    """Work out which documents make up which row, and save it beside the tokens."""
    rules = PackingRules(row_length, algorithm, overflow, open_rows, append_eod, sort_window)
    store = TokenStore(tokens, validate=False)
    _tell(_index_facts(index_for(store.lengths(), rules, store.path)), as_json)


@app.command()
def show(tokens: Store, as_json: Json = False) -> None:
    """What a token store holds, and how it was packed."""
    store = TokenStore(tokens, validate=False)
    indices = [open_index(path) for path in sorted(store.path.glob("packing-*"))]
    facts = _store_facts(store)
    if as_json:
        facts["packings"] = [_index_facts(index) for index in indices]
    else:
        facts |= {Path(str(i.path)).name: _sentence(i) for i in indices}
    _tell(facts, as_json)


@app.command()
def check(tokens: Store, as_json: Json = False) -> None:
    """Look at every offset and token. Exit code 1: something is wrong, and what."""
    try:
        TokenStore(tokens, validate=True)
    except SourceError as error:
        _tell({"holds": False, "error": str(error)}, as_json, holds=False)
    else:
        _tell({"holds": True}, as_json)


def _store_facts(store: TokenStore) -> dict[str, Any]:
    return {
        "path": str(store.path),
        "documents": len(store),
        "tokens": store.num_tokens,
        "mean_tokens": round(store.num_tokens / max(len(store), 1), 2),
        "vocab_size": store.vocab_size,
        "eod_token_id": store.eod_token_id,
        "dtype": str(store.tokens.dtype),
        "tokenizer": store.tokenizer,
        "content": store.content,
    }


def _index_facts(index: PackingIndex) -> dict[str, Any]:
    rules = index.rules
    return {
        "path": index.path,
        "fingerprint": index.fingerprint,
        "rows": len(index),
        "pieces": index.num_pieces,
        "density": round(index.density, 6),
        "row_length": rules.row_length,
        "algorithm": rules.algorithm,
        "overflow": rules.overflow,
    }


def _sentence(index: PackingIndex) -> str:
    rules = index.rules
    return f"{len(index)} rows of {rules.row_length}, {rules.algorithm}, {rules.overflow}, density {index.density:.4f}"


def _tell(facts: dict[str, Any], as_json: bool, *, holds: bool = True) -> None:
    def text() -> Table:
        table = Table(box=None, show_header=False, pad_edge=False)
        for name, value in facts.items():
            table.add_row(name.replace("_", " "), str(value))
        return table

    answer(facts, text, as_json=as_json, holds=holds)
