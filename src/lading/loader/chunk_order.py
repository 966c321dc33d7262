"""What a user's sampler, generator and shuffle mean for the order of chunks.

    nothing, RandomSampler          shuffled, differently in each pass
    SequentialSampler               in order
    ChunkedSampler                  its seed and shuffle
    DistributedSampler              its seed and shuffle; the ranks share each batch
    any other                       drawn once: every pass goes through what it drew, in that order

A sampler yields an order from a state that is lost with the process; chunks
need one that can be asked for any chunk at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import Dataset, DistributedSampler, RandomSampler, SequentialSampler

from lading.errors import LoaderError
from lading.identity import fingerprint
from lading.order.chunked_sampler import ChunkedSampler

DEFAULT_SEED = 42


@dataclass(frozen=True)
class ChunkOrder:
    """A dataset and the arguments that give ``Loader`` the meant order."""

    dataset: Any
    arguments: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, dataset: Any, *, seed: int | None, shuffle: Any, sampler: Any, generator: Any) -> ChunkOrder:
        """Read the order from what a user would pass to torch's DataLoader."""
        if seed is None:
            seed = DEFAULT_SEED if generator is None else generator.initial_seed() & (2**63 - 1)
        if sampler is None:
            return cls(dataset, {"seed": seed, "shuffle": True if shuffle is None else shuffle})
        if isinstance(sampler, ChunkedSampler):
            return cls(dataset, {"seed": sampler.seed, "shuffle": sampler.shuffle})
        if isinstance(sampler, DistributedSampler):
            ranks = {"rank": sampler.rank, "world_size": sampler.num_replicas}
            return cls(dataset, {"seed": sampler.seed, "shuffle": sampler.shuffle, **ranks})
        if isinstance(sampler, SequentialSampler):
            return cls(dataset, {"seed": seed, "shuffle": False})
        if isinstance(sampler, RandomSampler) and not sampler.replacement and sampler.num_samples == len(dataset):
            if sampler.generator is not None:
                seed = sampler.generator.initial_seed() & (2**63 - 1)
            return cls(dataset, {"seed": seed, "shuffle": True})
        return cls(Drawn(dataset, list(sampler)), {"seed": seed, "shuffle": False})


class Drawn(Dataset[Any]):
    """The samples a sampler drew, in its order; ``idx`` counts in what was drawn."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        if not indices:
            raise LoaderError("the sampler drew nothing: expected at least one index. Pass one that is not used up.")
        self.dataset, self.indices = dataset, [int(i) for i in indices]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def fingerprint(self) -> str:
        """Return what was drawn, so that a resume with other draws is refused."""
        return fingerprint(self.indices)
