"""A reader of plans written from docs/order-format.md alone: it imports no Lading. ``run_reader`` reads runs."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any

GOLDEN, FOLD, M1, M2 = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
LIMIT, W = (1 << 64) - 1, 1 << 31


class Literal(str):
    """The digits of a number that is no integer."""


def parse(text: str | bytes) -> Any:
    """Return JSON with other numbers than integers as their digits."""
    return json.loads(text, parse_float=Literal)


def canonical(value: Any) -> str:
    """Return the one text of a value."""
    if isinstance(value, Literal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{canonical(k)}:{canonical(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return json.dumps(value)


def mix64(x: int) -> int:
    x = ((x ^ (x >> 30)) * M1) & LIMIT
    x = ((x ^ (x >> 27)) * M2) & LIMIT
    return x ^ (x >> 31)


def fold(h: int, x: int) -> int:
    return mix64((h * FOLD + mix64((x + GOLDEN) & LIMIT)) & LIMIT)


def blake8(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=8).digest()


def text64(text: str) -> int:
    return int.from_bytes(blake8(text.encode()), "little")


def key64(*parts: int | str) -> int:
    return functools.reduce(lambda h, p: fold(h, text64(p) if isinstance(p, str) else p & LIMIT), parts, 0)


def fingerprint(value: Any) -> str:
    return blake8(canonical(value).encode()).hex()


def sample_hash(place: int, dataset: int, index: int) -> int:
    return mix64(mix64((place + GOLDEN) & LIMIT) ^ mix64((index * FOLD + dataset * GOLDEN + 1) & LIMIT))


@functools.lru_cache(4096)
def table(n: int, k: int) -> list[int]:
    found = list(range(n))
    for i in range(n - 1, 0, -1):
        j = (mix64((k + GOLDEN * (i + 1)) & LIMIT) * (i + 1)) >> 64
        found[i], found[j] = found[j], found[i]
    return found


def scatter(right: int, key: int, a: int) -> int:
    h = ((right ^ key) * M1) & LIMIT
    h = ((h ^ (h >> 32)) * M2) & LIMIT
    return ((h >> 32) * a) >> 32


def permute(n: int, key: int, x: int, inverse: bool = False) -> int:
    k = fold(key, n)
    if n <= 64:
        return table(n, k).index(x) if inverse else table(n, k)[x]
    a, rounds, bit = math.isqrt(n - 1) + 1, range(12 if n <= 65536 else 8), ((k * M2) & LIMIT) >> 63
    x = x ^ bit if inverse and x < 2 else x
    while True:
        left, right = divmod(x, a)
        for r in reversed(rounds) if inverse else rounds:
            key_r = (k + GOLDEN * (r + 1)) & LIMIT
            if inverse:
                left, right = (right - scatter(left, key_r, a)) % a, left
            else:
                left, right = right, (left + scatter(right, key_r, a)) % a
        x = left * a + right
        if x < n:
            return x if inverse or x >= 2 else x ^ bit


def permute_pass(shuffle: str, w: int, n: int, key: int, x: int) -> int:
    if shuffle != "block":
        return x if shuffle == "none" else permute(n, key, x)
    count = -(-n // w)
    short, outer, inner = n - (count - 1) * w, fold(key, text64("blocks")), fold(key, text64("inside"))
    at = permute(count, outer, count - 1, inverse=True) * w
    place, inside = divmod(x + w - short if x >= at + short else x, w)
    window = permute(count, outer, place)
    return window * w + permute(short if window == count - 1 else w, fold(inner, window), inside)


class Tree:
    """The tree of a stage, from its weights and what is owed (balanced here)."""

    def __init__(self, weights: list[int], owed: list[int]) -> None:
        live = [d for d, w in enumerate(weights) if w]
        each, rest = divmod(sum(owed[d] for d in live), len(live))
        nodes = [(weights[d], d, owed[d] - each - (i < rest), None) for i, d in enumerate(live)]
        while len(nodes) > 1:
            nodes.sort(key=lambda node: node[:2])
            right, left = nodes[0], nodes[1]
            n, a, owing = left[0] + right[0], left[0], left[2] + right[2]
            phi = n // 2 + (n * left[2] - a * owing) // W
            nodes[:2] = [(n, min(left[1], right[1]), owing, (left, right, a, phi))]
        self.root = nodes[0]

    def draws(self, lo: int, m: int, node: Any = None) -> list[tuple[int, int, int]]:
        node = node or self.root
        if m == 0:
            return []
        if node[3] is None:
            return [(node[1], lo, m)]
        left, right, a, phi = node[3]
        before, stop = (min(max((a * x + phi) // node[0], 0), x) for x in (lo, lo + m))
        return self.draws(before, stop - before, left) + self.draws(lo - before, m - (stop - before), right)


class Plan:
    """A plan with its events: steps and what they hold."""

    def __init__(self, text: str | bytes, events: list[Any], files: dict[str, list[int]]) -> None:
        self.plan = plan = parse(text)
        self.events, self.base = events, next((e for e in events if e["kind"] == "base"), {})
        self.shuffle, self.window, self.seed = plan["shuffle"], plan["block_samples"] or 0, plan["seed"]
        self.lengths, self.mixture = [d["length"] for d in plan["datasets"]], plan["mixture"]
        self.E = self.mixture["epoch_samples"] if self.mixture else sum(self.lengths)
        self.restart = bool(self.mixture) and self.mixture["stopping"] == "restart"
        self.located = self.steps()
        self.known: list[tuple[int, int, int | None, int, int]] = []
        named, sources = plan.get("sample_weights", {}), plan["datasets"]
        self.tables = {d: files[named[s["name"]]["sha256"]] for d, s in enumerate(sources) if s["name"] in named}
        whole = [{"number": d, "rows": s["length"], "samples": s["length"], **s} for d, s in enumerate(sources)]
        self.parts = [(d, part) for d, s in enumerate(sources) for part in s.get("parts", [whole[d]])]
        self.stages: list[Any] = []

    @property
    def fingerprint(self) -> str:
        kept = {k: v for k, v in self.plan.items() if k not in ("events", "lookahead_steps")}
        kept["datasets"] = [{k: v for k, v in d.items() if k != "location"} for d in kept["datasets"]]
        return fingerprint(kept)

    def steps(self) -> Iterator[tuple[int, int, int | None, int, int]]:
        plan, E = self.plan, self.E
        sizes = plan.get("batch_schedule") or [[0, plan["global_batch_size"]]]
        step = epoch = offset = drawn = 0
        batch, later = sizes[0][1], sizes[1:]
        chunk_batches, later_chunks, number = plan["chunk_batches"], plan.get("chunk_schedule", [])[1:], 0
        if pace := self.base.get("pace"):
            step, epoch, offset, drawn = (pace[n] for n in ("step", "epoch", "offset", "position"))
            batch, later, number = pace["batch"], pace["later"], pace["chunk"]
            chunk_batches, later_chunks = pace["chunk_batches"], pace.get("later_chunks", [])
        chunk, left, is_first = None, 0, True
        ends = lambda: offset >= E or (plan["drop_last"] and E - offset < batch)  # noqa: E731
        while True:
            anew = False
            if ends():
                epoch, offset, anew = epoch + 1, 0, True
            for event in self.events:
                if event["kind"] == "rebatch" and event["step"] == step:
                    epoch, offset, batch = event["epoch"], event["offset"], event["global_batch_size"]
                    chunk_batches, later, anew = event["chunk_batches"], event.get("later", []), True
            if later and later[0][0] == step:
                batch, later, anew = later[0][1], later[1:], True
            if ends():
                epoch, offset = epoch + 1, 0
            if chunk_batches is None:
                chunk = None
            else:
                if begins := chunk is None or anew or left == 0:
                    chunk = (number if is_first else 0) if chunk is None else chunk + 1
                    if later_chunks and later_chunks[0][0] == chunk:
                        chunk_batches, later_chunks = later_chunks[0][1], later_chunks[1:]
                left = (chunk_batches if begins else left) - 1
            size, is_first = min(batch, E - offset), False
            yield step, epoch, chunk, drawn if self.restart else epoch * E + offset, size
            offset, drawn, step = offset + size, drawn + size, step + 1

    def at(self, step: int) -> tuple[int, int, int | None, int, int]:
        while not self.known or self.known[-1][0] < step:
            self.known.append(next(self.located))
        return self.known[step - self.known[0][0]]

    def stage_at(self, place: int) -> tuple[int, Tree, list[int]]:
        """Return start, tree and draws before of the stage that a place of the stream is in."""
        if not self.stages:
            kept, changes = self.base.get("stage"), [tuple(s) for s in self.mixture["stages"]]
            changes += [(e["position"], e["weights"]) for e in self.events if e["kind"] == "reweight"]
            if kept:
                changes = [c for c in changes if c[0] > self.base["position"]]
            borders: dict[int, list[int]] = {}
            for position, weights in sorted(changes, key=lambda change: change[0]):
                borders[self.first_from(position) if position else 0] = weights
            start, weights = (kept["start"], kept["weights"]) if kept else (0, borders.pop(0))
            drawn, owed = (kept["drawn"], kept["residuals"]) if kept else ([0] * len(weights), [0] * len(weights))
            self.stages = [(start, Tree(weights, owed), drawn)]
            for border, following in borders.items():
                start, tree, drawn = self.stages[-1]
                counts = {d: m for d, _, m in tree.draws(0, border - start)}
                planned = [o + w * (border - start) for o, w in zip(owed, weights, strict=True)]
                owed = [o - W * counts.get(d, 0) for d, o in enumerate(planned)]
                weights, drawn = following, [n + counts.get(d, 0) for d, n in enumerate(drawn)]
                self.stages.append((border, Tree(weights, owed), drawn))
        return [stage for stage in self.stages if stage[0] <= place][-1]

    def first_from(self, position: int) -> int:
        step = (self.base.get("pace") or {"step": 0})["step"]
        while self.at(step)[3] < position:
            step += 1
        return self.at(step)[3]

    def mixed(self, position: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield source and row of the slots of a step."""
        epoch, p = (0, position) if self.restart else divmod(position, self.E)
        S = key64(self.seed) if self.restart else key64(self.seed, "epoch", epoch)
        R, k = fold(S, text64("round")), -(-size // 4096)
        for i in range(k):
            lo, stop = p + i * size // k, p + (i + 1) * size // k
            start, tree, drawn = self.stage_at(lo)
            for d, j in self.round(tree, start, lo, stop - lo, R):
                number, x = divmod(drawn[d] + j, self.lengths[d])
                key = fold(fold(S, d), number)
                yield d, self.weighted(d, permute_pass(self.shuffle, self.window, self.lengths[d], key, x), key)

    def round(self, tree: Tree, start: int, lo: int, m: int, R: int) -> Iterator[tuple[int, int]]:
        if self.shuffle == "none":
            for x in range(lo, lo + m):
                ((d, j, _),) = tree.draws(x - start, 1)
                yield d, j
            return
        found = tree.draws(lo - start, m)
        labels, following = [d for d, _, n in found for _ in range(n)], {d: first for d, first, _ in found}
        for key in sorted((fold(fold(R, lo), i) & ~4095) | i for i in range(m)):
            d = labels[key & 4095]
            yield d, following[d]
            following[d] += 1

    def unweighted(self, place: int) -> tuple[int, int]:
        epoch, x = divmod(place, self.E)
        row, d = permute_pass(self.shuffle, self.window, self.E, key64(self.seed, epoch), x), 0
        while row >= self.lengths[d]:
            row, d = row - self.lengths[d], d + 1
        return d, self.weighted(d, row, key64(self.seed, epoch, d))

    def layout(self, N: int, n: int) -> int:
        size = {"none": 1, "full": N}.get(self.shuffle, min(self.window, N))
        block, inside = divmod(n, size)
        key = fold(key64("sample weights", "layout"), block)
        return n if size == 1 else block * size + permute(min(size, N - block * size), key, inside)

    def weighted(self, d: int, k: int, key: int) -> int:
        if d not in self.tables:
            return k
        weights = self.tables[d]
        N, T = len(weights), sum(weights)
        point, n, end = (k * T + ((fold(key, text64("phase")) * T) >> 64)) // N, -1, 0
        while end <= point:
            n += 1
            end += weights[self.layout(N, n)]
        return self.layout(N, n)

    def named(self, source: int, row: int) -> tuple[int, int]:
        for part in (part for d, part in self.parts if d == source):
            if row < part["rows"]:
                return part["number"], part.get("first", 0) + row % part["samples"]
            row -= part["rows"]
        raise AssertionError

    def blocked(self, step: int) -> set[tuple[int, int]]:
        numbers = {part["name"]: part["number"] for _, part in self.parts}
        found = {(numbers[name], i) for name, some in self.plan.get("blocked", {}).items() for i in some}
        for event in self.events:
            if event["kind"] == "block" and event["step"] <= step:
                found |= {(event["dataset"], i) for i in event["indices"]}
        for number, gaps in self.base.get("blocked", {}).items():
            index = 0
            for gap in gaps.split(" "):
                index += int(gap, 36)
                found.add((int(number), index))
        return found

    def substitute(self, dataset: int, index: int, blocked: set[tuple[int, int]]) -> int:
        if (dataset, index) not in blocked:
            return index
        source, part = next((d, part) for d, part in self.parts if part["number"] == dataset)
        reach, first, key = min(part["rows"], part["samples"]), part.get("first", 0), key64(self.seed, "substitute")
        if index - first >= reach:
            return index
        at = permute(reach, key, index - first, inverse=True)
        rows = range(self.lengths[source])
        undrawn = {self.named(source, r) for r in rows if source in self.tables} - {
            self.named(source, r) for r in rows if source in self.tables and self.tables[source][r]
        }
        ring = (first + permute(reach, key, (at + t) % reach) for t in range(1, reach))
        return next(found for found in ring if (dataset, found) not in blocked | undrawn)

    def bill(self, step: int) -> dict[str, Any]:
        _, epoch, chunk, position, size = self.at(step)
        plain = (self.unweighted(position + slot) for slot in range(size))
        rows = self.mixed(position, size) if self.mixture else plain
        blocked = self.blocked(step)
        names = [(d, self.substitute(d, i, blocked)) for d, i in (self.named(*row) for row in rows)]
        digits = fold(key64(text64(self.fingerprint)), step) >> 32
        where = {"step": step, "epoch": epoch, "chunk": chunk, "position": position, "size": size}
        return {**where, "id": f"e{epoch}-s{step}-{digits:08x}", "samples": names}


def digest(position: int, names: dict[int, tuple[int, int]]) -> int:
    """Return the digest of a step: slot to (dataset, index) of the slots that count."""
    return sum(sample_hash(position + slot, d, i) for slot, (d, i) in names.items()) & LIMIT
