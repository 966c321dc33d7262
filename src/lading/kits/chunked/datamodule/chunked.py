"""Partitions whose loaders yield one chunk at a time.

    epoch of the trainer      0         1         2         3
    training chunk         ▓▓▓░░░░   ░░░▓▓▓░   ░░░░░░▓   ▓▓▓░░░░     all the data, then the next pass
    validation chunk          ▓░        ░▓        ▓░        ░▓

Without chunk sizes everything is as in ``SequenceDataset``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lading.kits.chunked.datamodule.loaders import global_batch, partition_size, with_resume
from lading.kits.chunked.datamodule.sequence import SequenceDataset
from lading.kits.chunked.datamodule.sizes import ChunkSizes, checked_size, chunk_sizes, num_batches
from lading.loader.torch.chunked import ChunkedDataLoader


class ChunkedSequenceDataset(SequenceDataset):
    """Partitions in chunks; ``train_chunk_size`` and ``val_chunk_size`` count batches.

    Either size switches chunking on for both partitions; the missing one means that the whole partition is one chunk,
    worked out after ``setup()``. The test partition uses the validation size.

    Args:
        dataset_train: As in ``SequenceDataset``, like ``dataset_val``, ``dataset_test`` and the options.
        train_chunk_size: Batches of training between validations, or how they change: see ``lading.Chunks``.
        val_chunk_size: Batches of each validation; likewise.
        monitor: The metric that chunks which adapt follow, by the name under which the model logs it.
        options: Arguments of ``SequenceDataset``.
    """

    def __init__(
        self,
        dataset_train: Any = None,
        dataset_val: Any = None,
        dataset_test: Any = None,
        *,
        train_chunk_size: Any = None,
        val_chunk_size: Any = None,
        monitor: str = "val_loss",
        **options: Any,
    ) -> None:
        self.monitor = monitor
        checked_size("train_chunk_size", train_chunk_size)
        checked_size("val_chunk_size", val_chunk_size)
        self.explicit_train_chunk_size, self.explicit_val_chunk_size = train_chunk_size, val_chunk_size
        self._loaders: dict[str, tuple[Mapping[str, Any], ChunkedDataLoader]] = {}
        self._states: dict[str, Mapping[str, Any]] = {}
        super().__init__(dataset_train, dataset_val, dataset_test, **options)

    @classmethod
    def of(cls, other: SequenceDataset, train_chunk_size: Any, val_chunk_size: Any) -> ChunkedSequenceDataset:
        """Return the partitions and ways of another data module (after its ``setup``), in chunks."""
        chunked = cls(
            other.dataset_train,
            other.dataset_val,
            other.dataset_test,
            train_chunk_size=train_chunk_size,
            val_chunk_size=val_chunk_size,
            seed=other.seed,
            loader={"collate_fn": other.collate_fn, **other.loader},
            accounted=other.accounted,
            monitor=getattr(other, "monitor", "val_loss"),
        )
        return chunked

    @property
    def use_chunked_training(self) -> bool:
        """Whether either chunk size was given."""
        return self.sizes().enabled

    @property
    def train_chunk_size(self) -> int | None:
        """Batches in a training chunk: the given size, or the whole partition's once it is known."""
        return self.sizes().train

    @property
    def val_chunk_size(self) -> int | None:
        """Batches in a validation chunk: the given size, or the whole partition's once it is known."""
        return self.sizes().val

    @property
    def current_train_chunk(self) -> int:
        """Number of the training chunk that comes next or is under way."""
        return self._current("train")

    @property
    def current_val_chunk(self) -> int:
        """Number of the validation chunk that comes next or is under way."""
        return self._current("val")

    def sizes(self) -> ChunkSizes:
        """Apply the sizes rule to what is known by now."""
        given = (self.explicit_train_chunk_size, self.explicit_val_chunk_size)
        if given == (None, None):
            return chunk_sizes()
        return chunk_sizes(*given, train_batches=self._batches("train"), val_batches=self._batches("val"))

    def setup_chunked_training(self) -> ChunkSizes:
        """Make the partitions if they are not there yet, and return the sizes that hold."""
        if self.dataset_train is None and self.dataset_val is None:
            self.setup()
        return self.sizes()

    def state_dict(self) -> dict[str, Any]:
        """Return where the loaders stand, in the middle of a chunk too."""
        return {**self._states, **{name: loader.state_dict() for name, (_, loader) in self._loaders.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where a state was taken; loaders that are not made yet will when they are."""
        for name, value in state.items():
            if name in self._loaders:
                self._loaders[name][1].load_state_dict(value)
            else:
                self._states[name] = value

    def _loader(self, name: str, loader: Mapping[str, Any]) -> Any:
        dataset, sizes = self.partition(name), self.sizes()
        if dataset is None or not sizes.enabled:
            return super()._loader(name, loader)
        arguments = self.arguments(name, loader)
        if name not in self._loaders or self._loaders[name][0] != arguments:
            # a trainer may ask again every epoch; the chunks must continue where they were
            size = self.explicit_train_chunk_size if name == "train" else self.explicit_val_chunk_size
            made = ChunkedDataLoader(dataset, chunk_size=size or partition_size(dataset), **with_resume(arguments))
            if name in self._states:
                made.load_state_dict(self._states.pop(name))
            self._loaders[name] = (arguments, made)
        return self._loaders[name][1]

    def _current(self, name: str) -> int:
        return self._loaders[name][1].current_chunk if name in self._loaders else 0

    def _batches(self, name: str) -> int | None:
        """Return the batches of a partition; without a batch size, its samples: no batch has less than one."""
        dataset = self.partition(name)
        if dataset is None:
            return None
        arguments = self._loaders[name][0] if name in self._loaders else self.arguments(name, {})
        drop_last = bool(arguments.get("drop_last")) and name == "train"
        return max(1, num_batches(partition_size(dataset), global_batch(arguments) or 1, drop_last=drop_last))
