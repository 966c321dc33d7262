"""The edge, where loaders and ledgers meet training: any loop, and one file per framework."""

from typing import TYPE_CHECKING

from lading.runtime.lazy import lazy_names

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.loader.adaptive.policies import (
        GrowWhileImproving as GrowWhileImproving,
        LearningValue as LearningValue,
        PaceValidation as PaceValidation,
    )
    from lading.train.metrics import (
        per_dataset_mean as per_dataset_mean,
        per_dataset_token_mean as per_dataset_token_mean,
        token_owners as token_owners,
    )
    from lading.train.policy import (
        FollowLosses as FollowLosses,
        MixtureScheduler as MixtureScheduler,
        SteerToShares as SteerToShares,
    )
    from lading.train.repeating import RepeatingLoader as RepeatingLoader

_HOMES = {
    "FollowLosses": "lading.train.policy",
    "GrowWhileImproving": "lading.loader.adaptive.policies",
    "LearningValue": "lading.loader.adaptive.policies",
    "MixtureScheduler": "lading.train.policy",
    "PaceValidation": "lading.loader.adaptive.policies",
    "RepeatingLoader": "lading.train.repeating",
    "SteerToShares": "lading.train.policy",
    "per_dataset_mean": "lading.train.metrics",
    "per_dataset_token_mean": "lading.train.metrics",
    "token_owners": "lading.train.metrics",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
