"""A dataset whose samples know their names.

    dataset[7]          {"text": ...}      x
    TaggedDataset[7]    {"text": ...,      (x, 7)
                         "idx": 7,
                         "dataset_idx": 0}

The name travels inside the sample, so it is right under any shuffling, with
any number of workers, in a short last batch and after a resume.

Names are integer columns beside the data, so they survive collating, pinning
and the way through worker processes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lading.errors import SourceError
from lading.identity.bill import DATASET_IDX, ID, IDX, SAMPLE_COLUMNS
from lading.identity.content import content_hash
from lading.order.dataset import Part
from lading.source.protocol import Named, notify_epoch
from lading.source.reader import draws_nothing, provides_names


def name_keys(names: Mapping[str, str] | None) -> dict[str, str]:
    """Return the key of each name, with the ones the caller renamed.

    >>> name_keys({"idx": "sample_idx"})["idx"]
    'sample_idx'
    """
    unknown = set(names or {}) - set(SAMPLE_COLUMNS)
    if unknown:
        known = ", ".join(map(repr, SAMPLE_COLUMNS))
        raise SourceError(f"names= renames {', '.join(map(repr, sorted(unknown)))}: expected only {known}.")
    return {key: (names or {}).get(key, key) for key in SAMPLE_COLUMNS}


def named(sample: Mapping[str, Any], added: Mapping[str, Any], *, replaces: bool) -> dict[str, Any]:
    """Return a sample with names added; the sample itself stays as it is.

    Args:
        replaces: Whether keys the sample already has are names too, put there by a dataset further in.

    Raises:
        SourceError: The sample has a column of its own under one of the keys.
    """
    taken = [key for key in added if key in sample]
    if taken and not replaces:
        key = taken[0]
        raise SourceError(
            f"the dataset's samples already have a {key!r}; they have {', '.join(map(str, sample))}. "
            f"Pass names={{{key!r}: 'sample_{key}'}} so that both are kept."
        )
    return {**sample, **added}


class TaggedDataset:
    """Samples with their names: dicts gain ``idx`` and ``dataset_idx``, anything else becomes ``(sample, id)``.

    >>> TaggedDataset(["a", "b"])[1]
    ('b', 1)
    >>> TaggedDataset([{"x": 5}], dataset_idx=2, ids=["doc-5"])[0]
    {'x': 5, 'idx': 0, 'dataset_idx': 2, 'id': 'doc-5'}

    Args:
        dataset: Anything with ``__len__`` and ``__getitem__``.
        dataset_idx: Number of this dataset among several.
        ids: An id for each sample (texts or integers), or ``"hash"`` for a hash of the sample's content as the
            dataset gives it. None: the index is the id.
        transform: Applied to each sample before it is named.
        names: Other keys for ``idx``, ``dataset_idx`` or ``id``, where samples have columns of these names.

    Attributes:
        provides_names: Says that samples already carry their names.
    """

    provides_names = True

    def __init__(
        self,
        dataset: Any,
        dataset_idx: int = 0,
        ids: Sequence[Any] | str | None = None,
        *,
        transform: Callable[[Any], Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        _check(dataset, ids)
        self.dataset = dataset
        self.dataset_idx = int(dataset_idx)
        self.ids = ids
        self.transform = transform
        self.names = dict(names or {})
        self._keys = name_keys(names)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        """Return a sample with its name; negative indices count from the end."""
        place = in_range(index, len(self))
        return self._tagged(place, self.dataset[place])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return many samples, through the dataset's own ``__getitems__`` where it has one."""
        places = [in_range(index, len(self)) for index in indices]
        fetch = getattr(self.dataset, "__getitems__", None)
        samples = fetch(places) if fetch is not None else [self.dataset[place] for place in places]
        return [self._tagged(place, sample) for place, sample in zip(places, samples, strict=True)]

    @property
    def random_free(self) -> bool:
        """Whether nothing in it draws from a global random generator."""
        return self.transform is None and draws_nothing(self.dataset)

    @property
    def parts(self) -> tuple[Part, ...]:
        """One dataset, with the number given."""
        return (Part(self.dataset_idx, "", len(self), len(self)),)

    def name(self, index: int) -> str:
        """Return the id of a sample, or what the dataset calls it; empty where neither is known."""
        if self.ids is None:
            return self.dataset.name(index) if isinstance(self.dataset, Named) else ""
        return str(content_hash(self.dataset[index]) if isinstance(self.ids, str) else self.ids[index])

    def set_epoch(self, epoch: int) -> None:
        """Tell the dataset the epoch, where it wants to know."""
        notify_epoch(self.dataset, epoch)

    def _tagged(self, place: int, sample: Any) -> Any:
        # The hash is of what the dataset holds: a random transform must not change a sample's id.
        id_ = place if self.ids is None else content_hash(sample) if isinstance(self.ids, str) else self.ids[place]
        if self.transform is not None:
            sample = self.transform(sample)
        if not isinstance(sample, Mapping):
            return sample, id_
        added: dict[str, Any] = {self._keys[IDX]: place, self._keys[DATASET_IDX]: self.dataset_idx}
        if self.ids is not None:
            added[self._keys[ID]] = id_
        return named(sample, added, replaces=provides_names(self.dataset))


def in_range(index: int, size: int) -> int:
    """Return an index of so many samples; negative ones count from the end."""
    place = int(index)
    if not -size <= place < size:
        raise IndexError(f"Index {place} out of range [0, {size})")
    return place % size


def has_index(dataset: Any) -> bool:
    """Say whether samples can be had by index; a torch stream inherits a ``__getitem__`` that only raises."""
    torch_data = sys.modules.get("torch.utils.data")
    is_stream = torch_data is not None and isinstance(dataset, torch_data.IterableDataset)
    return hasattr(dataset, "__getitem__") and not is_stream


def _check(dataset: Any, ids: Sequence[Any] | str | None) -> None:
    if not hasattr(dataset, "__len__") or not has_index(dataset):
        raise SourceError(
            f"a {type(dataset).__name__} has no length or no samples by index: expected __len__ and __getitem__. "
            "For a stream use lading.TaggedIterableDataset."
        )
    if isinstance(ids, str):
        if ids != "hash":
            raise SourceError(f"ids is {ids!r}: expected an id for each sample, or 'hash'.")
    elif ids is not None and len(ids) != len(dataset):
        raise SourceError(f"{len(ids)} ids for {len(dataset)} samples: expected one for each sample.")
