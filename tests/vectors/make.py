"""Test vectors for others: what docs/order-format.md and docs/ledger-format.md say, worked out by Lading.

    python tests/vectors/make.py           write them: only after a decision to change a version
    python tests/vectors/make.py --check   compare (``LADING_COMPILED=0``: the plain versions)

Integers that may exceed 2**53 are texts, and so are the JSON texts whose letters matter. Samples of a step are
``dataset:index``, in the order of slots.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lading.identity import fingerprint
from lading.identity.content import content_hash
from lading.identity.hashing import fold_int, key64, mix64_int, sample_hashes, text64
from lading.ledger.begun import Begun
from lading.ledger.launch import Seal
from lading.ledger.log import sha256_of_bytes
from lading.ledger.row_hash import StoredRows, rows_hash
from lading.ledger.schema import SCHEMAS
from lading.ledger.seal import _line
from lading.ledger.tables import TABLES
from lading.order import Mixture, Plan
from lading.order.dataset import Part, PlannedDataset
from lading.order.event import Block, Rebatch, event_to_dict
from lading.order.mixture.spec import integer_weights
from lading.order.mixture.tree import tree_class
from lading.order.packing.index import build_index
from lading.order.packing.rules import PackingRules
from lading.order.permutation import permute, unpermute
from lading.order.shuffle import permute_windows
from lading.runtime.files import journal_line

HERE = Path(__file__).parent
ODD_NAMES = ["größe", "名前", "😀 astral", "\ue000 private", 'quote " and \\', "tab\tline\n", "\x7f\x01", "a/b"]
U64 = (1 << 64) - 1
Vector = dict[str, Any]


def hashes() -> Iterator[Vector]:
    """Mixing, texts, keys, samples, ids."""
    numbers = [0, 1, 2, 12345, 1 << 31, 1 << 32, (1 << 53) + 1, 1 << 63, U64]
    for x in numbers:
        yield {"function": "mix64", "of": [str(x)], "is": str(mix64_int(x))}
        yield {"function": "fold", "of": [str(numbers[3] ^ x), str(x)], "is": str(fold_int(numbers[3] ^ x, x))}
    for text in ["", "round", *ODD_NAMES]:
        yield {"function": "text64", "of": text, "is": str(text64(text))}
    for key in [(0,), (7, 0), (U64, 3), (7, "substitute"), ("sample weights", "layout"), (1, "epoch", 5, 2, 9), (-1,)]:
        parts = [part if isinstance(part, str) else {"integer": str(part)} for part in key]
        yield {"function": "key64", "of": parts, "is": str(key64(*key))}
    for place, dataset, index in [
        (0, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
        (77, 3, 5),
        ((1 << 62) - 1, 65535, 1 << 61),
    ]:
        found = sample_hashes(*(np.array([value]) for value in (place, dataset, index)))
        yield {"function": "sample_hash", "of": [str(place), str(dataset), str(index)], "is": str(int(found[0]))}


def permutations() -> Iterator[Vector]:
    """Both ranges of n, and Fisher-Yates; whole where n is small."""
    sizes = [1, 2, 3, 5, 10, 33, 63, 64, 65, 66, 100, 1000, 65535, 65536, 65537, 10**6, 1 << 32, (1 << 40) + 7]
    for n in [*sizes, 10**15, (1 << 53) + 3, 1 << 62, 1 << 63]:
        for key in [0, key64(7, 0), U64]:
            places = sorted({p % n for p in (0, 1, 2, 3, n // 3, n // 2, n - 2, n - 1, 12345)})
            found = permute(n, key, places)
            assert unpermute(n, key, found).tolist() == places
            yield {"n": str(n), "key": str(key), "positions": _texts(places), "elements": _texts(found)}


def windows() -> Iterator[Vector]:
    """Windows of neighbours: one, many, a short one at the end."""
    for n, window in [(10, 4), (10, 5), (7, 10), (100, 1), (1000, 64), (1001, 64), (70_000, 7), (1 << 40, 4096)]:
        places = sorted({p % n for p in (0, 1, 2, 5, n // 3, n // 2, n - 3, n - 2, n - 1)})
        key = key64(n, 1)
        found = permute_windows(np.array([n]), np.array([key], np.uint64), np.array(places), window)
        of = {"n": str(n), "window": window, "key": str(key), "positions": _texts(places)}
        yield {**of, "elements": _texts(found)}


def weights() -> Iterator[Vector]:
    """Given weights to integers; floats as hexadecimal, so that none is rounded on the way."""
    given: list[list[float]] = [
        [1, 1],
        [0.7, 0.3],
        [1, 0, 2],
        [1e-12, 1, 0],
        [1, 1, 1],
        [0.1] * 10,
        [5],
        [3e300, 1e-300],
    ]
    for some in [*given, [1e-15] * 5 + [1.0], [1 / 3, 2 / 3, 0.1]]:
        yield {"given": [float(w).hex() for w in some], "integers": list(integer_weights(some))}


def trees() -> Iterator[Vector]:
    """Far places of a mixture's stream, with and without something owed."""
    for given in [[1], [1, 1], [7, 3], [1, 2, 3, 4, 5], [1000, 1, 1, 1], [0, 5, 0, 2], list(range(1, 30))]:
        integers = integer_weights(given)
        live = [d for d, w in enumerate(integers) if w]
        for owed_by in (0, 3 << 30):
            owed = [0] * len(integers)
            if len(live) > 1:
                owed[live[0]], owed[live[-1]] = owed_by, -owed_by
            tree = tree_class()(integers, owed)
            for place in (0, 1, 1000, (1 << 31) + 5, (1 << 40) + 1, (1 << 59) + 12345):
                datasets, draws = tree.in_order(place, 4)
                at = [f"{d}:{j}" for d, j in zip(datasets.tolist(), draws.tolist(), strict=True)]
                of = {"weights": list(integers), "owed": _texts(owed), "place": str(place)}
                yield {**of, "draws": " ".join(at), "counts": _texts(tree.counts(place))}


