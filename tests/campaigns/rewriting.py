"""Rewrite a sealed run consistently, and see whether whoever kept its head notices.

    python -m tests.campaigns.rewriting SEED SECONDS [FIRST]      prints the figures as one JSON line (see ``running``)

Any value of any column of any table, in parts and in tails; rows that go, come or change places; numbers of manifests
and of ``begun``. Every checksum is made right again (``rehash``) by somebody who knows nothing of the seal. The log is
left alone, because its head was kept. Afterwards either `verify` does not hold, or nothing was changed.
"""

from __future__ import annotations

import functools
import json
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.campaigns.corruption import KINDS, make_run
from tests.campaigns.rehash import rehash
from tests.campaigns.running import Found, main

from lading.errors import LadingError
from lading.ledger.packed import RowBytes, joined, layout
from lading.ledger.schema import SCHEMAS, latest_rows, rows_table, write_table
from lading.ledger.seal import seal
from lading.ledger.tables import FORMATS, TABLES
from lading.ledger.tail import TailWriter, read_tail
from lading.report import open_run

_PREFIXES = {"part": "batches"}


def parts(run: Path) -> list[Path]:
    """Return the closed parts of a run."""
    return sorted(run.glob("ledger/*/*/*.parquet"))


def table_of(path: Path) -> str:
    """Return which table a part holds."""
    prefix = path.name.rpartition("-")[0]
    return _PREFIXES.get(prefix, prefix)


def rewrite_part(path: Path, change: Callable[[str, pa.Table], pa.Table]) -> None:
    """Write a part anew, with other rows."""
    name = table_of(path)
    table = change(name, pq.read_table(path, schema=SCHEMAS[name], partitioning=None))
    with open(path, "wb") as file:
        write_table(table, name, file)


def packed(name: str, table: pa.Table) -> RowBytes:
    """Return a table as a tail holds it."""
    columns = [c.cast("int64") if pa.types.is_timestamp(c.type) else c for c in table.columns]
    rows = [layout(name).pack(row) for row in zip(*(c.to_pylist() for c in columns), strict=True)]
    return layout(name).of_rows(rows) if rows else RowBytes(0, b"")


def rewrite_tail(path: Path, change: Callable[[str, pa.Table], pa.Table], name: str) -> None:
    """Write a tail anew, all its rows in one record, with other rows of one table."""
    tail = read_tail(path)
    rows = {name: joined(found) for name, found in tail.rows.items() if found}
    rows[name] = packed(name, change(name, rows_table(name, [rows[name]])))
    writer = TailWriter(path, tail.generation or 0, tail.launch, tail.rank)
    writer.append({name: found for name, found in rows.items() if found.rows})
    writer.sync()
    writer.close()


def _value(name: str, column: str, value: Any, dice: random.Random) -> Any:
    """Return another value that a reader takes."""
    kind, found = SCHEMAS[name].field(column).type, FORMATS[name]
    words = found.words.get(column)
    if words:
        return dice.choice([word for word in words if word != value])
    if column in ("kind", "event"):
        return value.replace("bad", "good") if column == "event" else value
    if column == "exceptions":
        return None if value is not None else "[]"
    if pa.types.is_map(kind):
        return dice.choice([None, [("lr", 0.7)], [("loss", float("nan"))]])
    if pa.types.is_string(kind):
        return dice.choice([None, "nan", "overflow!"])
    if pa.types.is_floating(kind):
        return dice.choice([float("nan"), 0.25, -1.0, (value or 0.0) + 1.0])
    if pa.types.is_timestamp(kind):
        return 1_700_000_000_000 + dice.randrange(10**9)
    return abs(value or 0) + dice.choice([1, 2, 64])


def _edited(dice: random.Random, name: str, table: pa.Table) -> pa.Table:
    """Change one value, or take out, repeat or exchange rows."""
    rows = table.to_pylist(maps_as_pydicts=None)
    place = dice.randrange(len(rows))
    how = dice.choice(["value"] * 7 + ["gone", "more", "exchanged"])
    if how == "value":
        column = dice.choice(SCHEMAS[name].names)
        rows[place][column] = _value(name, column, rows[place][column], dice)
    elif how == "gone" and len(rows) > 1:
        del rows[place]
    elif how == "more":
        rows.append({**rows[place], "step": max(row["step"] for row in rows) + 1})
    else:
        other = dice.randrange(len(rows))
        rows[place], rows[other] = (
            {**rows[other], "step": rows[place]["step"]},
            {**rows[place], "step": rows[other]["step"]},
        )
    return pa.Table.from_pylist(rows, schema=SCHEMAS[name])


def change_rows(run: Path, dice: random.Random) -> str:
    """Change rows of a part."""
    path = dice.choice(parts(run))
    rewrite_part(path, functools.partial(_edited, dice))
    return str(path.relative_to(run))


def change_tail(run: Path, dice: random.Random) -> str:
    """Change rows of a tail, where there is one."""
    paths = [path for path in sorted(run.glob("ledger/*/*/tail")) if read_tail(path).records]
    if not paths:
        return change_rows(run, dice)
    path = dice.choice(paths)
    held = [name for name, rows in read_tail(path).rows.items() if rows]
    rewrite_tail(path, functools.partial(_edited, dice), dice.choice(held))
    return str(path.relative_to(run))


