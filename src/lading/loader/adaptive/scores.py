"""How a loader's plan adapts, from what the user asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import LoaderError, PlanError
from lading.loader.agreeing import agree_on_decision
from lading.loader.note import Observed
from lading.loader.request import LoaderRequest
from lading.loader.sample_values import by_source, values_of
from lading.order.adaptive.chosen import ChosenChunks
from lading.order.adaptive.curriculum import Curriculum, Levels, joined
from lading.order.adaptive.graded import GradedSamples, Rescore
from lading.order.adaptive.protocol import Adaptation
from lading.order.plan import Plan
from lading.source.reader import Reader


def planned_adaptation(request: LoaderRequest, readers: Sequence[Reader], batch: int) -> Adaptation | None:
    """Return how a loader's plan adapts, or None."""
    chunks, curriculum = request.chunks, request.mixture
    if chunks is not None and chunks.choose is not None:
        if isinstance(curriculum, Curriculum):
            raise PlanError(
                "chunks are chosen and a curriculum cannot be used: expected chunks of one size, each once a pass."
            )
        return ChosenChunks()
    if not isinstance(curriculum, Curriculum):
        return None
    if request.batch_schedule:
        raise PlanError("a curriculum and batch_schedule were both given: expected one batch size. Leave one out.")
    return GradedSamples(curriculum.planned(scores_of(request, readers, curriculum.scores), batch, request.drop_last))


def resumable(request: LoaderRequest, readers: Sequence[Reader], plan: Plan) -> Plan:
    """Return a plan that knows what the events of a state may name: the difficulties of ``Curriculum.later``."""
    graded = plan.adaptation
    if not isinstance(request.mixture, Curriculum) or not isinstance(graded, GradedSamples):
        return plan
    later = tuple(_levels_of(request, readers, graded, scores) for scores in request.mixture.later)
    return replace(plan, adaptation=replace(graded, later=later))


def rescore(
    engine: Observed, request: LoaderRequest, readers: Sequence[Reader], scores: Any, reason: str = ""
) -> Rescore | None:
    """Give samples other difficulties from the next epoch on that cannot have been prefetched."""
    plan, graded = engine.plan, engine.plan.adaptation
    if not isinstance(graded, GradedSamples):
        raise LoaderError("this loader has no curriculum to rescore. Pass mixture=Curriculum(scores).")
    levels = _levels_of(request, readers, graded, scores)
    at = plan.locate(engine.step + plan.lookahead_steps)
    event = graded.rescoring(plan, plan.epoch_start(at.epoch + bool(at.epoch_step)), levels, reason)
    decided = {} if event is None else {"acts at": event.step, "scores": event.levels.sha256}
    agree_on_decision(engine, "a rescoring", decided)
    if event is not None:
        engine.add_event(event)
    return event


def _levels_of(request: LoaderRequest, readers: Sequence[Reader], graded: GradedSamples, scores: Any) -> Levels:
    """Return other scores as levels of the sizes that a plan's curriculum has."""
    return Levels.of(scores_of(request, readers, scores), graded.spec.levels.sizes.tolist())


def scores_of(request: LoaderRequest, readers: Sequence[Reader], scores: Any) -> NDArray[np.float64]:
    """Return the difficulty of each sample of all sources together, in whichever way it is given."""
    by_name = by_source(scores, list(request.sources), "scores")
    if set(by_name) != set(request.sources):
        raise PlanError(f"scores are given for {', '.join(by_name)}: expected {', '.join(request.sources)}.")
    named = list(zip(request.sources, readers, strict=True))
    found = {name: values_of(reader, by_name[name], f"the scores of {name!r}") for name, reader in named}
    return joined(found, {name: len(reader.source) for name, reader in named})
