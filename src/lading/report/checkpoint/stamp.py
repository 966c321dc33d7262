"""Waybills that are made late: of a checkpoint saved without one, a merge, a conversion, weights from elsewhere."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lading.errors import ConfigError, LadingError, LedgerError
from lading.ledger.description import KnownRun
from lading.ledger.events import pending_at
from lading.ledger.opening import checked_mark
from lading.ledger.run_folder import RunFolder
from lading.ledger.waybill.covered import MARKS, files_of
from lading.ledger.waybill.stamping import bases_of, prepared, record_checkpoint, trained_waybill, write_waybill
from lading.ledger.waybill.waybill import CONVERSION, MADE, MERGE, TRAINING, Moment, Waybill, checkpoint_path, own_path
from lading.report.history import largest
from lading.report.run import Run
from lading.report.snapshot import read_evidence
from lading.runtime.fields import Origin
from lading.runtime.paths import local_path

_MARK = ("run", "launch", "attempt", "step")
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
    made = made or (TRAINING if run is not None else None)
    _check_made(made, run, parents)
    named, known = bases_of(parents), None if run is None else KnownRun(RunFolder(local_path(run)))
    waybill = Waybill(str(made), {}, parents=named)
    if known is not None:
        waybill = trained_waybill(known, _moment(checkpoint, known.folder, step, attempt), named)
    content, waybill = prepared(checkpoint, waybill)
    write_waybill(checkpoint, content)
    with contextlib.suppress(OSError):  # a run that may only be read
        if known is not None:
            record_checkpoint(known, checkpoint, waybill)
    return waybill


def _check_made(made: str | None, run: Any, parents: Sequence[Any]) -> None:
    if made not in MADE:
        raise ConfigError(f"--made is {made!r}: expected {', '.join(MADE[1:])}, or --run with the run that made it.")
    if (made == TRAINING) != (run is not None):
        raise ConfigError(f"--made {made} {'needs' if run is None else 'takes no'} --run: only training has a run.")
    if made in (MERGE, CONVERSION) and not parents:
        raise ConfigError(f"a {made} is made from something: pass --from with each checkpoint that went into it.")


def _moment(checkpoint: Path, folder: RunFolder, step: int | None, attempt: int | None) -> Moment:
    evidence = read_evidence(folder.path)
    if step is None:
        mark = state_inside(checkpoint)
        if mark["run"] != evidence.description.run:
            raise LedgerError(
                f"{checkpoint} was saved in run {mark['run']}, and {folder.path} is another. Give that one."
            )
    else:
        asked = [(n, a.launch.start_step, a.last_step) for n, a in evidence.attempts.items() if attempt in (None, n)]
        reached = [n for n, first, last in asked if first <= step <= (first if last is None else last + 1)]
        if not reached:
            which = "no attempt" if attempt is None else f"no attempt {attempt}"
            raise LedgerError(f"{which} of {folder.path} stood at step {step}. See `lading show` for those it has.")
        of = {"run": evidence.description.run, "launch": evidence.launches[reached[-1]].sha256}
        mark = {**of, "attempt": reached[-1], "step": step}
    moment = Moment(**mark, pending=pending_at(folder.rank(mark["attempt"], 0), mark["step"]))
    at = evidence.at(moment)
    launch, update = at.launches[moment.attempt], largest(Run.of(at).steps.applied["update"])
    return dataclasses.replace(moment, update=update, plan_sha256=launch.plan_sha256)


def state_inside(checkpoint: Path) -> Mapping[str, Any]:
    """Return run, launch, attempt and step of the loader's state that was saved in a checkpoint."""
    for path in (*(checkpoint / mark for mark in MARKS), *files_of(checkpoint).values()):
        for state in _states(path):
            mark = checked_mark(state)
            if mark is not None and mark["run"]:
                return mark
    raise LedgerError(
        f"{checkpoint} holds no state of a Lading loader: expected one in a JSON file, or in a file of torch.save. "
        "Say where training stood: --step N, with the next step when it was saved."
    )


def _states(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with open(path, "rb") as file:
            head = file.read(4)
        if head[:1] == b"{" and path.stat().st_size <= _LARGEST_STATE:
            origin = Origin(path, LedgerError)
            yield from _found(origin.json(origin.read(_LARGEST_STATE)))
        elif head == b"PK\x03\x04":
            from lading.report.checkpoint.torch import content  # here: only files of torch.save need it

            yield from _found(content(path))
    except (LadingError, OSError, ImportError):
        return  # no state that can be read


def _found(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every state inside nested values."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            if all(key in item for key in _MARK):
                yield item
            waiting += item.values()
        elif isinstance(item, list | tuple):
            waiting += item
