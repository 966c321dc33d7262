"""The NumPy face: plain arrays, no framework.

for batch, bill in NumpyLoader({"code": code, "prose": prose}, batch_size=32).with_bills():
    batch["x"], batch["idx"], batch["dataset_idx"]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from lading.identity import Bill, World
from lading.loader.base import EngineLoader
from lading.loader.engine import Engine
from lading.loader.request import LoaderOptions, PlainOptions, request_of, takes
from lading.order import Plan
from lading.runtime.arrays import host, is_texts, side_by_side
from lading.source.columns import MIN_BYTES, Memory
from lading.source.protocol import Sources


class NumpyArrays:
    """NumPy arrays; tensors become arrays.

    Args:
        small_names: Whether the name columns have 32 bits where these are enough, as JAX wants them.
    """

    def __init__(self, *, small_names: bool = False) -> None:
        self.small_names, self.memory = small_names, Memory()

    def columns(self, columns: Any) -> Any:
        """Return what a source gave as arrays; lists become tuples, but those of texts."""
        if type(columns) is np.ndarray:  # the quick question first: asked of every column
            return host(columns)
        if isinstance(columns, Mapping):
            return {name: self.columns(column) for name, column in columns.items()}
        if isinstance(columns, tuple | list) and not is_texts(columns):
            return tuple(map(self.columns, columns))
        return columns if isinstance(columns, list) else host(columns)

    def allocate(self, rows: int, like: NDArray[Any]) -> NDArray[Any]:
        return np.empty((rows, *like.shape[1:]), like.dtype)

    def over(self, memory: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
        return memory if memory.dtype == like.dtype else memory.view(like.dtype)

    def scatter(self, out: NDArray[Any], rows: NDArray[np.int64], part: NDArray[Any]) -> None:
        out[rows] = part

    def collate(self, samples: list[Any]) -> Any:
        """Stack samples; containers and dataclasses keep their type, texts stay a list.

        >>> NumpyArrays().collate([{"x": 1, "s": "a"}, {"x": 2, "s": "b"}])
        {'x': array([1, 2]), 's': ['a', 'b']}
        """
        first = samples[0]
        if isinstance(first, Mapping):
            return {name: self.collate([sample[name] for sample in samples]) for name in first}
        if isinstance(first, str | bytes):
            return samples
        if isinstance(first, tuple | list):
            columns = (self.collate(list(values)) for values in zip(*samples, strict=True))
            return type(first)(*columns) if hasattr(first, "_fields") else tuple(columns)
        if dataclasses.is_dataclass(first) and not isinstance(first, type):
            fields = [f.name for f in dataclasses.fields(first)]
            return dataclasses.replace(first, **{f: self.collate([getattr(s, f) for s in samples]) for f in fields})
        if len(set(map(type, samples))) == 1 and (numbers := side_by_side(samples)) is not None:
            return numbers
        return self._stacked([host(sample) for sample in samples])

    def _stacked(self, samples: list[NDArray[Any]]) -> NDArray[Any]:
        """Stack arrays, large ones into memory that is used again."""
        first, size = samples[0], samples[0].nbytes * len(samples)
        if size < MIN_BYTES or {s.dtype for s in samples} != {first.dtype} or first.dtype.hasobject:
            return np.stack(samples)
        if {s.shape for s in samples} != {first.shape}:
            return np.stack(samples)  # says what is wrong
        out = self.memory.of(size).view(first.dtype).reshape(len(samples), *first.shape)
        return np.stack(samples, out=out)

    def finish(self, batch: dict[str, Any], names: Mapping[str, NDArray[Any]]) -> None:
        for key, values in names.items():
            batch[key] = values.astype(self._dtype(values))

    def _dtype(self, values: NDArray[Any]) -> Any:
        if values.dtype == np.bool_:
            return np.bool_
        fits = self.small_names and (values.dtype == np.int32 or not values.size or int(values.max()) < 1 << 31)
        return np.int32 if fits else np.int64


class NumpyFace:
    """What the engine asks of NumPy: nothing is placed anywhere."""

    places, places_freely, depth = False, True, 0

    def __init__(self, world: World | None, pad: bool | None) -> None:
        self.arrays = NumpyArrays()
        self._world, self._pad = world, pad

    def world(self) -> World:
        return self._world or World.current()

    def share(self, plan: Plan, step: int, world: World) -> Bill:
        return plan.bill(step, world=world, pad=self._pad)

    def place(self, batch: Any, bill: Bill, batch_rows: int) -> tuple[Any, Bill, Any]:
        return batch, bill, batch


@takes(LoaderOptions, PlainOptions)
class NumpyLoader(EngineLoader):
    """Load batches of NumPy arrays that can be accounted for; no framework is imported.

    Args:
        sources: One dataset, or several by name. Anything with ``__len__`` and ``__getitem__``.
        batch_size: Samples of a batch on each rank.
        global_batch_size: Samples of a step, all ranks together; instead of ``batch_size``.
        pad: Whether the last, incomplete batch is filled up with marked rows. None: only with several ranks.
        world: Who this process is; default: the process group, else the environment.
        options: See ``PlainOptions``.

    Example:
        >>> loader = NumpyLoader({"numbers": np.arange(10)}, batch_size=4, shuffle=False)
        >>> [batch.tolist() for batch in loader]
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    """

    def __init__(
        self,
        sources: Sources,
        batch_size: int | None = None,
        *,
        global_batch_size: int | None = None,
        pad: bool | None = None,
        world: World | None = None,
        **options: Unpack[PlainOptions],
    ) -> None:
        sizes = {"batch_size": batch_size, "global_batch_size": global_batch_size}
        given = self.keep(options, PlainOptions, sources=sources, pad=pad, world=world, **sizes)
        self.engine = Engine(request_of(given), NumpyFace(world, pad), given["tracker"])
