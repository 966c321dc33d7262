"""Where source, order and batch meet: the loaders. This room is torch's."""

from lading.identity.lazy import lazy_names

_HOMES = {
    "ChunkedDataLoader": "lading.loader.chunked",
    "Loader": "lading.loader.loader",
    "StatefulDistributedSampler": "lading.loader.distributed_sampler",
    "audit": "lading.loader.auditing",
    "create_loader": "lading.loader.jasper",
    "set_epoch": "lading.loader.jasper",
    "validate_first_batch": "lading.loader.jasper",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
