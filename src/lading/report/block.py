"""Ask that samples be used no more: recorded now, honoured from the next attempt's first step.

code:93412       one sample
code:100-199     several
step:48213       every sample that the step held
"""

from __future__ import annotations

import re

from lading.errors import ConfigError, LedgerError
from lading.identity import SampleId
from lading.ledger.limits import readable
from lading.ledger.lineage import blocked_by_hand
from lading.ledger.log import read_log, repeat_until_first
from lading.order.substitute import part_substitute
from lading.report.asked import AskedRun
from lading.runtime.files import clean_up

_SPEC = re.compile(r"(?P<name>.+):(?P<first>\d+)(?:-(?P<last>\d+))?")


def block(run: AskedRun, specs: list[str], reason: str = "") -> list[SampleId]:
    """Record that samples are to be blocked; return those that were not blocked before."""
    plan = run.plan
    if plan is None and not run.evidence.has_rows("rollouts"):  # books of rollouts have a plan of their own
        raise ConfigError(
            "this run has no plan: nothing decides what comes instead of a blocked sample. Take the samples out of the "
            "dataset, or train from a Lading loader."
        )
    known = blocked_by_hand((*run.evidence.log.blocks, *run.evidence.log.forgets))
    wanted = [sample for spec in specs for sample in samples_of(run, spec)]
    new = [s for s in dict.fromkeys(wanted) if s not in known]
    for dataset in {s.dataset for s in new}:
        blocked = {s.index for s in [*known, *new] if s.dataset == dataset}
        if plan is not None:
            part_substitute(plan.parts, dataset, plan.seed, next(iter(blocked)), blocked)  # one must be left
    clean_up(run.evidence.run.log)  # what a killed block left
    if new:
        _record(run, new, reason)
    return new


def _record(run: AskedRun, samples: list[SampleId], reason: str) -> None:
    folder, sha256 = run.evidence.run, run.evidence.description.sha256
    fields = {"samples": [list(sample) for sample in samples], "reason": readable(reason)}
    try:
        repeat_until_first(folder, lambda: read_log(folder, sha256), "block", fields)
    except LedgerError:
        raise
    except OSError as error:
        raise LedgerError(
            f"{folder.log} cannot be written: {error.strerror or error}. Nothing is blocked. Make the folder writable, "
            "or block the samples where the run is written."
        ) from error


def samples_of(run: AskedRun, spec: str) -> list[SampleId]:
    """Return the samples that ``dataset:index``, ``dataset:first-last`` or ``step:number`` names."""
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise ConfigError(f"{spec!r} names no sample: expected dataset:index, dataset:first-last or step:number.")
    name, first = match["name"], int(match["first"])
    last = int(match["last"]) if match["last"] else first
    if name == "step" and "step" not in run.datasets:
        steps = [run.step(step).samples for step in range(first, last + 1)]
        return [SampleId(row["dataset"], row["index"]) for table in steps for row in table]
    number = run.number_of(name)
    if run.plan is not None:
        part = run.plan.parts.part(number)
        end = part.first + part.samples
        if not part.first <= first <= last < end:
            raise ConfigError(f"{spec!r} is outside the dataset: {part.name!r} has samples {part.first} to {end - 1}.")
    return [SampleId(number, index) for index in range(first, last + 1)]