def _texts(values: Any) -> list[str]:
    return [str(int(value)) for value in values]


def _plans() -> Iterator[tuple[Plan, list[int]]]:
    """Plans and the steps to look at."""
    two, first = {"code": 70, "prose": 31}, [0, 1, 12, 13, 25, 40]
    for seed in (0, 3, U64):
        yield Plan.make(two, batch_size=8, seed=seed), first
    for shuffle in ("none", "window"):
        yield Plan.make(two, batch_size=8, seed=5, shuffle=shuffle, window_samples=16), first
        mix = Mixture({"code": 1, "prose": 3})
        yield Plan.make(two, batch_size=8, seed=5, shuffle=shuffle, window_samples=16, mixture=mix), first
    yield Plan.make(two, batch_size=8, drop_last=True, chunk_batches=5, chunk_schedule=((0, 5), (2, 3))), first
    yield Plan.make(two, batch_schedule=[(0, 4), ("3ba", 16), ("30ba", 7)], chunk_batches=4), [0, 2, 3, 4, 8, 9, 30, 31]
    yield Plan.make({"tiny": 1, "small": 50, "large": 200_000}, batch_size=16, seed=9), [0, 7, 12_503, 12_504]
    yield Plan.make({"huge": 1 << 60}, batch_size=4, seed=(1 << 53) + 1), [0, 1, 1000]
    for drop_last in (False, True):
        mix = Mixture({"code": 7, "prose": 3}, epoch_samples=50)
        yield Plan.make(two, batch_size=8, drop_last=drop_last, mixture=mix, chunk_batches=3), first
    for stopping in ("first_exhausted", "all_exhausted"):
        yield Plan.make(two, batch_size=8, seed=2, mixture=Mixture([2, 1], stopping=stopping)), [0, 3, 9, 10, 20, 30]
    schedule = [(0, [1, 1, 0]), ("5ba", [0, 1, 3]), ("60sp", [2, 1, 1])]
    yield (
        Plan.make({"a": 40, "b": 7, "c": 90}, batch_size=8, mixture=Mixture(schedule=schedule)),
        [0, 4, 5, 7, 8, 20, 60],
    )
    tokens = [PlannedDataset("short", 90, "0f", mean_tokens=100), PlannedDataset("long", 90, "", mean_tokens=1e16)]
    yield Plan.make(tokens, batch_size=6, mixture=Mixture([1, 1], unit="tokens")), first
    odd = {name: 5 + number for number, name in enumerate(ODD_NAMES)}
    yield Plan.make(odd, batch_size=6, blocked={ODD_NAMES[3]: [1, 2], ODD_NAMES[2]: [0]}), first
    mean = [PlannedDataset("kept", 60, "x" * 16, 1e-05, "somewhere")]
    yield Plan.make(mean, batch_size=7, lookahead_steps=4), first
    parts = {"data": [Part(None, "[0]", 20, 6), Part(None, "[1]", 9, 9, 100)], "more": 11}
    yield Plan.make(parts, batch_size=8, seed=1, blocked={"data[0]": [1, 5]}), first
    yield Plan.make({"many": 9000}, batch_size=8500, mixture=Mixture([1])), [0, 1]
    yield Plan.make({"a": 9000, "b": 300}, batch_size=9001, seed=4, mixture=Mixture([3, 1])), [0, 1, 2]


