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

import os
import warnings
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
    from lading.identity import (
        Bill as Bill,
        Deviation as Deviation,
        Place as Place,
        SampleId as SampleId,
        World as World,
    )
    from lading.kits.chunked import (
        ChunkedQuantizedAudioDataset as ChunkedQuantizedAudioDataset,
        ChunkedQuantizedAutoregressiveAudio as ChunkedQuantizedAutoregressiveAudio,
        ChunkedSequenceDataset as ChunkedSequenceDataset,
        ChunkedTrainingMixin as ChunkedTrainingMixin,
        QuantizedAudioDataset as QuantizedAudioDataset,
        QuantizedAutoregressiveAudio as QuantizedAutoregressiveAudio,
        SequenceDataset as SequenceDataset,
    )
    from lading.kits.deepspeed import (
        DsTrainer as DsTrainer,
        DsTrainingArguments as DsTrainingArguments,
    )
    from lading.kits.jasper import (
        JASPERBuilder as JASPERBuilder,
        JASPERSteeringDataset as JASPERSteeringDataset,
        build_jasper_dataset as build_jasper_dataset,
        build_steering as build_steering,
        create_loader as create_loader,
        mine_negatives as mine_negatives,
        set_epoch as set_epoch,
        validate_first_batch as validate_first_batch,
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
    from lading.source.columns import Columns as Columns
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

if not hasattr(os, "fork"):
    warnings.warn(
        "Lading is made for Linux. Here plans, loaders without worker processes, ledgers and questions should work, as "
        "far as Linux without fork, locks and hard links could show; nobody has run it there.",
        RuntimeWarning,
        stacklevel=2,
    )

__version__ = "0.3.0.dev0"

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
    "PackedRows": "lading.source.tokens.packed",
    "TaggedDataset": "lading.source.tagged",
    "TaggedIterableDataset": "lading.source.stream.torch",
    "TokenColumn": "lading.source",
    "TokenStore": "lading.source.tokens.store",
    "SequentialWeightedConcatDataset": "lading.source.weighted_concat",
    "WeightedConcatDataset": "lading.source.weighted_concat",
    "WeightedConcatIterableDataset": "lading.source.stream.weighted",
    "Windows": "lading.source.windows",
    "build_tokens": "lading.source",
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
    # ledger and report
    "BatchTracker": "lading.ledger",
    "Ledger": "lading.ledger",
    "open_run": "lading.report",
    # train
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
    # kits
    "ChunkedQuantizedAudioDataset": "lading.kits.chunked",
    "ChunkedQuantizedAutoregressiveAudio": "lading.kits.chunked",
    "ChunkedSequenceDataset": "lading.kits.chunked",
    "ChunkedTrainingMixin": "lading.kits.chunked",
    "QuantizedAudioDataset": "lading.kits.chunked",
    "QuantizedAutoregressiveAudio": "lading.kits.chunked",
    "SequenceDataset": "lading.kits.chunked",
    "DsTrainer": "lading.kits.deepspeed",
    "DsTrainingArguments": "lading.kits.deepspeed",
    "JASPERBuilder": "lading.kits.jasper",
    "JASPERSteeringDataset": "lading.kits.jasper",
    "build_jasper_dataset": "lading.kits.jasper",
    "build_steering": "lading.kits.jasper",
    "create_loader": "lading.kits.jasper",
    "mine_negatives": "lading.kits.jasper",
    "set_epoch": "lading.kits.jasper",
    "validate_first_batch": "lading.kits.jasper",
}

__all__ = [
    "LadingError",
    "__version__",
    "errors",
    *_HOMES,
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
