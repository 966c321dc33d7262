"""``lading tokens``: build, pack, index, show and check corpora of tokens.

lading tokens build 'corpus/*.jsonl.zst' --out tokens/ --tokenizer tokenizer.json --workers 8
lading tokens build 'corpus/*.jsonl.zst' --out tokens/ --tokenizer tokenizer.json --task $SLURM_ARRAY_TASK_ID/64
lading tokens pack tokens/ --row-length 2048 --algorithm best_fit --overflow split
lading tokens index tokens/ --workers 8
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from lading.cli.output import Json, answer, facts_table, progress_bar
from lading.errors import ConfigError, SourceError
from lading.kits.formats.convert import open_documents, store_tokens
from lading.order.packing.file import index_for, open_index
from lading.order.packing.index import PackingIndex
from lading.order.packing.rules import PackingRules
from lading.runtime.blocks.run import Task
from lading.runtime.processes import usable_cpus
from lading.source.tokens.build import build_task, build_tokens, join_tokens, token_job
from lading.source.tokens.store import TokenStore
from lading.source.tokens.tokenizer import TokenizerRef
from lading.source.tokens.trace_index import index_tokens

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Store = Annotated[Path, typer.Argument(help="Directory of the token store.", metavar="TOKENS", show_default=False)]


@app.command()
def build(
    inputs: Annotated[
        list[str],
        typer.Argument(help="Text, .jsonl or .parquet files, also .gz and .zst; patterns.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to make.", show_default=False)],
    tokenizer: Annotated[
        str, typer.Option(help="'byte', a tokenizer.json, 'transformers:NAME', or 'package.module:object'.")
    ] = "byte",
    field: Annotated[str, typer.Option(help="Key or column of the text, or of ready token ids.")] = "text",
    id_: Annotated[
        str, typer.Option("--id", help="Key or column of what a document is called; else its file and line or row.")
    ] = "",
    split: Annotated[str, typer.Option(help="A document of a text file: file, line or paragraph.")] = "file",
    eod: Annotated[str | None, typer.Option(help="Token or id that ends a document.", show_default=False)] = None,
    vocab_size: Annotated[int | None, typer.Option(help="Ids of a function of your own.", show_default=False)] = None,
    workers: Annotated[int | None, typer.Option(help="Blocks at once.", min=1, show_default="all processors")] = None,
    on: Annotated[str, typer.Option(help="Where blocks are made: local or ray.")] = "local",
    task: Annotated[
        str | None, typer.Option(help="Only the blocks of task I of N, such as 0/4; the last one joins.")
    ] = None,
    join: Annotated[bool, typer.Option("--join", help="Only join what the tasks have made.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the store.")] = False,
    as_json: Json = False,
) -> None:
    """Build a token store from text, JSONL or Parquet files, in blocks; run again, it resumes.

    Example: lading tokens build 'corpus/*.jsonl.zst' --out tokens --tokenizer tokenizer.json --workers 8
    """
    ref = TokenizerRef(tokenizer, vocab_size=vocab_size, eod=eod)
    made: dict[str, Any] = {"field": field, "split": split, "id": id_}
    with _resumable(out), progress_bar(quiet=as_json, lines=True) as progress:
        how: dict[str, Any] = {"overwrite": overwrite, "progress": progress, "workers": workers or usable_cpus()}
        store: TokenStore | None
        if join:
            store = join_tokens(token_job(inputs, out, ref, **made), overwrite=overwrite, progress=progress)
        elif task is None:
            store = build_tokens(inputs, out, ref, on=on, **made, **how)
        elif on == "local":
            store = build_task(token_job(inputs, out, ref, **made), Task.parse(task), **how)
        else:
            raise ConfigError(f"--task and --on {on} are two ways to share a job. Give one of them.")
    _tell({"waits_for": "the blocks of other tasks"} if store is None else _store_facts(store), as_json)


@contextlib.contextmanager
def _resumable(out: Path) -> Iterator[None]:
    """Say, where a build is stopped by Ctrl-C, that it can be resumed."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"lading: stopped. Finished blocks are kept in {out}.parts: run the same again.", file=sys.stderr)
        raise


@app.command("import")
def import_(
    path: Annotated[Path, typer.Argument(help="A .bin stream, a Megatron dataset, or a folder of MDS shards.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to make.", show_default=False)],
    vocab_size: Annotated[int, typer.Option(help="Ids there are.", min=1, show_default=False)],
    eod: Annotated[int, typer.Option(help="Id that ends a document.", show_default=False)],
    format_: Annotated[str, typer.Option("--format", help="nanogpt, megatron or mds.", show_default=False)],
    column: Annotated[str, typer.Option(help="Of MDS: the column of ids.")] = "tokens",
    dtype: Annotated[str | None, typer.Option(help="Type of ids in a stream, or in bytes of MDS.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the store.")] = False,
    as_json: Json = False,
) -> None:
    """Make a token store of files that hold tokens already."""
    documents = open_documents(path, format_, eod, column, dtype)
    store = store_tokens(
        documents, out, vocab_size=vocab_size, eod_token_id=eod, name=f"imported from {format_}", overwrite=overwrite
    )
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
def index(
    tokens: Store,
    workers: Annotated[int | None, typer.Option(help="Blocks at once.", min=1, show_default="all processors")] = None,
    on: Annotated[str, typer.Option(help="Where blocks are made: local or ray.")] = "local",
    task: Annotated[str | None, typer.Option(help="Only the blocks of task I of N, such as 0/4.")] = None,
    as_json: Json = False,
) -> None:
    """Sort what follows each token, so that lading trace finds any text; run again, it resumes.

    Example: lading tokens index tokens/ --workers 8
    """
    if task is not None and on != "local":
        raise ConfigError(f"--task and --on {on} are two ways to share a job. Give one of them.")
    with progress_bar(quiet=as_json, lines=True) as progress:
        share = None if task is None else Task.parse(task)
        made = index_tokens(tokens, workers=workers or usable_cpus(), on=on, task=share, progress=progress)
    waits = {"waits_for": "the blocks of other tasks"}
    _tell(waits if made is None else {"path": str(made.job.folder), "blocks": len(made.job.blocks)}, as_json)


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
        "names": _names(store),
    }


def _names(store: TokenStore) -> str:
    """Return what documents are called, in a few words: a wrong --id shows here."""
    if store.names is None:
        return "none"
    with_id = f"{store.names.num_ids} of {len(store)} by {store.names.field}, else " if store.names.field else ""
    return f"{with_id}by file and line or row"


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
    answer(facts, lambda: facts_table(facts), as_json=as_json, holds=holds)
