"""Find out whether every worker draws the same random numbers.

    worker 0    sample 7, again, again, ...    a b c d
    worker 1    sample 7, again, again, ...    a b c d      the same "random" sequence: the fault
    worker 1                                   e f g h      sound
    worker 1                                   a a a a      nothing random: sound

Every worker is asked for one and the same sample several times.
"""

from __future__ import annotations

from typing import Any

from lading.observe.auditing.finding import SAME_NUMBERS, Finding, some
from lading.observe.auditing.stream import HashingCollate
from lading.observe.dataloader import opened_copy

_DRAWS = 12
_MOST_WORKERS = 4


def same_numbers(dataloader: Any, index: Any) -> Finding | None:
    """Return the finding, if a map-style loader's workers draw alike.

    Args:
        dataloader: A DataLoader with at least two workers.
        index: An index that its sampler gives.
    """
    workers = min(dataloader.num_workers, _MOST_WORKERS)
    probe, parts = opened_copy(dataloader)
    # torch gives batches to workers in turn, so every worker is asked for the sample in every round.
    parts["batch_sampler"] = [[index]] * (workers * _DRAWS)
    parts["collate_fn"] = HashingCollate(makes_batches=True, is_tagged=False, holds_batches=False)
    parts.update(num_workers=workers, persistent_workers=False, pin_memory=False)
    draws: dict[int, list[int]] = {worker: [] for worker in range(workers)}
    for batch in probe:
        draws[batch.worker] += batch.samples
    first = draws[0]
    is_random = len(set(first)) > 1
    if not is_random or any(draws[worker] != first for worker in draws):
        return None
    return Finding(
        SAME_NUMBERS,
        f"{type(dataloader.dataset).__name__} draws random numbers, and every worker draws the same ones.",
        f"sample {index}, read {_DRAWS} times: {len(set(first))} different results, the same sequence in workers "
        f"{some(list(draws))}",
        "rng = np.random.default_rng(torch.initial_seed())  # when the first sample is read, not in __init__; or draw "
        "with torch.rand, which torch seeds for each worker",
    )
