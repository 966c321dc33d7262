"""Packing beside Grain's packers and a plain copy, in one run.

end to end    token arrays ─▶ index ─▶ filled rows of all columns      tokens/s, against FirstFitPackIterDataset
density       share of the rows that is not padding
assembling    rows through a ready index                               tokens/s, against copying as many arrays
index         the plan alone, of 10^8 documents                        seconds and gigabytes
"""

from __future__ import annotations

import functools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lading.order.packing.fill import NAMES, empty_columns, fill_rows
from lading.order.packing.index import PackingIndex
from lading.source.columns import Buffers

NUM_DOCUMENTS = 200_000
MEAN_TOKENS = 600
ROW_LENGTHS = (2_048, 8_192)
ROUNDS = 5
PEER_DOCUMENTS = 4_000
PEER_BINS = (8, 64)
BATCH_TOKENS = 1 << 17  # 64 rows of 2 048, 16 of 8 192
INDEX_DOCUMENTS = 100_000_000
INDEX_ALGORITHMS = ("best_fit",)  # first_fit takes twice as long

ALGORITHMS: dict[str, dict[str, Any]] = {
    "first_fit": {"algorithm": "first_fit"},
    "best_fit": {"algorithm": "best_fit"},
    "best_fit, windows sorted": {"algorithm": "best_fit", "sort_window": 4_096},
    "concat_then_split": {"algorithm": "concat_then_split"},
}


def lognormal_lengths(number: int, seed: int = 0) -> np.ndarray:
    """Lengths of documents with a mean of ``MEAN_TOKENS``."""
    random = np.random.default_rng(seed)
    return np.maximum(1, random.lognormal(np.log(MEAN_TOKENS) - 0.5, 1.0, number)).astype(np.int32)


