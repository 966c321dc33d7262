"""Training data that can be accounted for.

    plan  ─▶  bill  ─▶  loader  ─▶  batch  ─▶  train  ─▶  ledger  ─▶  report
    the       names      reads the    what the   who        what was    what it
    order     of one     samples from model      uses it    consumed    tells us
              step       sources      receives

Order is a pure function, written down before the run (the *plan*). Every batch
comes with its *bill*: its id and the names of what is in it. What training
really consumed is kept in a *ledger* that survives crashes. From these three,
any question has an exact answer, in both directions.

Importing Lading loads neither NumPy nor a framework; a name opens its file
when it is first used.
"""

from typing import TYPE_CHECKING

from lading import errors
from lading.errors import LadingError
from lading.runtime.lazy import lazy_names

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.batch import (
        Batch as Batch,
        LLMBatch as LLMBatch,
        LLMIndexedBatch as LLMIndexedBatch,
        collate_llm as collate_llm,
        cu_seqlens as cu_seqlens,
        dataclass_kwonly as dataclass_kwonly,
        max_seqlen as max_seqlen,
        pack as pack,
        pad_rows as pad_rows,
        rolling_windows as rolling_windows,
        to_jax as to_jax,
        to_numpy as to_numpy,
        to_torch as to_torch,
    )
    from lading.datamodule import (
        ChunkedQuantizedAutoregressiveAudio as ChunkedQuantizedAutoregressiveAudio,
        ChunkedSequenceDataset as ChunkedSequenceDataset,
        QuantizedAutoregressiveAudio as QuantizedAutoregressiveAudio,
        SequenceDataset as SequenceDataset,
    )
    from lading.identity import (
        Bill as Bill,
        Deviation as Deviation,
        Place as Place,
        SampleId as SampleId,
        World as World,
    )
    from lading.ledger import BatchTracker as BatchTracker, Ledger as Ledger
    from lading.loader import (
        BadSamplePolicy as BadSamplePolicy,
        ChunkedDataLoader as ChunkedDataLoader,
        Chunks as Chunks,
        JaxLoader as JaxLoader,
        Loader as Loader,
        NumpyLoader as NumpyLoader,
        Resume as Resume,
        StatefulDistributedSampler as StatefulDistributedSampler,
        create_loader as create_loader,
        set_epoch as set_epoch,
        validate_first_batch as validate_first_batch,
    )
    from lading.observe import audit as audit, track as track
    from lading.order import (
        Block as Block,
        Cosine as Cosine,
        Curriculum as Curriculum,
        Linear as Linear,
        Mixture as Mixture,
        MixtureSpec as MixtureSpec,
        Permutation as Permutation,
        Plan as Plan,
        PlannedDataset as PlannedDataset,
        Rebatch as Rebatch,
        Reweight as Reweight,
        Stages as Stages,
    )
    from lading.order.chunked_sampler import ChunkedSampler as ChunkedSampler
    from lading.order.packing.index import PackingIndex as PackingIndex
    from lading.order.packing.rules import PackingRules as PackingRules
    from lading.report import open_run as open_run
    from lading.source import TokenColumn as TokenColumn, build_tokens as build_tokens
    from lading.source.audio.torch import (
        ChunkedQuantizedAudioDataset as ChunkedQuantizedAudioDataset,
        QuantizedAudioDataset as QuantizedAudioDataset,
    )
    from lading.source.columns import Columns as Columns
    from lading.source.jasper.build.builder import (
        JASPERBuilder as JASPERBuilder,
        build_jasper_dataset as build_jasper_dataset,
    )
    from lading.source.jasper.build.refresh import build_steering as build_steering, mine_negatives as mine_negatives
    from lading.source.jasper.dataset import JASPERSteeringDataset as JASPERSteeringDataset
    from lading.source.spec import BatchSpec as BatchSpec, Field as Field, validate_batch as validate_batch
    from lading.source.stream.torch import TaggedIterableDataset as TaggedIterableDataset
    from lading.source.stream.weighted import WeightedConcatIterableDataset as WeightedConcatIterableDataset
    from lading.source.tagged import TaggedDataset as TaggedDataset
    from lading.source.tokens.packed import PackedRows as PackedRows
    from lading.source.tokens.store import TokenStore as TokenStore
    from lading.source.weighted_concat import (
        SequentialWeightedConcatDataset as SequentialWeightedConcatDataset,
        WeightedConcatDataset as WeightedConcatDataset,
    )
    from lading.source.windows import Windows as Windows
    from lading.train import (
        ChunkedTrainingMixin as ChunkedTrainingMixin,
        DsTrainer as DsTrainer,
        DsTrainingArguments as DsTrainingArguments,
        FollowLosses as FollowLosses,
        GrowWhileImproving as GrowWhileImproving,
        LearningValue as LearningValue,
        MixtureScheduler as MixtureScheduler,
        PaceValidation as PaceValidation,
        RepeatingLoader as RepeatingLoader,
        SteerToShares as SteerToShares,
        per_dataset_mean as per_dataset_mean,
        per_dataset_token_mean as per_dataset_token_mean,
    )

__version__ = "0.1.0"

_HOMES = {
    # identity
    "Bill": "lading.identity",
    "Deviation": "lading.identity",
    "Place": "lading.identity",
    "SampleId": "lading.identity",
    "World": "lading.identity",
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
    "SequentialWeightedConcatDataset": "lading.source.weighted_concat",
    "WeightedConcatDataset": "lading.source.weighted_concat",
    "WeightedConcatIterableDataset": "lading.source.stream.weighted",
    "Windows": "lading.source.windows",
    "build_jasper_dataset": "lading.source.jasper.build.builder",
    "build_steering": "lading.source.jasper.build.refresh",
    "build_tokens": "lading.source",
    "mine_negatives": "lading.source.jasper.build.refresh",
    "validate_batch": "lading.source.spec",
    # order
    "Block": "lading.order",
    "Permutation": "lading.order",
    "Plan": "lading.order",
    "PlannedDataset": "lading.order",
    "Rebatch": "lading.order",
    "Reweight": "lading.order",
    "ChunkedSampler": "lading.order.chunked_sampler",
    "Cosine": "lading.order",
    "Curriculum": "lading.order",
    "Linear": "lading.order",
    "Mixture": "lading.order",
    "MixtureSpec": "lading.order",
    "PackingIndex": "lading.order.packing.index",
    "PackingRules": "lading.order.packing.rules",
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
    "pad_rows": "lading.batch",
    "rolling_windows": "lading.batch",
    "to_jax": "lading.batch",
    "to_numpy": "lading.batch",
    "to_torch": "lading.batch",
    # loader
    "ChunkedDataLoader": "lading.loader",
    "Chunks": "lading.loader",
    "BadSamplePolicy": "lading.loader",
    "Loader": "lading.loader",
    "NumpyLoader": "lading.loader",
    "Resume": "lading.loader",
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
    "GrowWhileImproving": "lading.train",
    "LearningValue": "lading.train",
    "PaceValidation": "lading.train",
    "JaxLoader": "lading.loader",
    "MixtureScheduler": "lading.train",
    "RepeatingLoader": "lading.train",
    "SteerToShares": "lading.train",
    "per_dataset_mean": "lading.train",
    "per_dataset_token_mean": "lading.train",
    "track": "lading.observe",
}

__all__ = [
    "LadingError",
    "__version__",
    "errors",
    *_HOMES,
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
