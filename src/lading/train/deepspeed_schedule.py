"""The learning rate over a run: up during the warm-up, then down to nothing, or level.

linear    ╱╲        cosine   ╱⌒╲        constant   ╱▔▔
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lading.train.deepspeed_arguments import DsTrainingArguments


def learning_rate_factor(args: DsTrainingArguments, total: int) -> Callable[[int], float]:
    """Return the factor of the learning rate as a function of the update.

    >>> factor = learning_rate_factor(DsTrainingArguments("runs/7", warmup_steps=2), total=10)
    >>> [factor(update) for update in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    warmup = math.ceil(args.warmup_steps * total) if isinstance(args.warmup_steps, float) else args.warmup_steps
    left = max(total - warmup, 1)

    def factor(update: int) -> float:
        if update < warmup:
            return (update + 1) / warmup
        done = min((update - warmup) / left, 1.0)
        if args.lr_scheduler_type == "cosine":
            return 0.5 * (1 + math.cos(math.pi * done))
        return 1.0 - done if args.lr_scheduler_type == "linear" else 1.0

    return factor
