from lading.kits.adaptive.chosen import Choose as Choose
from lading.kits.adaptive.curriculum import Curriculum as Curriculum
from lading.kits.adaptive.graded import Rescore as Rescore
from lading.kits.adaptive.policy.chunks import (
    GrowWhileImproving as GrowWhileImproving,
    LearningValue as LearningValue,
    PaceValidation as PaceValidation,
)
from lading.kits.adaptive.policy.mixture import FollowLosses as FollowLosses, SteerToShares as SteerToShares
