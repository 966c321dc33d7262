"""Are the rows those that were sealed?

A seal holds a line for each rank that ended: how, how many rows it stored, their
SHA-256. The line is compared with ``begun``, and ``begun`` with the rows; the log holds
the seals, and whoever kept its head holds the log.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from lading.errors import CorruptLedgerError
from lading.ledger.begun import lives
from lading.ledger.manifest import PartFile
from lading.ledger.parts import described, pieces_of
from lading.ledger.row_hash import rows_hash
from lading.ledger.seal import NOTHING, newest_seal, next_seal, unheld
from lading.ledger.tables import TABLES
from lading.report.evidence import Evidence, RankEvidence, read_part
from lading.report.verify.verdict import Progress, Verdict
from lading.runtime.fields import listed


def check_seal(evidence: Evidence, verdict: Verdict, progress: Progress) -> None:
    """Compare the rows of each rank with what it said it stored, and that with the seals; say what is in none."""
    ranks = evidence.ranks
    broken = {damage.file for damage in evidence.damage}
    for done, rank in enumerate(ranks):
        progress(0.9 + 0.1 * done / len(ranks), f"rows of attempt {rank.folder.attempt}, rank {rank.folder.rank}")
        if not any(path in broken for path in (rank.folder.manifest, *(rank.folder.path / f.file for f in rank.files))):
            _check_rows(rank, verdict)
    if not evidence.log.problems:
        _check_chain(evidence, verdict)
        _say_unsealed(evidence, verdict)


def _check_rows(rank: RankEvidence, verdict: Verdict) -> None:
    begun, folder = rank.begun, rank.folder
    if begun is None or begun.rows is None or rank.tail.damaged:
        return
    tail = {name: rank.tail_table(name) for name in TABLES}
    try:
        found = rows_hash(pieces_of(rank.manifest.parts, partial(_counted, rank), tail))
    except CorruptLedgerError as error:
        verdict.fault(str(error), file=folder.path)
        return
    if found != (begun.rows, begun.rows_sha256):
        text = f"its {found.rows} rows are not the {begun.rows} that {folder.begun} knows by their SHA-256"
        verdict.fault(f"{folder.path} was altered: {text}", file=folder.path)


def _counted(rank: RankEvidence, file: PartFile) -> pa.Table:
    """Return the rows of a closed file; refuse other counts of the manifest: readers pass files over by them."""
    table = read_part(rank, file)
    wrong = [name for name, value in described(file.table, table).items() if getattr(file, name) != value]
    if wrong:
        raise CorruptLedgerError(f"{rank.folder.manifest} was altered: {file.file} has another {', '.join(wrong)}.")
    return table


def _check_chain(evidence: Evidence, verdict: Verdict) -> None:
    """Work every seal out from what the ranks say of themselves that it holds; the first that differs is named."""
    before = NOTHING
    for number, seal in sorted(evidence.log.seals.items()):
        launches = {attempt: launch for attempt, launch in evidence.launches.items() if attempt < seal.stop}
        attempts = unheld(before, launches)
        ranks = {(attempt, rank.folder.rank): rank for attempt in attempts for rank in evidence.attempts[attempt].ranks}
        added = (key for key in ranks if key[1] < launches[key[0]].world_size and seal.holds(*key))
        fresh = {key: begun for key in added if not before.holds(*key) and (begun := ranks[key].begun) is not None}
        if next_seal(before, launches, fresh) != seal:
            record, which = evidence.run.record(number), f"attempt {listed(attempts)}" if attempts else "no attempt"
            folder = evidence.run.begun(attempts[0]) if attempts else record
            step = launches[attempts[0]].start_step if attempts else None
            text = f"what the ranks of {which} recorded is not what {record} sealed"
            verdict.fault(f"{folder}: {text}: their rows, or how they ended, were changed", file=folder, step=step)
            return
        before = seal


def _say_unsealed(evidence: Evidence, verdict: Verdict) -> None:
    """Note the steps that no seal holds, of ranks that run no more."""
    newest, steps = newest_seal(evidence.log), []
    for rank in evidence.ranks:
        last, launch = rank.last_step(), evidence.launches.get(rank.folder.attempt)
        if last is None or launch is None or rank.begun is None or newest.holds(launch.attempt, rank.folder.rank):
            continue
        if not lives(rank.folder, rank.begun):
            steps += [launch.start_step, last]
    verdict.unsealed = (min(steps), max(steps)) if steps else None
