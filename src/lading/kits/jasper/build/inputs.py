"""What a JASPER dataset is built from: pairs from a file or a list, embeddings from files, arrays or a function.

question   source   relevance   keywords   (cluster)
"Why ..."  "It ..." 0.9         ["sky"]     3          texts are numbered as they first appear,
0          4        0.9         [2, 5]      3          numbers are rows of the embeddings
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.kits.jasper.pt import load
from lading.runtime.arrays import host
from lading.runtime.paths import local_path

I64 = NDArray[np.int64]
F32 = NDArray[np.float32]
ALIASES = {
    "question_text": "question",
    "source_text": "source",
    "relevance_score": "relevance",
    "score": "relevance",
    "cluster_id": "cluster",
}


class Encodes(Protocol):
    """A model that embeds texts, as sentence-transformers has them."""

    def encode(self, texts: list[str], /) -> Any: ...


Embed = Callable[[list[str]], Any] | Encodes
COLUMNS = ("question", "source", "relevance", "keywords", "cluster")
READERS: dict[str, Callable[[Path], pa.Table]] = {
    ".parquet": pyarrow.parquet.read_table,
    ".csv": pyarrow.csv.read_csv,
    ".jsonl": pyarrow.json.read_json,
    ".ndjson": pyarrow.json.read_json,
}


@dataclass(frozen=True)
class Pairs:
    """Pairs as numbers, and the texts behind the numbers where there are any.

    Attributes:
        index: Question and source of each pair [P, 2].
        relevance: Of each pair, 0 to 1.
        keywords: Keyword numbers of each pair.
        clusters: Cluster of each pair, where given.
        texts: Texts by number of "question", "source" and "keyword"; None where numbers were given.
        columns: Embedding columns of the pairs' file, by "question" and "source".
    """

    index: I64
    relevance: F32
    keywords: list[list[int]]
    clusters: I64 | None
    texts: Mapping[str, list[str] | None]
    columns: Mapping[str, F32]


def read_pairs(given: str | Path | pa.Table | Pairs | Iterable[Any]) -> Pairs:
    """Read pairs from Parquet, CSV or JSONL files, an Arrow table, or a list of dicts or tuples."""
    if isinstance(given, Pairs):
        return given
    files = _files(given)
    table = _table(given) if files is None else _joined(files)
    missing = [name for name in COLUMNS[:2] if name not in table.column_names]
    if missing or len(table) == 0:
        found = ", ".join(table.column_names)
        raise SourceError(
            f"pairs have {len(table)} rows and columns {found}; expected at least one row and the columns question, "
            "source (and relevance, keywords, cluster)."
        )
    questions, question_texts = _numbered(table, "question")
    sources, source_texts = _numbered(table, "source")
    keywords, keyword_texts = _keywords(table)
    relevance = _numbers(table, "relevance", np.float32, np.ones(len(table), dtype=np.float32))
    pairs = Pairs(
        np.column_stack([questions, sources]),
        relevance,
        keywords,
        _numbers(table, "cluster", np.int64) if "cluster" in table.column_names else None,
        {"question": question_texts, "source": source_texts, "keyword": keyword_texts},
        {
            thing: _vectors(table[f"{thing}_emb"], f"{thing}_emb")[np.unique(numbers, return_index=True)[1]]
            for thing, numbers in (("question", questions), ("source", sources))
            if f"{thing}_emb" in table.column_names
        },
    )
    return pairs if files is None else _merged(pairs)


def read_embeddings(given: Any, thing: str, pairs: Pairs, embed: Embed | None) -> F32 | None:
    """Return one vector for each question, source or keyword.

    Args:
        given: An array or tensor, a ``.npy``, ``.pt`` or ``.parquet`` file, a function of texts, or None.
        thing: "question", "source" or "keyword".
        pairs: The pairs, for texts and embedding columns.
        embed: Function of texts, or a model with ``encode``, to use where nothing is given.
    """
    if given is None and thing in pairs.columns:
        return pairs.columns[thing]
    found = _vectors_of(embed if given is None else given, thing, pairs)
    if found is None:
        return None
    if found.ndim != 2 or found.dtype.kind not in "fiu":
        raise SourceError(
            f"{thing} embeddings are {found.dtype} of shape {found.shape}, expected numbers of shape [n, D]."
        )
    texts = pairs.texts[thing]
    if texts is not None and len(found) != len(texts):
        raise SourceError(
            f"{len(found)} {thing} embeddings for {len(texts)} different {thing} texts, expected one for each, in the "
            "order in which they first appear."
        )
    return np.ascontiguousarray(found, dtype=np.float32)


def _vectors_of(given: Any, thing: str, pairs: Pairs) -> NDArray[Any] | None:
    if not isinstance(given, str):
        given = getattr(given, "encode", given)  # a model of sentence-transformers, or anything alike
    if given is None or (callable(given) and thing == "keyword" and not any(pairs.keywords)):
        return None
    texts = pairs.texts[thing]
    if callable(given):
        if texts is None:
            raise SourceError(f"a function was given to embed each {thing}, but pairs hold {thing} numbers, not texts.")
        return host(given(texts))
    return _from_file(local_path(given), thing, texts) if isinstance(given, str | Path) else host(given)


def _table(given: Any) -> pa.Table:
    if isinstance(given, pa.Table):
        return given
    rows = [row if isinstance(row, Mapping) else dict(zip(COLUMNS, row, strict=False)) for row in given]
    try:
        return pa.Table.from_pylist(rows)
    except (pa.ArrowException, TypeError) as error:
        raise SourceError(f"pairs do not make a table: {error}. Give every pair the same keys and types.") from error


def _files(given: Any) -> list[Path] | None:
    """Return the files that pairs are in; None where they are no files."""
    if isinstance(given, str | Path):
        return [local_path(given)]
    if isinstance(given, list | tuple) and given and all(isinstance(one, str | Path) for one in given):
        return [local_path(one) for one in given]
    return None


def _joined(files: list[Path]) -> pa.Table:
    """Return the rows of all files, one after another; what only some of them have is empty in the others."""
    tables = [_read_file(path) for path in files]
    try:
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        names = ", ".join(path.name for path in files)
        raise SourceError(f"{names} do not make one table: {error}. Give all files the same types.") from error


def _read_file(path: Path) -> pa.Table:
    if path.suffix not in READERS:
        raise SourceError(f"{path.name} is no pairs file, expected one of {', '.join(READERS)}.")
    if not path.is_file():
        raise SourceError(f"pairs file not found: {path}.")
    try:
        table = READERS[path.suffix](path)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path} cannot be read as {path.suffix[1:]}: {error}.") from error
    names = [
        ALIASES.get(name, name) if ALIASES.get(name) not in table.column_names else name for name in table.column_names
    ]
    return table.rename_columns(names)


def _merged(pairs: Pairs) -> Pairs:
    """Make one pair of those with the same question and source: the highest relevance, all keywords."""
    _, first, of_row = np.unique(pairs.index, axis=0, return_index=True, return_inverse=True)
    if len(first) == len(pairs.index):
        return pairs
    kept = np.sort(first)
    place = np.argsort(np.argsort(first))[of_row.reshape(-1)]  # rank of a pair by its first row
    relevance = np.zeros(len(kept), dtype=np.float32)
    np.maximum.at(relevance, place, pairs.relevance)
    keywords: list[dict[int, None]] = [{} for _ in kept]
    for row, words in zip(place.tolist(), pairs.keywords, strict=True):
        keywords[row].update(dict.fromkeys(words))
    clusters = None if pairs.clusters is None else pairs.clusters[kept]
    return replace(
        pairs, index=pairs.index[kept], relevance=relevance, keywords=[list(k) for k in keywords], clusters=clusters
    )


def _numbered(table: pa.Table, name: str) -> tuple[I64, list[str] | None]:
    """Return numbers of a column: its own, or those of its texts as they first appear."""
    column = table[name].combine_chunks()
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise SourceError(f"{name} is empty in row {row} of the pairs, expected a text or a number.")
    if pa.types.is_integer(column.type):
        return column.to_numpy(zero_copy_only=False).astype(np.int64), None
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        coded = pc.dictionary_encode(column)
        return coded.indices.to_numpy(zero_copy_only=False).astype(np.int64), coded.dictionary.to_pylist()
    raise SourceError(f"column {name!r} of the pairs is {column.type}, expected texts or integers.")


def _numbers(table: pa.Table, name: str, dtype: Any, default: Any = None) -> Any:
    if name not in table.column_names:
        return default
    column = table[name].combine_chunks()
    if column.null_count or not (
        pa.types.is_integer(column.type) or (pa.types.is_floating(column.type) and dtype == np.float32)
    ):
        raise SourceError(
            f"column {name!r} of the pairs is {column.type} with {column.null_count} gaps, expected numbers."
        )
    return column.to_numpy(zero_copy_only=False).astype(dtype)


def _keywords(table: pa.Table) -> tuple[list[list[int]], list[str] | None]:
    if "keywords" not in table.column_names:
        return [[] for _ in range(len(table))], None
    rows = [_keyword_list(value, row) for row, value in enumerate(table["keywords"].to_pylist())]
    if pa.types.is_integer(table["question"].type) and all(isinstance(w, str) and w.isdigit() for r in rows for w in r):
        rows = [[int(word) for word in row] for row in rows]  # a CSV of numbers: '3; 5' are rows of the embeddings
    kinds = {type(word) for row in rows for word in row}
    if kinds <= {int}:
        return rows, None
    if kinds - {str}:
        raise SourceError(
            f"keywords of the pairs are {sorted(k.__name__ for k in kinds)}, expected all texts or all numbers."
        )
    numbers: dict[str, int] = {}
    return [[numbers.setdefault(word, len(numbers)) for word in row] for row in rows], list(numbers)


def _keyword_list(value: Any, row: int) -> list[Any]:
    """Return one pair's keywords: a list, or a text as a CSV holds it (``a; b`` or a JSON list)."""
    if value is None:
        return []
    if isinstance(value, list):
        return value
    if isinstance(value, int):  # a CSV column of single numbers
        return [value]
    if isinstance(value, str):
        text = value.strip()
        try:
            return (
                json.loads(text) if text.startswith("[") else [word.strip() for word in text.split(";") if word.strip()]
            )
        except json.JSONDecodeError as error:
            raise SourceError(
                f"keywords are {value!r} in row {row} of the pairs, expected 'a; b' or a JSON list."
            ) from error
    raise SourceError(f"keywords are {value!r} in row {row} of the pairs, expected a list, or texts separated by ';'.")