def corpus(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of all documents, and their offsets."""
    offsets = np.concatenate([[0], np.cumsum(lognormal_lengths(number), dtype=np.int64)])
    return np.random.default_rng(1).integers(1, 50_000, int(offsets[-1])).astype(np.uint16), offsets


def seconds(work: Callable[[], Any]) -> float:
    """Time one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def medians(works: dict[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, float]:
    """Median seconds of several ways, measured in turns so that noise hits all of them."""
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(seconds(work))
    return {name: statistics.median(found) for name, found in times.items()}


def pack_everything(tokens: np.ndarray, offsets: np.ndarray, row_length: int, rules: dict[str, Any]) -> int:
    """Index and fill all rows, batch by batch: inputs, targets, segments and positions. Return the number of rows."""
    index = PackingIndex.build(np.diff(offsets), row_length, overflow="split", **rules)
    shelf, batch_rows = Buffers(), BATCH_TOKENS // row_length
    for first in range(0, len(index), batch_rows):
        rows = np.arange(first, min(first + batch_rows, len(index)))
        out = shelf.borrow(len(rows), functools.partial(empty_columns, index, len(rows), with_documents=False))
        fill_rows(index, rows, tokens, offsets, with_documents=False, out=out)
    return len(index)


def grain_first_fit(documents: list[np.ndarray], row_length: int, bins: int) -> None:
    """The same documents through Grain, cut to the row as it demands: tokens, segments and positions."""
    import grain
    from grain.experimental import FirstFitPackIterDataset

    # Without reading threads: they cost more than they bring for documents that are in memory.
    alone = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    dataset = grain.MapDataset.source([{"tokens": d[:row_length]} for d in documents]).to_iter_dataset(alone)
    packed = FirstFitPackIterDataset(dataset, length_struct={"tokens": row_length}, num_packing_bins=bins)
    for _ in packed:
        pass


def python_first_fit(documents: list[np.ndarray], row_length: int) -> None:
    """The same documents in plain Python: the first of the last rows with room; tokens, segments and positions."""
    rows: list[list[np.ndarray]] = []
    rooms: list[int] = []
    for document in documents:
        document = document[:row_length]
        size, low = len(document), max(0, len(rooms) - PEER_BINS[-1])
        place = next((k for k in range(low, len(rooms)) if rooms[k] >= size), None)
        if place is None:
            place = len(rooms)
            rows.append([])
            rooms.append(row_length)
        rows[place].append(document)
        rooms[place] -= size
    for row in rows:
        tokens, segments, positions = (np.zeros(row_length, np.int32) for _ in range(3))
        start = 0
        for number, document in enumerate(row, 1):
            stop = start + len(document)
            tokens[start:stop], segments[start:stop] = document, number
            positions[start:stop] = np.arange(stop - start)
            start = stop


def end_to_end(tokens: np.ndarray, offsets: np.ndarray, row_length: int) -> Iterator[dict[str, Any]]:
    """Ours on the whole corpus and Grain on its head, in turns; tokens per second."""
    head = [tokens[offsets[d] : offsets[d + 1]] for d in range(PEER_DOCUMENTS)]
    head_tokens = sum(min(len(d), row_length) for d in head)
    works: dict[str, Callable[[], Any]] = {
        name: lambda rules=rules: pack_everything(tokens, offsets, row_length, rules)
        for name, rules in ALGORITHMS.items()
    }
    peers = {f"grain {n}": lambda n=n: grain_first_fit(head, row_length, n) for n in PEER_BINS}
    plain = {"plain Python": lambda: python_first_fit(head, row_length)}
    times = medians({**works, **peers, **plain}, rounds=3)
    fastest = min(peers, key=lambda name: times[name])
    peer = head_tokens / times[fastest] / 1e6
    for name, rules in ALGORITHMS.items():
        ours = len(tokens) / times[name] / 1e6
        density = PackingIndex.build(np.diff(offsets), row_length, overflow="split", **rules).density
        yield {
            "case": f"pack end to end, {name}, rows of {row_length}",
            "ours": ours,
            "peer": peer,
            "peer_name": f"{fastest} bins, FirstFitPackIterDataset, the fastest of {PEER_BINS}",
            "unit": "million tokens/s",
            "ratio": ours / peer,
            "floor": 30.0,
            "density": round(density, 5),
        }
        python = head_tokens / times["plain Python"] / 1e6
        label = f"pack end to end, {name}, rows of {row_length}, beside plain Python"
        yield {"case": label, "ours": ours, "peer": python, "unit": "million tokens/s", "ratio": ours / python}


def densities(offsets: np.ndarray, row_length: int) -> Iterator[dict[str, Any]]:
    """Share of the rows that is not padding."""
    ours = PackingIndex.build(np.diff(offsets), row_length, overflow="split", algorithm="best_fit").density
    yield {"case": f"density, best_fit, rows of {row_length}", "ours": ours, "peer": None, "unit": "share"}


def assembling(tokens: np.ndarray, offsets: np.ndarray, row_length: int) -> Iterator[dict[str, Any]]:
    """Shuffled rows through a ready index, beside copying as many ready arrays of the same size."""
    index = PackingIndex.build(np.diff(offsets), row_length, overflow="split", algorithm="best_fit")
    batch_rows = BATCH_TOKENS // row_length
    order = np.random.default_rng(2).permutation(len(index))[: 40 * batch_rows].reshape(40, -1)
    for named in (False, True):
        names = NAMES if named else NAMES[:4]
        ready = [np.ones((len(index), row_length), np.int32) for _ in range(2)]
        copies = [np.empty((batch_rows, row_length), np.int32) for _ in names]
        shelf = Buffers()

        def fill(named: bool = named, shelf: Buffers = shelf) -> None:
            for rows in order:
                out = shelf.borrow(len(rows), lambda: empty_columns(index, batch_rows, named))
                fill_rows(index, rows, tokens, offsets, with_documents=named, out=out)

        def copy(ready: list[np.ndarray] = ready, copies: list[np.ndarray] = copies) -> None:
            for rows in order:
                first = int(rows[0]) % (len(index) - batch_rows)
                for number, target in enumerate(copies):
                    np.copyto(target, ready[number % 2][first : first + batch_rows])

        times = medians({"ours": fill, "copy": copy})
        places = order.size * row_length / 1e6
        yield {
            "case": f"assemble {len(names)} columns, rows of {row_length}",
            "ours": places / times["ours"],
            "peer": places / times["copy"],
            "peer_name": f"copying {len(names)} arrays",
            "unit": "million tokens/s",
            "ratio": times["copy"] / times["ours"],
            "floor": 0.4,
        }


INDEX_PROGRAM = """
import resource, sys, time
import numpy as np
sys.path.insert(0, {here!r})
from bench_packing import lognormal_lengths
from lading.order.packing.index import PackingIndex
lengths = np.concatenate([lognormal_lengths({number} // 10, seed) for seed in range(10)])
start = time.perf_counter()
index = PackingIndex.build(lengths, 2048, algorithm={algorithm!r}, overflow="split")
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""


def large_index() -> Iterator[dict[str, Any]]:
    """The index of 10^8 documents in a process of its own: seconds, with the memory beside them."""
    here = __file__.rsplit("/", 1)[0]
    for algorithm in INDEX_ALGORITHMS:
        program = INDEX_PROGRAM.format(here=here, number=INDEX_DOCUMENTS, algorithm=algorithm)
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        found, gigabytes = map(float, run.stdout.split())
        yield {
            "case": f"index of {INDEX_DOCUMENTS:.0e} documents, {algorithm}",
            "ours": found,
            "peer": None,
            "unit": "s",
            "gigabytes": gigabytes,
            "gigabytes_allowed": 4.0,
        }


def cases() -> Iterator[dict[str, Any]]:
    """Yield every case, one dict each."""
    tokens, offsets = corpus(NUM_DOCUMENTS)
    for row_length in ROW_LENGTHS:
        yield from end_to_end(tokens, offsets, row_length)
        yield from densities(offsets, row_length)
        yield from assembling(tokens, offsets, row_length)
    yield from large_index()


if __name__ == "__main__":
    import json

    for case in cases():
        print(json.dumps(case))
