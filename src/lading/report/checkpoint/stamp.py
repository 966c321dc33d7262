"""Waybills that are made late: of a checkpoint saved without one, a merge, a conversion, weights from elsewhere."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lading.errors import LadingError, LedgerError
from lading.ledger.description import KnownRun
from lading.ledger.events import pending_at
from lading.ledger.opening import checked_mark
from lading.ledger.run_folder import RunFolder
from lading.ledger.waybill.covered import MARKS, files_of
from lading.ledger.waybill.stamping import bases_of, prepared, record_checkpoint, trained_waybill, write_waybill
from lading.ledger.waybill.waybill import TRAINING, Moment, Waybill, checkpoint_path, own_path
from lading.report.evidence import Evidence
from lading.report.history import largest
from lading.report.run import Run
from lading.report.snapshot import read_evidence
from lading.runtime.fields import Origin
from lading.runtime.paths import local_path

_MARK = {"run", "launch", "attempt", "step"}
_LARGEST_STATE = 1 << 26


def stamp(
    path: str | Path,
    *,
    run: str | Path | None = None,
    made: str | None = None,
    parents: Sequence[str | Path] = (),
    step: int | None = None,
    attempt: int | None = None,
    replace: bool = False,
) -> Waybill:
    """Make the waybill of a checkpoint that has none, and return it.

    Args:
        path: Folder or file of the checkpoint.
        run: Folder of the run that made it; where it stood is read from the state inside.
        made: ``merge``, ``conversion`` or ``import``, where no run made it.
        parents: The checkpoints that it was made from; each has a waybill.
        step: The next step when it was saved, where no state is inside.
        attempt: Of which attempt; None: the newest that reached the step.
        replace: Whether a waybill that is there is replaced: children that name it will not know it any more.
    """
    checkpoint = checkpoint_path(path)
    if own_path(checkpoint).exists() and not replace:
        raise LedgerError(
            f"{checkpoint} has a waybill, and children may name it by its SHA-256. See `lading model show`, or pass "
            "--replace to make another."
        )
    known = None if run is None else KnownRun(RunFolder(local_path(run)))
    waybill = Waybill(made or ("" if known is None else TRAINING), {}, parents=bases_of(parents))
    if known is not None:
        trained = trained_waybill(known, _moment(checkpoint, known.folder, step, attempt), waybill.parents)
        waybill = dataclasses.replace(trained, made=waybill.made)
    waybill = prepared(checkpoint, waybill)
    write_waybill(checkpoint, waybill)
    if known is not None:
        with contextlib.suppress(OSError):  # a run that may only be read
            record_checkpoint(known, checkpoint, waybill)
    return waybill


def _moment(checkpoint: Path, folder: RunFolder, step: int | None, attempt: int | None) -> Moment:
    """Return where training stood: as the state inside says, or before a step of an attempt."""
    evidence = read_evidence(folder.path)
    moment = Moment(**state_inside(checkpoint)) if step is None else _standing(evidence, step, attempt)
    if moment.run != evidence.description.run:
        raise LedgerError(f"{checkpoint} was saved in run {moment.run}, and {folder.path} is another. Give that one.")
    moment = dataclasses.replace(moment, pending=pending_at(folder.rank(moment.attempt, 0), moment.step))
    at = evidence.at(moment)
    launch, update = at.launches[moment.attempt], largest(Run.of(at).steps.applied["update"])
    return dataclasses.replace(moment, update=update, plan_sha256=launch.plan_sha256)


def _standing(evidence: Evidence, step: int, attempt: int | None) -> Moment:
    """Return the moment before a step of an attempt, or of the newest that reached it."""
    for number, launch in sorted(evidence.launches.items(), reverse=True):
        moment = Moment(evidence.description.run, launch.sha256, number, step)
        with contextlib.suppress(LedgerError):
            if attempt in (None, number) and evidence.at(moment):
                return moment
    which = "no attempt" if attempt is None else f"no attempt {attempt}"
    raise LedgerError(f"{which} of {evidence.run.path} stood at step {step}. See `lading show` for those it has.")


def state_inside(checkpoint: Path) -> Mapping[str, Any]:
    """Return run, launch, attempt and step of the loader's state that was saved in a checkpoint."""
    for path in (*(checkpoint / mark for mark in MARKS), *files_of(checkpoint).values()):
        for mark in map(checked_mark, _states(_content(path))):
            if mark is not None and mark["run"]:
                return mark
    raise LedgerError(
        f"{checkpoint} holds no state of a Lading loader: expected one in a JSON file, or in a file of torch.save. "
        "Say where training stood: --step N, with the next step when it was saved."
    )


def _content(path: Path) -> Any:
    """Return the values in a file of JSON or of torch.save; None of others."""
    with contextlib.suppress(LadingError, OSError, ImportError):
        with open(path, "rb") as file:
            head = file.read(4)
        if head[:1] == b"{":
            origin = Origin(path, LedgerError)
            return origin.json(origin.read(_LARGEST_STATE))
        if head == b"PK\x03\x04":
            from lading.report.checkpoint.torch import content  # here: only files of torch.save need it

            return content(path)
    return None


def _states(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every state inside nested values."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            if item.keys() >= _MARK:
                yield item
            waiting += item.values()
        elif isinstance(item, list | tuple):
            waiting += item