def _changed() -> Iterator[tuple[Plan, list[int]]]:
    """Plans with events: as they were made, and as a state keeps them."""
    two = {"code": 70, "prose": 31}
    weighted = Plan.make(two, batch_size=8, seed=6, mixture=Mixture([1, 1]), chunk_batches=4)
    for step, given in [(3, [9, 1]), (9, [1, 9]), (20, [1, 0])]:
        event = weighted.reweighting(step, integer_weights(given))
        assert event is not None
        weighted = weighted.with_event(event)
    plain = Plan.make(two, batch_size=8, seed=6, chunk_batches=4)
    for plan in (weighted, plain, Plan.make(two, batch_size=8, drop_last=True, seed=6)):
        at = plan.locate(11)
        resized = plan.with_event(Rebatch(11, at.epoch, at.offset, 12, plan.chunk_batches))
        blocked = resized.with_event(Block(14, 0, (3, 4, 69), "bad")).with_event(Block(16, 1, (7,), ""))
        for changed in (plan, resized, blocked):
            yield changed, [8, 10, 11, 12, 14, 16, 17, 30]
            if changed.events:
                yield changed.with_events(changed.events_from(21)), [21, 22, 30, 45]
    ramp = Plan.make(two, batch_schedule=[(0, 4), ("20ba", 8), ("40ba", 16)], mixture=Mixture([1, 2]))
    at = ramp.locate(10)
    yield ramp.with_event(Rebatch(10, at.epoch, at.offset, 6, None, ((25, 10),))), [9, 10, 24, 25, 26, 60]


def _weighted() -> Iterator[tuple[Plan, list[int]]]:
    values = [0.0, 0.5, 1.0, 2.0, 0.25, 3.0, 0.0, 1.0, 1.0, 0.125]
    for shuffle in ("full", "none", "window"):
        fields: Vector = {"shuffle": shuffle, "window_samples": 4, "seed": 8, "batch_size": 5}
        given = {"a": values}
        yield Plan.make({"a": 10, "b": 4}, sample_weights=given, **fields), [0, 1, 2, 3, 9]
        mix = Mixture([3, 1])
        weights = {"b": [1.0, 0, 5, 2], **given}
        yield Plan.make({"a": 10, "b": 4}, sample_weights=weights, mixture=mix, blocked={"a": [3]}, **fields), [0, 1, 5]


def plans() -> Iterator[Vector]:
    """Plan JSON to fingerprint, and steps to what they hold."""
    for plan, steps in [*_plans(), *_changed(), *_weighted()]:
        bare = plan.with_events(())
        text = json.dumps({**json.loads(bare.to_json()), "events": []})
        files = {w.sha256: _texts(w.integers(np.arange(w.samples))) for _, w in plan.sample_weights}
        events = json.dumps([event_to_dict(event, whole=True) for event in plan.events])
        yield {
            "plan": text,
            "events": events,
            "fingerprint": plan.fingerprint,
            "files": files,
            "steps": [_step(plan, step) for step in steps],
        }


