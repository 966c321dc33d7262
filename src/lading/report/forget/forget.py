"""Ask that a model forget samples or documents: which, since when it knew them, and from where to train again.

    asked ─▶ closure (documents that share text) ─▶ rows ─▶ first use ─▶ newest clean checkpoint ─▶ replay
                                                            │
                                                            └▶ tainted: checkpoints behind it, models made of them

It is recorded in the run's log. From then on no attempt continues a tainted state, and the next one leaves out what
is to be forgotten from its first step on: by document (its tokens become padding) or by row (substitutes come).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lading.errors import ConfigError
from lading.identity import SampleId
from lading.ledger.begun import lives
from lading.ledger.limits import now_seconds, readable
from lading.ledger.lineage import blocked_by_hand, clean_checkpoints, tainted_by
from lading.ledger.log import CheckpointRecord, ForgetRequest, Log, read_log, repeat_until_first
from lading.order.substitute import part_substitute
from lading.report.asked import AskedRun
from lading.report.block import samples_of
from lading.report.checkpoint.family import Family, Places, waybills_below
from lading.report.trace.closure import same_text
from lading.report.uses import deliveries_of
from lading.runtime.fields import listed
from lading.runtime.files import clean_up

BY = ("document", "row")
_MOST_SHARE = 0.01

Pair = tuple[int, int]


@dataclass(frozen=True)
class Forgetting:
    """What is to be forgotten, and what that takes.

    Attributes:
        documents: dataset, document, id, and whether it was asked for (else it shares text with one that was).
        samples: dataset and index of each sample that is blocked.
        first_step: The first step that used any of them; None: none did, and nothing has to be replayed.
        clean: The newest clean checkpoint that is there: where and step; None: replay from step 0.
        replay_steps: Steps that have to be trained again.
        share: Their share of the run.
        tainted: Checkpoints of the run that learned from them: where, step, and whether they are still there.
        derived: Models made of tainted checkpoints, as waybills say.
        notes: Sentences about what is missing.
        recorded: Whether it is in the run's log.
    """

    documents: list[dict[str, Any]]
    samples: list[dict[str, Any]]
    first_step: int | None
    clean: dict[str, Any] | None
    replay_steps: int
    share: float
    tainted: list[dict[str, Any]]
    derived: list[str]
    notes: list[str] = field(default_factory=list)
    recorded: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able fields."""
        return asdict(self)


def forget(
    run: AskedRun,
    *,
    documents: Sequence[str] = (),
    samples: Sequence[str] = (),
    shared_tokens: int | None = None,
    by: str = "document",
    reason: str = "",
    runs: Sequence[str | os.PathLike[str]] = (),
    dry_run: bool = False,
    yes: bool = False,
) -> Forgetting:
    """Work out what forgetting takes, and record it.

    Args:
        documents: Documents, as ``dataset:number``.
        samples: Samples, as ``block`` names them.
        shared_tokens: Also documents that share so many tokens side by side with one of those; None: only those.
        by: ``document``: its tokens become padding where they are packed; ``row``: substitutes come for whole rows.
        reason: Why, for the record.
        runs: Folders with checkpoints and runs that may be made of this one; empty: where the run lies.
        dry_run: Whether to record nothing.
        yes: Whether a closure of more than 1 % of a dataset is meant.
    """
    if by not in BY:
        raise ConfigError(f"by={by!r}: expected 'document' or 'row'.")
    if not documents and not samples:
        raise ConfigError("what is to be forgotten? Expected --document DATASET:NUMBER or --sample DATASET:INDEX.")
    asked = [document_of(run, spec) for spec in documents]
    named = [sample for spec in samples for sample in samples_of(run, spec)]
    more = [] if shared_tokens is None or not asked else same_text(run, asked, shared_tokens)
    closure = list(dict.fromkeys([*asked, *more]))
    _check_size(run, closure, grew=bool(more) and not yes)
    masked, blocked = _split(run, closure, named, by)
    steps = [s for number, document in closure for s in _steps(run, number, _rows(run, number, document), document)]
    steps += [step for number, index in named for step in _steps(run, number, [index], None)]
    if run.plan is None:
        raise ConfigError(
            f"the order of this run was not Lading's: nothing can be left out of a replay. It was used at "
            f"{f'steps {listed(sorted(set(steps)), 20)}' if steps else 'no step'}; train again from before the first."
        )
    log = run.evidence.log
    request = ForgetRequest(tuple(blocked), tuple(masked), readable(reason), min(steps, default=None), now_seconds())
    request = _without_known(log, request)
    found = _forgetting(run, replace(log, forgets=[*log.forgets, request]), closure, set(asked), request, runs)
    if dry_run or not (request.samples or request.documents):
        return found
    _check_ended(run)
    _record(run, request)
    return replace(found, recorded=True)


