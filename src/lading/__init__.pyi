from lading import errors as errors
from lading.batch import (
    Batch as Batch,
    LLMBatch as LLMBatch,
    LLMIndexedBatch as LLMIndexedBatch,
    cu_seqlens as cu_seqlens,
    dataclass_kwonly as dataclass_kwonly,
    max_seqlen as max_seqlen,
    pack as pack,
    rolling_windows as rolling_windows,
    to_jax as to_jax,
    to_numpy as to_numpy,
    to_torch as to_torch,
)
from lading.errors import LadingError as LadingError
from lading.identity import Bill as Bill, SampleId as SampleId, World as World
from lading.kits.adaptive import (
    Curriculum as Curriculum,
    FollowLosses as FollowLosses,
    GrowWhileImproving as GrowWhileImproving,
    LearningValue as LearningValue,
    PaceValidation as PaceValidation,
    SteerToShares as SteerToShares,
)
from lading.kits.audit import audit as audit
from lading.kits.chunked import (
    ChunkedQuantizedAudioDataset as ChunkedQuantizedAudioDataset,
    ChunkedQuantizedAutoregressiveAudio as ChunkedQuantizedAutoregressiveAudio,
    ChunkedSequenceDataset as ChunkedSequenceDataset,
    ChunkedTrainingMixin as ChunkedTrainingMixin,
    QuantizedAudioDataset as QuantizedAudioDataset,
    QuantizedAutoregressiveAudio as QuantizedAutoregressiveAudio,
    SequenceDataset as SequenceDataset,
)
from lading.kits.deepspeed import DsTrainer as DsTrainer, DsTrainingArguments as DsTrainingArguments
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
from lading.observe import track as track
from lading.order import (
    Cosine as Cosine,
    Linear as Linear,
    Mixture as Mixture,
    Permutation as Permutation,
    Plan as Plan,
    Stages as Stages,
)
from lading.order.chunked_sampler import ChunkedSampler as ChunkedSampler
from lading.order.packing.rules import PackingRules as PackingRules
from lading.report import open_checkpoint as open_checkpoint, open_run as open_run
from lading.source import TokenColumn as TokenColumn, build_tokens as build_tokens
from lading.source.columns import Columns as Columns
from lading.source.spec import BatchSpec as BatchSpec, validate_batch as validate_batch
from lading.source.stream.torch import TaggedIterableDataset as TaggedIterableDataset
from lading.source.stream.weighted import WeightedConcatIterableDataset as WeightedConcatIterableDataset
from lading.source.tagged import TaggedDataset as TaggedDataset
from lading.source.tokens.packed import PackedRows as PackedRows
from lading.source.tokens.store import TokenStore as TokenStore
from lading.source.weighted_concat import (
    SequentialWeightedConcatDataset as SequentialWeightedConcatDataset,
    WeightedConcatChatDataset as WeightedConcatChatDataset,
    WeightedConcatDataset as WeightedConcatDataset,
)
from lading.source.windows import Windows as Windows
from lading.train import (
    MixtureScheduler as MixtureScheduler,
    RepeatingLoader as RepeatingLoader,
    Rollout as Rollout,
    RolloutBooks as RolloutBooks,
    RolloutGroup as RolloutGroup,
    per_dataset_mean as per_dataset_mean,
    per_dataset_token_mean as per_dataset_token_mean,
)

__version__: str
