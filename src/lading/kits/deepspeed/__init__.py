"""A trainer on DeepSpeed that keeps the books (document 000)."""

from typing import TYPE_CHECKING

from lading.runtime.lazy import lazy_names

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.kits.deepspeed.arguments import DsTrainingArguments as DsTrainingArguments
    from lading.kits.deepspeed.callback import DsCallback as DsCallback
    from lading.kits.deepspeed.trainer import DsTrainer as DsTrainer

_HOMES = {
    "DsCallback": "lading.kits.deepspeed.callback",
    "DsTrainer": "lading.kits.deepspeed.trainer",
    "DsTrainingArguments": "lading.kits.deepspeed.arguments",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