def _step(plan: Plan, step: int) -> Vector:
    bill = plan.bill(step)
    names = [f"{d}:{i}" for d, i in zip(bill.dataset_idx.tolist(), bill.idx.tolist(), strict=True)]
    where = {"step": str(step), "epoch": str(bill.epoch), "chunk": bill.chunk, "position": str(bill.position)}
    held = {"samples": " ".join(names)} if len(names) <= 16 else {}
    return {**where, "size": len(names), "id": bill.batch_id, "digest": str(bill.digest), **held}


def fingerprints() -> Iterator[Vector]:
    """JSON texts as files may have them, with their canonical form's fingerprint."""
    values: list[Any] = [
        {},
        [],
        None,
        {"b": 1, "a": [True, False, None]},
        {"x": 100.0},
        {"x": 100},
        [1e16, 1e-05, 0.0001],
    ]
    values += [[1e22, 1.5e300, 5e-324, -0.0, 0.1], [U64, (1 << 53) + 1, -(1 << 62)], dict.fromkeys(ODD_NAMES, 1)]
    for value in [*values, [*ODD_NAMES], {"é": {"ü": "\u2028\ud7ff\uffff"}}]:
        for indent in (None, 2):
            for ascii_only in (True, False):
                text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
                yield {"text": text, "fingerprint": fingerprint(value)}


def packings() -> Iterator[Vector]:
    """Lengths and rules to an index."""
    lengths = [3, 2, 2, 8, 0, 7, 1, 1, 5, 6, 4, 3, 2, 8, 7, 1, 9, 17, 5, 24, 3, 16, 2]
    for algorithm in ("first_fit", "best_fit", "concat_then_split"):
        for overflow in ("split", "truncate"):
            for eod in (True, False):
                for open_rows, window in [(None, 0), (2, 0), (None, 6), (1, 100)]:
                    if algorithm == "concat_then_split" and (open_rows or window):
                        continue
                    rules = PackingRules(8, algorithm, overflow, open_rows, eod, window)
                    index = build_index(np.array(lengths), rules)
                    columns = {n: getattr(index, n).tolist() for n in ("row_offsets", "document", "start", "size")}
                    named = {"lengths_hash": index.lengths_hash, "fingerprint": index.fingerprint}
                    yield {"rules": vars(rules), "lengths": lengths, **named, **columns}


def contents() -> Iterator[Vector]:
    """Samples, with types spelt out, to their hashes."""
    array: Any = np.array
    samples: list[Any] = ["", "größe 😀", b"", b"\x00\xff", None, 0, -1, 7, 1 << 63, -(1 << 70), 0.0, -1.5, True, False]
    samples += [[], [1, 2], [2, 1], {}, {"b": 1, "a": "x"}, dict.fromkeys(ODD_NAMES, None), [[1], {"x": [None]}]]
    samples += [array([1, 2, 3], "<i4"), array([[1.5, 2.5, -0.0]], "<f4"), array([], "<f8"), array([1, 2], ">i8")]
    samples += [
        array([True, False, True]),
        array([1, 2, 3, 4, 5, 6, 7, 8, 9], "u1"),
        {"x": array([1.5, 2.5], "<f4"), "y": 7},
    ]
    for sample in samples:
        yield {"sample": _spelt(sample), "hash": content_hash(sample)}


def _spelt(value: Any) -> Any:
    if isinstance(value, dict):
        return {"object": {name: _spelt(item) for name, item in value.items()}}
    if isinstance(value, list):
        return {"list": [_spelt(item) for item in value]}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, np.ndarray):
        little = value.astype(value.dtype.newbyteorder("<"))
        return {"array": little.tobytes().hex(), "type": little.dtype.str, "shape": str(value.shape)}
    if isinstance(value, bool):
        return {"array": f"{int(value):02x}", "type": "|b1", "shape": "()"}
    if isinstance(value, float):
        return {"array": np.float64(value).tobytes().hex(), "type": "<f8", "shape": "()"}
    return {"integer": str(value)} if isinstance(value, int) else value


