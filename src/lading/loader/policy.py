"""What every policy is, and what it is given to decide on.

    weights          policy(mix)                        ─▶ weights        every ``every_steps`` steps
    sizes of chunks  policy(trained)                    ─▶ batches        at the end of a chunk
    choice of chunks policy(candidates, total, chunk)   ─▶ a candidate    before it is read; ``observe`` at its end

A policy must give the same answer on every rank: what it is given is the same
everywhere. What it remembers is JSON and lives in the loader's state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from lading.errors import ResumeError
from lading.order.mixture.spec import Weights


@runtime_checkable
class Policy(Protocol):
    """Decides while a run goes on; None leaves everything as it is."""

    def __call__(self, *seen: Any, **more: Any) -> Any:
        """Return what is decided."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return what the policy must remember, JSON-able."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where a state was taken."""
        ...


@runtime_checkable
class WeightPolicy(Policy, Protocol):
    """A policy of weights: ``policy(mix)``, every so many steps."""

    every_steps: int

    def __call__(self, mix: Mix, /) -> Weights | None: ...


class SizePolicy(Policy, Protocol):
    """A policy of the sizes of chunks: ``policy(trained)``, after each validation."""

    def __call__(self, trained: Trained, /) -> int | None: ...


@runtime_checkable
class ChoicePolicy(Policy, Protocol):
    """A policy that chooses the next chunk of a pass, and is told what came of each."""

    def observe(self, number: int, total: int, trained: Trained) -> None:
        """Note that chunk ``number`` of the ``total`` chunks of the data was trained on."""
        ...

    def __call__(self, candidates: Sequence[int], total: int, chunk: int, /) -> int:
        """Return one of the chunks that the pass has left, to come as chunk ``chunk`` of the run."""
        ...


@dataclass(frozen=True)
class Mix:
    """What a policy decides on; the same on every rank.

    Attributes:
        step: The next step to be yielded.
        names: Names of the sources: what weights are about.
        lengths: Samples of each source.
        mean_tokens: Mean tokens of a sample of each dataset, where known.
        counts: Samples of each dataset yielded so far, all ranks together.
        weights: Shares, in ``unit``, that hold from where a change would act, if there is none.
        unit: What weights are shares of: ``samples`` or ``tokens``.
        datasets: The datasets of each source by name, with their share of its rows; empty: each source is one.
        coming: Samples of each source in the steps up to where a change would act: decided already. Empty: none.
        batch: Samples of a global batch where a change would act; 0: not known.
    """

    step: int
    names: tuple[str, ...]
    lengths: tuple[int, ...]
    mean_tokens: tuple[float | None, ...]
    counts: tuple[int, ...]
    weights: tuple[float, ...]
    unit: str = "samples"
    datasets: tuple[Mapping[str, float], ...] = ()
    coming: tuple[int, ...] = ()
    batch: int = 0


class Trained(NamedTuple):
    """What a policy learns at the end of a chunk.

    Attributes:
        step: The next step.
        chunk: Number of the chunk that was trained on, over all passes.
        size: Batches of a chunk as it is.
        metric: What was measured in validation; None where nothing was.
        loss: Mean training loss of the chunk; None where it is not known.
    """

    step: int
    chunk: int
    size: int
    metric: float | None = None
    loss: float | None = None


def reason_of(policy: Any) -> str:
    """Return what a policy says of its last choice in ``reason``; else its name."""
    reason = getattr(policy, "reason", None)
    return reason if isinstance(reason, str) and reason else type(policy).__name__


def load_policy(policy: Policy, saved: Mapping[str, Any]) -> None:
    """Resume a policy where its state was taken; refuse that of another kind."""
    if saved["kind"] != type(policy).__name__:
        raise ResumeError(
            f"the state was saved with the policy {saved['kind']}, this loader has {type(policy).__name__}. Use the "
            "same policy, or set state['policy'] = '{}' to begin the new one afresh."
        )
    try:
        policy.load_state_dict(saved["state"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ResumeError(
            f"the state of the policy {saved['kind']} is damaged: {type(error).__name__}: {error}. Take an older "
            "checkpoint."
        ) from error
