"""``run.json``: what a run is, for people and programs that have nothing else; and the plans beside it.

Both are written once and never changed: the log's first record knows the
SHA-256 of ``run.json``, a launch that of its plan.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from lading.errors import ConfigError, CorruptLedgerError, LedgerError, ResumeError
from lading.ledger.launch import RUN, TIME
from lading.ledger.limits import now_seconds, readable
from lading.ledger.log import Log, read_log, sha256_of_bytes
from lading.ledger.run_folder import LEDGER_VERSION, RunFolder
from lading.order import plan_json
from lading.order.plan import Plan
from lading.order.plan_json import check_order_version
from lading.runtime.fields import Fields, FieldTable, Origin, optional, shown
from lading.runtime.files import create_aside, json_bytes

RECORDS = ("digest", "names", "content")
Setting = str | int | float | bool | None
MOST_STEP_SAMPLES = 1 << 22
_MOST_DATASETS = 1 << 20


@dataclass(frozen=True)
class Description:
    """What a run is.

    Attributes:
        run: Its id, 128 random bits; the folder may move.
        lading: Version of Lading that made it.
        created: Seconds since 1970.
        record: ``digest``, ``names`` or ``content``.
        datasets: Names of the datasets, by number; empty where a number is unused.
        lengths: Samples of each dataset, by number, where no plan says it; 0: unknown. Empty: nothing is known.
        config: What the user said of the run: settings by name.
        sha256: Of the file; "" before it is written.
    """

    run: str
    lading: str
    created: float
    record: str
    datasets: tuple[str, ...]
    lengths: tuple[int, ...] = ()
    config: Mapping[str, Setting] = field(default_factory=dict)
    sha256: str = ""

    def to_bytes(self) -> bytes:
        """Return the content of ``run.json``."""
        left_out = {"sha256", *(name for name in ("lengths", "config") if not getattr(self, name))}
        fields = {name: value for name, value in vars(self).items() if name not in left_out}
        return json_bytes({"ledger_version": LEDGER_VERSION, **fields})

    @property
    def named_datasets(self) -> list[tuple[int, str]]:
        """Number and name of each dataset; numbers that are unused have no name."""
        return [(number, name) for number, name in enumerate(self.datasets) if name]


def new_description(
    lading: str,
    record: str,
    datasets: tuple[str, ...],
    lengths: tuple[int, ...] = (),
    config: Mapping[str, Any] | None = None,
) -> Description:
    """Return the description of a run that begins now."""
    said = {readable(name): _setting(value) for name, value in (config or {}).items()}
    return Description(secrets.token_hex(16), lading, now_seconds(), record, datasets, lengths, said)


def _setting(value: Any) -> Setting:
    """Return a setting as ``run.json`` keeps it: numbers, flags and texts; anything else as its text."""
    kept = value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))
    return value if kept else readable(value)


class KnownRun:
    """A run that is looked at again and again: what it is is read once, and of its log what was added since."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._log: Log | None = None

    @cached_property
    def description(self) -> Description:
        """What it is; that never changes."""
        return read_description(self.folder)

    def log(self) -> Log:
        """Return its log as it is now; by one thread at a time."""
        self._log = read_log(self.folder, self.description.sha256, self._log)
        return self._log


def read_description(run: RunFolder) -> Description:
    """Read ``run.json``."""
    path = run.description
    if not path.exists():
        raise LedgerError(
            f"{run.path} holds no run: expected {path} in it. Give the folder that was passed to Ledger(...)."
        )
    _check_inside(run)
    origin = Origin(path, CorruptLedgerError, "Restore it from a copy; the Parquet parts beside it stay readable.")
    content = origin.read()
    version = origin.record(content).integer("ledger_version", low=0)
    if version != LEDGER_VERSION:
        older = "It was written before the first release; keep the Lading that wrote it to read it"
        newer = "Update Lading to read it"
        raise LedgerError(
            f"{path}: the ledger has version {version}, this Lading reads version {LEDGER_VERSION}. "
            f"{older if version < LEDGER_VERSION else newer}, or give a new run a folder of its own."
        )
    return _description_from(content, origin)


def _description_from(content: bytes, origin: Origin) -> Description:
    values = origin.record(content).each(_FIELDS)
    del values["ledger_version"]
    found = Description(**values, sha256=sha256_of_bytes(content))
    named = [name for _, name in found.named_datasets]
    if len(set(named)) < len(named):
        origin.refuse("datasets", "a name for each", f"two that are called {max(named, key=named.count)!r}")
    return found


def _config(fields: Fields, key: str) -> dict[str, Setting]:
    said = fields.record(key)
    for name in said:
        if isinstance(said.value(name), dict | list):
            said.refuse(name, "a number, a text, true, false or null")
    return {name: said.value(name) for name in said}