def rows() -> Iterator[Vector]:
    """Rows of a rank to their number and SHA-256; floats and times as stored, integers as texts."""
    fate = ["applied", "delivered", "skipped"]
    batches = [
        [
            *(s, None if s % 2 else 40 + s, s // 4, None, 8 * s, 8, (-1) ** s * (1 << 60) // (s + 1), None),
            *(fate[s % 3], 1.5, 1_700_000_000_123 + s, None, "größe" if s % 3 == 2 else None, None),
        ]
        for s in range(6)
    ]
    settled = [
        [*batches[1][:8], "applied", float("nan"), 5, [("lr", 0.25), ("10", float("nan")), ("9", 1e300)], "", "[]"]
    ]
    samples = [[2, slot, 0, 1 << 60, -slot] for slot in (3, 1, 1)] + [[1, 0, 1, 7, None]]
    events = [[3, "note", '{"text":"größe"}', 9], [3, "jump", '{"from":1}', 8]]
    losses = [[0, 0, 0.1], [0, 1, float("nan")], [0, 2, -0.0]]
    uses = [[0, 1, 5, 6, None], [0, 0, 5, 6, 0.5]]
    fates = [[0, 5, "stale", None, 4]]
    rollouts = [[0, 5, 1, 0, 3, None, 12, -7, 0.5, None, 0.25, 6]]
    later = {"row_losses": losses, "rollouts": rollouts, "uses": uses, "fates": fates}
    cases: list[dict[str, Any]] = [{}, {"batches": batches[:1]}, {"batches": batches}, {"batches": settled}]
    cases += [{"batches": batches + settled}, {"batches": settled + batches[::-1]}, {"samples": samples}, later]
    for tables in [*cases, {"events": events}, {"batches": batches, "samples": samples, "events": events, **later}]:
        pieces = {name: [StoredRows(0, lambda n=name, r=r: _table(n, r))] for name, r in tables.items()}
        found = rows_hash({name: pieces[name] for name in TABLES if name in pieces})
        shown = {name: [[_cell(value) for value in row] for row in some] for name, some in tables.items()}
        yield {"tables": shown, "rows": found.rows, "sha256": found.sha256}


def _table(name: str, rows: list[list[Any]]) -> pa.Table:
    schema = SCHEMAS[name]
    columns = zip(*rows, strict=True)
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if value != value else value
    if isinstance(value, list):
        return [[key, _cell(item)] for key, item in value]
    return str(value) if isinstance(value, int) else value


def seals() -> Iterator[Vector]:
    """Files of ranks to their check, their line, and the chain; lines of manifests to their CRC."""
    before = Seal("0" * 64, 0)
    for number, host in enumerate(["golden", "größe 😀", 'quote " \\ \x7f', "tab\t", "plain", "last"]):
        state, rows = ("died" if number == 2 else "closed" if number % 2 else "failed"), number * 10**number
        known = hashlib.sha256(host.encode()).hexdigest()
        time = (1_700_000_000_000 + 37 * number) / 1000 if number else 0.0
        compacting = (3, known) if number == 4 else None
        begun = Begun(
            *("ab" * 16, number, 7, known, state, 2, known, host, (123, (1 << 54) + number), time, compacting),
            *(rows, known),
        )
        line = _line(begun)
        seal = Seal(sha256_of_bytes(f"{before.sha256}\n{line}".encode()), number + 1)
        yield {"begun": begun.to_bytes().decode(), "before": before.sha256, "line": line, "sha256": seal.sha256}
        before = seal
    for value in [{"part": 0, "files": []}, {"part": 3, "end": "closed"}, {"compacted": True}, {"é": [1.5, "\x7f"]}]:
        yield {"manifest_line": journal_line(value).decode()}


FILES = {
    "hashes": hashes,
    "permutations": permutations,
    "windows": windows,
    "weights": weights,
    "trees": trees,
    "plans": plans,
    "fingerprints": fingerprints,
    "packings": packings,
    "contents": contents,
    "rows": rows,
    "seals": seals,
}


def text_of(name: str) -> str:
    """Return the content of a file: one vector a line."""
    lines = ",\n".join(json.dumps(vector) for vector in FILES[name]())
    return f"[\n{lines}\n]\n"


def main() -> None:
    """Write the vectors, or compare them."""
    for name in FILES:
        path, text = HERE / f"{name}.json", text_of(name)
        if "--check" in sys.argv:
            assert path.read_text() == text, f"{path.name} is not what Lading works out"
        else:
            path.write_text(text)
        print(f"{name}: {len(json.loads(text))}")


if __name__ == "__main__":
    main()
