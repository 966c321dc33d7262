"""Which attempts made the newest model: the tree of attempts, who owns which steps, and which states must not go on.

    attempt 0   ├──────────────┤ x                 steps 0..109, killed
    attempt 1             ├─────────┤ x            resumed from a state of attempt 0 at 90
    attempt 2        ├──────────────────▶          resumed from a state of attempt 0 at 70
    history     ├────┼──────────────────▶          0..69 of attempt 0, 70.. of attempt 2

A leaf owns its steps from its first on, its parent those before the step it
resumed at, and so on to the root. A replay undoes nothing: its parent keeps
all its steps, and steps that were used twice are in history twice.

What must be forgotten is left out by the next attempt, and a state that learned from it is refused:

    forget  ─▶ log ─▶ next attempt: blocks and masks from its first step on
                      a state behind the first use, of an attempt that did not leave it out: tainted

A state is judged by the steps that it has behind it, not by its name: whatever line of attempts it comes from.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lading.errors import ResumeError
from lading.identity import SampleId
from lading.ledger.launch import MOST_STEPS, Launch, Parent, Range
from lading.ledger.log import BlockRequest, CheckpointRecord, ForgetRequest, Log
from lading.order.event import Block, Mask, event_from_dict
from lading.order.plan import Plan
from lading.order.substitute import all_masks, by_dataset, stated

_MOST_PENDING = 4096  # no more wait at a time; a file from elsewhere may claim any


@dataclass(frozen=True)
class Span:
    """The steps ``[start, stop)`` of history that one attempt owns; ``stop`` None means all it recorded."""

    attempt: int
    start: int
    stop: int | None

    def __contains__(self, step: int) -> bool:
        return self.start <= step and (self.stop is None or step < self.stop)


def parent_of(launch: Launch, launches: Mapping[int, Launch]) -> Launch | None:
    """Return the attempt that another one continues, where it is in this log."""
    if launch.parent is None or launch.kind in ("root", "unknown"):
        return None
    found = launches.get(launch.parent.attempt)
    return found if found is not None and found.attempt < launch.attempt else None


def root_of(launch: Launch, launches: Mapping[int, Launch]) -> int:
    """Return the attempt that began the line of an attempt."""
    while (parent := parent_of(launch, launches)) is not None:
        launch = parent
    return launch.attempt


def lineage(launches: Mapping[int, Launch], leaf: int, stop: int | None = None) -> list[Span]:
    """Return who owns which steps of the history that ends with an attempt, in the order they were trained on.

    Args:
        launches: The launches by attempt.
        leaf: The attempt.
        stop: The first of its steps that is not asked for; None: all it recorded.
    """
    spans: list[Span] = []
    launch: Launch | None = launches[leaf]
    while launch is not None:
        spans.append(Span(launch.attempt, launch.start_step, stop))
        stop = None if launch.kind == "replay" or launch.parent is None else launch.parent.step
        launch = parent_of(launch, launches)
    return spans[::-1]


def pending_of(
    launches: Mapping[int, Launch], spans: Iterable[Span], last: Iterable[Range] = ()
) -> list[tuple[int, int]]:
    """Return (attempt, step) of what was delivered and used by no update when a checkpoint was taken.

    Args:
        launches: The launches by attempt.
        spans: A history, in the order it was trained on.
        last: What waited when the checkpoint was taken that the history ends with.
    """
    path, found = list(spans), list[tuple[int, int]]()
    waited = [*(launches[child.attempt].pending for child in path[1:]), last]
    for span, ranges in zip(path, waited, strict=False):
        stops = ((first, stop if span.stop is None else min(stop, span.stop)) for first, stop in ranges)
        steps = (step for first, stop in stops for step in range(max(first, span.start), stop))
        found += [(span.attempt, step) for step in itertools.islice(steps, _MOST_PENDING)]
    return found


@dataclass(frozen=True)
class Ancestry:
    """What an attempt continues: its kind, as ``Launch.kind`` has it, and its parent."""

    kind: str
    parent: Parent | None = None


@dataclass(frozen=True)
class AncestryRules:
    """Decide what an attempt continues, from what was loaded and what the log knows.

    Attributes:
        run: Id of the run.
        log: Its log.
        folder: Name of the run's folder, for errors.
        whole_until: Gives the largest step that all ranks of an attempt recorded.
        allow_unknown: Whether a state of an attempt that this folder does not know may be continued.
    """

    run: str
    log: Log
    folder: str
    whole_until: Callable[[Launch], int | None]
    allow_unknown: bool = False

    def decide(self, step: int, loaded: Mapping[str, Any] | None, replayed: Launch | None = None) -> Ancestry:
        """Return what an attempt that starts at a step continues.

        Args:
            step: Its first step.
            loaded: What the state says that was loaded, or None.
            replayed: The attempt of this process that is gone back behind without loading a state.
        """
        if replayed is not None:
            return Ancestry("replay", Parent(self.run, replayed.sha256, replayed.attempt, step))
        if loaded is None or not loaded["run"]:
            return self._without_state(step)
        if loaded["run"] != self.run:
            return self._foreign(loaded)
        return self._resumed(loaded)

    def follow(self, step: int, before: Mapping[str, Any]) -> Ancestry:
        """Return what an attempt continues whose loader was recorded before, in this process, without a loaded state.

        Args:
            step: Its first step.
            before: Run, attempt and launch of the attempt before, and the step after its last.
        """
        if before["run"] != self.run or self.log.by_hash(before["launch"]) is None:
            return self._without_state(step)
        return Ancestry("resume" if step >= before["step"] else "replay", _parent({**before, "step": step}))

    def _without_state(self, step: int) -> Ancestry:
        if step == 0 or not self.log.launches:
            return Ancestry("root")
        held = self._holder_of(step - 1) or self._nearest(step)
        if held is None:
            return Ancestry("root")
        return Ancestry("inferred", Parent(self.run, held.sha256, held.attempt, max(step, held.start_step)))

    def _holder_of(self, step: int) -> Launch | None:
        """Return the attempt that holds a step whole, on the newest line that has it."""
        launches = self.log.launches
        for leaf in sorted(launches, reverse=True):
            for span in reversed(lineage(launches, leaf)):
                if step in span:
                    last = self.whole_until(launches[span.attempt])
                    if last is not None and last >= step:
                        return launches[span.attempt]
        return None

    def _nearest(self, step: int) -> Launch | None:
        """Return the newest attempt with a row that began before a step; the steps between will be missing."""
        found = [n for n, launch in self.log.launches.items() if launch.start_step < step]
        return next((self.log.launches[n] for n in sorted(found, reverse=True) if self._has_rows(n)), None)

    def _has_rows(self, attempt: int) -> bool:
        return self.whole_until(self.log.launches[attempt]) is not None

    def _foreign(self, loaded: Mapping[str, Any]) -> Ancestry:
        if self.log.launches:
            raise ResumeError(
                f"the loaded state was taken in run {loaded['run']}, and {self.folder} is run {self.run}: its "
                "history would mix two runs. Give the run that continues from this state a new folder, or open the "
                "folder that the state was taken in."
            )
        return Ancestry("root", _parent(loaded))

    def _resumed(self, loaded: Mapping[str, Any]) -> Ancestry:
        parent = self.log.by_hash(loaded["launch"])
        if parent is None or parent.attempt != loaded["attempt"]:
            if self.allow_unknown:
                return Ancestry("unknown", _parent(loaded))
            known = ", ".join(f"{n} ({launch.sha256[:8]})" for n, launch in sorted(self.log.launches.items())[-4:])
            raise ResumeError(
                f"the loaded state was taken in attempt {loaded['attempt']} with launch {loaded['launch'][:8]} of this "
                f"run, which {self.folder} does not know: it has {known or 'no attempts'}. It is an older copy, or "
                "one that was continued on its own. Open the folder that the state was taken in, or pass "
                "Ledger(..., allow_unknown_parent=True): verify will then call the steps before unknown."
            )
        if loaded["step"] < parent.start_step:
            raise ResumeError(
                f"the loaded state is at step {loaded['step']} of attempt {parent.attempt}, which began at step "
                f"{parent.start_step}: expected a step from there on. The state is damaged; take an older checkpoint."
            )
        return Ancestry("resume", _parent(loaded))


def _parent(loaded: Mapping[str, Any]) -> Parent:
    return Parent(loaded["run"], loaded["launch"], loaded["attempt"], loaded["step"])


def blocked_by_hand(blocks: Iterable[BlockRequest | ForgetRequest]) -> dict[SampleId, str]:
    """Return the samples that were blocked by hand, with the reason, in the order they were asked for."""
    blocked: dict[SampleId, str] = {}
    for request in blocks:
        for sample in request.samples:
            blocked.setdefault(sample, request.reason)
    return blocked


def masks_to_honour(forgets: Iterable[ForgetRequest], plan: Plan, step: int) -> tuple[Mask, ...]:
    """Return the mask events that a plan lacks, to act from a step on."""
    known = set(left_out(all_masks(plan.masked, plan.events, plan.parts)))
    wanted: dict[tuple[int, str], dict[int, None]] = {}
    for forget in forgets:
        for dataset, document in forget.documents:
            if (dataset, document) not in known:
                wanted.setdefault((dataset, forget.reason), {})[document] = None
    return tuple(Mask(step, dataset, tuple(documents), reason) for (dataset, reason), documents in wanted.items())


def tainted_by(log: Log, attempt: int, step: int) -> ForgetRequest | None:
    """Return what a state of an attempt before a step may have learned from and must not have; None: nothing."""
    spans = lineage(log.launches, attempt)
    for forget in log.forgets:
        for span in spans:
            stop = step if span.stop is None else min(span.stop, step)
            if forget.step is not None and forget.step < stop and not leaves_out(log.launches[span.attempt], forget):
                return forget
    return None


def leaves_out(launch: Launch, forget: ForgetRequest) -> bool:
    """Say whether an attempt began with everything left out that is to be forgotten."""
    events = [event_from_dict(event) for event in launch.events]
    samples, documents = set(left_out(stated(Block, events))), set(left_out(stated(Mask, events)))
    return samples >= set(forget.samples) and documents >= set(forget.documents)


def left_out(events: Iterable[Block | Mask]) -> Iterator[tuple[int, int]]:
    """Yield dataset and sample of some blocks, or dataset and document of some masks."""
    return ((dataset, number) for dataset, numbers in by_dataset(events) for number in numbers)


def clean_checkpoints(log: Log) -> list[CheckpointRecord]:
    """Return the checkpoints that learned from nothing that must be forgotten, the latest step last."""
    clean = [saved for saved in log.checkpoints if tainted_by(log, saved.attempt, saved.step) is None]
    return sorted(clean, key=lambda saved: (saved.step, saved.attempt))


def refuse_tainted(log: Log, ancestry: Ancestry) -> None:
    """Refuse to continue a state that learned from what must be forgotten; name the one to take instead."""
    parent = ancestry.parent
    if parent is None or ancestry.kind not in ("resume", "inferred", "replay"):
        return
    goes_back = ancestry.kind == "replay"  # nothing is undone: the model has all of its steps behind it
    forget = tainted_by(log, parent.attempt, MOST_STEPS if goes_back else parent.step)
    if forget is None:
        return
    clean = clean_checkpoints(log)
    instead = f"{clean[-1].where} (step {clean[-1].step})" if clean else "none: begin at step 0, without a state"
    many = len(forget.samples) + len(forget.documents)
    state = "what this process trained," if goes_back else f"the loaded state, step {parent.step} of"
    raise ResumeError(
        f"{state} attempt {parent.attempt}, is tainted: {many} sample{'s' * (many != 1)} or documents that must be "
        f"forgotten were used at step {forget.step}{f' ({forget.reason})' if forget.reason else ''}. Resume from the "
        f"newest clean checkpoint: {instead}."
    )
