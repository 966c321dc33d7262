"""A reader of runs written from docs/ledger-format.md alone: chain, plans, rows and seal; it imports no Lading."""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests.vectors.reader import Plan, canonical, parse

INTEGERS, FLOATS = {"i8": 8, "i4": 4}, {"f8": "<d", "f4": "<f"}
TABLES = {  # the columns of each table, as the page lists them
    "batches": "step i8 update i8 epoch i4 chunk i4 position i8 samples i4 digest i8 content i8 fate s loss f4 time i8 "
    "metrics m reason s exceptions s",
    "samples": "step i8 slot i4 dataset i4 index i8 content i8",
    "events": "step i8 kind s event s time i8",
    "row_losses": "step i8 slot i4 loss f4",
    "rollouts": "step i8 rollout i8 group i8 dataset i4 index i8 policy i8 tokens i4 content i8 reward f4 advantage f4 "
    "seconds f4 time i8",
    "uses": "step i8 slot i4 rollout i8 update i8 weight f4",
    "fates": "step i8 rollout i8 fate s reason s time i8",
}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def encoded(value: Any, kind: str) -> bytes:
    there = bytes([value is not None])
    if kind == "s":
        text = (value or "").encode()
        return there + struct.pack("<I", len(text)) + text
    if kind == "m":
        entries = [encoded(key, "s") + encoded(number, "f8") for key, number in value or []]
        return there + struct.pack("<I", len(entries)) + b"".join(entries)
    if kind in INTEGERS:
        return there + int(value or 0).to_bytes(INTEGERS[kind], "little", signed=True)
    if value is not None and math.isnan(value):
        return there + bytes.fromhex({"f4": "7fc00000", "f8": "7ff8000000000000"}[kind])[::-1]
    return there + struct.pack(FLOATS[kind], 0.0 if value is None else value)


def rows_hash(tables: dict[str, list[dict[str, Any]]]) -> tuple[int, str]:
    lines, count = "", 0
    for name, columns in TABLES.items():
        rows, kinds = tables.get(name, []), columns.split()
        if name == "batches":
            best: dict[int, dict[str, Any]] = {}
            for row in rows:
                if row["fate"] != "delivered" or best.get(row["step"], row)["fate"] == "delivered":
                    best[row["step"]] = row
            rows = list(best.values())
        rows = sorted(rows, key=lambda row: (row["step"], row.get("slot", 0)))
        content = b"".join(
            encoded(row[column], kind) for row in rows for column, kind in zip(kinds[::2], kinds[1::2], strict=True)
        )
        lines += f"{name} {len(rows)} {sha256(content)}\n" if rows else ""
        count += len(rows)
    return count, sha256(lines.encode())


def seal_line(begun: dict[str, Any]) -> str:
    state = begun["state"] if begun["state"] in ("closed", "interrupted", "failed") else "died"
    who = f"{round(float(begun['time']) * 1000)} {begun['process'][0]} {begun['process'][1]}"
    host = json.dumps(begun["host"], ensure_ascii=False)
    return f"{begun['attempt']} {begun['rank']} {state} {begun['rows']} {begun['rows_sha256']} {who} {host}\n"


def begun_holds(begun: dict[str, Any]) -> bool:
    others = {name: value for name, value in begun.items() if name != "check"}
    return sha256(canonical(others).encode()) == begun["check"]


def crc_holds(line: bytes) -> bool:
    number, _, rest = line.removeprefix(b'{"crc":').partition(b",")
    return zlib.crc32(b"{" + rest) == int(number)


