"""Columns that fit together, and hold anything: what gets past the first check of a kernel, up to its last row.

``test_compiled_fuzz`` passes anything; most of it is refused at once. Here the lengths fit as a kernel wants them, most
numbers are in its bounds and some are not, and sizes lie around those of its blocks. Under the sanitizers of ``make
test-sanitized`` a read or write beyond a column ends the process.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lading.runtime import compiled

pytestmark = pytest.mark.skipif(not compiled.enabled(), reason="nothing is compiled here")

SIZES = (0, 1, 1, 2, 3, 8, 15, 16, 17, 63, 64, 65, 255, 256, 257, 513, 1023, 1024, 1025, 2050)
EDGES = np.array([0, 1, 2, 63, 64, 65, 4096, 2**31 - 1, 2**31, 2**60, 2**63 - 1, -1, -(2**31), -(2**63)], np.int64)
DTYPES = (np.int64, np.int32)


class Drawn:
    """Random arguments; the same seed draws the same."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.spoils = bool(self.rng.random() < 0.3)  # some numbers leave their bounds
        self.tree: Any = None

    def size(self, most: int = 2050) -> int:
        return int(self.rng.choice([size for size in SIZES if size <= most]))

    def number(self) -> int:
        return int(self.rng.choice(EDGES)) if self.rng.random() < 0.5 else int(self.rng.integers(-(2**63), 2**63 - 1))

    def any(self, count: int, dtype: Any = np.int64) -> Any:
        values = self.rng.integers(-(2**63), 2**63 - 1, count)
        return np.where(self.rng.random(count) < 0.5, self.rng.choice(EDGES, count), values).astype(dtype)

    def below(self, stop: int, count: int, dtype: Any = np.int64, first: int = 0) -> Any:
        values = self.rng.integers(first, max(stop, first + 1), count)
        if self.spoils and count:
            values[self.rng.integers(count)] = self.rng.choice(EDGES)
        return values.astype(dtype)

    def narrow(self) -> Any:
        return DTYPES[int(self.rng.integers(2))]

    def flags(self, count: int) -> Any:
        return self.rng.random(count) < 0.3


def digest(d: Drawn) -> list[Any]:
    n = d.size()
    return [d.any(n, d.narrow()), d.any(n, d.narrow()), d.any(n, d.narrow())]


def digest_of_slots(d: Drawn) -> list[Any]:
    columns = digest(d)
    return [d.number(), *columns, d.flags(len(columns[0]))]


def digests(d: Drawn) -> list[Any]:
    n, steps = d.size(), d.size(64)
    starts = np.sort(d.below(n + 1, steps))
    starts[:1] = 0
    return [d.number(), d.any(n, np.int32), d.any(n), starts, np.empty(steps, np.uint64)]


def owners(d: Drawn) -> list[Any]:
    n, stretches = d.size(), max(d.size(), 1)
    return [d.any(stretches) if d.spoils else np.sort(d.below(10**6, stretches)), d.any(n), np.empty(n, np.int32)]


def owner_counts(d: Drawn) -> list[Any]:
    n = int(d.rng.choice([1, 64, 65, 2**16, 2**16 + 1, 10**6, 2**40, 2**63 - 1]))
    first = int(d.rng.integers(0, n))
    stop = min(first + d.size(), n + d.spoils)
    starts = np.sort(d.below(n, max(d.size(), 1)))
    return [n, math.isqrt(n - 1) + 1, d.number(), starts, first, stop, np.zeros(len(starts), np.int64)]


def permuted(d: Drawn) -> list[Any]:
    count = d.size()
    n = d.rng.choice([1, 2, 64, 65, 2**16, 2**16 + 1, 10**9, 2**52, 2**63 - 1], count if d.rng.random() < 0.5 else 1)
    n = n.astype(np.uint64)
    side = np.array([math.isqrt(int(m) - 1) + 1 for m in n], np.uint64)
    x = np.array([int(d.rng.integers(0, int(m))) for m in np.broadcast_to(n, count)], np.uint64)
    if d.spoils and count:
        x[d.rng.integers(count)] = n[0]
    return [n, side, d.any(len(n), np.uint64), x, np.empty(count, np.uint64)]


