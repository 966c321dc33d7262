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
