"""The documents behind the samples of a run: what they are called, and which rows of a packed dataset hold them.

    sample ─▶ of(dataset, index) ─▶ its documents, each with its id
    id     ─▶ find(id)           ─▶ (dataset, document) ─▶ rows_of(dataset, document) ─▶ run.where

Packing index and names are read where the plan says that the tokens lie, or where the asker says. A store that moved or
is gone fails no question: ``missing`` says which one, and how to point to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from lading.errors import ConfigError, LadingError
from lading.identity.document_names import DocumentNames, has_names
from lading.order.dataset import PlannedDataset
from lading.order.packing.file import open_index
from lading.order.packing.index import PackingIndex
from lading.order.plan import Plan
from lading.report.table import Table
from lading.runtime.fields import listed, shown

DOCUMENTS = pa.list_(pa.struct([("document", pa.int64()), ("id", pa.string())]))


class KnownDocuments(NamedTuple):
    """What is known of the documents of a dataset: how they were packed, their names, and where they lie."""

    packing: PackingIndex | None = None
    names: DocumentNames | None = None
    store: Path | None = None


_NOTHING = KnownDocuments()


class RunDocuments:
    """The documents of a run's datasets.

    Args:
        plan: The plan of the run; None: nothing is known of its data.
        stores: Where token stores or packing indices lie now, by the name of the dataset.
        digests: What identifies the names that were used, by the name of the dataset, where a waybill knows it.

    Attributes:
        missing: Why names are not available, by the name of the dataset.
    """

    def __init__(
        self, plan: Plan | None, stores: Mapping[str, str] | None = None, digests: Mapping[str, str] | None = None
    ) -> None:
        self._planned = {} if plan is None else {n: plan.datasets[plan.parts.source(n)] for n in plan.parts.numbers}
        self._stores, self._digests = dict(stores or {}), dict(digests or {})
        names = [] if plan is None else [dataset.name for dataset in plan.datasets]
        if unknown := self._stores.keys() - set(names):
            has = listed(names) or "none by plan"
            raise ConfigError(f"no dataset {listed(unknown)} in this run: it has {has}. Pass DATASET=PATH of its own.")
        self._opened: dict[int, KnownDocuments] = {}
        self.missing: dict[str, str] = {}

    def of(self, number: int, index: int) -> list[dict[str, Any]] | None:
        """Return the documents that a sample holds, from left to right; None where nothing is known of them."""
        with self._unless_damaged(number):
            packing, names, _ = self.corpus(number)
            if packing is None and names is None:
                return None
            documents = [index] if packing is None else [piece.document for piece in packing.pieces(index)]
            return [{"document": d, "id": self.name(number, d)} for d in documents]
        return None

    def name(self, number: int, document: int) -> str | None:
        """Return what a document is called; None where that is not known."""
        with self._unless_damaged(number):
            names = self.corpus(number).names
            return None if names is None else names[document]
        return None

    def named(self, samples: Table) -> Table:
        """Return samples with their ``documents`` beside them."""
        pairs = zip(samples["dataset"], samples["index"], strict=True)
        return Table(samples.arrow.append_column("documents", pa.array([self.of(*pair) for pair in pairs], DOCUMENTS)))

    def find(self, name: str, dataset: int | None = None) -> list[tuple[int, int]]:
        """Return (dataset, document) of every document that has a name."""
        found = [(n, self.corpus(n).names) for n in (self._planned if dataset is None else [dataset])]
        return [(number, document) for number, names in found if names is not None for document in names.find(name)]

    def not_known(self, name: str, dataset: int | None = None) -> ConfigError:
        """Return why nobody can say whether the documents of a name were used: that is not the same as unused."""
        why = list(self.missing.values())
        if not self._planned:
            why = ["the run has no plan, so nothing says what its samples are called."]
        for number in [] if why else self._planned if dataset is None else [dataset]:
            names = self.corpus(number).names
            has = "no names of documents" if names is None else f"names of {len(names)} documents, and not this one"
            why.append(f"dataset {self._dataset(number).name!r} has {has}.")
        if not self.missing:
            why.append("Check the id (`lading step` shows what documents are called), or ask for DATASET and INDEX.")
        return ConfigError(f"it is unknown whether {name!r} was used: {' '.join(why)}")

    def rows_by_number(self, dataset: int, document: int | str) -> list[tuple[int, list[int]]]:
        """Return the number of each document of a number or name with the rows that hold it; raise where none is."""
        found = [(dataset, document)] if isinstance(document, int) else self.find(document, dataset)
        if not found:
            raise self.not_known(str(document), dataset)
        return [(number, [row["index"] for row in self.rows_of(dataset, number)]) for _, number in found]

    def rows_of(self, number: int, document: int) -> list[dict[str, Any]]:
        """Return the samples that hold any part of a document: ``index``, ``tokens`` (the span), ``column``."""
        packing, names, _ = self.corpus(number)
        if packing is not None:
            return [
                {"index": piece.row, "column": piece.column, "tokens": f"{piece.start}–{piece.start + piece.size - 1}"}
                for piece in packing.rows_of_document(document)
            ]
        if names is None:
            dataset = self._dataset(number)
            raise ConfigError(self.missing.get(dataset.name) or _not_there(dataset))
        if not 0 <= document < len(names):
            raise ConfigError(f"document {document} does not exist: there are {len(names)}, counted from 0.")
        return [{"index": document, "column": 0, "tokens": None}]

    def corpus(self, number: int) -> KnownDocuments:
        """Return what is known of a dataset's documents: nothing where it cannot be read now."""
        if number not in self._opened:
            self._opened[number] = _NOTHING
            with self._unless_damaged(number):
                self._opened[number] = self._open(self._planned[number]) if number in self._planned else _NOTHING
        return self._opened[number]

    @contextlib.contextmanager
    def _unless_damaged(self, number: int) -> Iterator[None]:
        """Know nothing more of a dataset's documents where reading them fails, and keep why."""
        try:
            yield
        except (LadingError, LookupError, OSError, ValueError) as error:
            self._opened[number] = _NOTHING
            self.missing[self._dataset(number).name] = shown(str(error))

    def _open(self, dataset: PlannedDataset) -> KnownDocuments:
        place, pass_store = self._stores.get(dataset.name) or dataset.location, f"Pass --store {dataset.name}=PATH with"
        if place is None or len(dataset.parts) > 1:
            return _NOTHING
        path, packing = Path(place), Path(dataset.location or "").name
        if not (path / "packing.json").exists() and (path / packing / "packing.json").exists():
            path /= packing  # a store that moved, with its indices
        index = open_index(path) if (path / "packing.json").exists() else None
        store = path.parent if index is not None else path
        if index is None and (packing.startswith("packing-") or not path.is_dir()):
            raise ConfigError(_not_there(dataset))
        if index is not None and packing.startswith("packing-") and packing != f"packing-{index.fingerprint}":
            raise ConfigError(
                f"the packing index at {path} is packing-{index.fingerprint}, the run's dataset {dataset.name!r} had "
                f"{packing}: other rows hold its documents. {pass_store} the run's own store."
            )
        names = DocumentNames(store) if has_names(store) else None
        rows = len(index) if index is not None else dataset.length if names is None else len(names)
        if rows != dataset.length or (index is not None and names is not None and len(names) != index.num_documents):
            raise ConfigError(
                f"what lies at {path} has {rows} rows, the run's dataset {dataset.name!r} has {dataset.length}. "
                f"{pass_store} the store that the run was made with."
            )
        wanted = self._digests.get(dataset.name)
        if names is not None and wanted not in (None, names.digest):
            self.missing[dataset.name] = (
                f"the names of documents at {names.folder} are not those of the checkpoint: expected digest {wanted}, "
                f"found {names.digest}. They are left out. {pass_store} the store it was trained with."
            )
            names = None
        return KnownDocuments(index, names, store)

    def _dataset(self, number: int) -> PlannedDataset:
        if number not in self._planned:
            raise ConfigError("the run has no plan, so nothing says where its documents lie. Ask for samples instead.")
        return self._planned[number]


def _not_there(dataset: PlannedDataset) -> str:
    kind = "packing index" if Path(dataset.location or "").name.startswith("packing-") else "token store"
    had = f"had its {kind} at {dataset.location}" if dataset.location else "was not packed, or its index was not saved"
    return (
        f"dataset {dataset.name!r} {had}: its documents and their names are not available. Pass --store "
        f"{dataset.name}=PATH (stores= in Python) with the token store, or its directory packing-…."
    )


def brief(documents: list[dict[str, Any]] | None) -> str | None:
    """Return documents in a few words: ids where they have them, else numbers."""
    return listed((d["id"] or f"document {d['document']}" for d in documents), 3) if documents else None
