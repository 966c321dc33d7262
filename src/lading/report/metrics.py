"""Every number that training committed beside the loss, along history: of each step what its lowest rank said."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.report.evidence import AttemptEvidence, Evidence, read_part
from lading.report.history import History
from lading.report.table import Table, schema_of
from lading.runtime.arrow import numbers

METRIC = schema_of("attempt int32, step int64, value float64")
_READ = ["step", "metrics"]


def metrics(evidence: Evidence, history: History) -> dict[str, Table]:
    """Return attempt, step and value of every metric, by its name, in the order of names."""
    found: dict[str, list[pa.Table]] = {}
    kept = history.kept
    for span in evidence.spans:
        steps = np.sort(kept["step"][kept["attempt"] == span.attempt])
        for name, table in _of_attempt(evidence, evidence.attempts[span.attempt], steps).items():
            found.setdefault(name, []).append(table)
    return {name: Table(pa.concat_tables(found[name])) for name in sorted(found)}


def _of_attempt(evidence: Evidence, attempt: AttemptEvidence, kept: NDArray[np.int64]) -> dict[str, pa.Table]:
    if not attempt.ranks or not len(kept):
        return {}
    rank = min(attempt.ranks, key=lambda rank: rank.folder.rank)
    read = [read_part(*file, columns=_READ) for file in evidence.intact_files("batches", [rank])]
    table = pa.concat_tables([*read, rank.tail_table("batches").select(_READ)]).combine_chunks()
    if not len(table) or table["metrics"].null_count == len(table):
        return {}
    steps, maps = numbers(table["step"])[0], table["metrics"].chunk(0)
    sizes = np.diff(maps.offsets.to_numpy())
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    names = maps.keys.slice(first, last - first).dictionary_encode()
    codes, values = names.indices.to_numpy(), maps.items.slice(first, last - first).to_numpy(zero_copy_only=False)
    owners = np.repeat(steps, sizes)
    place = np.minimum(np.searchsorted(kept, owners), len(kept) - 1)
    inside = kept[place] == owners
    return {
        name: _along(attempt.number, owners[chosen], values[chosen])
        for code, name in enumerate(names.dictionary.to_pylist())
        if (chosen := inside & (codes == code)).any()
    }


def _along(attempt: int, steps: NDArray[np.int64], values: NDArray[np.float64]) -> pa.Table:
    order = np.argsort(steps, kind="stable")
    columns = {"attempt": np.full(len(steps), attempt), "step": steps[order], "value": values[order]}
    return Table.of_columns(columns, METRIC).arrow
