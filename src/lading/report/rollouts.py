"""What became of every rollout: rollouts, uses and fates of history, joined by the rollout's number.

rollouts ─┐
uses     ─┼─▶ one row a rollout: prompt, policy, reward, its updates, its fate
fates    ─┘

applied     an update of history used it             stale, filtered, lost    training said so
open        made, not decided                        lost                     open when its process was killed
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.ledger.begun import lives
from lading.ledger.tables import APPLIED
from lading.report.evidence import Evidence, no_rows
from lading.report.history import NOTHING, Columns, History, taken
from lading.report.table import Table, schema_of
from lading.runtime.arrow import numbers
from lading.runtime.fields import INT64_MAX

FATES = (APPLIED, "stale", "filtered", "open", "lost")
_OPEN, _LOST = FATES.index("open"), FATES.index("lost")
ROLLOUTS = schema_of(
    "rollout int64, group int64, dataset int32, name string, index int64, policy int64, tokens int32, "
    "reward float32, advantage float32, seconds float32, fate string, reason string, uses int64, "
    "first_update int64, last_update int64, age int64, step int64, attempt int32, rank int32"
)
_FLOATS = ("reward", "advantage", "seconds")


class RolloutHistory:
    """The rollouts of a run, as columns."""

    def __init__(self, evidence: Evidence, history: History) -> None:
        self._evidence, self._history = evidence, history

    @functools.cached_property
    def names(self) -> NDArray[Any]:
        """The name of the dataset of each of ``made``."""
        return self._evidence.labels(self.made["dataset"])

    @functools.cached_property
    def made(self) -> Columns:
        """Every rollout that history holds, by number."""
        found = self._owned("rollouts")
        return taken(found, np.argsort(found["rollout"], kind="stable"))

    @functools.cached_property
    def uses(self) -> Columns:
        """Every use by a step that all ranks committed, in the order of updates."""
        found = self._owned("uses")
        applied = self._history.applied
        known = _pairs(applied["attempt"], applied["step"])
        kept = np.isin(_pairs(found["attempt"], found["step"]), known)
        return taken(found, kept)

    @functools.cached_property
    def fates(self) -> Columns:
        """Every row of ``fates`` that history holds."""
        return self._owned("fates")

    def places(self, rollouts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where in ``made`` some rollouts are; -1 where none has the number."""
        have = self.made["rollout"]
        at = np.minimum(np.searchsorted(have, rollouts), max(len(have) - 1, 0))
        return np.where(have[at] == rollouts, at, -1) if len(have) else np.full(len(rollouts), -1)

    @functools.cached_property
    def standing(self) -> Columns:
        """What became of each of ``made``: ``fate`` (a place in ``FATES``), ``uses``, ``first`` and ``last`` update."""
        count = len(self.made["rollout"])
        uses, first, last = np.zeros(count, np.int64), np.full(count, INT64_MAX), np.full(count, NOTHING)
        at = self.places(self.uses["rollout"])
        good = at >= 0
        np.add.at(uses, at[good], 1)
        np.minimum.at(first, at[good], self.uses["update"][good])
        np.maximum.at(last, at[good], self.uses["update"][good])
        fate = np.where(self._is_held(), _OPEN, _LOST)
        reason = np.full(count, None, dtype=object)
        dropped = self.places(self.fates["rollout"])
        good = dropped >= 0
        words = {word: number for number, word in enumerate(FATES)}
        fate[dropped[good]] = [words[word] for word in self.fates["fate"][good]]
        reason[dropped[good]] = self.fates["reason"][good]
        fate[uses > 0] = 0
        return {"fate": fate, "reason": reason, "uses": uses, "first": first, "last": last}

    def table(self, chosen: NDArray[np.bool_] | None = None) -> Table:
        """Return one row a rollout; ``chosen``: only of those of ``made``."""
        made, standing = (c if chosen is None else taken(c, chosen) for c in (self.made, self.standing))
        used, policy = standing["uses"] > 0, made["policy"]
        found: Columns = {
            **made,
            "name": self._evidence.labels(made["dataset"]),
            "fate": np.array(FATES, dtype=object)[standing["fate"]],
            "reason": standing["reason"],
            "uses": standing["uses"],
            "first_update": np.where(used, standing["first"], 0),
            "last_update": np.where(used, standing["last"], 0),
            "age": np.where(used & (policy != NOTHING), standing["first"] - policy, 0),
        }
        known = {
            "policy": policy != NOTHING,
            "first_update": used,
            "last_update": used,
            "age": used & (policy != NOTHING),
            **{name: ~np.isnan(made[name]) for name in _FLOATS},
        }
        return Table.of_columns(found, ROLLOUTS, known)

    @functools.cached_property
    def notes(self) -> dict[tuple[int, int, int], str]:
        """What is to be said of a slot of a step, by attempt, step and slot: its rollout, its policy and its age."""
        uses, at = self.uses, self.places(self.uses["rollout"])
        policy = self.made["policy"][np.maximum(at, 0)] if len(self.made["policy"]) else np.full(len(at), NOTHING)
        places = zip(*(uses[name].tolist() for name in ("attempt", "step", "slot")), strict=True)
        ages = zip(uses["rollout"].tolist(), policy.tolist(), (uses["update"] - policy).tolist(), strict=True)
        return {
            place: f"rollout {rollout}" + (f", policy {made}, age {age}" if made != NOTHING else "")
            for place, (rollout, made, age) in zip(places, ages, strict=True)
        }

    def noted(self, table: Table, **fixed: int | None) -> Table:
        """Return rows with a slot, and what is to be said of it where nothing is yet; ``fixed``: attempt and step."""
        rows = [{**row, **fixed} for row in table.dicts()]
        said = [row["note"] or self.notes.get((row["attempt"], row["step"], row["slot"]), "") for row in rows]
        place = table.arrow.schema.get_field_index("note")
        return Table(table.arrow.set_column(place, "note", pa.array(said, pa.string())))

    def _owned(self, name: str) -> Columns:
        """Return the rows of a table that history owns, as columns; what is null is ``NOTHING``, NaN or None."""
        evidence = self._evidence
        table = pa.concat_tables([no_rows(name), *evidence.closed(name), *evidence.tails(name)])
        columns = {field.name: _values(table[field.name], field.type) for field in table.schema}
        owned = np.zeros(len(table), dtype=bool)
        for span in evidence.spans:
            stop = INT64_MAX if span.stop is None else span.stop
            inside = (columns["step"] >= span.start) & (columns["step"] < stop)
            owned |= inside & (columns["attempt"] == span.attempt)
        return taken(columns, owned)

    def _is_held(self) -> NDArray[np.bool_]:
        """Say of each rollout whether the process that could decide about it lives, or ended in order."""
        leaf = self._evidence.leaf
        held = [
            rank.folder.rank
            for rank in (() if leaf is None else self._evidence.attempts[leaf].ranks)
            if rank.begun is not None and (rank.begun.ended_in_order or lives(rank.folder, rank.begun))
        ]
        return np.isin(self.made["rank"], held)


def _pairs(attempts: NDArray[Any], steps: NDArray[Any]) -> NDArray[Any]:
    """Return pairs as one column that can be looked up: there are few attempts."""
    return np.rec.fromarrays([attempts.astype(np.int64), steps.astype(np.int64)])


def _values(values: pa.ChunkedArray, kind: pa.DataType) -> NDArray[Any]:
    if pa.types.is_string(kind):
        return np.array(values.to_pylist(), dtype=object)
    found, known = numbers(values)
    if pa.types.is_floating(kind):
        return np.where(known, found, np.nan)
    return np.where(known, found.astype(np.int64), NOTHING)
