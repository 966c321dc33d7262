"""Every error Lading raises on purpose.

    LadingError
    ├── PlanError          (ValueError)     a plan that cannot be made, or a question it cannot answer
    │   ├── MixtureError                    weights, schedules or reweightings that make no sense
    │   └── PackingError                    documents that do not fit their rows
    ├── SourceError        (ValueError)     a dataset or batch that is not what was promised
    │   ├── BadSampleError                  one sample could not be read; names dataset, index, step, batch
    │   ├── BatchError     (AssertionError) a batch that breaks its BatchSpec; names the sample at fault
    │   └── MissingFileError (FileNotFoundError) a file that a data directory needs is not there
    ├── ResumeError        (ValueError)     a saved state that does not belong to this plan
    ├── LoaderError        (RuntimeError)   a loader used in a way that would lose or repeat samples
    │   ├── OptionError    (TypeError)      an option that a loader does not have
    │   ├── ArgumentError  (ValueError)     an argument of a loader that is not of its kind
    │   ├── WorldError                      ranks that disagree about who they are
    │   └── WorkerError                     a worker that died, took too long, or failed
    ├── LedgerError        (OSError)        a ledger that cannot be written or read
    │   └── CorruptLedgerError              bytes on disk that are not the bytes once written
    ├── ConfigError        (ValueError)     a configuration file or command line that is wrong
    └── MissingExtraError  (ImportError)    an optional dependency that is not installed

    UserWarning
    ├── InexactResumeWarning                a resume that brings back the order, but not every random number
    └── UnshardedStreamWarning              workers that seem to read one and the same stream

Each error also is the builtin a caller would expect. The text names the thing,
says what was expected and what was found, and ends with a way out.
"""

from __future__ import annotations


class LadingError(Exception):
    """Root of every error Lading raises on purpose."""


class PlanError(LadingError, ValueError):
    """A plan that cannot be made, or a question it cannot answer."""


class MixtureError(PlanError):
    """Weights, schedules or reweightings that make no sense."""


class PackingError(PlanError):
    """Documents that do not fit their rows."""


class SourceError(LadingError, ValueError):
    """A dataset or batch that is not what was promised."""


class BadSampleError(SourceError):
    """One sample could not be read; also an instance of the error that its source raised.

    Attributes:
        dataset: Name of the dataset.
        index: Index of the sample in its dataset.
        step: Step whose batch asked for it.
        batch_id: Id of that batch.
        file: File the sample came from, where the source knows it.
    """

    def __init__(
        self, message: str, *, dataset: str = "", index: int = -1, step: int = -1, batch_id: str = "", file: str = ""
    ) -> None:
        super().__init__(message)
        self.dataset, self.index, self.step, self.batch_id, self.file = dataset, index, step, batch_id, file


class BatchError(SourceError, AssertionError):
    """A batch that breaks its BatchSpec; raised, not asserted, so ``python -O`` keeps it."""


class MissingFileError(SourceError, FileNotFoundError):
    """A file that a data directory needs is not there."""


class ResumeError(LadingError, ValueError):
    """A saved state that does not belong to this plan."""


class LoaderError(LadingError, RuntimeError):
    """A loader used in a way that would lose or repeat samples."""


class OptionError(LoaderError, TypeError):
    """An option that a loader does not have."""


class ArgumentError(LoaderError, ValueError):
    """An argument of a loader that is not of its kind."""


class WorldError(LoaderError):
    """Ranks that disagree about who they are."""


class WorkerError(LoaderError):
    """A worker that died, took too long, or failed; then it is also an instance of the error raised there."""


class LedgerError(LadingError, OSError):
    """A ledger that cannot be written or read."""


class CorruptLedgerError(LedgerError):
    """Bytes on disk that are not the bytes once written."""


class ConfigError(LadingError, ValueError):
    """A configuration file or command line that is wrong."""


class MissingExtraError(LadingError, ImportError):
    """An optional dependency that is not installed."""


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtraError:
    """Return the one-line error for an optional dependency that is not installed."""
    return MissingExtraError(f"{purpose} needs {package}, which is not installed: pip install 'lading[{extra}]'")


class InexactResumeWarning(UserWarning):
    """A resume that brings back samples and order, but not every random number."""


class UnshardedStreamWarning(UserWarning):
    """Two workers of a stream began with equal batches: each seems to read all of it."""
