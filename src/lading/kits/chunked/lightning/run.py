"""A whole run from a configuration: data module, model, trainer, ledger, checkpoints.

runs/7/
├── config.yaml                the configuration as it was used
├── checkpoints/last.ckpt      where ``--resume`` continues
└── run.json, ledger/ ...      the ledger

What the configuration names as its data is made ready for Lightning:

a data module of ours, for Lightning    as it is, with loader arguments and chunk sizes
a data module of ours, without          its partitions, in a module for Lightning
a LightningDataModule of the user's     as it is; it cannot be chunked from outside
a dataset                               the training partition
"""

from __future__ import annotations

import inspect
import logging
import os
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.exceptions import MisconfigurationException  # type: ignore[attr-defined]
from lightning.pytorch.utilities.rank_zero import rank_zero_only, rank_zero_warn  # type: ignore[attr-defined]

from lading.errors import ConfigError
from lading.kits.chunked.component import Component, made, misspelt
from lading.kits.chunked.config import Config, wrong
from lading.kits.chunked.datamodule import chunked, sequence
from lading.kits.chunked.lightning.datamodule import ChunkedSequenceDataset
from lading.kits.chunked.lightning.loops import train_loader
from lading.kits.chunked.mixin import seen_info
from lading.runtime.files import write_aside
from lading.runtime.paths import local_path
from lading.train.lightning.ledger import LedgerCallback

LOGGER = logging.getLogger(__name__)


def data_module(config: Config) -> LightningDataModule:
    """Make the data module of a configuration."""
    if config.dataset is None:
        raise wrong(config.file, "dataset", "a class_path (and init_args)", None)
    sizes = (config.train.get("train_chunk_size"), config.train.get("val_chunk_size"))
    loader = _loader_arguments(config)
    accounted = "dir" in config.run and bool(config.run.get("ledger", True))  # a ledger needs Lading's loader
    data = config.dataset.make(**_fitting(config.dataset, config, loader, accounted))
    if isinstance(data, sequence.SequenceDataset):
        found: Any = _ours(data, sizes)
        if "monitor" in config.train:
            found.monitor = config.train["monitor"]
        module: LightningDataModule = found
        return module
    if isinstance(data, LightningDataModule):
        if any(sizes) and not config.dataset.takes("train_chunk_size"):
            key = "train.train_chunk_size" if sizes[0] else "train.val_chunk_size"
            expected = f"no chunk size, since dataset {config.dataset.class_path} is no lading.SequenceDataset"
            raise wrong(config.file, key, expected, sizes[0] or sizes[1])
        return data
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        train, val = sizes
        options = {"loader": loader, "accounted": accounted, "monitor": config.train.get("monitor", "val_loss")}
        return ChunkedSequenceDataset(data, train_chunk_size=train, val_chunk_size=val, **options)
    expected = "a data module, or a dataset with __len__ and __getitem__"
    raise wrong(config.file, "dataset.class_path", expected, config.dataset.class_path)


def _ours(data: sequence.SequenceDataset, sizes: tuple[Any, Any]) -> Any:
    """Return a data module of ours for Lightning, and in chunks if sizes are given."""
    fits = isinstance(data, chunked.ChunkedSequenceDataset) or not any(sizes)
    if isinstance(data, LightningDataModule) and fits:
        return data
    if data.dataset_train is None and data.dataset_val is None:
        data.setup()
    return ChunkedSequenceDataset.of(data, *sizes)


def _loader_arguments(config: Config) -> dict[str, Any]:
    mixture = config.run.get("mixture")
    graded = {name: config.train[name] for name in ("curriculum", "sample_weights") if config.train.get(name)}
    seed = {"seed": config.train["seed"]} if "seed" in config.train else {}  # one seed moves everything
    return {**seed, **config.loader, **({"weights": mixture} if mixture else {}), **graded}


