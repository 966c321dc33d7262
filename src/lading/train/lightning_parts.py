"""The data module that a configuration names, made ready for Lightning.

a data module of ours, for Lightning    as it is, with loader arguments and chunk sizes
a data module of ours, without          its partitions, in a module for Lightning
a LightningDataModule of the user's     as it is; it cannot be chunked from outside
a dataset                               the training partition
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import LightningDataModule

from lading.datamodule import chunked, sequence
from lading.datamodule.component import Component
from lading.datamodule.config import Config, wrong
from lading.train.lightning_datamodule import ChunkedSequenceDataset


def data_module(config: Config) -> LightningDataModule:
    """Make the data module of a configuration."""
    if config.dataset is None:
        raise wrong(config.file, "dataset", "a class_path (and init_args)", None)
    sizes = (config.train.get("train_chunk_size"), config.train.get("val_chunk_size"))
    loader, accounted = _loader_arguments(config), _accounted(config)
    data = config.dataset.make(**_fitting(config.dataset, config, loader, accounted))
    if isinstance(data, sequence.SequenceDataset):
        return _ours(data, sizes)
    if isinstance(data, LightningDataModule):
        if any(sizes) and not config.dataset.takes("train_chunk_size"):
            key = "train.train_chunk_size" if sizes[0] else "train.val_chunk_size"
            expected = f"no chunk size, since dataset {config.dataset.class_path} is no lading.SequenceDataset"
            raise wrong(config.file, key, expected, sizes[0] or sizes[1])
        return data
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        train, val = sizes
        options = {"loader": loader, "accounted": accounted}
        return ChunkedSequenceDataset(data, train_chunk_size=train, val_chunk_size=val, **options)
    expected = "a data module, or a dataset with __len__ and __getitem__"
    raise wrong(config.file, "dataset.class_path", expected, config.dataset.class_path)


def _ours(data: sequence.SequenceDataset, sizes: tuple[int | None, int | None]) -> Any:
    """Return a data module of ours for Lightning, and in chunks if sizes are given."""
    fits = isinstance(data, chunked.ChunkedSequenceDataset) or not any(sizes)
    if isinstance(data, LightningDataModule) and fits:
        return data
    if data.dataset_train is None and data.dataset_val is None:
        data.setup()
    return ChunkedSequenceDataset.of(data, *sizes)


def _loader_arguments(config: Config) -> dict[str, Any]:
    mixture = config.run.get("mixture")
    return {**config.loader, **({"weights": mixture} if mixture else {})}


def _accounted(config: Config) -> bool:
    """Say whether training needs Lading's loader, because a ledger is kept."""
    return "dir" in config.run and bool(config.run.get("ledger", True))


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
