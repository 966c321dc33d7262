"""Where source, order and batch meet: the loaders."""

from typing import TYPE_CHECKING

from lading.runtime.lazy import lazy_names

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.loader.adaptive.chunks import Chunks as Chunks
    from lading.loader.bad_samples import BadSamplePolicy as BadSamplePolicy
    from lading.loader.jax.loader import JaxLoader as JaxLoader
    from lading.loader.numpy import NumpyLoader as NumpyLoader
    from lading.loader.state import Resume as Resume
    from lading.loader.torch.chunked import ChunkedDataLoader as ChunkedDataLoader
    from lading.loader.torch.distributed_sampler import StatefulDistributedSampler as StatefulDistributedSampler
    from lading.loader.torch.loader import Loader as Loader

_HOMES = {
    "BadSamplePolicy": "lading.loader.bad_samples",
    "ChunkedDataLoader": "lading.loader.torch.chunked",
    "Chunks": "lading.loader.adaptive.chunks",
    "JaxLoader": "lading.loader.jax.loader",
    "Loader": "lading.loader.torch.loader",
    "NumpyLoader": "lading.loader.numpy",
    "Resume": "lading.loader.state",
    "StatefulDistributedSampler": "lading.loader.torch.distributed_sampler",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