def _fitting(component: Component, config: Config, loader: dict[str, Any], accounted: bool) -> dict[str, Any]:
    """Return the arguments that a data module's class takes, of those that the other sections give."""
    target = component.load()
    sizes = {name: config.train[name] for name in ("train_chunk_size", "val_chunk_size") if name in config.train}
    if isinstance(target, type) and issubclass(target, chunked.ChunkedSequenceDataset):
        return {"loader": loader, "accounted": accounted, **sizes}
    if isinstance(target, type) and issubclass(target, sequence.SequenceDataset):
        return {"loader": loader, "accounted": accounted}
    if isinstance(target, type) and issubclass(target, LightningDataModule):
        offered = {"loader": loader, **loader, **sizes}
        return {name: value for name, value in offered.items() if component.takes(name)}
    return {}


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        run_dir: Its folder, if it has one.
        epochs: Epochs of the trainer: chunks, where there are chunks.
        updates: Optimizer updates.
        checkpoint: The last checkpoint.
        data: Chunk, pass and share of the data reached, where there are chunks.
        metrics: What the model logged last.
        unused: Keys of the configuration that nothing was done with.
    """

    run_dir: str | None
    epochs: int
    updates: int
    checkpoint: str | None
    data: Mapping[str, Any]
    metrics: Mapping[str, float]
    unused: tuple[str, ...] = ()


def run(config: Config, *, resume: bool = False, checkpoint: str | os.PathLike[str] | None = None) -> Outcome:
    """Train what a configuration describes.

    Args:
        resume: Resume from the last checkpoint in the run directory; from the start if there is none yet.
        checkpoint: Resume from this checkpoint instead.
    """
    folder = _run_folder(config, resume=resume or checkpoint is not None)
    if "seed" in config.train:
        seed_everything(config.train["seed"], verbose=False)
    if (warning := config.sizes().warning) is not None:
        rank_zero_warn(warning)
    data, model = data_module(config), _model(config)
    trainer, foreign = _trainer(config, folder)
    unused = _unused(config, foreign)
    config.check_changed(unused)
    if unused and getattr(rank_zero_only, "rank", 0) == 0:
        LOGGER.warning("note: %s: not used: %s", config.file, ", ".join(unused))
    with warnings.catch_warnings():
        # a resumed run has checkpoints in its folder; that is the point
        warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
        trainer.fit(model, datamodule=data, ckpt_path=_start(folder, resume, checkpoint))
    return _outcome(trainer, folder, unused)


def _run_folder(config: Config, *, resume: bool) -> Path | None:
    """Make the run directory and keep the configuration in it; a run that is there already is not begun again."""
    if "dir" not in config.run:
        if config.run.get("ledger"):
            raise wrong(config.file, "run.dir", "a run directory, since run.ledger is true", None)
        return None
    folder = local_path(config.run["dir"])
    if getattr(rank_zero_only, "rank", 0):
        return folder
    if (folder / "run.json").exists() and not resume:
        raise ConfigError(
            f"{config.file}: run.dir: expected a folder without a run, found the run in {folder}. Pass --resume to "
            "continue it, or --set run.dir=... for another folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_aside(folder / "config.yaml", yaml.safe_dump(config.as_dict(), sort_keys=False).encode())
    return folder


def _model(config: Config) -> LightningModule:
    if config.model is None:
        raise wrong(config.file, "model", "a class_path (and init_args)", None)
    model = config.model.make()
    if not isinstance(model, LightningModule):
        raise wrong(config.file, "model.class_path", "a LightningModule", config.model.class_path)
    return model


def _unused(config: Config, trainer: Iterable[str]) -> tuple[str, ...]:
    """Return every key that nothing is done with, dotted."""
    parts = [
        f"{part.key}.{name}" for part in (config.dataset, config.model) if part is not None for name in part.unused()
    ]
    return (*config.unused, *parts, *(f"trainer.{name}" for name in trainer))


def _trainer(config: Config, folder: Path | None) -> tuple[Trainer, list[str]]:
    """Return the trainer, and the keys of its section that are no arguments of it (older Lightnings had more)."""
    given, known = config.trainer_arguments(), inspect.signature(Trainer).parameters
    foreign = [name for name in given if name not in known]
    for name in foreign:
        near = misspelt(str(name), known)
        if near is not None:
            expected = f"an argument of Lightning's Trainer, such as {near}"
            raise wrong(config.file, f"trainer.{name}", expected, name)
    used = {name: value for name, value in given.items() if name in known}
    arguments = made(used, file=config.file, key="trainer")
    own = arguments.pop("callbacks", None) or []
    callbacks = [*(own if isinstance(own, list) else [own]), *_recorders(config, folder, arguments)]
    if folder is not None:
        arguments.setdefault("default_root_dir", str(folder))
    arguments.setdefault("logger", False)
    try:
        return Trainer(**arguments, callbacks=callbacks), foreign
    except (MisconfigurationException, TypeError, ValueError) as error:
        raise ConfigError(f"{config.file}: trainer: {' '.join(str(error).split())}") from error


def _recorders(config: Config, folder: Path | None, trainer: Mapping[str, Any]) -> list[Callback]:
    """Return what writes into the run directory: the ledger, then the checkpoints that must not be ahead of it."""
    recorders: list[Callback] = []
    if folder is None:
        return recorders
    if config.run.get("ledger", True):
        recorders.append(LedgerCallback(folder))
    if trainer.get("enable_checkpointing", True):
        every = config.run.get("checkpoint_updates")
        recorders.append(ModelCheckpoint(folder / "checkpoints", save_last=True, every_n_train_steps=every))
    return recorders


def _start(folder: Path | None, resume: bool, checkpoint: str | os.PathLike[str] | None) -> str | None:
    if checkpoint is not None:
        if not local_path(checkpoint).exists():
            raise ConfigError(f"--checkpoint {checkpoint}: expected a checkpoint, found no such file.")
        return _sound(Path(checkpoint))
    if not resume:
        return None
    if folder is None:
        raise ConfigError("--resume: expected run.dir in the configuration, where the checkpoints are, found none.")
    last = _last_checkpoint(folder)
    return None if last is None else _sound(last)


def _sound(checkpoint: Path) -> str:
    """Return the path of a checkpoint that is whole: an archive that was cut off has no end."""
    if checkpoint.is_file() and not zipfile.is_zipfile(checkpoint):
        raise ConfigError(
            f"{checkpoint}: expected a checkpoint that Lightning saved, found one that is cut off or something else. "
            "Pass --checkpoint with an older one, or remove it."
        )
    return str(checkpoint)


def _last_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint; a process killed while saving may leave one that is not called the last."""
    saved = sorted((folder / "checkpoints").glob("*.ckpt"), key=lambda file: (file.stat().st_mtime_ns, file.name))
    return saved[-1] if saved else None


def _outcome(trainer: Trainer, folder: Path | None, unused: tuple[str, ...]) -> Outcome:
    loader = train_loader(trainer)
    last = None if folder is None else _last_checkpoint(folder)
    return Outcome(
        run_dir=None if folder is None else str(folder),
        epochs=trainer.current_epoch,
        updates=trainer.global_step,
        checkpoint=None if last is None else str(last),
        data={} if loader is None else seen_info(loader),
        metrics={name: float(value) for name, value in trainer.callback_metrics.items()},
        unused=unused,
    )
