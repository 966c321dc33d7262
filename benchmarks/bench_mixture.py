"""Mixing beside the unmixed order of the same datasets, in one run.

order      steps of 1 024 samples, in sequence: ns a sample               floor: at most 2 times the unmixed order
bill       plan.bill of 1 024 samples of 1 000 datasets, any step         floor: 100 us
           plan.bill of 32 samples of 1, 10, 100 and 1 000 datasets       floor: 10 us
digests    what verify works out for 10^6 steps of 8 samples              floor: 5 s
where      every place of a sample in 10^6 steps
tree       one stage's tree, counts and carry; a reweighting
memory     what an order of 10^15 samples keeps against one of 10^4       floor: the same
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from benchmarks.measure import interleaved

from lading.order import Plan
from lading.order.clock import Batching, Clock
from lading.order.event import Reweight
from lading.order.mixture.order import Mixed, Passes, timeline
from lading.order.mixture.spec import MixtureSpec, integer_weights
from lading.order.shuffle import Shuffled
from lading.report.planned import expected_digests

SIZES = (1, 10, 100, 1000)
BATCH = 1024
STEPS = 100
ROUNDS = 9


def make(num: int, longest: int = 1_000_000) -> tuple[tuple[int, ...], MixtureSpec]:
    """Return lengths and a mixture of datasets of very different sizes and weights."""
    rng = np.random.default_rng(num)
    lengths = tuple(rng.integers(longest // 100, longest, num).tolist())
    weights = integer_weights((rng.random(num) ** 3 + 1e-4).tolist())
    return lengths, MixtureSpec(sum(lengths), ((0, weights),))


def order_of(lengths: tuple[int, ...], spec: MixtureSpec, events: Any = ()) -> Mixed:
    """Return the order of a mixture in steps of 1 024 samples."""
    clock = Clock(spec.epoch_samples, Batching(((0, BATCH),)), gapless=True)
    return Mixed(Passes(lengths, 1), spec, clock, timeline(spec, events))


def orders() -> Iterator[dict[str, Any]]:
    """Consecutive steps, mixed and unmixed; every step is a new one."""
    for num in SIZES:
        lengths, spec = make(num)
        mixed, unmixed = order_of(lengths, spec), Shuffled(lengths, 1, "full", 4096, {})
        place = {"mixed": 0, "unmixed": 0}

        def run(name: str, order: Any, place: dict[str, int] = place) -> None:
            for _ in range(STEPS):
                start = place[name] % (order.epoch_samples - BATCH) // BATCH * BATCH
                order.step_samples(start, BATCH)
                place[name] += BATCH

        times = interleaved(
            {
                "mixed": lambda run=run, o=mixed: run("mixed", o),
                "unmixed": lambda run=run, o=unmixed: run("unmixed", o),
            },
            ROUNDS,
        )
        ours, peer = (times[k] / STEPS / BATCH * 1e9 for k in ("mixed", "unmixed"))
        yield {
            "case": f"order of {num} datasets, mixed",
            "ours": ours,
            "peer": peer,
            "peer_name": "the same datasets unmixed",
            "unit": "ns/sample",
            "ratio": peer / ours,
            "floor": 0.5,
        }


def bills() -> Iterator[dict[str, Any]]:
    """Any step's bill; steps lie far apart, so nothing worked out before helps."""
    lengths, spec = make(1000)
    mixed = Plan.make({f"d{d}": n for d, n in enumerate(lengths)}, BATCH, mixture=spec)
    plans = {"mixed": mixed, "alone": Plan.make(sum(lengths), BATCH)}
    steps = np.random.default_rng(0).integers(0, 10**6, 200).tolist()
    times = {name: processor_seconds(lambda p=plan: [p.bill(s) for s in steps]) for name, plan in plans.items()}
    ours = times["mixed"] / len(steps) * 1e6
    yield {
        "case": "plan.bill of 1024 samples, 1000 datasets, any step",
        "ours": ours,
        "peer": None,
        "unit": "us",
        "unmixed_one_dataset": times["alone"] / len(steps) * 1e6,
    }


