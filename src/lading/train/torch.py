"""Train in plain PyTorch, on one process or many, and know afterwards what every update was made of.

    torchrun --nproc-per-node 2 script.py, or python script.py
    step         batch, bill ─▶ loss × bill.loss_weight ─▶ gradients
    update       one or more steps ─▶ ledger: applied, or skipped where the gradients were not finite
    checkpoint   model, optimizer, random numbers and loader state in one file; the ledger is on disk before it
    resume       on any number of processes, with the very next batch

The loop is short on purpose: copy it and change what you need.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from lading.errors import ResumeError
from lading.identity import Bill
from lading.ledger.ledger import Ledger
from lading.ledger.waybill.stamping import remove_stale
from lading.loader.torch.loader import Loader
from lading.runtime.fields import brief
from lading.runtime.files import clean_up, written_aside
from lading.runtime.paths import local_path
from lading.runtime.random_state import capture, packed, restore, unpacked
from lading.train.fates import Fates
from lading.train.repeating import RepeatingLoader

CHECKPOINT = "checkpoint.pt"


@contextlib.contextmanager
def process_group() -> Iterator[None]:
    """Join the processes of ``torchrun`` inside the block; a plain script stays alone."""
    if "RANK" not in os.environ:
        yield
        return
    distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
        distributed.barrier()  # gloo aborts where one process leaves while another still talks to it
    finally:
        distributed.destroy_process_group()


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: Loader,
    losses_of: Callable[[nn.Module, Any], torch.Tensor],
    run_dir: str | os.PathLike[str],
    *,
    updates: int,
    steps_per_update: int = 1,
    save_every: int = 100,
    max_norm: float = 1.0,
    base: Sequence[str | os.PathLike[str]] = (),
) -> int:
    """Train from the last checkpoint, or from the start, and return the number of updates that were skipped.

    Args:
        model: The model, on its device.
        optimizer: Its optimizer.
        loader: Any ``Loader``; made after the process group, or with ``world=World(rank, world_size)``.
        losses_of: Called with the (parallel) model and a batch; returns one loss for each row.
        run_dir: Folder of the run: ledger and checkpoint.
        updates: Updates of the whole run.
        steps_per_update: Steps whose gradients are added up.
        save_every: Updates between two checkpoints.
        max_norm: Norm to which gradients are clipped.
        base: Checkpoints that the model's weights were loaded from, each with a waybill.
    """
    path = local_path(run_dir) / CHECKPOINT
    path.parent.mkdir(parents=True, exist_ok=True)
    first, skipped = load_checkpoint(path, model, optimizer, loader), 0
    ledger = Ledger(run_dir, loader.plan, base=base)
    fates = Fates(ledger, model.parameters, [optimizer])
    with ledger, contextlib.closing(fates):  # closed as failed where training does
        loader.tracker = ledger
        net = DistributedDataParallel(model) if loader.world.world_size > 1 else model
        loader.lockstep()
        batches = RepeatingLoader(loader)
        for update in range(first, updates):
            loss = accumulate(net, loader, batches, losses_of, steps_per_update, fates)
            norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            if norm.isfinite():  # the same on every process, as the gradients are
                optimizer.step()
            skipped += not fates.settle(update, loss, reason=f"the gradients of update {update} were not finite")
            optimizer.zero_grad()
            if (update + 1) % save_every == 0 or update + 1 == updates:
                state = save_checkpoint(path, model, optimizer, loader, update + 1)
                ledger.checkpoint(path, state)
    return skipped


def accumulate(
    net: nn.Module,
    loader: Loader,
    batches: RepeatingLoader,
    losses_of: Callable[..., torch.Tensor],
    steps: int,
    fates: Fates,
) -> torch.Tensor:
    """Add up the gradients of some steps, noted with their bills; return this process's part of their mean loss."""
    total = torch.zeros(())
    for left in reversed(range(steps)):
        # Gradients travel once an update: with its last step.
        with net.no_sync() if left and isinstance(net, DistributedDataParallel) else contextlib.nullcontext():
            losses = losses_of(net, next(batches))
            bill = loader.last_bill
            assert bill is not None
            loss = mean_loss(losses, bill) / steps
            loss.backward()  # type: ignore[no-untyped-call]
        fates.trained(bill)
        total += loss.detach().cpu()
    return total


def mean_loss(losses: torch.Tensor, bill: Bill) -> torch.Tensor:
    """Return this process's part of the mean over all samples of a step; padding does not count."""
    real = torch.from_numpy(bill.is_real).to(losses.device)
    # DDP takes the mean over processes; with the weight it becomes the mean over samples.
    return torch.where(real, losses, 0).sum() / max(bill.num_samples, 1) * bill.loss_weight


def save_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, loader: Loader, update: int
) -> dict[str, Any]:
    """Write a checkpoint, all or nothing, and return the loader's state in it; every process must call it."""
    own = packed(capture())
    random = [own] * loader.world.world_size
    state = loader.state_dict()  # the ledger of this process is on disk now
    if len(random) > 1:
        distributed.all_gather_object(random, own)  # no rank continues before all have come here
    if loader.world.rank == 0:
        parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": state}
        clean_up(path.parent, path.name)
        remove_stale(path)
        with written_aside(path) as file:
            torch.save({**parts, "random": random, "update": update}, file)
    return state


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, loader: Loader) -> int:
    """Stand where a checkpoint was taken, if there is one; return the number of the next update."""
    if not path.exists():
        return 0
    saved = _read_checkpoint(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    loader.load_state_dict(saved["loader"])
    if loader.world.rank < len(saved["random"]):
        restore(unpacked(saved["random"][loader.world.rank]))
    return int(saved["update"])


def _read_checkpoint(path: Path) -> dict[str, Any]:
    try:
        saved = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # torch raises RuntimeError, EOFError, UnpicklingError, OSError ... for bad files
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ResumeError(
            f"{path} cannot be read: {reason}. It is cut off or no checkpoint; take an older one, or remove it to "
            "begin anew."
        ) from error
    wanted = ("model", "optimizer", "loader", "random", "update")
    if not isinstance(saved, dict) or not all(key in saved for key in wanted):
        raise ResumeError(
            f"{path} holds {brief(list(saved) if isinstance(saved, dict) else saved)}, expected a checkpoint with "
            f"{', '.join(wanted)}. Take one that save_checkpoint wrote."
        )
    return saved
