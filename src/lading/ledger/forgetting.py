"""What must be forgotten: what the next attempt leaves out, and which states learned from it.

    forget  ─▶ log ─▶ next attempt: blocks and masks from its first step on
                      a state behind the first use, of an attempt that did not leave it out: tainted, refused

A state is judged by the steps that it has behind it, not by its name: whatever line of attempts it comes from.
"""

from __future__ import annotations

from collections.abc import Iterable

from lading.errors import ResumeError
from lading.ledger.launch import MOST_STEPS, Launch
from lading.ledger.lineage import Ancestry, lineage
from lading.ledger.log import CheckpointRecord, ForgetRequest, Log
from lading.order.event import Block, Mask, ResumeBase, event_from_dict
from lading.order.masking import all_masks, masked_by
from lading.order.plan import Plan


def masks_to_honour(forgets: Iterable[ForgetRequest], plan: Plan, step: int) -> tuple[Mask, ...]:
    """Return the mask events that a plan lacks, to act from a step on."""
    known = {
        (dataset, document)
        for dataset, documents in masked_by(all_masks(plan.masked, plan.events, plan.parts))
        for document in documents
    }
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
    samples, documents = set(), set()
    for event in map(event_from_dict, launch.events):
        if isinstance(event, Block):
            samples |= {(event.dataset, index) for index in event.indices}
        elif isinstance(event, Mask):
            documents |= {(event.dataset, document) for document in event.documents}
        elif isinstance(event, ResumeBase):
            samples |= {(dataset, index) for dataset, indices in event.blocked for index in indices}
            documents |= {(dataset, document) for dataset, found in event.masked for document in found}
    return samples >= set(forget.samples) and documents >= set(forget.documents)


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
