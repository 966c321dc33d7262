"""The edge, where loaders and ledgers meet training: any loop, and one file per framework."""

from lading.identity.lazy import lazy_names

_HOMES = {
    "ChunkedTrainingMixin": "lading.train.chunked",
    "DsCallback": "lading.train.deepspeed_callback",
    "DsTrainer": "lading.train.deepspeed",
    "DsTrainingArguments": "lading.train.deepspeed_arguments",
    "FollowLosses": "lading.train.policy",
    "JaxLoader": "lading.train.jax",
    "MixtureScheduler": "lading.train.mixture_scheduler",
    "RepeatingLoader": "lading.train.repeating",
    "SteerToShares": "lading.train.policy",
    "per_dataset_mean": "lading.train.metrics",
    "per_dataset_token_mean": "lading.train.metrics",
    "token_owners": "lading.train.metrics",
    "track": "lading.train.tracking",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
