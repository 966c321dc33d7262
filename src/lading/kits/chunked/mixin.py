"""Chunked training for hand-written loops.

    while not done:
        self.train_epoch_with_chunking()      train one chunk ─▶ validate one chunk ─▶ update progress

The mixin knows when and on what to train; the class it is mixed into knows
how: ``training_step(batch)`` and ``validation_step(batch)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from lading.errors import ConfigError
from lading.identity.world import process_group
from lading.kits.chunked.datamodule.chunked import ChunkedSequenceDataset
from lading.kits.chunked.datamodule.sequence import SequenceDataset
from lading.kits.chunked.datamodule.sizes import chunk_sizes
from lading.loader.torch.chunked import chunk_info
from lading.loader.torch.loader import Loader
from lading.train.metrics.torch import added_over_ranks


class ChunkedTrainingMixin:
    """Trains in chunks when the configuration says so; ``train_chunk_size`` and ``val_chunk_size`` count batches.

    The class it is mixed into has ``dataset``, a data module, before the first epoch, and two methods:
    ``training_step(batch)`` updates the model and returns the loss, ``validation_step(batch)`` returns a loss.

    Args:
        config: Sections ``train`` (chunk sizes), ``trainer`` (limits) and ``loader`` (``batch_size`` ...): a dict, a
            ``Config``, or anything with these as attributes.

    Attributes:
        chunked_training_enabled: Whether either chunk size was given.
        train_chunk_size: Batches of a training chunk; None as long as they have to be worked out.
        val_chunk_size: Batches of a validation chunk.
        progress: The chunk trained on last, its pass, and the share of the data reached: 1.0 at the end of a pass.
    """

    dataset: SequenceDataset

    def __init__(self, config: Any) -> None:
        super().__init__()
        train, trainer = _section(config, "train"), _section(config, "trainer")
        limits = {name: trainer.get(name, train.get(name)) for name in ("limit_train_batches", "limit_val_batches")}
        self.explicit_train_chunk_size = train.get("train_chunk_size")
        self.explicit_val_chunk_size = train.get("val_chunk_size")
        self.sizes = chunk_sizes(self.explicit_train_chunk_size, self.explicit_val_chunk_size, **limits)
        self.chunked_training_enabled = self.sizes.enabled
        self.train_chunk_size, self.val_chunk_size = self.sizes.train, self.sizes.val
        self.loader_arguments = dict(_section(config, "loader"))
        self.progress: dict[str, Any] = {}
        self._partial = [0.0, 0.0]  # sum and number of the training losses of the chunk under way
        self._chunked: ChunkedSequenceDataset | None = None
        if self.chunked_training_enabled and getattr(self, "dataset", None) is not None:
            self.setup_chunked_training(config)

    def setup_chunked_training(self, config: Any = None) -> None:
        """Cut the partitions into chunks and work out the missing size; called before the first chunk at the latest."""
        if self._chunked is None:
            data = self._partitions()
            self._chunked = ChunkedSequenceDataset.of(
                data, self.explicit_train_chunk_size, self.explicit_val_chunk_size
            )
            self._chunked.loader.update(self.loader_arguments)
        self.train_chunk_size, self.val_chunk_size = self._chunked.train_chunk_size, self._chunked.val_chunk_size

    @property
    def chunked_dataset(self) -> ChunkedSequenceDataset | None:
        """The data module whose loaders yield the chunks, with their plans; None before the first chunk is set up."""
        return self._chunked

    @property
    def current_train_chunk(self) -> int:
        """Number of the training chunk that comes next or is under way."""
        return 0 if self._chunked is None else self._chunked.current_train_chunk

    @property
    def current_val_chunk(self) -> int:
        """Number of the validation chunk that comes next or is under way."""
        return 0 if self._chunked is None else self._chunked.current_val_chunk

    def train_epoch_with_chunking(self) -> dict[str, Any]:
        """Train one chunk, validate one chunk, update progress; a standard epoch without chunk sizes.

        Returns:
            Mean losses and numbers of batches, and the progress.
        """
        if not self.chunked_training_enabled:
            return self.standard_training_epoch()
        self.setup_chunked_training()
        assert self._chunked is not None
        loader = self._chunked.train_dataloader()
        trained = _run(self.training_step, loader, self._partial)  # type: ignore[attr-defined]
        validation, measured = self._chunked.val_dataloader(), [0.0, 0.0]
        validated = _run(self._validation, validation, measured)
        self._report(loader, validation, measured)
        info = seen_info(loader.chunks)
        done = {**info, "pass_chunk": info["pass_chunk"] + 1}  # chunks of the pass that are behind us
        self.progress = {**info, "line": progress_line(done)}
        return {**_named("train", trained), **_named("val", validated), **self.progress}

    def _report(self, loader: Any, validation: Any, measured: list[float]) -> None:
        """Tell the policies of chunks what the chunk came to, averaged over the ranks."""
        metric, loss = _averaged(measured), _averaged(self._partial)
        loader.validated(metric, loss, on=None if validation is None else validation.last_chunk())
        if validation is not None:
            validation.validated(metric)
        self._partial = [0.0, 0.0]

    def standard_training_epoch(self) -> dict[str, Any]:
        """Train one epoch and validate, as ever; the limits hold."""
        data = self._partitions()
        train, val = data.train_dataloader(**self.loader_arguments), data.val_dataloader(**self.loader_arguments)
        trained = _run(self.training_step, _limited(train, self.sizes.limit_train_batches))  # type: ignore[attr-defined]
        validated = _run(self._validation, _limited(val, self.sizes.limit_val_batches))
        return {**_named("train", trained), **_named("val", validated)}

    def state_dict(self) -> dict[str, Any]:
        """Return where training and validation stand, in the middle of a chunk too."""
        if self._chunked is None:
            return {}
        return {**self._chunked.state_dict(), **({"losses": list(self._partial)} if self._partial[1] else {})}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where a state was taken."""
        if self.chunked_training_enabled:
            self.setup_chunked_training()
            assert self._chunked is not None
            self._partial = [float(value) for value in state.get("losses", (0.0, 0.0))]
            self._chunked.load_state_dict({name: value for name, value in state.items() if name != "losses"})

    def _validation(self, batch: Any) -> Any:
        step = getattr(self, "validation_step", None)
        return None if step is None else step(batch)

    def _partitions(self) -> SequenceDataset:
        data = getattr(self, "dataset", None)
        if data is None:
            raise ConfigError(
                f"{type(self).__name__} has no dataset: expected a data module in self.dataset before the first epoch. "
                "Set it, for instance to a lading.SequenceDataset."
            )
        if data.dataset_train is None and data.dataset_val is None:
            data.setup()
        found: SequenceDataset = data
        return found


