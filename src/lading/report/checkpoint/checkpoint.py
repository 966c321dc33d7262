"""Open a checkpoint and ask it what it learned from, over all its generations.

checkpoint = open_checkpoint("checkpoints/merged", runs=["runs"])
checkpoint.seen("corpus", 93_412).answer      True, False, or None: not all of its family is known
checkpoint.totals()                           samples of each dataset, by run
checkpoint.family()                           what it was made from, and what that was made from
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lading.errors import ConfigError, LadingError, PlanError
from lading.ledger.description import KnownRun
from lading.ledger.run_folder import RunFolder
from lading.ledger.waybill.consumed import consumed
from lading.ledger.waybill.waybill import Moment, Waybill, checkpoint_path, read_waybill
from lading.report.checkpoint.family import Family, Places, Relative
from lading.report.documents import RunDocuments
from lading.report.evidence import Evidence
from lading.report.run import Run
from lading.report.snapshot import read_evidence
from lading.report.table import Table
from lading.report.uses import uses_of
from lading.runtime.fields import listed

if TYPE_CHECKING:
    from lading.report.trace.contaminated import Contamination
    from lading.report.trace.corpora import TracedRun
    from lading.report.trace.trace import Trace

_WHAT = {"run": pa.string(), "dataset": pa.string()}
_WHEN = {"attempt": pa.int32(), "step": pa.int64(), "update": pa.int64()}
USES = pa.schema({**_WHAT, "index": pa.int64(), **_WHEN, "epoch": pa.int32(), "slot": pa.int64(), "note": pa.string()})
TOTALS = pa.schema({**_WHAT, "samples": pa.int64(), "passes": pa.float64(), "tokens": pa.int64(), "from": pa.string()})
HISTORY = pa.schema({"run": pa.string(), **_WHEN})
RowsByDocument = list[tuple[int | None, list[int]]]


@dataclass(frozen=True)
class Seen:
    """Whether a model learned from a sample.

    Attributes:
        answer: True; False; None where it is not known: no use was found, and a part of the family is unknown.
        uses: Every use: run, step, update, epoch, slot, attempt.
        unknown: Sentences about what is not known.
    """

    answer: bool | None
    uses: Table
    unknown: tuple[str, ...]


class OpenedCheckpoint:
    """A checkpoint as its waybill and the runs of its family tell it.

    Args:
        path: Folder or file of the checkpoint.
        runs: Folders with runs and checkpoints in them; empty: those of ``LADING_RUNS``.
    """

    def __init__(self, path: str | os.PathLike[str], runs: Sequence[str | os.PathLike[str]] = ()) -> None:
        self.path = checkpoint_path(path)
        self.waybill: Waybill = read_waybill(self.path)
        self.places = Places(runs, self.path)
        self._evidence: dict[Path, Evidence] = {}

    def __repr__(self) -> str:
        return f"OpenedCheckpoint({str(self.path)!r}, {self.waybill.made}, {len(self.waybill.files)} files)"

    @functools.cached_property
    def relatives(self) -> Family:
        """The family, with what was found of it."""
        return Family(self.places, self.path, self.waybill)

    def family(self) -> list[Relative]:
        """Return the checkpoint and all that it was made from, itself first."""
        return list(self.relatives.members.values())

    @property
    def unknown(self) -> list[str]:
        """Sentences about the parts of the family of which nothing is known."""
        return self.relatives.unknown

    def seen(self, dataset: str | int, index: int) -> Seen:
        """Return whether the model learned from a sample, and every use.

        Args:
            dataset: Name, or number in each run.
            index: Index in the dataset.
        """
        return self._asked(dataset, lambda run: [(None, [index])])

    def seen_document(self, dataset: str | int, document: int | str, packing: str | None = None) -> Seen:
        """Return whether the model learned from a row that holds a part of a document, and every use.

        Args:
            dataset: Name of the dataset.
            document: Number of the document, from 0, or what it is called: its id, or its file and line.
            packing: Directory of the packing index or token store; None: where each run's plan says it lies.
        """
        return self._asked(
            dataset,
            lambda run: _rows_by_document(run, dataset, document, packing),
            by_name=isinstance(document, str),
        )

    def sample_of(self, dataset: str, document: int | str, packing: str | None = None) -> int:
        """Return the one sample that is a document; refuse one that is in other rows, or in several, and say which.

        Args:
            dataset: Name of the dataset.
            document: Number of the document, or what it is called.
            packing: Directory of its packing index or token store; None: where each run's plan says it lies.
        """
        unknown, rows, is_packed = [*self.unknown], set[int](), False
        for run in self.runs_asked(unknown, widest=True):
            if dataset in run.datasets:
                rows |= {row for _, found in _rows_by_document(run, dataset, document, packing) for row in found}
                corpus = _documents(run, dataset, packing).corpus(run.number_of(dataset))
                is_packed |= corpus is not None and corpus.packing is not None
        if len(rows) == 1 and not is_packed:
            return rows.pop()
        if not rows:
            raise ConfigError(
                f"document {document!r} of {dataset!r}: which sample it is cannot be found. {' '.join(unknown)} Pass "
                "--runs with the folder of its runs, or give the index of the sample."
            )
        held = f"{'packed ' * is_packed}rows {listed(sorted(rows), 20)}"
        raise ConfigError(
            f"document {document!r} of {dataset!r} is in {held}, and a proof is about one row. Prove each of them: "
            f"`lading model prove CKPT {dataset} {min(rows)} -o FILE`; its packing index says what a row holds."
        )

    def trace(self, text: str | None = None, **options: Any) -> Trace:
        """Return the spans of a text that the corpora of the family hold, and when: as ``Run.trace`` does."""
        from lading.report.trace.trace import trace  # few ask what a text did

        unknown = list(self.unknown)
        found = trace(self._traced(unknown), text, **options)
        return replace(found, unknown=(*unknown, *found.unknown))

    def contaminated(self, benchmark: str | os.PathLike[str], field: str, **options: Any) -> Contamination:
        """Return the items of a benchmark that the corpora of the family hold: as ``Run.contaminated`` does."""
        from lading.report.trace.contaminated import contaminated

        unknown = list(self.unknown)
        found = contaminated(self._traced(unknown), benchmark, field, **options)
        return replace(found, unknown=(*unknown, *found.unknown))

    def _traced(self, unknown: list[str]) -> list[TracedRun]:
        """Return each run of the family as it was at its moment, and as it is now."""
        from lading.report.trace.corpora import TracedRun

        return [TracedRun(run, Run.of(self._evidence[run.path])) for run in self.runs_asked(unknown)]

    def totals(self) -> Table:
        """Return what each run of the family used of each dataset until then; of runs not found, what waybills say."""
        by_run: dict[Path, list[Moment]] = {}
        for path, moment in self.relatives.moments:
            by_run.setdefault(path, []).append(moment)
        found = [(m[0].run, consumed(KnownRun(RunFolder(path)), m), str(path)) for path, m in by_run.items()]
        for key, waybill in self.relatives.waybills.items():
            member = self.relatives.members[key]
            if waybill.moment is not None and member.run is None:
                found.append((waybill.moment.run, dict(waybill.totals), f"waybill of {member.where}"))
        rows = [
            {"run": run, "dataset": name, **vars(total), "from": origin}
            for run, totals, origin in found
            for name, total in totals.items()
        ]
        return Table.of(rows, TOTALS)

    def history(self) -> Table:
        """Return the steps that the model learned from, the oldest generation first; shared ones are there once."""
        found: dict[tuple[str, int, int], dict[str, Any]] = {}
        for run in reversed(list(self.runs_asked([]))):
            columns = [run.steps.applied[name].tolist() for name in ("attempt", "step", "update")]
            name = run.evidence.description.run
            for attempt, step, update in zip(*columns, strict=True):
                row = {"run": name, "attempt": attempt, "step": step, "update": None if update < 0 else update}
                found.setdefault((name, attempt, step), row)
        return Table.of(list(found.values()), HISTORY)

    def _asked(self, dataset: str | int, asked: Callable[[Run], RowsByDocument], *, by_name: bool = False) -> Seen:
        unknown, has, names = list(self.unknown), False, set()
        refused: PlanError | None = None  # by a run whose dataset of that name is shorter
        uses: dict[tuple[Any, ...], dict[str, Any]] = {}
        for run in self.runs_asked(unknown, widest=True):
            names |= {name for _, name in run.named_datasets}
            if isinstance(dataset, int) or dataset in run.datasets:
                try:
                    number = run.number_of(dataset)
                    for row in (row for document, rows in asked(run) for row in uses_of(run, number, rows, document)):
                        uses[row["run"], row["attempt"], row["step"], row["slot"]] = row
                    has = True
                except PlanError as error:
                    refused = error
                except ConfigError as error:
                    if not by_name:
                        raise
                    unknown.append(str(error))  # what no store can name is not unused
            unknown += [f"{d.file} {d.problem}: run `lading verify {run.path}`" for d in run.evidence.damage[:1]]
        if not has and not unknown:
            found = ", ".join(sorted(map(repr, names))) or "none"
            nobody = f"no dataset {dataset!r} taught this model: its family has {found}. Check the name."
            raise refused or ConfigError(nobody)
        answer = True if uses else None if unknown else False
        return Seen(answer, Table.of([uses[key] for key in sorted(uses)], USES), tuple(dict.fromkeys(unknown)))

    def runs_asked(self, unknown: list[str], *, widest: bool = False) -> Iterator[Run]:
        """Yield each run of the family as it was at its moment; what cannot be asked becomes unknown.

        Args:
            unknown: Gets a sentence about each that cannot be asked.
            widest: Whether moments are passed over whose uses a later one of the same attempt has, too.
        """
        moments, asked = self.relatives.moments, dict[tuple[Path, int], int]()
        for path, moment in sorted(moments, key=lambda found: -found[1].step) if widest else moments:
            if moment.step < asked.get((path, moment.attempt), 0):
                continue
            try:
                if path not in self._evidence:
                    self._evidence[path] = read_evidence(path)
                run = Run.of(self._evidence[path].at(moment))
            except LadingError as error:
                unknown.append(f"run {moment.run} cannot be asked: {error}")
                continue
            if widest:
                asked[path, moment.attempt] = moment.step
            yield run


def _documents(run: Run, dataset: str | int, packing: str | None) -> RunDocuments:
    """Return the documents of a run, those of one dataset read where somebody says that they lie."""
    return run.documents if packing is None else RunDocuments(run.plan, {run.datasets[run.number_of(dataset)]: packing})


def _rows_by_document(run: Run, dataset: str | int, document: int | str, packing: str | None) -> RowsByDocument:
    """Return the rows of each document of a number or name in a run."""
    known, number = _documents(run, dataset, packing), run.number_of(dataset)
    numbers = known.numbers_of(number, document)
    return [(found, [row["index"] for row in known.rows_of(number, found)]) for found in numbers]


def open_checkpoint(path: str | os.PathLike[str], runs: Sequence[str | os.PathLike[str]] = ()) -> OpenedCheckpoint:
    """Open a checkpoint for questions about what it learned from.

    Args:
        path: Folder or file of the checkpoint.
        runs: Folders with runs and checkpoints in them; empty: those of ``LADING_RUNS``, then where waybills say.
    """
    return OpenedCheckpoint(path, [runs] if isinstance(runs, str | os.PathLike) else runs)