def _from_file(path: Path, thing: str, texts: Sequence[str] | None) -> NDArray[Any]:
    if not path.is_file():
        raise SourceError(f"{thing} embeddings not found: {path}.")
    if path.suffix == ".npy":
        try:
            found: NDArray[Any] = np.load(path, allow_pickle=False)
            return found
        except (ValueError, OSError, EOFError) as error:
            raise SourceError(f"{path} cannot be read as .npy: {error}.") from error
    if path.suffix == ".pt":
        return host(load(path))
    if path.suffix == ".parquet":
        return _from_parquet(path, texts)
    raise SourceError(f"{path.name} holds no embeddings, expected .npy, .pt or .parquet.")


def _from_parquet(path: Path, texts: Sequence[str] | None) -> NDArray[Any]:
    """Read the one column of vectors; a column ``text`` beside it says whose they are."""
    table = pyarrow.parquet.read_table(path)
    lists = [field.name for field in table.schema if pa.types.is_nested(field.type)]
    if len(lists) != 1:
        raise SourceError(f"{path.name} has {len(lists)} columns of vectors, expected 1; it has {table.column_names}.")
    vectors = _vectors(table[lists[0]], path.name)
    if texts is None or "text" not in table.column_names:
        return vectors
    rows = {text: row for row, text in enumerate(table["text"].to_pylist())}
    unknown = next((text for text in texts if text not in rows), None)
    if unknown is not None:
        raise SourceError(f"{path.name} has no vector for the text {unknown[:60]!r}. Add it, or embed all texts.")
    return vectors[[rows[text] for text in texts]]


def _vectors(column: pa.ChunkedArray, name: str) -> F32:
    flat = column.combine_chunks()
    lengths = pc.list_value_length(flat).to_numpy(zero_copy_only=False) if len(flat) else np.zeros(0)
    if len(set(lengths.tolist())) > 1 or flat.null_count:
        raise SourceError(f"{name} has vectors of different lengths, expected the same for all.")
    values = flat.flatten().to_numpy(zero_copy_only=False)
    found: F32 = values.reshape(len(flat), -1).astype(np.float32)
    return found
