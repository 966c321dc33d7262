"""The line that accounts for the data of a trainer that exists."""

from __future__ import annotations

import os
from typing import Any

from lading.errors import ConfigError
from lading.ledger.ledger import Ledger
from lading.train.transformers.accepted import check_account, makes_rollouts
from lading.train.transformers.accounted import LadingTrainerMixin
from lading.train.transformers.generating import RolloutTrainerMixin


def account(
    trainer: Any,
    run: str | os.PathLike[str] | Ledger,
    *,
    sources: Any = None,
    keep_texts: bool = False,
    **options: Any,
) -> Any:
    """Account for the training data of a Trainer.

    Args:
        trainer: A ``Trainer``, or one of TRL's; it is changed in place and returned.
        run: Folder of the run, or a ledger.
        sources: Datasets by name, for a mixture; None: the trainer's own ``train_dataset``.
        keep_texts: Whether the texts of completions are written into the run's folder, where the trainer makes some.
        **options: Arguments of ``Loader``: ``weights``, ``mixture``, ``on_resume``, ``fingerprint``, ...
    """
    kind = type(trainer)
    check_account(trainer, run, options)
    mixin = RolloutTrainerMixin if makes_rollouts(trainer) else LadingTrainerMixin
    if keep_texts and mixin is LadingTrainerMixin:
        raise ConfigError(
            f"keep_texts=True, and {kind.__name__} makes no completions: it trains on the rows of a dataset, which has "
            "the texts. Leave it out; it is for GRPOTrainer and RLOOTrainer."
        )
    if not issubclass(kind, mixin):
        trainer.__class__ = type(f"Accounted{kind.__name__}", (mixin, kind), {"accounted": kind})
    try:
        trainer.keep_books(run, sources, options | ({"keep_texts": True} if keep_texts else {}))
    except BaseException:
        trainer.__class__ = kind  # a refused trainer is as it was
        raise
    return trainer
