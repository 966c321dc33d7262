"""Cut each pass over the data into chunks and yield them in turn.

    one pass    7 2 9 | 4 0 8 | 1 6 3 | 5
    chunk         0       1       2     3     then 4, 5, ... from the next pass

    wrap=True   7 2 9 | 4 0 8 | 1 6 3 | 5 0 2 | 9 ...     every chunk full: chunk k is stream positions kc..(k+1)c-1

A chunk is a pure function of ``(seed, chunk)``. There is no cursor to lose:
resuming means asking for the next number. Nothing is materialised but the
chunk itself, so 10**12 samples cost what 10 do.

NumPy only; yet a torch ``Sampler`` to those who ask, because ``isinstance``
also looks at ``__class__`` (``lading.runtime.torch_class``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import PlanError, ResumeError
from lading.order.permutation import MAX_SEED, ORDER_VERSION, Permutation
from lading.runtime.fields import whole
from lading.runtime.torch_class import torch_class

I64 = NDArray[np.int64]

_STRETCH = 1 << 16  # samples made at once while iterating: a chunk may be the whole of a huge dataset


class ChunkedSampler:
    """Yield the indices of the current chunk; all sizes count samples, not batches.

    Args:
        dataset_size: Samples in the dataset.
        chunk_size: Samples in a chunk. The last chunk of a pass may be shorter; above the data it is one chunk.
        seed: Same seed, same order, on every machine; the order of a ``Loader`` with this seed.
        shuffle: Shuffle each pass differently (True), go in order (False), or ``"within"``: chunk k is samples kc to
            (k + 1)c - 1, shuffled inside, differently in each pass.
        wrap: Let chunks run on into the next pass, so that all of them are full.

    Example:
        >>> sampler = ChunkedSampler(dataset_size=10, chunk_size=4, shuffle=False)
        >>> [sampler.get_chunk_indices(k).tolist() for k in range(4)]
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [0, 1, 2, 3]]
        >>> sampler.advance_chunk()
        1
        >>> list(sampler), len(sampler)
        ([4, 5, 6, 7], 4)
    """

    def __init__(
        self, dataset_size: int, chunk_size: int, seed: int = 42, shuffle: bool | str = True, wrap: bool = False
    ) -> None:
        self.dataset_size = _integer("dataset_size", dataset_size, minimum=1)
        self.chunk_size = _integer("chunk_size", chunk_size, minimum=1)
        self.seed = _integer("seed", seed, minimum=0, maximum=MAX_SEED)
        if isinstance(shuffle, str) and shuffle != "within":
            raise PlanError(f"shuffle={shuffle!r}: expected True, False or 'within'.")
        self.shuffle = shuffle if isinstance(shuffle, str) else bool(shuffle)
        self.wrap = bool(wrap)
        self.current_chunk = 0

    @property
    def total_chunks(self) -> int:
        """Chunks that one pass takes."""
        return -(-self.dataset_size // self.chunk_size)

    def get_chunk_indices(self, chunk: int) -> I64:
        """Return the samples of a chunk; numbers past one pass start the next, differently shuffled."""
        start, stop = self._span(_integer("chunk", chunk, minimum=0))
        return self._indices(start, stop)

    def set_chunk(self, chunk: int) -> None:
        """Make a chunk the current one."""
        self.current_chunk = _integer("chunk", chunk, minimum=0)

    def reset(self) -> None:
        """Go back to the first chunk."""
        self.set_chunk(0)

    def advance_chunk(self) -> int:
        """Move on to the next chunk and return its number."""
        self.current_chunk += 1
        return self.current_chunk

    def get_chunk_info(self) -> dict[str, Any]:
        """Return where the current chunk is: its pass, its place in it, and the share of the pass before it."""
        start, stop = self._span(self.current_chunk)
        of_pass, place = divmod(start, self.dataset_size)
        return {
            "current_chunk": self.current_chunk,
            "total_chunks": self.total_chunks,
            "chunk_size": self.chunk_size,
            "dataset_size": self.dataset_size,
            "num_samples": stop - start,
            "samples_in_current_chunk": stop - start,  # as s4 calls it
            "pass": of_pass,
            "pass_chunk": place // self.chunk_size,
            "share": place / self.dataset_size,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the current chunk and what it belongs to."""
        description = self._description()
        return {"version": 1, "order_version": ORDER_VERSION, "current_chunk": self.current_chunk, **description}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to the chunk of a saved state; a state of other data or another order is refused."""
        mine = {"order_version": ORDER_VERSION, **self._description()}
        different = [f"{name} {state.get(name)!r} -> {mine[name]!r}" for name in mine if state.get(name) != mine[name]]
        if different:
            raise ResumeError(
                f"the saved sampler differs in {len(different)} places: {', '.join(different)}. Samples would repeat "
                "or be missed. Make the sampler as it was, or call set_chunk() to start at a chunk of the new order."
            )
        self.set_chunk(state["current_chunk"])

    def __iter__(self) -> Iterator[int]:
        start, stop = self._span(self.current_chunk)
        for first in range(start, stop, _STRETCH):
            yield from self._indices(first, min(first + _STRETCH, stop)).tolist()

    def __len__(self) -> int:
        start, stop = self._span(self.current_chunk)
        return stop - start

    def __repr__(self) -> str:
        return (
            f"ChunkedSampler(dataset_size={self.dataset_size}, chunk_size={self.chunk_size}, seed={self.seed}, "
            f"shuffle={self.shuffle}, wrap={self.wrap}, current_chunk={self.current_chunk})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes get a copy; the default would trip over __class__ below.
        return _restored, (self._description(), self.current_chunk)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return torch_class(ChunkedSampler, "Sampler")

    def _description(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("dataset_size", "chunk_size", "seed", "shuffle", "wrap")}

    def _span(self, chunk: int) -> tuple[int, int]:
        """Return the stream positions ``[start, stop)`` of a chunk; position q belongs to pass ``q // n``."""
        if self.wrap:
            return chunk * self.chunk_size, (chunk + 1) * self.chunk_size
        of_pass, place = divmod(chunk, self.total_chunks)
        start = of_pass * self.dataset_size + place * self.chunk_size
        return start, min(start + self.chunk_size, (of_pass + 1) * self.dataset_size)

    def _indices(self, start: int, stop: int) -> I64:
        parts = []
        while start < stop:
            of_pass, place = divmod(start, self.dataset_size)
            end = min(stop, (of_pass + 1) * self.dataset_size)
            positions = np.arange(place, place + end - start, dtype=np.int64)
            parts.append(self._shuffled(of_pass, positions))
            start = end
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _shuffled(self, of_pass: int, places: I64) -> I64:
        """Return the samples at places of a pass."""
        if not self.shuffle:
            return places
        if self.shuffle is True:
            return Permutation(self.dataset_size, key=(self.seed, of_pass))(places)
        found = np.empty_like(places)
        for chunk in range(int(places[0]) // self.chunk_size, int(places[-1]) // self.chunk_size + 1):
            first = chunk * self.chunk_size
            size = min(self.chunk_size, self.dataset_size - first)
            inside = (places >= first) & (places < first + size)
            found[inside] = first + Permutation(size, key=(self.seed, of_pass, chunk))(places[inside] - first)
        return found


def _integer(name: str, value: Any, *, minimum: int, maximum: int | None = None) -> int:
    """Return an integer, or refuse it with a sentence."""
    number = whole(value)
    if number is None or number < minimum or (maximum is not None and number > maximum):
        expected = f"an integer from {minimum} {'up' if maximum is None else 'to 2**64 - 1'}"
        raise PlanError(f"{name}={value!r}: expected {expected}. ChunkedSampler counts samples, not batches.")
    return number


def _restored(description: dict[str, Any], chunk: int) -> ChunkedSampler:
    sampler = ChunkedSampler(**description)
    sampler.set_chunk(chunk)
    return sampler
