"""Training data that can be accounted for.

    source  ─▶  order  ─▶  loader  ─▶  batch  ─▶  train  ─▶  ledger  ─▶  report
    where       which      gathers     what the   who        what was    what it
    samples     sample     them        model      uses it    consumed    tells us
    live        when                   receives

Order is a pure function, written down before the run (the *plan*). Every batch
comes with its *bill*: its id and the names of what is in it. What training
really consumed is kept in a *ledger* that survives crashes. From these three,
any question has an exact answer, in both directions.

Importing Lading loads NumPy and no framework; names that need one open its
file when they are first used.
"""

from lading import errors
from lading.errors import LadingError
from lading.identity import Bill, Deviation, Place, SampleId, World
from lading.order import Block, Dataset, Permutation, Plan, Rebatch, Reweight
from lading.runtime.lazy import lazy_names

__version__ = "0.1.0"

_HOMES = {
    # source
    "BatchSpec": "lading.source.spec",
    "Field": "lading.source.spec",
    "Columns": "lading.source.columns",
    "ChunkedQuantizedAudioDataset": "lading.source.audio.torch",
    "JASPERBuilder": "lading.source.jasper.build.builder",
    "JASPERSteeringDataset": "lading.source.jasper.dataset",
    "PackedRows": "lading.source.tokens.packed",
    "QuantizedAudioDataset": "lading.source.audio.torch",
    "TaggedDataset": "lading.source.tagged",
    "TaggedIterableDataset": "lading.source.stream.torch",
    "TokenColumn": "lading.source",
    "TokenStore": "lading.source.tokens.store",
    "WeightedConcatDataset": "lading.source.weighted_concat",
    "build_jasper_dataset": "lading.source.jasper.build.builder",
    "build_tokens": "lading.source",
    "validate_batch": "lading.source.spec",
    # order
    "ChunkedSampler": "lading.order.chunked_sampler",
    "Cosine": "lading.order",
    "Linear": "lading.order",
    "MixtureSpec": "lading.order",
    "PackingIndex": "lading.order.packing.index",
    "PackingRules": "lading.order.packing.index",
    "Stages": "lading.order",
    # batch
    "Batch": "lading.batch",
    "LLMBatch": "lading.batch",
    "LLMIndexedBatch": "lading.batch",
    "collate_llm": "lading.batch",
    "cu_seqlens": "lading.batch",
    "dataclass_kwonly": "lading.batch",
    "max_seqlen": "lading.batch",
    "pack": "lading.batch",
    "rolling_windows": "lading.batch",
    "to_jax": "lading.batch",
    "to_numpy": "lading.batch",
    "to_torch": "lading.batch",
    # loader
    "ChunkedDataLoader": "lading.loader",
    "Loader": "lading.loader",
    "StatefulDistributedSampler": "lading.loader",
    "audit": "lading.observe",
    "create_loader": "lading.loader",
    "set_epoch": "lading.loader",
    "validate_first_batch": "lading.loader",
    # ledger and report
    "BatchTracker": "lading.ledger",
    "Ledger": "lading.ledger",
    "open_run": "lading.report",
    # datamodule
    "ChunkedQuantizedAutoregressiveAudio": "lading.datamodule",
    "ChunkedSequenceDataset": "lading.datamodule",
    "QuantizedAutoregressiveAudio": "lading.datamodule",
    "SequenceDataset": "lading.datamodule",
    # train
    "ChunkedTrainingMixin": "lading.train",
    "DsTrainer": "lading.train",
    "DsTrainingArguments": "lading.train",
    "FollowLosses": "lading.train",
    "JaxLoader": "lading.loader",
    "MixtureScheduler": "lading.train",
    "RepeatingLoader": "lading.train",
    "SteerToShares": "lading.train",
    "per_dataset_mean": "lading.train",
    "per_dataset_token_mean": "lading.train",
    "track": "lading.observe",
}

__all__ = [
    "Bill",
    "Block",
    "Dataset",
    "Deviation",
    "LadingError",
    "Permutation",
    "Place",
    "Plan",
    "Rebatch",
    "Reweight",
    "SampleId",
    "World",
    "__version__",
    "errors",
    *_HOMES,
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
