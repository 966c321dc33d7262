"""A batch: named arrays that are sliced, replaced and compared together.

    batch[2:4]        rows 2 and 3 of every field
    batch[:, a:b]     positions a..b of the fields that have them; a field with one axis stays whole

Frozen, and the same for NumPy, torch and JAX arrays (and inside ``jax.jit``).

Batches move between frameworks: every array of a batch, mapping, list or tuple, and nothing else in it.

to_numpy here, to_torch in ``torch.py``, to_jax in ``jax.py``
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import numpy as np

from lading.batch.pytree import batch_class
from lading.errors import SourceError
from lading.runtime.arrays import framework, host


@batch_class
class Batch:
    """Inputs and targets of a training step.

    >>> import numpy as np
    >>> batch = Batch(np.zeros((4, 8)), np.ones((4, 8)))
    >>> len(batch), batch[:, 2:5].targets.shape
    (4, (4, 3))
    """

    inputs: Any
    targets: Any

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def map(self, function: Callable[[Any], Any]) -> Self:
        """Return a batch with ``function`` applied to every array; unset fields stay unset."""
        arrays = {name: function(value) for name, value in self._items() if value is not None}
        return self.replace(**arrays)

    def __getitem__(self, key: Any) -> Self:
        axes = _expanded(key, np.ndim(self.inputs))
        return self.replace(**{name: _sliced(name, value, axes) for name, value in self._items() if value is not None})

    def __len__(self) -> int:
        return int(self.inputs.shape[0])

    def __iter__(self) -> Iterator[Self]:
        """Yield the rows, one by one."""
        return (self[row] for row in range(len(self)))

    def equals(self, other: object) -> bool:
        """Say whether the other batch is of the same class and holds the same values, in whatever framework."""
        if type(other) is not type(self):
            return False
        mine, theirs = dict(self._compared()), dict(other._compared())
        return all(_same(mine[name], theirs[name]) for name in mine)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move torch tensors, as ``tensor.to`` does (Lightning asks batches for this)."""
        return self.map(lambda array: array.to(*args, **kwargs))

    def pin_memory(self) -> Self:
        """Pin torch tensors (a torch DataLoader asks batches for this)."""
        return self.map(lambda array: array.pin_memory())

    def _items(self) -> list[tuple[str, Any]]:
        fields = dataclasses.fields(self)
        return [(f.name, getattr(self, f.name)) for f in fields if f.metadata.get("pytree_node", True)]

    def _compared(self) -> list[tuple[str, Any]]:
        return self._items()

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={_brief(value)}" for name, value in self._items() if value is not None)
        return f"{type(self).__name__}({parts})"


def _expanded(key: Any, ndim: int) -> tuple[Any, ...]:
    """Return a key as one part per axis: ``...`` written out for an array of ``ndim`` axes."""
    parts = key if isinstance(key, tuple) else (key,)
    places = [i for i, part in enumerate(parts) if part is Ellipsis]
    if not places:
        return parts
    missing = ndim - sum(_axes_used(part) for part in parts if part is not Ellipsis)
    return parts[: places[0]] + (slice(None),) * missing + parts[places[0] + 1 :]


def _axes_used(part: Any) -> int:
    if part is None:
        return 0
    is_mask = framework(part) != "" and "bool" in str(part.dtype)
    return int(part.ndim) if is_mask else 1


def _sliced(name: str, value: Any, key: tuple[Any, ...]) -> Any:
    """Slice a field with the parts of a key that it has axes for."""
    kept: list[Any] = []
    free = np.ndim(value)
    for part in key:
        used = _axes_used(part)
        if used > max(free, 0) and used > 1:
            raise SourceError(
                f"a mask of {used} axes cannot select from {name!r}, which has {np.ndim(value)}. "
                "Select rows with a mask of one axis, or index the arrays themselves."
            )
        if used > free:
            break
        free -= used
        kept.append(part)
    return value[tuple(kept)] if kept else value


def _same(mine: Any, theirs: Any) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    left, right = host(mine), host(theirs)
    return left.dtype == right.dtype and left.shape == right.shape and bool(np.array_equal(left, right))


def _brief(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return repr(value)
    return f"{str(value.dtype).removeprefix('torch.')}[{','.join(map(str, shape))}]"


def converted(batch: Any, convert: Callable[[Any], Any]) -> Any:
    """Return the same structure with every array converted; what is no array stays."""
    if framework(batch):
        return convert(batch)
    if isinstance(batch, Batch):
        return batch.map(lambda value: converted(value, convert))
    if isinstance(batch, Mapping):
        return {key: converted(value, convert) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(converted(value, convert) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(converted(value, convert) for value in batch)
    return batch


def to_numpy(batch: Any) -> Any:
    """Return a batch (or a dict, list or tuple of arrays) with NumPy arrays in it; memory is shared where possible.

    >>> import numpy as np
    >>> to_numpy({"x": np.arange(2), "name": "kept"})
    {'x': array([0, 1]), 'name': 'kept'}
    """
    return converted(batch, host)
