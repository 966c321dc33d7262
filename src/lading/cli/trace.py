"""``lading trace`` and ``lading contaminated``: from a text to the updates that learned from it.

lading trace RUN "a sentence of the corpus"        lading contaminated CKPT bench.jsonl --field question
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from lading.cli.output import Json, Stores, answer, open_run
from lading.errors import ConfigError
from lading.ledger.run_folder import RunFolder
from lading.report import OpenedCheckpoint, Run as OpenedRun, open_checkpoint, text as render
from lading.report.trace.contaminated import GRAM, FoundItem
from lading.report.trace.trace import LEAST, LIMIT, TracedPlace, TracedSpan
from lading.runtime.arrow import without_pandas

Asked = Annotated[str, typer.Argument(help="Folder of a run, or a checkpoint.", metavar="RUN|CKPT", show_default=False)]
Runs = Annotated[list[str] | None, typer.Option("--runs", help="Of a checkpoint: folder with runs; several times.")]
Name = Annotated[str | None, typer.Option(help="As given to lading tokens build, where the store's cannot be found.")]
Limit = Annotated[int, typer.Option(help="Places listed of each.", min=1)]
_COLUMNS = {"dataset": "dataset", "document": "document", "id": "id", "start": "token", "what": "used"}


def _opened(asked: str, runs: list[str] | None, stores: list[str] | None) -> OpenedRun | OpenedCheckpoint:
    if RunFolder(Path(asked)).description.exists():
        return open_run(asked, stores=stores)
    without_pandas()
    return open_checkpoint(asked, runs or ())


def trace(
    asked: Asked,
    text: Annotated[str | None, typer.Argument(help="The text.", show_default=False)] = None,
    file: Annotated[Path | None, typer.Option(help="A file with the text instead.", show_default=False)] = None,
    ids: Annotated[str | None, typer.Option(help="Token ids instead, with blanks between.")] = None,
    least: Annotated[int, typer.Option(help="Tokens of the shortest span that counts.", min=1)] = LEAST,
    limit: Limit = LIMIT,
    tokenizer: Name = None,
    runs: Runs = None,
    store: Stores = None,
    as_json: Json = False,
) -> None:
    """Which documents hold a text word for word, and which updates used them. Exit code 1: none holds any of it.

    Example: lading trace runs/7 "It was the best of times" --least 8
    """
    if sum(given is not None for given in (text, file, ids)) != 1:
        raise ConfigError("what is to be traced? Expected one of TEXT, --file and --ids.")
    words = (ids or "").replace(",", " ").split()
    if ids is not None and not all(word.isdigit() for word in words):
        raise ConfigError(f"--ids {ids!r}: expected numbers with blanks between, such as '17 4 93'.")
    options: dict[str, Any] = {"least": least, "limit": limit, "tokenizer": tokenizer}
    opened = _opened(asked, runs, store)
    if ids is not None:
        found = opened.trace(ids=[int(word) for word in words], **options)
    else:
        found = opened.trace(_read(file) if file is not None else text, **options)
    parts: list[RenderableType] = [part for span in found.spans for part in _span(span)]
    parts += [] if found.spans else [render.line(f"nothing of its {found.tokens} tokens is in the corpus")]
    parts += [render.line(f"Not looked at: {why}") for why in found.unknown]
    answer(found.to_dict(), lambda: Group(*parts), as_json=as_json, holds=bool(found.spans))


def contaminated(
    asked: Asked,
    bench: Annotated[Path, typer.Argument(help="The benchmark, an object a line.", metavar="BENCH.jsonl")],
    field: Annotated[str, typer.Option(help="Key of the text of an item.", show_default=False)],
    answer_: Annotated[str | None, typer.Option("--answer", help="Key of its answer.", show_default=False)] = None,
    n: Annotated[int, typer.Option(help="Tokens side by side that count; of bytes take more.", min=1)] = GRAM,
    limit: Limit = LIMIT,
    tokenizer: Name = None,
    runs: Runs = None,
    store: Stores = None,
    as_json: Json = False,
) -> None:
    """Which items of a benchmark the corpus holds, and which updates used them. Exit code 1: an update used one.

    Example: lading contaminated checkpoints/600 bench.jsonl --field question --answer answer
    """
    opened = _opened(asked, runs, store)
    found = opened.contaminated(bench, field, answer=answer_, n=n, limit=limit, tokenizer=tokenizer)
    used = sum(item.is_used for item in found.found)
    title = f"{render.counted(found.items, 'item')}: {len(found.found)} in the corpus, {used} used"
    parts: list[RenderableType] = [render.line(title, "bold"), *(p for item in found.found for p in _item(item))]
    parts += [render.line(f"{found.short} are shorter than {n} tokens: looked for as a whole")] if found.short else []
    parts += [render.line(f"Not looked at: {why}") for why in found.unknown]
    answer(found.to_dict(), lambda: Group(*parts), as_json=as_json, holds=not used)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read as text: {error}.") from error


def _span(span: TracedSpan) -> list[RenderableType]:
    head = f"tokens {span.start} to {span.stop - 1}, in {render.counted(span.found, 'place')}: {span.text}"
    return [render.line(head, "bold"), _places(span.places)]


def _item(item: FoundItem) -> list[RenderableType]:
    answered = {None: "", True: ", with its answer", False: ", without its answer"}[item.with_answer]
    return [render.line(f"line {item.line}: {item.share:.0%}{answered}: {item.text}", "bold"), _places(item.places)]


def _places(places: tuple[TracedPlace, ...]) -> RenderableType:
    return render.table([{**vars(place), "what": place.what} for place in places], _COLUMNS, whole=("what",))
