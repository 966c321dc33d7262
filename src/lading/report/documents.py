"""The documents behind the samples of a run: what they are called, and which rows of a packed dataset hold them.

    sample ─▶ of(dataset, index) ─▶ its documents, each with its id
    id     ─▶ find(id)           ─▶ (dataset, document) ─▶ rows_of(dataset, document) ─▶ run.where

Packing index and names are read where the plan says that the tokens lie, or where the asker says. A store that moved or
is gone fails no question: ``missing`` says which one, and how to point to it.
"""

from __future__ import annotations

from collections.abc import Mapping
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

    packing: PackingIndex | None
    names: DocumentNames | None
    store: Path


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
        self._plan, self._stores, self._digests = plan, dict(stores or {}), dict(digests or {})
        unknown = set(self._stores) - {d.name for d in plan.datasets} if plan is not None else set(self._stores)
        if unknown:
            names = listed(d.name for d in plan.datasets) if plan is not None else "none by plan"
            raise ConfigError(
                f"no dataset {listed(unknown)} in this run: it has {names}. Pass DATASET=PATH of its own."
            )
        self._opened: dict[int, KnownDocuments | None] = {}
        self.missing: dict[str, str] = {}

    def of(self, number: int, index: int) -> list[dict[str, Any]] | None:
        """Return the documents that a sample holds, from left to right; None where nothing is known of them."""
        corpus = self.corpus(number)
        try:
            if corpus is None or (corpus.packing is None and corpus.names is None):
                return None
            documents = [index] if corpus.packing is None else [p.document for p in corpus.packing.pieces(index)]
            return [{"document": d, "id": self.name(number, d)} for d in documents]
        except LadingError as error:
            self._give_up(number, str(error))
            return None

    def name(self, number: int, document: int) -> str | None:
        """Return what a document is called; None where that is not known."""
        corpus = self.corpus(number)
        try:
            return None if corpus is None or corpus.names is None else corpus.names[document]
        except (LadingError, LookupError) as error:
            self._give_up(number, str(error))
            return None

    def named(self, samples: Table) -> Table:
        """Return samples with their ``documents`` beside them."""
        pairs = zip(samples["dataset"], samples["index"], strict=True)
        return Table(samples.arrow.append_column("documents", pa.array([self.of(*pair) for pair in pairs], DOCUMENTS)))

    def find(self, name: str, dataset: int | None = None) -> list[tuple[int, int]]:
        """Return (dataset, document) of every document that has a name."""
        numbers = [] if self._plan is None else self._plan.parts.numbers if dataset is None else [dataset]
        found = [(number, corpus.names) for number in numbers if (corpus := self.corpus(number)) is not None]
        return [(number, document) for number, names in found if names is not None for document in names.find(name)]

    def numbers_of(self, dataset: int, document: int | str) -> list[int]:
        """Return the numbers of a document given by number or name; raise where a dataset has none of that name."""
        if isinstance(document, int):
            return [document]
        if not (found := self.find(document, dataset)):
            raise self.not_known(document, dataset)
        return [number for _, number in found]

    def not_known(self, name: str, dataset: int | None = None) -> ConfigError:
        """Return why nobody can say whether the documents of a name were used: that is not the same as unused."""
        why, last = [*self.missing.values()], ""
        if self._plan is None:
            why = ["the run has no plan, so nothing says what its samples are called."]
        elif not why:
            why = [self._names_there(n) for n in (self._plan.parts.numbers if dataset is None else [dataset])]
        if not self.missing:
            last = " Check the id (`lading step` shows what documents are called), or ask for DATASET and INDEX."
        return ConfigError(f"it is unknown whether {name!r} was used: {' '.join(why)}{last}")

    def _names_there(self, number: int) -> str:
        corpus, name = self.corpus(number), self._dataset(number).name
        if corpus is None or corpus.names is None:
            return f"dataset {name!r} has no names of documents."
        return f"dataset {name!r} has names of {len(corpus.names)} documents, and not this one."

    def rows_of(self, number: int, document: int) -> list[dict[str, Any]]:
        """Return the samples that hold any part of a document: ``index``, ``tokens`` (the span), ``column``."""
        corpus = self.corpus(number)
        if corpus is not None and corpus.packing is None and corpus.names is not None:
            if not 0 <= document < len(corpus.names):
                raise ConfigError(f"document {document} does not exist: there are {len(corpus.names)}, counted from 0.")
            return [{"index": document, "column": 0, "tokens": None}]
        if corpus is None or corpus.packing is None:
            raise ConfigError(self.missing.get(self._dataset(number).name) or self._sentence(number))
        return [
            {"index": piece.row, "column": piece.column, "tokens": f"{piece.start}–{piece.start + piece.size - 1}"}
            for piece in corpus.packing.rows_of_document(document)
        ]

    def corpus(self, number: int) -> KnownDocuments | None:
        """Return what is known of a dataset's documents; None where nothing is, or it cannot be read now."""
        if number not in self._opened:
            try:
                is_planned = self._plan is not None and number in self._plan.parts.numbers
                self._opened[number] = self._open(number, self._dataset(number)) if is_planned else None
            except (LadingError, OSError, ValueError) as error:
                self._give_up(number, str(error))
        return self._opened[number]

    def _open(self, number: int, dataset: PlannedDataset) -> KnownDocuments | None:
        place = self._stores.get(dataset.name) or dataset.location
        if place is None or len(dataset.parts) > 1:
            return None
        path, packing = Path(place), Path(dataset.location or "").name
        if not (path / "packing.json").exists() and (path / packing / "packing.json").exists():
            path /= packing  # a store that moved, with its indices
        index = open_index(path) if (path / "packing.json").exists() else None
        store = path.parent if index is not None else path
        if index is None and (packing.startswith("packing-") or not path.is_dir()):
            raise ConfigError(self._sentence(number))
        if index is not None and packing.startswith("packing-") and packing != f"packing-{index.fingerprint}":
            raise ConfigError(
                f"the packing index at {path} is packing-{index.fingerprint}, the run's dataset {dataset.name!r} had "
                f"{packing}: other rows hold its documents. Pass --store {dataset.name}=PATH with the run's own store."
            )
        names = DocumentNames(store) if has_names(store) else None
        rows = len(index) if index is not None else dataset.length if names is None else len(names)
        if rows != dataset.length or (index is not None and names is not None and len(names) != index.num_documents):
            raise ConfigError(
                f"what lies at {path} has {rows} rows, the run's dataset {dataset.name!r} has {dataset.length}. Pass "
                f"--store {dataset.name}=PATH with the store that the run was made with."
            )
        return KnownDocuments(index, self._checked_names(dataset.name, names), store)

    def _checked_names(self, dataset: str, names: DocumentNames | None) -> DocumentNames | None:
        """Return names; None, and a sentence in ``missing``, where they are not those that a waybill knows."""
        wanted = self._digests.get(dataset)
        if names is None or wanted in (None, names.digest):
            return names
        self.missing[dataset] = (
            f"the names of documents at {names.folder} are not those of the checkpoint: expected digest {wanted}, "
            f"found {names.digest}. They are left out. Pass --store {dataset}=PATH with the store it was trained with."
        )
        return None

    def _dataset(self, number: int) -> PlannedDataset:
        if self._plan is None:
            raise ConfigError("the run has no plan, so nothing says where its documents lie. Ask for samples instead.")
        return self._plan.datasets[self._plan.parts.source(number)]

    def _sentence(self, number: int) -> str:
        dataset = self._dataset(number)
        if dataset.location is None:
            had = "was not packed, or its index was not saved"
        else:
            kind = "packing index" if Path(dataset.location).name.startswith("packing-") else "token store"
            had = f"had its {kind} at {dataset.location}"
        return (
            f"dataset {dataset.name!r} {had}: its documents and their names are not available. Pass --store "
            f"{dataset.name}=PATH (stores= in Python) with the token store, or its directory packing-…."
        )

    def _give_up(self, number: int, why: str) -> None:
        self._opened[number] = None
        self.missing[self._dataset(number).name] = shown(why)


def brief(documents: list[dict[str, Any]] | None) -> str | None:
    """Return documents in a few words: ids where they have them, else numbers."""
    return listed((d["id"] or f"document {d['document']}" for d in documents), 3) if documents else None