_FIELDS: FieldTable = {
    "ledger_version": Fields.integer,
    "run": RUN,
    "lading": Fields.text,
    "created": TIME,
    "record": partial(Fields.text, choices=RECORDS),
    "datasets": partial(Fields.texts, most=_MOST_DATASETS),
    "lengths": optional(Fields.integers, (), low=0, most=_MOST_DATASETS),
    "config": optional(_config, {}),
}


def describe(run: RunFolder, fresh: Description) -> Description:
    """Create ``run.json``, or read the one that is there; names that could not be read again are never written."""
    run.path.mkdir(parents=True, exist_ok=True)
    if run.description.exists():
        return read_description(run)
    content = fresh.to_bytes()
    _description_from(content, Origin("names and lengths of the datasets", ConfigError, "Give them others."))
    if not create_aside(run.description, content):
        return read_description(run)
    _check_inside(run)
    return replace(fresh, sha256=sha256_of_bytes(content))


def _check_inside(run: RunFolder) -> None:
    """Refuse links that leave a run: nothing is read or written where a run that came from elsewhere points."""
    if (link := run.link_out()) is not None:
        raise LedgerError(
            f"{shown(str(link))} is a symbolic link that leads out of the run: expected files of the run itself. "
            "Replace it by what it should hold; the folder of the run may be a link."
        )


def check_plan(run: RunFolder, log: Log, plan: Plan | None, *, allow_changed_plan: bool) -> None:
    """Refuse a plan that the run does not know."""
    if not log.launches:
        return
    known = [launch for launch in log.launches.values() if launch.plan is not None]
    if bool(known) != (plan is not None):
        kinds = ["a run without a plan", "a planned run"]
        raise ResumeError(
            f"{run.path} is {kinds[bool(known)]}, and now {kinds[plan is not None]} is to continue it. "
            "Give the new one a folder of its own."
        )
    if plan is None or allow_changed_plan or any(launch.plan == plan.fingerprint for launch in known):
        return
    newest = known[-1]
    changes = read_plan(run, newest.plan or "", newest.plan_sha256).differences(plan)
    resized = any(change.startswith("global batch size") for change in changes)
    planned = " Batch sizes that grow as planned are batch_schedule=[(0, 16), ...] of one loader." if resized else ""
    raise ResumeError(
        f"the plan differs from the one of {run.path} in {len(changes)} place{'s' * (len(changes) != 1)}: "
        f"{', '.join(changes)}. The record would mix two orders, and samples of this epoch would repeat or be missed. "
        f"Pass allow_changed_plan=True to continue anyway, or give this run a folder of its own.{planned}"
    )


def keep_plan(run: RunFolder, plan: Plan) -> str:
    """Write a plan, events left out, unless it is there; return the SHA-256 of its file."""
    path, content = run.plan(bounded(plan, run.path).fingerprint), json_bytes(plan_json.to_dict(plan, ()))
    if not path.exists():
        path.parent.mkdir(exist_ok=True)  # on disk before a launch names it: a claim comes first, and syncs the run
        for _, weights in plan.sample_weights:  # before the plan, which names them
            create_aside(path.with_name(weights.file_name), weights.content())
        create_aside(path, content)
    found = path.read_bytes()
    if found != content:  # written by another Lading, or for other workers: they may read further ahead
        read_plan(run, plan.fingerprint, sha256_of_bytes(found))
    return sha256_of_bytes(found)


def read_plan(run: RunFolder, fingerprint: str, sha256: str | None) -> Plan:
    """Return a plan that was followed; refuse a file that is not the one a launch knows."""
    path = run.plan(fingerprint)
    origin = Origin(path, CorruptLedgerError, "Restore it from a copy.")
    content = origin.read()
    if sha256_of_bytes(content) != sha256:
        origin.refuse("", f"the SHA-256 {str(sha256)[:16]}... that the launch record knows", "another: it was altered")
    try:
        written = origin.json(content)
        check_order_version(path, Fields(written, origin).value("order_version"), LedgerError)
        plan = Plan.from_json(written, beside=path.parent)
        for _, weights in plan.sample_weights:
            _ = weights.ends  # refuses a file that is missing, or another
    except LedgerError:
        raise
    except Exception as error:  # whatever the bytes are, the file is named
        raise CorruptLedgerError(f"{path} holds no plan ({error}). Restore it from a copy.") from error
    if plan.fingerprint != fingerprint:
        origin.refuse("", f"a plan with fingerprint {fingerprint}", plan.fingerprint)
    return bounded(plan, path)


def bounded(plan: Plan, path: Path) -> Plan:
    """Return a plan whose steps readers can look at name by name; refuse others."""
    if plan.clock.largest_batch > MOST_STEP_SAMPLES:
        raise LedgerError(
            f"{path}: a step of this plan has {plan.clock.largest_batch} samples, and a ledger keeps steps of at most "
            f"{MOST_STEP_SAMPLES}. Take smaller steps, and several of them for one update."
        )
    return plan