def gather(d: Drawn) -> list[Any]:
    count, sizes = d.size(), d.rng.choice([1, 2, 4, 8, 16, 24, 255, 256, 257, 600], int(d.rng.integers(1, 4)))
    lengths = d.rng.integers(0, 6, int(d.rng.integers(1, 4)))
    held = [[np.ones(length * size, np.uint8) for size in sizes] for length in lengths]
    targets = [np.empty(count * size, np.uint8) for size in sizes]
    addresses = np.array([address(one) for some in held for one in some])
    sources = d.below(len(lengths), count, d.narrow())
    rows = d.below(int(lengths.min()), count)
    return [addresses, lengths, sizes, sources, rows, np.array([*map(address, targets)]), (held, targets)]


def arrow_rows(d: Drawn) -> list[Any]:
    length, width = int(d.rng.integers(0, 20)), int(d.rng.choice([0, 4, 8]))
    kind = int(d.rng.integers(0, 11))
    target = 0 if kind == 0 else 1 if kind < 9 else int(d.rng.integers(2, 4))
    stored = (np.uint8, "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")[kind]
    counts = d.rng.integers(0, 5, int(d.rng.integers(1, 4)))
    held = [np.ones((c * length + 7) // 8 if kind == 0 else c * length, stored) for c in counts]
    offsets = [(np.arange(c + 1) * length).astype(np.int32 if width == 4 else np.int64) for c in counts]
    if d.spoils and width:
        offsets[0][-1] = d.number() >> (33 if width == 4 else 0)
    places = [[address(h), c * length, 0, address(o)] for h, c, o in zip(held, counts, offsets, strict=True)]
    rows = d.below(int(counts.sum()), d.size(65))
    out = np.empty(len(rows) * length, (np.bool_, np.int64, np.float32, np.float64)[target])
    firsts = np.concatenate([[0], counts.cumsum()])
    return [firsts, np.array(places), kind, target, width, length, rows, out, (held, offsets)]


def hash_rows(d: Drawn) -> list[Any]:
    rows, width = d.size(65), int(d.rng.choice([0, 1, 7, 8, 9, 4095, 4096, 4097, 8200]))
    return [d.any(rows * width, np.uint8), d.number(), d.number(), np.empty(rows, np.uint64)]


def fold_rows(d: Drawn) -> list[Any]:
    n = d.size()
    return [d.any(n), d.number() if d.rng.random() < 0.5 else None, d.any(n)]


def digest_of_content(d: Drawn) -> list[Any]:
    n = d.size()
    return [d.number(), d.any(n, d.narrow()), d.any(n), d.flags(n)]


def counts(d: Drawn) -> list[Any]:
    found = max(d.size(), 1)
    low = int(d.rng.choice([0, -5, 2**62]))
    return [d.below(found, d.size()) + low, low, np.zeros(found, np.int64)]


def group(d: Drawn) -> list[Any]:
    n, sets = d.size(), max(d.size(64), 1)
    datasets = d.below(sets, n)
    inside = datasets[(datasets >= 0) & (datasets < sets)]
    sizes = np.bincount(inside, minlength=sets)
    return [datasets, d.any(n), 0, sizes.cumsum() - sizes, np.empty(n, d.narrow())]


def rules(d: Drawn) -> list[Any]:
    n, row_length = d.size(257), int(d.rng.choice([1, 2, 7, 63, 64, 65, 300]))
    order = None if d.rng.random() < 0.5 else d.rng.permutation(n)
    return [d.rng.integers(0, 3 * row_length, n), order, row_length, bool(d.rng.integers(2)), bool(d.rng.integers(2))]


def fit(d: Drawn) -> list[Any]:
    given = rules(d)
    pieces = compiled.kernels.num_pieces(*given)
    bound = int(d.rng.integers(0, pieces + 1)) if d.spoils else pieces
    return [*given, int(d.rng.choice([0, 1, 3])), bound, np.empty(pieces, d.narrow())]


def index_columns(d: Drawn, rows: int, pieces: int) -> list[Any]:
    named = np.empty(pieces, d.narrow()), np.empty(pieces, d.narrow()), np.empty(pieces, np.int32)
    return [np.zeros(rows + 1, np.int64), *named]


def group_pieces(d: Drawn) -> list[Any]:
    given = rules(d)
    pieces, rows = compiled.kernels.num_pieces(*given), max(d.size(64), 1)
    return [*given, d.below(rows, pieces, d.narrow()), *index_columns(d, rows, pieces)]


def stream(d: Drawn) -> list[Any]:
    given = rules(d)
    given[1] = None
    rows, pieces = compiled.kernels.stream_counts(*given)
    return [*given, *index_columns(d, rows, pieces)]


def fill(d: Drawn) -> list[Any]:
    given = stream(d)
    lengths, _, row_length = given[:3]
    compiled.kernels.stream(*given)
    offsets, document, start, size = given[5:]
    rows = len(offsets) - 1
    if d.spoils and len(size):
        column = (document, start, size)[int(d.rng.integers(3))]
        column[d.rng.integers(len(column))] = d.number() >> (33 if column.itemsize == 4 else 0)
    tokens = d.any(int(lengths.sum()), d.rng.choice([np.uint8, np.int16, np.int32, np.int64]))
    places = [np.empty((rows, row_length), np.int32) for _ in range(6)]
    edges = np.concatenate([[0], lengths.cumsum()])
    named = places[4:] if d.rng.random() < 0.5 else (None, None)
    which = edges, offsets[:-1].copy(), offsets[1:].copy()
    return [tokens, False, *which, document, start, size, row_length, 7, bool(d.rng.integers(2)), *places[:4], *named]


def pack_names(d: Drawn) -> list[Any]:
    n = d.size()
    content = None if d.rng.random() < 0.5 else d.any(n)
    named = d.below(2**31, n), d.below(2**31, n, d.narrow()), d.any(n, d.narrow())
    return [d.number(), *named, content, d.flags(n)]


def pack_row(d: Drawn) -> list[Any]:
    codes = "".join(d.rng.choice([*"qifI"], d.size(16)))
    of_kind: dict[str, list[Any]] = {
        "q": [None, 7, -(2**63), 2**63 - 1],
        "i": [None, 7, -(2**31), 2**31 - 1],
        "f": [None, 0.5, math.nan, -math.inf, 1e300],
        "I": [None, "", "caf\u00e9", "x" * 5000, [], [("loss", 0.5), ("", math.nan)]],
    }
    wrong: list[Any] = ["x", 2**70, "\ud83d", [("loss",)], [7], b"x", True]
    values = [of_kind[code][int(d.rng.integers(len(of_kind[code])))] for code in codes]
    if d.spoils and values:
        values[int(d.rng.integers(len(values)))] = wrong[int(d.rng.integers(len(wrong)))]
    return [codes.encode(), tuple(values)]


def integers(d: Drawn) -> list[Any]:
    """A list of integers, or of other things, and room for as many."""
    items: list[Any] = d.any(d.size()).tolist()
    if d.spoils and items:
        items[int(d.rng.integers(len(items)))] = ["x", 2**70, 0.5, None][int(d.rng.integers(4))]
    return [items, np.empty(len(items) + (d.spoils and not items), np.int64)]


def pack_columns(d: Drawn) -> list[Any]:
    rows, codes = d.size(), "".join(d.rng.choice([*"qif"], d.size(15)))
    columns: list[Any] = []
    for code in codes:
        floats = [None, 0.5, math.nan, -math.inf]
        one = floats[int(d.rng.integers(4))] if code == "f" else d.rng.choice([None, 7, -(2**31)])
        numbers = d.rng.random(rows) if code == "f" else d.below(2**31, rows)
        columns.append((one, [one] * (rows + (d.rng.random() < 0.1)), numbers)[int(d.rng.integers(3))])
    return [codes.encode(), rows, tuple(columns)]


def check_rows(d: Drawn) -> list[Any]:
    rows, codes = d.size(), "".join(d.rng.choice([*"qif"], d.size(16)))
    size = 2 + sum(8 if code == "q" else 4 for code in codes)
    structs = d.rng.integers(0, 256, rows * size + int(d.spoils)).astype(np.uint8)
    return [structs, codes.encode(), d.any(len(codes)), d.any(len(codes)), d.number()]


FITTING: dict[str, Callable[[Drawn], list[Any]]] = {
    "fold": lambda d: [d.number(), d.number()],
    "key_of_three": lambda d: [d.number() for _ in range(4)],
    "digest": digest,
    "digest_of_slots": digest_of_slots,
    "digests": digests,
    "owners": owners,
    "owner_counts": owner_counts,
    "permute": permuted,
    "unpermute": permuted,
    "gather": gather,
    "arrow_rows": arrow_rows,
    "hash_rows": hash_rows,
    "fold_rows": fold_rows,
    "digest_of_content": digest_of_content,
    "integers": integers,
    "extent": lambda d: [d.any(max(d.size(), 1))],
    "counts": counts,
    "group": group,
    "num_pieces": rules,
    "first_fit": fit,
    "best_fit": fit,
    "group_pieces": group_pieces,
    "stream_counts": lambda d: [*rules(d)],
    "stream": stream,
    "fill": fill,
    "pack_names": pack_names,
    "pack_row": pack_row,
    "pack_columns": pack_columns,
    "check_rows": check_rows,
}


def rounds(d: Drawn) -> tuple[Any, Any, int]:
    """Where some rounds begin, how long they are, and all their samples."""
    sizes = d.rng.choice([1, 2, 20, 21, 64, 300, 4096], int(d.rng.integers(0, 4))).astype(np.int64)
    starts = 3 + sizes.cumsum() - sizes + int(d.rng.choice([0, 2**40]))
    return starts, sizes, int(sizes.sum())


def passes(d: Drawn, datasets: int) -> Any:
    """What makes samples of draws: whatever is in it, no draw may leave its dataset."""
    table = d.any(4 * datasets)
    if not d.spoils:
        table.reshape(-1, 4)[:, 1:3] = 100, 10  # length and side
    return table


def of_rounds(d: Drawn, datasets: int) -> list[Any]:
    starts, sizes, total = rounds(d)
    table = None if d.rng.random() < 0.5 else passes(d, datasets)
    return [3, starts, sizes, d.number(), table, np.empty(total, np.int32), np.empty(total, np.int64)]


def of_step(d: Drawn, datasets: int) -> list[Any]:
    size = int(d.rng.choice([1, 20, 21, 64, 4096]))
    first = int(d.rng.integers(0, size))
    count = int(d.rng.integers(1, size - first + 1)) + d.spoils
    out = np.empty(count, np.int32), np.empty(count, np.int64)
    return [3, d.number(), passes(d, datasets), 3 + size, size, first, *out]


def of_places(d: Drawn, datasets: int) -> list[Any]:
    n, dataset = d.size(64), int(d.rng.integers(datasets))
    lo = 3 + 300 * int(d.rng.integers(0, 9))
    before, after = (drawn(d.tree, place, datasets)[dataset] for place in (lo - 3, lo + 297))
    draws = d.below(after, n if after > before else 0, first=before)
    rounds = np.full(len(draws), lo), np.full(len(draws), 300)
    return [dataset, draws, 3, *rounds, d.number(), np.empty(len(draws), np.int64)]


def drawn(tree: Any, position: int, datasets: int) -> Any:
    found = np.zeros(datasets, np.int64)
    tree.counts(position, found)
    return found


METHODS: dict[str, Callable[[Drawn, int], list[Any]]] = {
    "rounds": of_rounds,
    "step": of_step,
    "counts": lambda d, datasets: [int(d.rng.integers(2**60)), np.zeros(datasets, np.int64)],
    "in_order": lambda d, _: [int(d.rng.integers(2**60)), np.empty(n := d.size(), np.int32), np.empty(n, np.int64)],
    "positions": lambda d, datasets: [
        int(d.rng.integers(datasets)),
        d.below(2**60, n := d.size()),
        np.empty(n, np.int64),
    ],
    "places": of_places,
    "nodes": lambda d, _: [],
}


def address(array: Any) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def accepted(call: Callable[..., Any], arguments: list[Any]) -> bool:
    """Call a kernel; say whether it took what it was given."""
    with contextlib.suppress(ValueError):
        call(*arguments)
        return True
    return False


def exported() -> set[str]:
    return {name for name in dir(compiled.kernels) if not name.startswith("_")} - {"Tree"}


def test_each_kernel_has_arguments_that_fit():
    """A kernel that is added here has none, and this says so."""
    tree = compiled.kernels.Tree

    assert set(FITTING) == exported()
    assert set(METHODS) == {name for name in dir(tree) if not name.startswith("_")}


@pytest.mark.parametrize("name", FITTING)
def test_columns_that_fit(name):
    """Most are taken: else nothing behind the first check would be looked at."""
    kernel, took = getattr(compiled.kernels, name), 0
    for seed in range(300):
        arguments = FITTING[name](Drawn(seed))
        held = arguments.pop() if name in ("gather", "arrow_rows") else None  # whose memory it is
        took += accepted(kernel, arguments)
        del held

    assert took >= 150


@pytest.mark.parametrize("name", METHODS)
def test_columns_that_fit_a_tree(name):
    """Trees of a few datasets, some without weight."""
    took = 0
    for seed in range(300):
        d = Drawn(seed)
        weights = d.rng.integers(0, 1 << 20, int(d.rng.integers(1, 70)))
        weights[0] += 1
        by_weight = np.argsort(weights, kind="stable")[int((weights == 0).sum()) :]
        d.tree = compiled.kernels.Tree(weights, np.zeros(len(weights), np.int64), by_weight)
        took += accepted(getattr(d.tree, name), METHODS[name](d, len(weights)))

    assert took >= 150
