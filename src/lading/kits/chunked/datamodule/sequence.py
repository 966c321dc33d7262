"""Partitions of a dataset and their loaders, without any framework's trainer.

    setup()  ─▶  dataset_train   dataset_val   dataset_test
                      │               │              │
                 train_dataloader  val_dataloader  test_dataloader        batches (x, y, {})

A partition is a dataset, or ``{name: dataset}`` to mix several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch.utils.data import IterableDataset, default_collate, random_split

from lading.errors import SourceError
from lading.kits.chunked.datamodule.loaders import partition_size, standard_loader


class SequenceDataset:
    """Partitions and their loaders. Subclass it and write ``setup``, or hand the partitions over.

    Args:
        dataset_train: Training partition, where ``setup`` does not make it.
        dataset_val: Validation partition.
        dataset_test: Test partition.
        val_split: Share of the training partition that ``setup`` moves to validation when there is none.
        seed: Seed of that split.
        loader: Arguments of every loader (``batch_size``, ``num_workers`` ...); those of a call take precedence.
        accounted: Take Lading's ``Loader`` for training, which says what it delivers, also without chunks.
        options: Become attributes, over the defaults in ``init_defaults``, as subclasses of old expect.
    """

    init_defaults: ClassVar[Mapping[str, Any]] = {}
    collate_names: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        dataset_train: Any = None,
        dataset_val: Any = None,
        dataset_test: Any = None,
        *,
        val_split: float | None = None,
        seed: int = 42,
        loader: Mapping[str, Any] | None = None,
        accounted: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.dataset_train, self.dataset_val, self.dataset_test = dataset_train, dataset_val, dataset_test
        self.val_split, self.seed, self.accounted = val_split, seed, accounted
        self.loader = dict(loader or {})
        for name, value in {**self.init_defaults, **options}.items():
            setattr(self, name, value)
        self.init()

    def init(self) -> None:
        """Do what is to be done at the end of ``__init__``; subclasses override this instead of it."""

    def setup(self, stage: str | None = None) -> None:
        """Make the partitions; subclasses set ``dataset_train``, ``dataset_val`` and ``dataset_test`` here."""
        if self.dataset_train is None and self.dataset_val is None and self.dataset_test is None:
            raise SourceError(
                f"{type(self).__name__} has no partition: expected dataset_train, dataset_val or dataset_test. "
                "Pass them, or override setup() and set them there."
            )
        if self.val_split is not None and self.dataset_val is None:
            self.split_train_val(self.val_split)

    def split_train_val(self, val_split: float) -> None:
        """Move a random share of the training partition to validation, the same for the same seed."""
        if not 0 < val_split < 1:
            raise SourceError(f"val_split={val_split!r}: expected a share between 0 and 1.")
        train = int(len(self.dataset_train) * (1.0 - val_split))
        sizes = (train, len(self.dataset_train) - train)
        generator = torch.Generator().manual_seed(getattr(self, "seed", 42))
        self.dataset_train, self.dataset_val = random_split(self.dataset_train, sizes, generator=generator)

    def train_dataloader(self, **loader: Any) -> Any:
        """Return the training loader: shuffled, unless ``shuffle`` says otherwise."""
        return self._loader("train", loader)

    def val_dataloader(self, **loader: Any) -> Any:
        """Return the validation loader: in order, every sample, whatever ``drop_last`` says of training."""
        return self._loader("val", loader)

    def test_dataloader(self, **loader: Any) -> Any:
        """Return the test loader: in order, every sample."""
        return self._loader("test", loader)

    def collate_fn(self, batch: Sequence[Any]) -> Any:
        """Put samples together: pairs become ``(x, y, {})``, further elements go into the dict by ``collate_names``."""
        return collate_sequences(batch, self.collate_names)

    def arguments(self, partition: str, loader: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a partition's loader: the module's, then those of the call."""
        arguments = {"collate_fn": self.collate_fn, **self.loader, **loader}
        if partition == "train":
            is_stream = isinstance(self.dataset_train, IterableDataset)
            arguments.setdefault("shuffle", not is_stream and not ({"sampler", "batch_sampler"} & arguments.keys()))
        else:
            # drop_last must not empty a small partition, and evaluation counts every sample once
            arguments.update(drop_last=False, shuffle=False)
            for name in ("sampler", "weights", "mixture", "curriculum", "sample_weights"):
                arguments.pop(name, None)
        return arguments

    def partition(self, name: str) -> Any:
        """Return a partition by its short name, None if there is none or it is empty; streams have no length."""
        dataset = getattr(self, f"dataset_{name}")
        is_empty = hasattr(dataset, "__len__") and partition_size(dataset) == 0
        return None if dataset is None or is_empty else dataset

    def _loader(self, name: str, loader: Mapping[str, Any]) -> Any:
        dataset = self.partition(name)
        if dataset is None:
            return None
        return standard_loader(dataset, accounted=self.accounted and name == "train", **self.arguments(name, loader))


def collate_sequences(batch: Sequence[Any], names: Sequence[str] = ()) -> Any:
    """Collate pairs into ``(x, y, {})``; samples that are no pairs are collated as torch does.

    >>> x, y, rest = collate_sequences([(1, 2, 3), (4, 5, 6)], names=["rate"])
    >>> x.tolist(), y.tolist(), rest["rate"].tolist()
    ([1, 4], [2, 5], [3, 6])
    """
    first = batch[0]
    if not isinstance(first, tuple | list) or len(first) < 2:
        return default_collate(list(batch))
    if len(first) - 2 != len(names):
        raise SourceError(
            f"samples have {len(first) - 2} elements beyond (x, y), expected {len(names)} "
            f"({', '.join(names) or 'no names'}). Name each in collate_names of the data module."
        )
    x, y, *rest = (default_collate(list(column)) for column in zip(*batch, strict=True))
    return x, y, dict(zip(names, rest, strict=True))