def document_of(run: AskedRun, spec: str) -> SampleId:
    """Return dataset and document of ``dataset:number``, or of an id that exactly one document has."""
    name, colon, number = spec.rpartition(":")
    if colon and number.isdigit() and name in run.datasets:
        found = SampleId(run.number_of(name), int(number))
        run.documents.rows_of(*found)  # refuses what is not in the corpus
        return found
    hits = run.documents.find(spec)
    if len(hits) != 1:
        why = f"{len(hits)} documents are called so" if hits else "it is not in the corpus"
        raise ConfigError(f"document {spec!r}: {why}. Expected DATASET:NUMBER, such as web:81, or the id of one.")
    return SampleId(*hits[0])


def _rows(run: AskedRun, number: int, document: int) -> list[int]:
    return [row["index"] for row in run.documents.rows_of(number, document)]


def _is_packed(run: AskedRun, number: int) -> bool:
    return run.documents.corpus(number).packing is not None


def _split(run: AskedRun, closure: list[Any], named: list[SampleId], by: str) -> tuple[list[SampleId], list[SampleId]]:
    """Return the documents to mask, and the samples to block; one of each dataset must be left."""
    masked = [SampleId(n, d) for n, d in closure if by == "document" and _is_packed(run, n)]
    rows = [SampleId(n, row) for n, d in closure if (n, d) not in masked for row in _rows(run, n, d)]
    blocked = list(dict.fromkeys([*named, *rows]))
    known = blocked_by_hand((*run.evidence.log.blocks, *run.evidence.log.forgets))
    for number in {sample.dataset for sample in blocked}:
        indices = {s.index for s in [*known, *blocked] if s.dataset == number}
        if run.plan is not None:
            part_substitute(run.plan.parts, number, run.plan.seed, next(iter(indices)), indices)
    return masked, blocked


def _check_size(run: AskedRun, closure: list[Any], *, grew: bool) -> None:
    for number in {number for number, _ in closure}:
        many = sum(n == number for n, _ in closure)
        known = run.documents.corpus(number)
        held = known.packing or known.names
        total = many + 1 if held is None else held.num_documents
        if many >= total:
            raise ConfigError(
                f"all {total} documents of dataset {run.datasets[number]!r} would be forgotten: take the dataset out "
                "of a new run instead, or give it weight 0."
            )
        if grew and many > _MOST_SHARE * total:
            raise ConfigError(
                f"{many} of {total} documents of dataset {run.datasets[number]!r} share that text, more than 1 %: it "
                "may be a licence or a menu. Ask for more tokens (--same-text 200), or pass --yes."
            )


def _steps(run: AskedRun, number: int, rows: Iterable[int], document: int | None) -> list[int]:
    return [row["step"] for row in deliveries_of(run, number, rows, document)]


def _without_known(log: Log, request: ForgetRequest) -> ForgetRequest:
    """Return what the log does not ask for already."""
    samples = {sample for forget in log.forgets for sample in forget.samples}
    documents = {document for forget in log.forgets for document in forget.documents}
    return replace(
        request,
        samples=tuple(s for s in request.samples if s not in samples),
        documents=tuple(d for d in request.documents if d not in documents),
    )


