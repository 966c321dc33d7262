"""Take a snapshot of a run, and name every file that is missing, altered or not where it belongs.

    begun ─▶ tail ─▶ manifest ─▶ begun again      of each rank; repeated where the writer closed a part in between

Readers need no lock: a part that is closed in between is seen once.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lading.errors import ConfigError, CorruptLedgerError
from lading.ledger.begun import OPENING, RUNNING, Begun, read_begun
from lading.ledger.description import Description, read_description, read_plan
from lading.ledger.launch import Launch
from lading.ledger.lineage import parent_of
from lading.ledger.log import Log, read_log
from lading.ledger.manifest import read_manifest
from lading.ledger.run_folder import RankFolder, RunFolder
from lading.ledger.tail import read_tail
from lading.order.plan import Plan
from lading.report.evidence import AttemptEvidence, Damage, Evidence, RankEvidence

_SNAPSHOT_TURNS = 5


def read_evidence(path: Path, attempt: int | None = None) -> Evidence:
    """Take a snapshot of a run.

    Args:
        attempt: The attempt whose history is asked for; None: the newest with a row.
    """
    run = RunFolder(path)
    description = read_description(run)
    log = read_log(run, description.sha256)
    damage = [Damage(problem.file, None, problem.text) for problem in log.problems]
    damage += _stray_attempts(run, log)
    plans = _plans(run, log, damage)
    attempts = {n: _attempt_evidence(run, description, launch, damage) for n, launch in sorted(log.launches.items())}
    damage += _orphans(run, log)
    leaf = attempt
    if attempt is None:
        leaf = max([n for n, found in attempts.items() if not found.is_void], default=None)
    elif attempt not in attempts:
        raise ConfigError(f"{path} has no attempt {attempt}: it has {_listed(attempts) or 'none'}.")
    return Evidence(run, description, log, attempts, leaf, damage, plans)


def _listed(attempts: Iterable[int]) -> str:
    numbers = list(attempts)
    return f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else "".join(map(str, numbers))


def _stray_attempts(run: RunFolder, log: Log) -> list[Damage]:
    """Return attempts on disk that no record of the log launched; a claim alone is what a crash leaves."""
    return [
        Damage(run.attempt(n), None, f"is there, and no record of {run.log} launched it")
        for n in run.attempts()
        if n not in log.launches and run.ranks(n)
    ]


def _plans(run: RunFolder, log: Log, damage: list[Damage]) -> dict[tuple[str | None, str | None], Plan]:
    """Return the plans that were followed, by fingerprint and SHA-256; those that cannot be used are damage."""
    found = {}
    for launch in log.launches.values():
        key = launch.plan, launch.plan_sha256
        if launch.plan is None or key in found:
            continue
        try:
            found[key] = read_plan(run, launch.plan, launch.plan_sha256)
        except CorruptLedgerError as error:
            damage.append(Damage(run.plan(launch.plan), None, f"cannot be used ({error})"))
    return found


def _orphans(run: RunFolder, log: Log) -> list[Damage]:
    """Return launches whose parent is not the attempt that they name."""
    found = []
    for launch in log.launches.values():
        parent = launch.parent
        if parent is None or launch.kind in ("root", "unknown") or log.problems:
            continue
        known = parent_of(launch, log.launches)
        if known is None or known.sha256 != parent.launch:
            text = f"names attempt {parent.attempt} as the parent of attempt {launch.attempt}, which it is not"
            found.append(Damage(run.log, launch.start_step, text))
    return found


def _attempt_evidence(
    run: RunFolder, description: Description, launch: Launch, damage: list[Damage]
) -> AttemptEvidence:
    found: list[Damage] = []
    folders = run.ranks(launch.attempt)
    if not folders and not run.claims(launch.attempt):
        found.append(Damage(run.attempt(launch.attempt), launch.start_step, "is missing: the log launched it"))
    ranks = tuple([_rank_evidence(folder, description, launch, found) for folder in folders])
    damage += found
    return AttemptEvidence(launch, ranks, bool(found) or any(rank.tail.damaged or rank.tail.missing for rank in ranks))


def _rank_evidence(folder: RankFolder, description: Description, launch: Launch, damage: list[Damage]) -> RankEvidence:
    problems: list[Damage] = []
    for _ in range(_SNAPSHOT_TURNS):
        problems = []
        begun = _begun_of(folder, problems)
        rank = RankEvidence(folder, begun, read_tail(folder.tail), read_manifest(folder))
        if begun.is_in(folder.begun) if begun is not None else _begun_of(folder, []) is None:
            break
    problems += _begun_problems(rank, description, launch)
    problems += _manifest_problems(rank)
    problems += _tail_problems(rank, launch)
    problems += _missing_files(rank)
    damage += problems
    return rank


def _begun_of(folder: RankFolder, problems: list[Damage]) -> Begun | None:
    if not folder.begun.exists():
        problems.append(Damage(folder.begun, None, f"is missing: {folder.path} is there"))
        return None
    try:
        return read_begun(folder.begun)
    except CorruptLedgerError as error:
        problems.append(Damage(folder.begun, None, f"cannot be used ({error})"))
        return None


def _begun_problems(rank: RankEvidence, description: Description, launch: Launch) -> list[Damage]:
    begun, folder = rank.begun, rank.folder
    if begun is None:
        return []
    wanted = (description.run, launch.attempt, folder.rank, launch.sha256)
    if (begun.run, begun.attempt, begun.rank, begun.launch) != wanted:
        return [Damage(folder.begun, None, "belongs to another launch: it was altered, or comes from somewhere else")]
    if folder.rank >= launch.world_size:
        return [Damage(folder.begun, None, f"is of rank {folder.rank}, and the attempt has {launch.world_size} ranks")]
    if begun.state == OPENING and not rank.is_empty:
        return [Damage(folder.begun, None, "says that nothing was recorded yet, and there are rows: it was altered")]
    if begun.state != OPENING and not folder.path.exists():
        return [Damage(folder.path, launch.start_step, "is missing: the rank began")]
    if begun.state == RUNNING and not rank.tail.present:
        return [Damage(folder.tail, rank.next_step(launch), "is missing: the rank did not end in order")]
    return []


def _manifest_problems(rank: RankEvidence) -> list[Damage]:
    path, manifest, begun = rank.folder.manifest, rank.manifest, rank.begun
    found = [Damage(path, None, problem) for problem in manifest.problems]
    if begun is None or not rank.folder.path.exists():
        return found
    lines = len(manifest.lines)
    if begun.compacting is not None and begun.compacting == (lines, manifest.sha256(lines)) and not manifest.torn:
        return found  # a compaction put it in place and died before it could say so
    if lines < begun.lines:
        found.append(Damage(path, None, f"has {lines} lines, {rank.folder.begun} knows {begun.lines}: lines are gone"))
    elif manifest.sha256(begun.lines) != begun.manifest:
        found.append(Damage(path, None, f"was altered: {rank.folder.begun} knows another SHA-256 of it"))
    elif lines > begun.lines + (0 if begun.has_ended else 1) or (begun.has_ended and manifest.torn):
        found.append(Damage(path, None, f"has more lines than the {begun.lines} that {rank.folder.begun} knows"))
    if begun.has_ended and manifest.end != begun.state:
        text = f"says that the rank is {begun.state}, and the manifest ends with {manifest.end}: it was altered"
        found.append(Damage(rank.folder.begun, None, text))
    return found


def _tail_problems(rank: RankEvidence, launch: Launch) -> list[Damage]:
    tail, path, step = rank.tail, rank.folder.tail, rank.next_step(launch)
    if tail.generation is None or rank.manifest.compacted:  # what a compaction left of a tail is in its parts
        return []
    if (tail.launch, tail.rank) != (launch.sha256, rank.folder.rank):
        return [Damage(path, step, "belongs to another launch or rank")]
    if tail.generation > rank.parts:
        text = f"knows {rank.parts} parts, the tail follows part {tail.generation - 1}: lines are missing"
        return [Damage(rank.folder.manifest, step, text)]
    if tail.generation < rank.parts - 1:
        return [Damage(path, step, f"is older than part {rank.parts - 1}: it was replaced by an older copy")]
    if rank.closed and tail.records and tail.generation >= rank.parts:
        return [Damage(path, step, "holds rows, and the rank says that it had ended")]
    return []


def _missing_files(rank: RankEvidence) -> list[Damage]:
    found = []
    for file in rank.files:
        path = rank.folder.path / file.file
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            found.append(Damage(path, file.first_step, "is missing"))
        elif size != file.size:
            found.append(Damage(path, file.first_step, f"has {size} bytes, {file.size} were written"))
    return found
