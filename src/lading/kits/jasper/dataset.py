"""JASPER pairs for training: embeddings, hard negatives and a steering vector chosen by a curriculum.

    index ──▶ pair ──▶ question, source, cluster, relevance ...      gathered rows, whole batches at once
                 └──▶ variant(42, epoch, pair) ──▶ steering          nothing, centroid, keyword or residual

Epoch and forced variant lie in shared memory: a ``set_epoch`` reaches workers
that are already running. Through a Lading loader the epoch travels with the
bill, so not even that is needed.

A subset by clusters is gathered a whole batch at a time, too.
"""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import Dataset, Subset

from lading.errors import SourceError
from lading.kits.jasper.gather import STEERING, SteeringStack, Tables, gather_batch, gather_sample, jasper_spec
from lading.kits.jasper.layout import BY_NAME, CONFIG_FILE, NEGATIVES, SPLITS, config_size, read_config
from lading.kits.jasper.steering import SharedSteering, Steering
from lading.kits.jasper.storage import convert_to_hdf5, open_storage
from lading.kits.jasper.validate import (
    check_split,
    check_tables,
    load_refreshed,
    load_split,
    load_tables,
    require_files,
)
from lading.runtime.paths import local_path
from lading.source.columns import Buffers
from lading.source.reader import draws_nothing
from lading.source.spec import BatchSpec


class ClusterSubset(Subset[dict[str, Tensor]]):
    """A torch ``Subset`` of a JASPER dataset that keeps ``take``, names and spec."""

    dataset: JASPERSteeringDataset
    wants_keys = False  # the epoch and the pair are enough

    def __init__(self, dataset: JASPERSteeringDataset, indices: Sequence[int]) -> None:
        super().__init__(dataset, indices)
        self._places = np.asarray(indices, dtype=np.int64)

    @property
    def random_free(self) -> bool:
        return draws_nothing(self.dataset)

    @property
    def pair_numbers(self) -> Tensor:
        """Pair of each sample of the subset."""
        return self.dataset.pair_numbers[self._places]

    def take(self, indices: ArrayLike) -> dict[str, Tensor]:
        return self.dataset.take(_taken(self._places, indices))

    def take_keyed(self, indices: ArrayLike, *, epoch: int, keys: Any = None) -> dict[str, Tensor]:
        return self.dataset.take_keyed(_taken(self._places, indices), epoch=epoch)

    def item_keyed(self, index: int, *, epoch: int, key: int | None = None) -> dict[str, Tensor]:
        return self.dataset.item_keyed(int(_taken(self._places, [index])[0]), epoch=epoch)

    def set_epoch(self, epoch: int) -> None:
        """Move the curriculum of the whole split to an epoch."""
        self.dataset.set_epoch(epoch)

    def describe(self, index: int) -> str:
        return self.dataset.describe(int(self._places[index]))

    def file_of(self, index: int) -> str:
        return self.dataset.file_of(int(self._places[index]))

    def fingerprint(self) -> dict[str, Any]:
        """Describe the content of the split and what was chosen of it."""
        return {**self.dataset.fingerprint(), "samples": self._places.tolist()}

    def spec(self) -> BatchSpec:
        return self.dataset.spec()


def _taken(values: NDArray[np.int64], indices: ArrayLike) -> NDArray[np.int64]:
    wanted = np.asarray(indices, dtype=np.int64)
    outside = wanted[(wanted < 0) | (wanted >= len(values))]
    if len(outside):
        raise IndexError(f"Index {outside[0]} out of range [0, {len(values)})")
    return values[wanted]


LOGGER = logging.getLogger(__name__)
FINGERPRINT_BYTES = 65536