def _forgetting(
    run: AskedRun, log: Log, closure: list[Any], asked: set[Any], request: ForgetRequest, runs: Sequence[Any]
) -> Forgetting:
    names, steps = run.datasets, len(run.history)
    there = [saved for saved in clean_checkpoints(log) if Path(saved.where).exists()]
    clean = there[-1] if there and request.step is not None else None
    newest = max((saved.step for saved in log.checkpoints), default=0)
    reached = max(steps, newest)
    replay = 0 if request.step is None else max(reached - (0 if clean is None else clean.step), 0)
    notes = []
    if request.step is None:
        notes.append("no step used any of it: nothing has to be replayed; it is left out from the next attempt on")
    elif not log.checkpoints:
        notes.append(
            "no checkpoint of this run has a waybill: the replay begins at step 0. Needed are checkpoints saved with "
            "ledger.checkpoint(path, state), or stamped: lading model stamp CKPT --run RUN"
        )
    elif clean is None:
        notes.append(f"it was used before the first clean checkpoint that is there: all {reached} steps are replayed")
    return Forgetting(
        documents=[
            {"dataset": names[n], "document": d, "id": run.documents.name(n, d), "asked": (n, d) in asked}
            for n, d in closure
        ],
        samples=[{"dataset": names[s.dataset], "index": s.index} for s in request.samples],
        first_step=request.step,
        clean=None if clean is None else {"where": clean.where, "step": clean.step},
        replay_steps=replay,
        share=replay / reached if reached else 0.0,
        tainted=tainted_checkpoints(log),
        derived=derived_models(run, log, runs),
        notes=notes,
    )


def tainted_checkpoints(log: Log) -> list[dict[str, Any]]:
    """Return the checkpoints of a run that learned from what must be forgotten, and whether they are still there."""
    found: list[CheckpointRecord] = [s for s in log.checkpoints if tainted_by(log, s.attempt, s.step) is not None]
    return [{"where": s.where, "step": s.step, "is_there": Path(s.where).exists()} for s in found]


def derived_models(run: AskedRun, log: Log, runs: Sequence[str | os.PathLike[str]] = ()) -> list[str]:
    """Return the models of other runs, merges and conversions whose family has a tainted checkpoint of this run."""
    own = run.evidence.description.run
    places = Places([*(runs or [run.evidence.run.path.parent])], run.evidence.run.path)
    found = []
    below = dict(found for root in places.roots for found in waybills_below(root))
    for checkpoint in sorted(below):
        waybill = below[checkpoint]
        if waybill.moment is not None and waybill.moment.run == own:
            continue
        moments = [m.moment for m in Family(places, checkpoint, waybill).members.values() if m.moment is not None]
        mine = [m for m in moments if m.run == own and m.attempt in log.launches]
        if any(tainted_by(log, m.attempt, m.step) is not None for m in mine):
            found.append(str(checkpoint))
    return found


def _check_ended(run: AskedRun) -> None:
    """Refuse a run that goes on: what it uses after the request would be called clean."""
    running = [r.folder.attempt for r in run.evidence.ranks if r.begun is not None and lives(r.folder, r.begun)]
    if running:
        raise ConfigError(
            f"attempt {running[0]} of this run is running, and would go on using what is to be forgotten. End it, then "
            "ask again; --dry-run (dry_run=True) says now what it takes."
        )


def _record(run: AskedRun, request: ForgetRequest) -> None:
    folder, sha256 = run.evidence.run, run.evidence.description.sha256
    clean_up(folder.log)  # what a killed one left
    fields = {
        "samples": [list(sample) for sample in request.samples],
        "documents": [list(document) for document in request.documents],
        "reason": request.reason,
        "step": request.step,
    }
    repeat_until_first(folder, lambda: read_log(folder, sha256), "forget", fields)
