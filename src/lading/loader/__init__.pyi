from lading.loader.chunks import Chunks as Chunks
from lading.loader.failure import BadSamplePolicy as BadSamplePolicy
from lading.loader.jax.loader import JaxLoader as JaxLoader
from lading.loader.numpy import NumpyLoader as NumpyLoader
from lading.loader.request import LoaderOptions as LoaderOptions, PlainOptions as PlainOptions, Resume as Resume
from lading.loader.torch.chunked import ChunkedDataLoader as ChunkedDataLoader
from lading.loader.torch.distributed_sampler import StatefulDistributedSampler as StatefulDistributedSampler
from lading.loader.torch.loader import Loader as Loader
