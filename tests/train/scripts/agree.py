"""Two ranks: means per dataset on torch and JAX, counts of two trackers, and reweightings that differ."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
import torch.distributed as dist

from lading import Chunks, Curriculum, Mixture
from lading.errors import MixtureError, WorldError
from lading.identity import World
from lading.identity.world import JaxStore, Turn
from lading.kits.adaptive.policy.chunks import GrowWhileImproving, LearningValue
from lading.kits.adaptive.policy.mixture import FollowLosses, SteerToShares
from lading.ledger import BatchTracker
from lading.loader.torch.loader import Loader
from lading.order import Plan
from lading.source.columns import Columns
from lading.train.metrics import per_dataset_mean
from lading.train.scheduler import MixtureScheduler


def means(rank: int) -> dict[str, list]:
    """Return the means of a full and of a padded batch, by framework."""
    plan = Plan.make({"code": 50, "prose": 30, "web": 7}, batch_size=16, seed=3)
    found: dict[str, list] = {"torch": [], "jax": []}
    for step in (0, plan.epoch_steps(0) - 1):
        bill = plan.bill(step, world=World(rank, 2))
        values = np.where(bill.is_padding, 1e6, bill.idx).astype(np.float32)
        found["torch"].append(per_dataset_mean(torch.from_numpy(values), bill))
        found["jax"].append(per_dataset_mean(jax.numpy.asarray(values), bill))
    return found


def quarrels(rank: int) -> list[str]:
    """Return the errors of ranks that ask for different things; the state must not change."""
    data = {"code": Columns(x=np.arange(900)), "prose": Columns(x=np.arange(90))}
    loader = Loader(data, 8, weights=[3, 1])
    it = iter(loader)
    next(it)
    errors = []
    state = loader.state_dict()
    for weights in ([1, 1 + rank], [1, 1] if rank else [1, -1]):
        try:
            loader.reweight(weights)
        except (WorldError, MixtureError) as error:
            errors.append(f"{type(error).__name__}: {error}")
        assert loader.state_dict() == state
    loader.reweight([1, 1])
    return errors


class Stumbles(GrowWhileImproving):
    """A policy that raises on one rank."""

    def __call__(self, trained):
        if dist.get_rank() == 1:
            raise KeyError("only here")
        return 7


def policy_quarrel(rank: int) -> str:
    """Return the error of ranks whose policies of weights decide differently; check that one that raises stops all."""
    loader = Loader(Columns(x=np.arange(96)), 4, chunk_batches=Chunks(2, resize=Stumbles()))
    list(loader)
    with pytest.raises(KeyError if rank else WorldError, match="only here"):
        loader.validated(1.0)
    assert not loader.plan.events
    policy = FollowLosses(every_steps=2, smoothing=0)
    policy.observe({"code": 1.0 + rank, "prose": 2.0})
    data = {"code": Columns(x=np.arange(900)), "prose": Columns(x=np.arange(90))}
    mixed = Loader(data, 8, mixture=Mixture([3, 1], policy=policy))
    try:
        list(mixed)
    except WorldError as error:
        assert not mixed.plan.events and mixed.step == 2
        return str(error)
    return ""


def chunk_quarrels(rank: int) -> list[str]:
    """Return the errors of ranks whose policies of chunks decide differently; nothing must change on either."""
    errors = []
    resize, choose = GrowWhileImproving(), LearningValue()
    for chunks in (Chunks(2, resize=resize), Chunks(2, choose=choose, ahead=0)):
        loader = Loader(Columns(x=np.arange(96)), 4, chunk_batches=chunks)
        for metric in (3.0, 2.0, 1.0):
            list(loader)
            loader.validated(metric, loss=metric)
        list(loader)
        before = loader.plan.events, loader.engine.notes.observers[-1].last_step
        if chunks.choose is not None:
            choose.groups = {number: [float(number == 4 + rank), 0.0, 0] for number in range(6)}
        try:
            loader.validated(9.0 if rank and chunks.resize is not None else 0.5)
        except WorldError as error:
            errors.append(str(error))
        assert (loader.plan.events, loader.engine.notes.observers[-1].last_step) == before
    errors.append(policy_quarrel(rank))
    scored = Loader(Columns(x=np.arange(96)), 4, mixture=Curriculum("x"))
    try:
        scored.rescore(np.arange(96) * (1 - 2 * rank), "measured")
    except WorldError as error:
        errors.append(str(error))
    assert not scored.plan.events
    return errors


def steered() -> list[int]:
    """Return the counts that a scheduler sees after three steps of 2 x 8 samples."""
    data = {"code": Columns(x=np.arange(900)), "prose": Columns(x=np.arange(90))}
    tracker = BatchTracker()
    loader = Loader(data, 8, weights=[3, 1], tracker=tracker)
    scheduler = MixtureScheduler(loader, tracker, SteerToShares({"code": 1, "prose": 1}, every_steps=2))
    it = iter(loader)
    for _ in range(3):
        next(it)
        scheduler.step()
    assert scheduler.counts.tolist() == loader.plan.counts(3)
    return scheduler.counts.tolist()


def through_jax(world: World) -> list[str]:
    """Return how comparisons end that go through JAX's coordinator: one with a difference, three without."""
    store = JaxStore(jax._src.distributed.global_state.client)
    found = []
    for seed in (world.rank, 7, 7, 7):
        try:
            found.append(str(Turn(store, world, "the seed", 20).take({"seed": seed})))
        except WorldError as error:
            found.append(str(error))
    return found


def main(folder: Path, port: str) -> None:
    """Run all of it and write what was found."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=rank)
    found = {"means": means(rank), "errors": quarrels(rank), "counts": steered()}
    found["chunks"] = chunk_quarrels(rank)
    found["jax"] = through_jax(World(rank, 2))
    (folder / f"found-{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