def change_manifest(run: Path, dice: random.Random) -> str:
    """Change what a manifest counts, or take a part out of it."""
    path = dice.choice(sorted(run.glob("ledger/*/*/manifest.jsonl")))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    held = [line for line in lines if line.get("files")]
    line = dice.choice(held)
    if dice.random() < 0.3 and len(held) > 1:  # the newest part goes, as if it had never been
        lines.remove(line := held[-1])
        for file in line["files"]:
            (path.parent / file["file"]).unlink()
        for after in lines[lines.index(held[-2]) + 1 :]:
            after["part"] -= 1
    else:
        file = dice.choice(line["files"])
        file[dice.choice(["exceptions", "undecided"])] += 1
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path.relative_to(run))


def change_begun(run: Path, dice: random.Random) -> str:
    """Change what a rank says of itself."""
    path = dice.choice(sorted(run.glob("ledger/*/begun/0*.json")))
    fields = json.loads(path.read_text())
    name = dice.choice(["state", "time", "host", "process", "rows", "rows_sha256"])
    others = {
        "state": dice.choice([s for s in ("closed", "interrupted", "failed", "died") if s != fields["state"]]),
        "time": fields["time"] + 0.5,
        "host": fields["host"] + "x",
        "process": [fields["process"][0] + 1, fields["process"][1]],
        "rows": fields["rows"] + 1,
        "rows_sha256": f"{dice.getrandbits(256):064x}",
    }
    fields[name] = others[name]
    path.write_text(json.dumps(fields))
    return f"{path.relative_to(run)}: {name}"


CHANGES = (change_rows, change_rows, change_rows, change_tail, change_manifest, change_begun)


def stored(run: Path) -> dict[str, Any]:
    """Return everything that counts: the rows of each rank, manifests and ``begun``, as values."""
    found: dict[str, Any] = {}
    for begun in sorted(run.glob("ledger/*/begun/0*.json")):
        fields = json.loads(begun.read_text())
        found[str(begun.relative_to(run))] = {
            k: v for k, v in fields.items() if k not in ("manifest", "check", "lines", "launch")
        }
        folder = begun.parent.parent / f"rank={begun.stem}"
        for name in TABLES:
            paths = [p for p in sorted(folder.glob("*.parquet")) if table_of(p) == name]
            tables = [pq.read_table(p, schema=SCHEMAS[name], partitioning=None) for p in paths]
            table = pa.concat_tables([*tables, rows_table(name, read_tail(folder / "tail").rows[name])])
            rows = (latest_rows(table) if name == "batches" else table).to_pylist(maps_as_pydicts=None)
            rows.sort(key=lambda row: (row["step"], row.get("slot", 0)))
            found[f"{folder.relative_to(run)} {name}"] = repr(rows)
        lines = (folder / "manifest.jsonl").read_text().splitlines() if (folder / "manifest.jsonl").exists() else []
        counts = [(f["exceptions"], f["undecided"]) for line in lines for f in json.loads(line).get("files", ())]
        found[f"{folder.relative_to(run)} counts"] = counts
    return found


class Campaign:
    """Rewritings and what came of them.

    Args:
        home: Where to work.
        kinds: Which runs.
    """

    def __init__(self, home: Path, kinds: list[tuple[str, int, int]] | None = None) -> None:
        self.home, self.found = home, Found()
        self.heads: dict[Path, Any] = {}
        for record, ranks, killed in kinds or KINDS:
            path = home / f"{record}-{ranks}-{'killed' if killed else 'ended'}"
            make_run(path, record, ranks, killed=bool(killed))
            assert not seal(path).damaged
            verdict = open_run(path).verify()
            assert verdict.holds and verdict.unsealed is None, verdict
            self.heads[path] = verdict.head

    def change(self, seed: int, number: int) -> None:
        """Make the n-th rewriting of a seed and judge it."""
        dice = random.Random(f"{seed}/{number}")
        original, how = dice.choice(list(self.heads)), dice.choice(CHANGES)
        work = self.home / "work"
        shutil.copytree(original, work)
        try:
            what = how(work, dice)
            rehash(work)
            verdict = _verdict(work)
            assert verdict is None or verdict.head == self.heads[original], "the log was to be left alone"
            if verdict is None or not verdict.holds:
                self.found.figures["found"] += 1
            elif stored(work) == stored(original):
                self.found.figures["nothing changed"] += 1
            else:
                case = {"seed": seed, "number": number, "run": original.name, "change": how.__name__, "what": what}
                self.found.failures.append(case)
        finally:
            shutil.rmtree(work)


def _verdict(run: Path) -> Any:
    try:
        return open_run(run).verify()
    except LadingError:
        return None


@functools.cache
def _campaign(home: Path) -> Campaign:
    warnings.simplefilter("ignore")
    return Campaign(home)


def fifty_changes(home: Path, seed: int, number: int) -> Found:
    """Make the rewritings 50 n to 50 n + 49 of a seed."""
    campaign = _campaign(home)
    campaign.found = Found()
    for change in range(50 * number, 50 * number + 50):
        campaign.change(seed, change)
    return campaign.found


if __name__ == "__main__":
    from tests.campaigns import rewriting

    main(rewriting.fifty_changes)