def check_run(path: Path) -> tuple[list[str], str, dict[int, Any]]:
    """Return what is wrong with a run, its newest seal, and its plans by attempt."""
    problems, newest = [], sha256((path / "run.json").read_bytes())
    records, hashes = [], {-1: newest}
    for number, file in enumerate(sorted(path.glob("log/[0-9]*.json"))):
        record = parse(file.read_bytes())
        if record["previous"] != hashes[number - 1] or record["number"] != number:
            problems.append(f"{file.name} does not follow the record before")
        hashes[number] = sha256(file.read_bytes())
        records.append(record)
    head = parse((path / "log/head.json").read_bytes())
    if hashes.get(head["number"]) != head["sha256"]:
        problems.append("the head knows another record")
    launches = {r["attempt"]: (r, hashes[r["number"]]) for r in records if r["type"] == "launch"}
    begun = {}
    for attempt, (launch, name) in launches.items():
        for rank in range(launch["world_size"]):
            begun[attempt, rank], wrong = check_rank(path / f"ledger/attempt={attempt:04d}", rank, name)
            problems += wrong
    wrong, seal = check_seals([r["seal"] for r in records if "seal" in r], launches, begun)
    plans = {a: plan_of(path, launch, problems) for a, (launch, _) in launches.items()}
    return problems + wrong, seal, plans


def check_rank(attempt: Path, rank: int, launch: str) -> tuple[dict[str, Any] | None, list[str]]:
    file, folder = attempt / f"begun/{rank:05d}.json", attempt / f"rank={rank:05d}"
    if not file.exists():
        return None, []
    begun, wrong = parse(file.read_bytes()), []
    if not begun_holds(begun) or begun["launch"] != launch:
        wrong.append(f"{file} was altered")
    manifest = (folder / "manifest.jsonl").read_bytes() if (folder / "manifest.jsonl").exists() else b""
    lines = manifest.splitlines(keepends=True)[: begun["lines"]]
    if sha256(b"".join(lines)) != begun["manifest"] or not all(crc_holds(line.rstrip(b"\n")) for line in lines):
        wrong.append(f"the manifest of {folder} was altered")
    tables: dict[str, list[dict[str, Any]]] = {}
    for known in (known for line in lines for known in parse(line).get("files", [])):
        content = (folder / known["file"]).read_bytes()
        if (len(content), sha256(content)) != (known["size"], known["sha256"]):
            wrong.append(f"{folder / known['file']} is another")
        tables.setdefault(known["table"], []).extend(rows_of(folder / known["file"]))
    ended = begun["state"] not in ("opening", "running")
    if ended and rows_hash(tables) != (begun["rows"], begun["rows_sha256"]):
        wrong.append(f"{folder} holds other rows")
    return begun, wrong


def rows_of(file: Path) -> list[dict[str, Any]]:
    table = pq.read_table(file, partitioning=None)
    if "time" in table.column_names:
        place = table.column_names.index("time")
        table = table.set_column(place, "time", table["time"].cast("int64"))
    return table.to_pylist()


def check_seals(seals: list[Any], launches: dict[int, Any], begun: dict[Any, Any]) -> tuple[list[str], str]:
    before, wrong = {"sha256": "0" * 64, "stop": 0, "open": []}, []
    for seal in seals:
        found = [(a, rank) for a, first, stop in before["open"] for rank in range(first, stop)]
        fresh = (a for a in sorted(launches) if before["stop"] <= a < seal["stop"])
        found += [(a, rank) for a in fresh for rank in range(launches[a][0]["world_size"])]
        left = {(a, rank) for a, first, stop in seal["open"] for rank in range(first, stop)}
        lines = [seal_line(begun[key]) for key in sorted(found) if key not in left]
        chained = sha256(f"{before['sha256']}\n{''.join(lines)}".encode()) if lines else before["sha256"]
        if seal["sha256"] != chained:
            wrong.append(f"the seal {seal['sha256']} is not that of its ranks")
        before = seal
    return wrong, before["sha256"]


def plan_of(path: Path, launch: dict[str, Any], problems: list[str]) -> Plan | None:
    """Return the plan of a launch, its own events of rank 0 included."""
    if launch["plan"] is None:
        return None
    content = (path / f"plans/{launch['plan']}.json").read_bytes()
    rank = path / f"ledger/attempt={launch['attempt']:04d}/rank=00000"
    rows = [row for file in sorted(rank.glob("events-*.parquet")) for row in rows_of(file)]
    made = [parse(row["event"]) for row in rows if row["kind"] in ("reweight", "rebatch", "block")]
    plan = Plan(content, [*launch["events"], *made], {})
    if sha256(content) != launch["plan_sha256"] or plan.fingerprint != launch["plan"]:
        problems.append(f"the plan {launch['plan']} was altered")
    return plan
