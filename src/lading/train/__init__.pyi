from lading.train.fates import Fates as Fates
from lading.train.metrics import (
    per_dataset_mean as per_dataset_mean,
    per_dataset_token_mean as per_dataset_token_mean,
    token_owners as token_owners,
)
from lading.train.repeating import RepeatingLoader as RepeatingLoader
from lading.train.rollouts import (
    Prompt as Prompt,
    Rollout as Rollout,
    RolloutBooks as RolloutBooks,
    RolloutGroup as RolloutGroup,
)
from lading.train.scheduler import MixtureScheduler as MixtureScheduler
