"""Where source, order and batch meet: the loaders."""

from lading.runtime.lazy import lazy_names

_HOMES = {
    "ChunkedDataLoader": "lading.loader.torch.chunked",
    "JaxLoader": "lading.loader.jax.loader",
    "Loader": "lading.loader.torch.loader",
    "StatefulDistributedSampler": "lading.loader.torch.distributed_sampler",
    "create_loader": "lading.loader.torch.jasper",
    "set_epoch": "lading.loader.torch.jasper",
    "validate_first_batch": "lading.loader.torch.jasper",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
