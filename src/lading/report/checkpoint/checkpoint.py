"""Open a checkpoint and ask it what it learned from, over all its generations.

checkpoint = open_checkpoint("checkpoints/merged", runs=["runs"])
checkpoint.seen("corpus", 93_412).answer      True, False, or None: not all of its family is known
checkpoint.totals()                           samples of each dataset, by run
checkpoint.family()                           what it was made from, and what that was made from
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lading.errors import ConfigError, LadingError, PlanError
from lading.ledger.description import KnownRun
from lading.ledger.run_folder import RunFolder
from lading.ledger.waybill.consumed import consumed
from lading.ledger.waybill.waybill import Given, Moment, Waybill, checkpoint_path, read_waybill
from lading.report.checkpoint.family import Family, Places, Relative
from lading.report.run import Run
from lading.report.snapshot import read_evidence
from lading.report.table import Table
from lading.report.uses import uses_of
from lading.runtime.fields import listed

if TYPE_CHECKING:
    from lading.report.trace.contaminated import Contamination
    from lading.report.trace.trace import Trace

_WHAT = {"run": pa.string(), "dataset": pa.string()}
_WHEN = {"attempt": pa.int32(), "step": pa.int64(), "update": pa.int64()}
USES = pa.schema({**_WHAT, "index": pa.int64(), **_WHEN, "epoch": pa.int32(), "slot": pa.int64(), "note": pa.string()})
TOTALS = pa.schema({**_WHAT, "samples": pa.int64(), "passes": pa.float64(), "tokens": pa.int64(), "from": pa.string()})
HISTORY = pa.schema({"run": pa.string(), **_WHEN})


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
        runs: Folders with runs and checkpoints in them; empty: those of ``LADING_RUNS``, then where waybills say.
        stores: Where token stores or packing indices lie now, by the name of the dataset, where they moved since.
    """

    def __init__(self, path: Given, runs: Sequence[Given] = (), stores: Mapping[str, str] | None = None) -> None:
        self.path = checkpoint_path(path)
        self.waybill: Waybill = read_waybill(self.path)
        self._places, self._stores = Places(runs, self.path), stores or {}
        self._evidence = functools.cache(read_evidence)

    def __repr__(self) -> str:
        return f"OpenedCheckpoint({str(self.path)!r}, {self.waybill.made}, {len(self.waybill.files)} files)"

    @functools.cached_property
    def relatives(self) -> Family:
        """The family, with what was found of it."""
        return Family(self._places, self.path, self.waybill)

    def family(self) -> list[Relative]:
        """Return the checkpoint and all that it was made from, itself first."""
        return list(self.relatives.members.values())

    @property
    def unknown(self) -> list[str]:
        """Sentences about the parts of the family of which nothing is known."""
        return self.relatives.unknown

    def seen(self, dataset: str | int, index: int | None = None, *, document: int | str | None = None) -> Seen:
        """Return whether the model learned from a sample, or from a row that holds a part of a document; and every use.

        Args:
            dataset: Its name, or its number in each run.
            index: Index of the sample.
            document: Instead: number of a document, or what it is called, its id or its file and line.
        """
        if (index is None) == (document is None):
            raise ConfigError("which sample? Expected its index, or a document by number or name.")
        indices = [] if index is None else [index]
        unknown, has, names = list(self.unknown), False, set[str]()
        refused: PlanError | None = None  # by a run whose dataset of that name is shorter
        uses: dict[tuple[Any, ...], dict[str, Any]] = {}
        for run in self.runs_asked(unknown, widest=True):
            names |= {name for _, name in run.named_datasets}
            unknown += [f"{d.file} {d.problem}: run `lading verify {run.path}`" for d in run.evidence.damage[:1]]
            if isinstance(dataset, str) and dataset not in run.datasets:
                continue
            try:
                number = run.number_of(dataset)
                named = [(None, indices)] if document is None else run.documents.rows_by_number(number, document)
                for row in (row for held, rows in named for row in uses_of(run, number, rows, held)):
                    uses[row["run"], row["attempt"], row["step"], row["slot"]] = row
                has = True
            except PlanError as error:
                refused = error
            except ConfigError as error:
                if not isinstance(document, str):
                    raise
                unknown.append(str(error))  # what no store can name is not unused
        if not has and not unknown:
            found = listed(map(repr, sorted(names))) or "none"
            nobody = f"no dataset {dataset!r} taught this model: its family has {found}. Check the name."
            raise refused or ConfigError(nobody)
        answer = True if uses else None if unknown else False
        return Seen(answer, Table.of([uses[key] for key in sorted(uses)], USES), tuple(dict.fromkeys(unknown)))

    def sample_of(self, dataset: str, document: int | str) -> int:
        """Return the one sample that is a document, given by number or name; refuse one that is in packed rows."""
        unknown, rows, kind = [*self.unknown], set[int](), ""
        for run in self.runs_asked(unknown, widest=True):
            if dataset in run.datasets:
                number = run.number_of(dataset)
                rows.update(row for _, held in run.documents.rows_by_number(number, document) for row in held)
                kind = "packed " if run.documents.corpus(number).packing is not None else kind
        if len(rows) == 1 and not kind:
            return rows.pop()
        held = f"in {kind}rows {listed(sorted(rows), 20)}" if rows else f"in no row that was found. {' '.join(unknown)}"
        raise ConfigError(
            f"document {document!r} of {dataset!r} is {held}, and a proof is about one row. Give the index of a row "
            "(its packing index says what it holds), and with --runs the folder of the runs."
        )

    def trace(self, text: str | None = None, **options: Any) -> Trace:
        """Return the spans of a text that the corpora of the family hold, and when: as ``Run.trace`` does."""
        from lading.report.trace.trace import trace  # few ask what a text did

        found: Trace = self._traced(trace, text, **options)
        return found

    def contaminated(self, benchmark: Given, field: str, **options: Any) -> Contamination:
        """Return the items of a benchmark that the corpora of the family hold: as ``Run.contaminated`` does."""
        from lading.report.trace.contaminated import contaminated

        found: Contamination = self._traced(contaminated, benchmark, field, **options)
        return found

    def _traced(self, ask: Callable[..., Any], *asked: Any, **options: Any) -> Any:
        """Return the answer of each run of the family as it was at its moment, and as it is now."""
        from lading.report.trace.corpora import TracedRun

        unknown = list(self.unknown)
        runs = [TracedRun(run, Run.of(self._evidence(run.path))) for run in self.runs_asked(unknown)]
        found = ask(runs, *asked, **options)
        return replace(found, unknown=(*unknown, *found.unknown))

    def totals(self) -> Table:
        """Return what each run of the family used of each dataset until then; of runs not found, what waybills say."""
        by_run: dict[Path, list[Moment]] = {}
        for path, moment in self.relatives.moments:
            by_run.setdefault(path, []).append(moment)
        found = [(m[0].run, consumed(KnownRun(RunFolder(path)), m), str(path)) for path, m in by_run.items()]
        for member in self.family():
            if member.moment is not None and member.run is None and member.key in self.relatives.waybills:
                waybill = self.relatives.waybills[member.key]
                found.append((member.moment.run, dict(waybill.totals), f"waybill of {member.where}"))
        rows = [{"run": r, "dataset": d, **vars(total), "from": f} for r, used, f in found for d, total in used.items()]
        return Table.of(rows, TOTALS)

    def history(self) -> Table:
        """Return the steps that the model learned from, the oldest generation first; shared ones are there once."""
        found: dict[tuple[str, int, int], int | None] = {}
        for run in reversed(list(self.runs_asked([]))):
            columns = [run.steps.applied[name].tolist() for name in _WHEN]
            for attempt, step, update in zip(*columns, strict=True):
                found.setdefault((run.evidence.description.run, attempt, step), None if update < 0 else update)
        return Table.of([dict(zip(HISTORY.names, (*key, found[key]), strict=True)) for key in found], HISTORY)

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
                evidence = self._evidence(path).at(moment)
                yield Run.of(evidence, {name: at for name, at in self._stores.items() if name in evidence.datasets})
                asked |= {(path, moment.attempt): moment.step} if widest else {}
            except LadingError as error:
                unknown.append(f"run {moment.run} cannot be asked: {error}")


def open_checkpoint(
    path: Given, runs: Given | Sequence[Given] = (), stores: Mapping[str, str] | None = None
) -> OpenedCheckpoint:
    """Open a checkpoint for questions about what it learned from. The arguments are those of ``OpenedCheckpoint``."""
    return OpenedCheckpoint(path, [runs] if isinstance(runs, str | os.PathLike) else runs, stores)