class JASPERSteeringDataset(Tables, Dataset[dict[str, Tensor]]):
    """One split of a JASPER directory.

    Args:
        dataset_dir: Directory with ``config.json`` and ``*.pt`` files or ``dataset.h5``.
        split: "train", "val" or "test".
        epoch: Epoch the curriculum starts at.
        device: Where the tensors are kept; default CPU.
        storage_format: "auto" (HDF5 where there is one), "pt" or "hdf5".
        use_mmap: Map the files (shared, read-only) instead of reading them. None: above 10 GB.
        validate: Check every value. None: below 1 GB (above, all but the long scans). False: only what would make a
            batch impossible.

    Raises:
        SourceError: A ``ValueError`` that names file, row and value.
        MissingFileError: A ``FileNotFoundError`` for a table that is not there.
    """

    wants_keys = False  # the epoch and the pair are enough
    random_free = True

    keyword_embs: Tensor
    centroid_embs: Tensor
    split_indices: Tensor

    def __init__(
        self,
        dataset_dir: str | Path,
        split: str,
        epoch: int = 0,
        device: torch.device | str | None = None,
        storage_format: str = "auto",
        use_mmap: bool | None = None,
        *,
        validate: bool | None = None,
    ) -> None:
        self.dataset_dir, self.split = local_path(dataset_dir), split
        self._keyword_ids: list[list[int]] | None = None
        self._buffers, self.steering_stack = Buffers(), None
        self.device = torch.device("cpu" if device is None else device)
        self.config = read_config(self.dataset_dir)
        mmap = False if use_mmap is None and self.device.type != "cpu" else use_mmap
        self._storage = open_storage(self.dataset_dir, storage_format, mmap, self.config)
        self.storage_format, self.use_mmap = self._storage.format, self._storage.mapped
        path = self.dataset_dir / CONFIG_FILE
        self.embedding_dim = config_size(self.config, "embedding_dim", path)
        self.n_neg = config_size(self.config, "n_neg", path)
        steering = Steering.from_config(self.config)
        self._load(validate)
        self._shared, self._negatives_read = SharedSteering(steering, epoch), 0
        LOGGER.info("%s split: %d samples, memory=%.1f MB", split, len(self), self.memory_usage_mb)

    def __len__(self) -> int:
        return len(self.split_indices)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.item_keyed(index)

    def item_keyed(self, index: int, *, epoch: int | None = None, key: int | None = None) -> dict[str, Tensor]:
        """Return one sample as it is in an epoch (None: the current one); the pair is key enough."""
        current, forced = self._follow()
        if not 0 <= index < len(self._numbers):
            raise IndexError(f"Index {index} out of range [0, {len(self)})")
        pair = int(self._numbers[index])
        return gather_sample(self, pair, self._shared.variant(pair, current if epoch is None else epoch, forced))

    def take(self, indices: ArrayLike) -> dict[str, Tensor]:
        """Return a whole batch: one gather for each column."""
        return self.take_keyed(indices)

    def take_keyed(self, indices: ArrayLike, *, epoch: int | None = None, keys: Any = None) -> dict[str, Tensor]:
        """Return a whole batch as it is in an epoch (None: the current one); the pairs are keys enough."""
        current, forced = self._follow()
        pairs = _taken(self._numbers, indices)
        variants = self._shared.variants(pairs, current if epoch is None else epoch, forced)
        return gather_batch(self, pairs, variants, self._buffers)

    @property
    def current_epoch(self) -> int:
        """Epoch of the curriculum; the same in every process that shares this dataset."""
        return self._shared.epoch

    @property
    def steering_probs(self) -> dict[str, float]:
        """Probability of each variant in the current epoch."""
        return self._shared.steering.probabilities(self.current_epoch)

    def set_epoch(self, epoch: int) -> None:
        """Move the curriculum to an epoch; workers that are already running see it. Call it between epochs only."""
        self._shared.set_epoch(epoch)
        LOGGER.info("epoch %d, steering %s", epoch, self.steering_probs)

    def force_steering(self, variant: str | None) -> None:
        """Give every sample this variant; None: back to the curriculum."""
        self._shared.force(variant)

    def get_steering_stats(self) -> dict[str, Any]:
        """Return the epoch, and probabilities and names of the variants in the same order."""
        probs = self.steering_probs
        return {"epoch": self.current_epoch, "probs": list(probs.values()), "variant_names": list(probs)}

    @property
    def pair_numbers(self) -> Tensor:
        """Pair of each sample of the split: ``dataset.pair_numbers[batch["idx"]]``; always on the CPU."""
        return torch.from_numpy(self._numbers)

    def describe(self, index: int) -> str:
        """Name a sample by its index in the split and by its pair."""
        return f"sample {index} of '{self.split}' (pair {self._numbers[index]})"

    def file_of(self, index: int) -> str:
        """Return where a sample came from, for errors."""
        return f"{self.dataset_dir}, {self.describe(index)}"

    def fingerprint(self) -> dict[str, Any]:
        """Describe the content: config, split, size and beginning of each file; negatives may be refreshed at will."""
        refreshed = {table.file for table in NEGATIVES}
        files = [file for file in self._storage.files() if file.name not in refreshed]
        return {
            "config": self.config,
            "split": hashlib.blake2b(self._numbers.tobytes(), digest_size=8).hexdigest(),
            "files": {file.name: [file.stat().st_size, _beginning(file)] for file in files},
        }

    def spec(self) -> BatchSpec:
        """Return what a batch of this dataset must look like."""
        return jasper_spec(self.embedding_dim, self.n_neg, len(self.centroid_embs))

    def subset_by_cluster(self, cluster_ids: Iterable[int]) -> ClusterSubset:
        """Return the samples of some clusters, as a torch ``Subset``."""
        wanted = sorted({int(cluster) for cluster in cluster_ids})
        count = len(self.centroid_embs)
        if wanted and not 0 <= wanted[0] <= wanted[-1] < count:
            raise SourceError(f"clusters {wanted} were asked for, expected numbers from 0 to {count - 1}.")
        clusters = self.pair_cluster_id.cpu().numpy()[self._numbers]
        return ClusterSubset(self, np.flatnonzero(np.isin(clusters, wanted)).tolist())

    @property
    def pair_keyword_ids(self) -> list[list[int]]:
        """Keyword ids of every pair; read when first asked for."""
        if self._keyword_ids is None:
            self._keyword_ids = self._storage.keyword_ids()
        return self._keyword_ids

    @property
    def memory_usage_mb(self) -> float:
        """Size of all tables in MB; of mapped ones only what is used is in memory."""
        held = [vars(self)[name] for name in (*BY_NAME, "split_indices") if name in vars(self)]
        found: float = sum(tensor.nbytes for tensor in held) / 1024**2
        return found

    def reload_negatives(self) -> None:
        """Read negatives, tiers and steering again, for instance after ``mine_negatives``; all workers follow."""
        self._read_negatives()
        self._negatives_read = self._shared.refresh_negatives()

    def close(self) -> None:
        """Let go of all tables."""
        for name in (*BY_NAME, "split_indices"):
            vars(self).pop(name, None)
        self._keyword_ids = self.steering_stack = None

    def __enter__(self) -> JASPERSteeringDataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name in BY_NAME or name == "split_indices":
            raise AttributeError(f"{name} is gone: this dataset was closed. Open {self.dataset_dir} again.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        # a worker started afresh maps the files again instead of receiving a copy of them
        left_out = {"_keyword_ids", *(BY_NAME if self.use_mmap else ())}
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _keyword_ids=None)
        if self.use_mmap and "split_indices" in state:
            self._keep(load_tables(self._storage, (self.embedding_dim, self.n_neg)))

    @staticmethod
    def create_combined_splits(
        dataset_dir: str | Path,
        epoch: int = 0,
        device: torch.device | str | None = None,
        storage_format: str = "auto",
        use_mmap: bool | None = None,
        *,
        validate: bool | None = None,
    ) -> dict[str, JASPERSteeringDataset]:
        """Return train, val and test of one directory; the tables are read once and shared.

        A split that was built with a share of 0 is a dataset of length 0.
        """
        train = JASPERSteeringDataset(
            dataset_dir, SPLITS[0], epoch, device, storage_format, use_mmap, validate=validate
        )
        return {split: train if split == train.split else train._sibling(split, validate) for split in SPLITS}

    @staticmethod
    def convert_pt_to_hdf5(dataset_dir: str | Path, compression: str | None = "gzip") -> None:
        """Write the ``.pt`` tables of a directory into ``dataset.h5``; without compression it can be mapped."""
        convert_to_hdf5(local_path(dataset_dir), compression)

    def _sibling(self, split: str, validate: bool | None) -> JASPERSteeringDataset:
        other = copy.copy(self)
        other.split = split
        pairs, label = load_split(self._storage, split)
        if len(pairs):
            check_split(pairs, split, label, len(self.pair_index), below_zero=validate is not False)
        other._keep_split(pairs)
        other._shared = SharedSteering(self._shared.steering, self.current_epoch)
        return other

    def _load(self, validate: bool | None) -> None:
        require_files(self._storage, self.split)
        pairs, label = load_split(self._storage, self.split)
        tables = load_tables(self._storage, (self.embedding_dim, self.n_neg))
        check_split(pairs, self.split, label, len(tables["pair_index"]), below_zero=validate is not False)
        check_tables(self._storage, tables, validate)
        self._keep(tables)
        self._keep_split(pairs)

    def _keep(self, tables: dict[str, Tensor]) -> None:
        moved = {name: tensor.to(self.device) for name, tensor in tables.items()}
        tables.clear()
        if STEERING[0] in moved and not self.use_mmap:
            self.steering_stack = SteeringStack.of(moved)
        vars(self).update(moved)

    def _keep_split(self, pairs: Tensor) -> None:
        self._numbers = pairs.numpy().copy()  # a tensor's memory moves when it is sent to a worker, a view's does not
        self.split_indices = pairs.to(self.device)

    def _read_negatives(self) -> None:
        sizes = self.embedding_dim, self.n_neg
        self._keep(load_refreshed(self._storage, sizes, len(self.pair_index), len(self.source_embs)))

    def _follow(self) -> tuple[int, int]:
        """Return the current epoch and forced variant; read the negatives again where the parent process did."""
        epoch, forced, negatives = self._shared.now()
        if self._negatives_read != negatives:
            self._read_negatives()
            self._negatives_read = negatives
        return epoch, forced


def _beginning(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.blake2b(opened.read(FINGERPRINT_BYTES), digest_size=8).hexdigest()