def small_bills() -> Iterator[dict[str, Any]]:
    """Any step's bill of 32 samples."""
    steps = np.random.default_rng(0).integers(0, 10**6, 500).tolist()
    for num in SIZES:
        lengths, spec = make(num)
        plan = Plan.make({f"d{d}": n for d, n in enumerate(lengths)}, 32, mixture=spec)
        ours = processor_seconds(lambda p=plan: [p.bill(s) for s in steps]) / len(steps) * 1e6
        yield {
            "case": f"plan.bill of 32 samples, {num} datasets, any step",
            "ours": ours,
            "peer": None,
            "unit": "us",
        }


def digests() -> Iterator[dict[str, Any]]:
    """The digests of 10^6 steps of 8 samples, as ``verify`` works them out: many steps in one call."""
    lengths, spec = make(10)
    plan = Plan.make({f"d{d}": n for d, n in enumerate(lengths)}, 8, mixture=spec)
    expected_digests(plan, np.arange(1000), {})
    start = time.thread_time()
    expected_digests(plan, np.arange(10**6), {})
    ours = time.thread_time() - start
    yield {
        "case": "digests of 10^6 steps of 8 samples, 10 datasets",
        "ours": ours,
        "peer": None,
        "unit": "s",
    }


def inverses() -> Iterator[dict[str, Any]]:
    """All places of a sample in a long run, beside working out a single bill of it."""
    lengths, spec = make(1000)
    plan = Plan.make({f"d{d}": n for d, n in enumerate(lengths)}, BATCH, mixture=spec)
    steps = 10**6
    found = len(plan.where(7, 5, 0, steps))
    times = interleaved({"where": lambda: plan.where(7, 5, 0, steps), "bill": lambda: plan.bill(77_777)}, ROUNDS)
    yield {
        "case": "where in 10^6 steps of 1024 samples, 1000 datasets",
        "ours": times["where"] * 1e3,
        "peer": times["bill"] * steps * 1e3,
        "peer_name": "looking through all bills (one measured, times 10^6)",
        "unit": "ms",
        "ratio": times["bill"] * steps / times["where"],
        "floor": 1000.0,
        "places": found,
    }


def changes() -> Iterator[dict[str, Any]]:
    """A reweighting of 1 000 datasets after 100 others, beside making the order from nothing."""
    lengths, spec = make(1000)
    rng = np.random.default_rng(5)
    steps = [(k + 1) * 4 for k in range(101)]
    events = [Reweight(s, s * BATCH, integer_weights(rng.random(1000).tolist())) for s in steps]
    before = order_of(lengths, spec, events[:-1])
    times = interleaved(
        {"extended": lambda: before.extended(events[-1]), "anew": lambda: order_of(lengths, spec, events)}, ROUNDS
    )
    yield {
        "case": "reweight 1000 datasets after 100 changes",
        "ours": times["extended"] * 1e3,
        "peer": times["anew"] * 1e3,
        "peer_name": "all stages again",
        "unit": "ms",
        "ratio": times["anew"] / times["extended"],
        "floor": None,
    }


def memory() -> Iterator[dict[str, Any]]:
    """Most bytes held while an order is made and asked, whatever the data: nothing grows but the names."""
    _peak(10**4)  # what is compiled at first use belongs to none of them
    ours, peer = _peak(10**12), _peak(10**4)
    yield {
        "case": "memory of an order, 10^15 samples against 10^7",
        "ours": ours,
        "peer": peer,
        "peer_name": "the small one",
        "unit": "bytes",
        "ratio": peer / ours,
        "floor": 0.95,
    }


def processor_seconds(work: Callable[[], Any]) -> float:
    """Return the median time on the processor: what is asked for in microseconds must not depend on the neighbours."""
    work()
    times = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return statistics.median(times)


def _peak(longest: int) -> int:
    lengths, spec = make(1000, longest)
    tracemalloc.start()
    order = order_of(lengths, spec)
    for step in range(100):
        order.step_samples(step * BATCH, BATCH)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def cases() -> Iterator[dict[str, Any]]:
    """Yield every case."""
    for part in (orders, bills, small_bills, digests, inverses, changes, memory):
        yield from part()