def _section(config: Any, name: str) -> Mapping[str, Any]:
    section = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
    if section is None:
        return {}
    return section if isinstance(section, Mapping) or hasattr(section, "get") else vars(section)


def _run(
    step: Callable[[Any], Any], batches: Iterable[Any] | None, sums: list[float] | None = None
) -> tuple[float | None, int]:
    """Return the mean loss and the number of batches; ``sums``: where losses and their number are added up."""
    losses, count = [], 0
    for batch in batches if batches is not None else ():
        loss, count = step(batch), count + 1
        if loss is not None:
            losses.append(float(loss.detach() if hasattr(loss, "detach") else loss))
            if sums is not None:
                sums[:] = [sums[0] + losses[-1], sums[1] + 1]
    return (sum(losses) / len(losses) if losses else None), count


def _averaged(sums: list[float]) -> float | None:
    """Return a mean over all ranks."""
    if process_group() is not None:
        sums = [float(value) for value in added_over_ranks(np.array(sums))]
    return sums[0] / sums[1] if sums[1] else None


def _named(partition: str, result: tuple[float | None, int]) -> dict[str, Any]:
    return {f"{partition}_loss": result[0], f"{partition}_batches": result[1]}


def _limited(batches: Any, limit: float | int | None) -> Iterable[Any] | None:
    if batches is None or limit is None:
        found: Iterable[Any] | None = batches
        return found
    return islice(batches, limit if isinstance(limit, int) else int(limit * len(batches)))


def seen_info(loader: Loader) -> dict[str, Any]:
    """Return ``chunk_info`` of the batch yielded last: the loader itself may be at the next chunk already."""
    info, bill = chunk_info(loader), loader.last_bill
    if bill is None or bill.chunk is None:
        return info
    samples = loader.plan.epoch_samples
    first = loader.plan.clock.first_chunk(bill.epoch)
    share = (bill.position + bill.global_size - bill.epoch * samples) / samples
    return {**info, "current_chunk": bill.chunk, "pass": bill.epoch, "pass_chunk": bill.chunk - first, "share": share}


def progress_line(info: Mapping[str, Any]) -> str:
    """Return one line for people.

    >>> progress_line({"pass": 2, "pass_chunk": 37, "total_chunks": 112, "share": 37 / 112})
    'pass 2, chunk 37/112, 33 % of the data'
    """
    share = round(100 * info["share"])
    return f"pass {info['pass']}, chunk {info['pass_chunk']}/{info['total_chunks']}, {share} % of the data"
