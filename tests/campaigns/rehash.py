"""Make every checksum of a run right again, as an attacker would who wrote all of its files.

run.json ─▶ log records (previous, plan, parent) ─▶ head ─▶ tails (launch) ─▶ manifests (parts) ─▶ begun

What cannot be read any more stays as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lading.errors import LadingError
from lading.ledger.tail import _RECORD, _RECORD_BYTES, _STATIC, HEADER_BYTES
from lading.order import Plan
from lading.runtime.files import json_bytes


def rehash(run: Path) -> None:
    """Recompute every checksum of a run, from ``run.json`` to the ranks' ``begun`` files."""
    launches = _rehash_log(run)
    for attempt in sorted(run.glob("ledger/attempt=*")):
        with contextlib.suppress(ValueError):
            _rehash_attempt(run, attempt, launches.get(int(attempt.name[8:])))


def _rehash_log(run: Path) -> dict[int, str]:
    """Chain the records of the log anew; return the new SHA-256 of each attempt's launch."""
    previous = _sha256((run / "run.json").read_bytes())
    launches: dict[Any, str] = {}
    plans = {path.stem: _plan_name(path) for path in sorted(run.glob("plans/*.json"))}
    records = sorted(path for path in run.glob("log/*.json") if path.stem.isdigit())
    for path in records:
        attempt = None
        with _edited(path) as record:
            record["previous"] = previous
            if record.get("plan") in plans:
                record["plan"], record["plan_sha256"] = plans[record["plan"]]
            if isinstance(parent := record.get("parent"), dict) and parent.get("attempt") in launches:
                parent["launch"] = launches[parent["attempt"]]
            attempt = record.get("attempt")
        previous = launches[attempt] = _sha256(path.read_bytes())
    (run / "log" / "head.json").write_bytes(json_bytes({"number": len(records) - 1, "sha256": previous}))
    return launches


def _plan_name(path: Path) -> tuple[str, str]:
    """Give a plan's file the name that its content asks for; return it and the SHA-256."""
    content = path.read_bytes()
    with contextlib.suppress(LadingError, ValueError):
        path = path.rename(path.with_name(f"{Plan.from_json(content).fingerprint}.json"))
    return path.stem, _sha256(content)


def _rehash_attempt(run: Path, attempt: Path, launch: str | None) -> None:
    for begun in attempt.glob("begun/*.json"):
        folder = attempt / f"rank={begun.stem}"
        _rehash_manifest(folder / "manifest.jsonl")
        if launch is not None and (folder / "tail").is_file():
            _rehash_tail(folder / "tail", launch)
        manifest = (folder / "manifest.jsonl").read_bytes() if (folder / "manifest.jsonl").is_file() else b""
        with _edited(begun) as fields:
            with contextlib.suppress(ValueError, AttributeError):
                fields["run"] = json.loads((run / "run.json").read_bytes()).get("run")
            fields |= {"launch": launch, "lines": manifest.count(b"\n"), "manifest": _sha256(manifest)}
            fields.pop("check", None)
            fields["check"] = _sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())


def _rehash_manifest(path: Path) -> None:
    if not path.is_file():
        return
    lines = []
    for text in path.read_bytes().splitlines():
        try:
            value = json.loads(text)
            value.pop("crc", None)
            for file in value.get("files", ()):
                content = (path.parent / file["file"]).read_bytes()
                file |= {"size": len(content), "sha256": _sha256(content), **_described(content)}
        except (ValueError, TypeError, AttributeError, KeyError, OSError):
            lines.append(text)
            continue
        plain = json.dumps(value, separators=(",", ":"))
        lines.append(f'{{"crc":{zlib.crc32(plain.encode())},{plain[1:]}'.encode())
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def _described(content: bytes) -> dict[str, int]:
    """Return what a manifest says of the rows of a part."""
    try:
        steps = pq.read_table(io.BytesIO(content), columns=["step"])["step"].to_pylist()
        return {"rows": len(steps), "first_step": min(steps), "last_step": max(steps)}  # the rest is left as it is
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError):
        return {}


def _rehash_tail(path: Path, launch: str) -> None:
    """Let a tail belong to a launch, and chain its records anew."""
    content = bytearray(path.read_bytes())
    if len(content) < HEADER_BYTES:
        return
    content[16:48] = bytes.fromhex(launch)
    crc = chain = zlib.crc32(content[: _STATIC.size])
    content[_STATIC.size : _STATIC.size + 4] = struct.pack("<I", crc)
    place, number = HEADER_BYTES, 0
    while place + _RECORD_BYTES <= len(content):
        lengths = _RECORD.unpack(content[place : place + _RECORD.size])[3:]
        start = place + _RECORD_BYTES
        struct.pack_into("<Q", content, place + 4, number)
        head = bytes(content[place : place + _RECORD.size])
        own = zlib.crc32(content[start : start + sum(lengths)], zlib.crc32(head))
        chain = zlib.crc32(struct.pack("<I", own), chain)
        sums = struct.pack("<II", own, chain)
        content[place + _RECORD.size : start] = sums + struct.pack("<I", zlib.crc32(head + sums))
        place, number = start + sum(lengths), number + 1
    for turn, at in enumerate((64, 96)):
        fields = struct.pack("<QQQ", turn + 1, len(content), len(content))
        content[at : at + 32] = (fields + struct.pack("<I", zlib.crc32(fields, crc))).ljust(32, b"\0")
    path.write_bytes(content)


@contextlib.contextmanager
def _edited(path: Path) -> Iterator[dict[str, Any]]:
    """Change the fields of a JSON file; a file that holds none stays as it is."""
    try:
        fields = json.loads(path.read_bytes())
        assert isinstance(fields, dict)
    except (ValueError, AssertionError):
        yield {}
        return
    yield fields
    path.write_bytes(json_bytes(fields))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
