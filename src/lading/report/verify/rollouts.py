"""Are the rollouts accounted for: each made once, used or dropped and not both, by an update that was not before it?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lading.report.evidence import Evidence
from lading.report.history import NOTHING, History
from lading.report.rollouts import RolloutHistory
from lading.report.verify.verdict import Verdict
from lading.runtime.blocks.progress import Progress

I64 = NDArray[np.int64]


def check_rollouts(evidence: Evidence, verdict: Verdict, progress: Progress) -> None:
    """Check that made = applied + stale + filtered + open + lost, each rollout in one of them."""
    if not any(evidence.has_rows(name) for name in ("rollouts", "uses", "fates")):
        return
    progress(0.95, "rollouts")
    history = History(evidence)
    found = RolloutHistory(evidence, history)
    made, uses, fates = found.made, found.uses, found.fates
    used, dropped = found.places(uses["rollout"]), found.places(fates["rollout"])
    _say(verdict, evidence, made["rollout"], _again(made["rollout"]), "is in history twice", made["step"])
    _say(verdict, evidence, uses["rollout"], used < 0, "was used, and nobody made it", uses["step"])
    _say(verdict, evidence, fates["rollout"], dropped < 0, "was dropped, and nobody made it", fates["step"])
    both = np.isin(fates["rollout"], uses["rollout"]) | _again(fates["rollout"])
    _say(verdict, evidence, fates["rollout"], both, "was decided twice", fates["step"])
    known = used >= 0
    policy = np.where(known, made["policy"][np.maximum(used, 0)] if len(made["policy"]) else 0, NOTHING)
    early = (policy != NOTHING) & (uses["update"] < policy)
    _say(verdict, evidence, uses["rollout"], early, "was used by an update before its policy", uses["step"])
    again = _again(uses["rollout"] * (1 << 20) + uses["step"] % (1 << 20))
    _say(verdict, evidence, uses["rollout"], again, "is in a step twice", uses["step"])
    _check_groups(evidence, found, verdict)
    _check_steps(evidence, history, found, verdict)


def _check_groups(evidence: Evidence, found: RolloutHistory, verdict: Verdict) -> None:
    """A group has one prompt and one policy."""
    made = found.made
    order = np.argsort(made["group"], kind="stable")
    same = made["group"][order][1:] == made["group"][order][:-1]
    for name, what in (("dataset", "prompt"), ("index", "prompt"), ("policy", "policy")):
        values = made[name][order]
        wrong = np.flatnonzero(same & (values[1:] != values[:-1]))
        if len(wrong):
            place = order[wrong[0]]
            text = f"{evidence.run.path}: group {made['group'][place]} has more than one {what}"
            verdict.fault(text, file=evidence.run.path, step=int(made["step"][place]))
            return


def _check_steps(evidence: Evidence, history: History, found: RolloutHistory, verdict: Verdict) -> None:
    """Every applied step has as many uses as samples."""
    applied, uses = history.applied, found.uses
    counts = np.zeros(len(applied["step"]), dtype=np.int64)
    for attempt in np.unique(uses["attempt"]).tolist():
        mine = np.flatnonzero(applied["attempt"] == attempt)
        np.add.at(counts, mine[np.searchsorted(applied["step"][mine], uses["step"][uses["attempt"] == attempt])], 1)
    wrong = np.flatnonzero(counts != applied["samples"])
    if len(wrong):
        step, place = int(applied["step"][wrong[0]]), int(wrong[0])
        verdict.fault(
            f"{evidence.run.path}: step {step} used {applied['samples'][place]} rollouts, and {counts[place]} uses of "
            f"it are recorded ({len(wrong)} such step{'s' * (len(wrong) > 1)})",
            file=evidence.run.path,
            step=step,
        )


def _again(values: I64) -> NDArray[np.bool_]:
    """Return where a number is that was there before."""
    order = np.argsort(values, kind="stable")
    again = np.zeros(len(values), dtype=bool)
    again[order[1:]] = values[order][1:] == values[order][:-1]
    return again


def _say(verdict: Verdict, evidence: Evidence, rollouts: I64, wrong: NDArray[np.bool_], what: str, steps: I64) -> None:
    places = np.flatnonzero(wrong)
    if len(places):
        more = f" ({len(places)} such rollouts)" if len(places) > 1 else ""
        text = f"{evidence.run.path}: rollout {rollouts[places[0]]} {what}{more}"
        verdict.fault(text, file=evidence.run.path, step=int(steps[places[0]]))
