"""The line that accounts for the data of a trainer that exists."""

from __future__ import annotations

import os
from typing import Any

from lading.ledger.ledger import Ledger
from lading.train.transformers.accepted import check_account, makes_rollouts
from lading.train.transformers.accounted import LadingTrainerMixin
from lading.train.transformers.generating import RolloutTrainerMixin


def account(trainer: Any, run: str | os.PathLike[str] | Ledger, *, sources: Any = None, **options: Any) -> Any:
    """Account for the training data of a Trainer.

    Args:
        trainer: A ``Trainer``, or one of TRL's; it is changed in place and returned.
        run: Folder of the run, or a ledger.
        sources: Datasets by name, for a mixture; None: the trainer's own ``train_dataset``.
        **options: Arguments of ``Loader``: ``weights``, ``mixture``, ``on_resume``, ``fingerprint``, ...
    """
    kind = type(trainer)
    check_account(trainer, run, options)
    mixin = RolloutTrainerMixin if makes_rollouts(trainer) else LadingTrainerMixin
    if not issubclass(kind, mixin):
        trainer.__class__ = type(f"Accounted{kind.__name__}", (mixin, kind), {"accounted": kind})
    try:
        trainer.keep_books(run, sources, options)
    except BaseException:
        trainer.__class__ = kind  # a refused trainer is as it was
        raise
    return trainer
