"""Which rows of a global batch a process needs, and how they become global arrays.

    mesh of 4 devices, 2 processes       rows   0 1 │ 2 3 ║ 4 5 │ 6 7
                                         device  0  │  1  ║  2  │  3
                                         process     0    ║     1

Rows follow the sharding, whatever the mesh: two processes that hold the same rows
(model parallel) both read them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from lading.batch.jax import refused_if_cut
from lading.errors import LoaderError, SourceError

_TOGETHER = 8  # arrays of a call: ten and more, of 400 kB together, take JAX twice as long as two calls (0.10, a CPU)


@dataclass(frozen=True)
class Placement:
    """Where the rows of a global batch go.

    Attributes:
        mesh: The devices.
        spec: How the axes of a batch are cut, rows first; cut to each array's number of axes.
        global_batch_size: Rows of a global batch.
    """

    mesh: Mesh
    spec: PartitionSpec
    global_batch_size: int

    def __post_init__(self) -> None:
        shards = self.sharding(1).num_devices // _copies(self.mesh, self.spec)
        if self.global_batch_size % shards:
            raise LoaderError(
                f"a global batch of {self.global_batch_size} rows cannot be cut into {shards} equal shards, which "
                f"{self.spec} on {dict(self.mesh.shape)} asks for. Choose a multiple of {shards}."
            )

    @classmethod
    def make(cls, mesh: Mesh | None, spec: PartitionSpec | None, global_batch_size: int) -> Placement:
        """Return the placement asked for; by default rows are spread over the mesh's first axis, or all devices."""
        mesh = mesh if mesh is not None else Mesh(np.array(jax.devices()), ("data",))
        return cls(mesh, spec if spec is not None else PartitionSpec(mesh.axis_names[0]), global_batch_size)  # type: ignore[no-untyped-call]

    def sharding(self, ndim: int) -> NamedSharding:
        """Return the sharding of an array with so many axes."""
        return NamedSharding(self.mesh, PartitionSpec(*self.spec[:ndim]))  # type: ignore[no-untyped-call]

    def local_rows(self) -> NDArray[np.int64]:
        """Return the rows of a global batch that this process's devices hold, ascending."""
        shape = (self.global_batch_size,)
        slices = [index[0] for index in self.sharding(1).addressable_devices_indices_map(shape).values() if index]
        pieces = [np.arange(self.global_batch_size)[part] for part in slices]
        if not pieces:
            raise LoaderError("no device of the mesh belongs to this process. Make the mesh of all jax.devices().")
        return np.unique(np.concatenate(pieces))

    def place(self, batch: Any, rows: NDArray[np.int64]) -> Any:
        """Return a batch of host arrays (the rows of this process) as one of global arrays."""
        leaves, structure = jax.tree_util.tree_flatten(batch)
        arrays = [np.asarray(leaf) for leaf in leaves]
        for number, array in enumerate(arrays):
            if array.dtype.kind not in "biufc" or array.ndim == 0 or len(array) != len(rows):
                raise self._refused(batch, number, array, len(rows))
            if array.itemsize > 4:
                refused_if_cut(array)
        if self._is_here:
            groups = [arrays[first : first + _TOGETHER] for first in range(0, len(arrays), _TOGETHER)]
            placed = [one for group in groups for one in self._placing(tuple(array.ndim for array in group))(group)]
        else:
            placed = [self._global(array, rows) for array in arrays]
        return jax.tree_util.tree_unflatten(structure, placed)

    @functools.cached_property
    def _is_here(self) -> bool:
        """Whether this process has all devices."""
        return bool(self.sharding(1).is_fully_addressable)

    @functools.cached_property
    def _placing(self) -> Callable[[tuple[int, ...]], Callable[[list[NDArray[Any]]], list[jax.Array]]]:
        """Returns what places arrays of so many axes at once: a compiled function that gives back what it takes."""

        @functools.lru_cache(maxsize=8)
        def placing(axes: tuple[int, ...]) -> Any:
            shardings = [self.sharding(ndim) for ndim in axes]
            return jax.jit(lambda arrays: arrays, in_shardings=(shardings,), out_shardings=shardings)

        return placing

    def _refused(self, batch: Any, number: int, array: NDArray[Any], rows: int) -> SourceError:
        path, _ = jax.tree_util.tree_flatten_with_path(batch)[0][number]
        return SourceError(
            f"column {jax.tree_util.keystr(path)} holds {array.dtype} of shape {array.shape}, which is no array of "
            f"{rows} rows that JAX can take. Leave it out with convert=."
        )

    def _global(self, array: NDArray[Any], rows: NDArray[np.int64]) -> jax.Array:
        shape = (self.global_batch_size, *array.shape[1:])

        def part(index: Any) -> NDArray[Any]:
            first = 0 if index[0].start is None else index[0].start
            stop = self.global_batch_size if index[0].stop is None else index[0].stop
            begin = int(np.searchsorted(rows, first))
            return array[(slice(begin, begin + stop - first), *index[1:])]

        return jax.make_array_from_callback(shape, self.sharding(array.ndim), part)


def _copies(mesh: Mesh, spec: PartitionSpec) -> int:
    """Return how many devices hold the same rows."""
    named = spec[0] if len(spec) else None
    axes = () if named is None else (named,) if isinstance(named, str) else tuple(named)
    shards = int(np.prod([mesh.shape[axis] for axis in axes], dtype=np.int64))
    return int(mesh.size // shards)
