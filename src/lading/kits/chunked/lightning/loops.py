"""What Lightning's loops hold and decide once, in one place.

Lightning reads the number of batches when it sets its loaders up and keeps
it: the limits, the length of the epoch, and the batch after which it
validates. With chunks of different lengths these have to follow the loader.
Everything here that Lightning does not promise to keep is touched nowhere else;
what runs without chunks need of it is in ``lading.train.lightning.plain``.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch.utils.data import DataLoader

from lading.loader.torch.loader import Loader
from lading.train.lightning.plain import any_train_loader, flat, lading_loader


def chunked_loader(loader: Any) -> Loader | None:
    """Return Lading's loader inside what a trainer was given if it has chunks, else None."""
    found = lading_loader(loader)
    return found if found is not None and found.chunk_batches is not None else None


def train_loader(trainer: Trainer) -> Loader | None:
    """Return the chunked loader that is trained on, if it is the only one."""
    return chunked_loader(any_train_loader(trainer))


def val_loaders(trainer: Trainer) -> list[Loader]:
    """Return the chunked loaders of validation, empty before Lightning asked for them."""
    found = (chunked_loader(loader) for loader in flat(_val_loop(trainer)._combined_loader))
    return [loader for loader in found if loader is not None]


def given_loaders(trainer: Trainer) -> list[Loader]:
    """Return the chunked loaders that were handed to ``fit`` or ``validate`` itself."""
    instances = [loop._data_source.instance for loop in (trainer.fit_loop, _val_loop(trainer), trainer.validate_loop)]
    loaders = [i for i in instances if isinstance(i, DataLoader | list | tuple | dict) or chunked_loader(i) is not None]
    found = [chunked_loader(loader) for i in loaders for loader in CombinedLoader(i, "sequential").flattened]
    return [loader for loader in found if loader is not None]


def limits_are_free(trainer: Trainer) -> bool:
    """Say whether chunks may decide: ``fast_dev_run`` and ``overfit_batches`` are respected."""
    return not getattr(trainer, "fast_dev_run", False) and not getattr(trainer, "overfit_batches", 0)


def follow_training(trainer: Trainer, num_batches: int) -> None:
    """Make the epoch under way as long as its chunk, and validate at its end."""
    loop = trainer.fit_loop
    if loop._combined_loader is not None:
        loop._combined_loader.limits = [float("inf")] * len(loop._combined_loader.flattened)
    if loop.max_batches == num_batches:
        return
    loop.max_batches = num_batches
    if isinstance(trainer.val_check_interval, float) and trainer.val_check_batch is not None:
        trainer.val_check_batch = max(1, int(num_batches * trainer.val_check_interval))


def follow_validation(trainer: Trainer) -> None:
    """Make the coming validation as long as its chunk."""
    loop = _val_loop(trainer)
    loaders = flat(loop._combined_loader)
    if loaders and len(loop._max_batches) == len(loaders):
        loop._max_batches = [
            len(loader) if chunked_loader(loader) is not None else limit
            for loader, limit in zip(loaders, loop._max_batches, strict=True)
        ]


def batches_under_way(trainer: Trainer) -> int | None:
    """Return the batches of the iteration that training takes from."""
    fetcher = trainer.fit_loop._data_fetcher
    return None if fetcher is None else fetcher.length


def batches_done(trainer: Trainer) -> int:
    """Return the batches of its epoch that Lightning counts as trained on."""
    return int(_batches(trainer).processed)


def batch_in_flight(trainer: Trainer) -> bool:
    """Say whether a batch was taken and is not yet trained on: Lightning takes it again after a restart."""
    return bool(_batches(trainer).ready > _batches(trainer).processed)


def is_mid_epoch(trainer: Trainer) -> bool:
    """Say whether Lightning resumes inside an epoch it has a checkpoint of."""
    return bool(trainer.fit_loop.restarting)


def owes_validation(trainer: Trainer) -> bool:
    """Say whether the checkpoint was taken after the last batch of an epoch and before its validation.

    Lightning then takes the epoch for finished, and leaves the validation out.
    """
    loop, every = trainer.fit_loop.epoch_loop, trainer.check_val_every_n_epoch
    saved_at_end = loop.restarted_on_train_batch_end and loop.batch_progress.is_last_batch
    due = every is not None and trainer.current_epoch % every == 0  # the epoch that was counted as finished
    return bool(is_mid_epoch(trainer) and saved_at_end and due and trainer.enable_validation)


def validate_now(trainer: Trainer) -> None:
    """Run the validation of an epoch from outside of it."""
    loop = _val_loop(trainer)
    loop.restarting = False
    trainer.validating = True
    loop.run()
    trainer.training = True


def _batches(trainer: Trainer) -> Any:
    return trainer.fit_loop.epoch_loop.batch_progress.current


def _val_loop(trainer: Trainer) -> Any:
    return trainer.fit_loop.epoch_loop.val_loop
