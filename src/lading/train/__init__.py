"""The edge, where loaders and ledgers meet training: any loop, and one file per framework."""

from lading.runtime.lazy import lazy_names

_HOMES = {
    "ChunkedTrainingMixin": "lading.train.chunked_mixin",
    "DsCallback": "lading.train.deepspeed.callback",
    "DsTrainer": "lading.train.deepspeed.trainer",
    "DsTrainingArguments": "lading.train.deepspeed.arguments",
    "FollowLosses": "lading.train.policy",
    "MixtureScheduler": "lading.train.policy",
    "RepeatingLoader": "lading.train.repeating",
    "SteerToShares": "lading.train.policy",
    "per_dataset_mean": "lading.train.metrics",
    "per_dataset_token_mean": "lading.train.metrics",
    "token_owners": "lading.train.metrics",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
