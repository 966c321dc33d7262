"""Reinforcement learning that is accounted for: prompts, the rollouts made of them, the updates that used them.

prompt ─▶ group of rollouts ─▶ applied · stale · filtered · open · lost        each rollout is one of these, at any time
"""

from lading.train.rollouts.books import RolloutBooks
from lading.train.rollouts.group import Prompt, Rollout, RolloutGroup

__all__ = ["Prompt", "Rollout", "RolloutBooks", "RolloutGroup"]
