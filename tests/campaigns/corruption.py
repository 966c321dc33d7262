"""Change one file of a run at random, and see whether anybody notices.

    python -m tests.campaigns.corruption SEED SECONDS [FIRST]      prints the figures as one JSON line (see ``running``)

Runs of each kind of record, on 1 and 3 ranks, killed and ended. A change is a flip, cut, deletion, doubling, swap, or
an edit that is valid JSON. Afterwards either `verify` names the file, or every answer is what it was. Seeded: the n-th
change of a seed is always the same, so a campaign can be continued or one change repeated. A change is made in a copy
of a run that is kept and put back afterwards; in the end the copies are compared with their runs, byte for byte.
"""

from __future__ import annotations

import functools
import json
import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.campaigns.running import Found, main

from lading.errors import LadingError
from lading.identity import Bill, Deviation, World
from lading.ledger import Ledger
from lading.ledger.begun import read_begun, write_begun
from lading.order import Block, Plan
from lading.report import open_run
from lading.report.summary import summarise
from lading.report.verify.files import check_files
from lading.report.verify.verdict import Verdict
from lading.runtime.blocks.progress import silent

PLAN = Plan.make({"code": 70, "prose": 31}, batch_size=8, seed=3)
KINDS = [(record, ranks, killed) for record in ("digest", "names", "content") for ranks in (1, 3) for killed in (0, 1)]


def make_run(path: Path, record: str, ranks: int, *, killed: bool) -> None:
    """Two attempts, a block, an event, a skipped step, an exception, parts and (if killed) tails."""
    state = _attempt(path, record, ranks, range(24), None, killed=False)
    open_run(path).block("code:1", reason="spam")
    _attempt(path, record, ranks, range(18, 30), {**state, "step": 18}, killed=killed)


def _attempt(path: Path, record: str, ranks: int, steps: range, loaded: Any, *, killed: bool) -> dict[str, Any]:
    options = {
        "record": record,
        "world_size": ranks,
        "part_rows": {"batches": 100 if killed else 10},
        "flush_every": 1000,
    }
    ledgers = [Ledger(path, PLAN, rank=rank, **options) for rank in range(ranks)]
    plans = [ledger.begin(steps.start, loaded=loaded) or PLAN for ledger in ledgers]
    for step in steps:
        if step == 9:
            event = Block(14, 1, (2,), "bad")
            plans = [plan.with_event(event) for plan in plans]
            for ledger in ledgers:
                ledger.event(event)
        for rank, (ledger, plan) in enumerate(zip(ledgers, plans, strict=True)):
            bill = plan.bill(step, world=World(rank, ranks))
            if step == 5 and rank == 0:
                bill = _with_exception(bill)
            ledger.deliver(bill, {"x": bill.idx * 3})
            if step == 7:
                ledger.skip(bill, "overflow")
            else:
                losses = bill.idx * 0.5 if step % 4 == 0 else None
                ledger.commit(bill, update=step, loss=2.0 - 0.01 * step, lr=0.1, row_losses=losses)
                for table, rows in _rollouts(bill).items():
                    ledger.record_columns(table, [(len(rows), tuple(map(list, zip(*rows, strict=True))))])
            if step % 6 == 5:
                ledger.flush()
    for ledger in ledgers:
        ledger.flush()
    mark = ledgers[0].mark() or {}
    for ledger in ledgers:
        _leave(ledger) if killed else ledger.close()
    return mark


def _rollouts(bill: Bill) -> dict[str, list[tuple[Any, ...]]]:
    """Return rows of the tables that training with a reward writes: a rollout used in each row, and one left out."""
    step, time = bill.step, 10**12 + bill.step
    rows = [place for place in range(len(bill.slots)) if not bill.is_padding[place]]
    made, uses = [], []
    for place in [*rows, 0]:
        number = 64 * step + (int(bill.slots[place]) if len(made) < len(rows) else 32 + bill.world.rank)
        name = (int(bill.dataset_idx[place]), int(bill.idx[place]))
        made.append((step, number, number, *name, step, 40 + place, -place, 0.5 * place, None, 1.25, time))
        uses.append((step, int(bill.slots[place]), number, step, 1.0))
    left_out = uses.pop()[2]
    return {"rollouts": made, "uses": uses, "fates": [(step, left_out, "filtered", "length", time)]}


def _with_exception(bill: Any) -> Any:
    index = bill.idx.copy()
    gone = Deviation(int(bill.slots[0]), "substituted", int(bill.dataset_idx[0]), int(index[0]), 5, "unreadable")
    index[0] = 5
    return bill.replace(idx=index, deviations=(gone,))


def _leave(ledger: Ledger) -> None:
    """Forget a ledger as a kill would."""
    assert ledger._writer is not None
    assert ledger._finalizer is not None
    folder = ledger._writer._folder
    ledger._finalizer.detach()
    ledger._writer, ledger._closed = None, True
    write_begun(folder, replace(read_begun(folder.begun), process=(999_999_999, 1)))


def answers(path: Path) -> dict[str, Any]:
    """Ask a run everything."""
    run = open_run(path)
    history = run.history.dicts()
    summary = summarise(run).to_dict()
    for facts in (summary["facts"],):
        facts.pop("run")
    return {
        "history": history,
        "batches": run.batches.dicts(),
        "summary": summary,
        "where": [run.where(d, i).dicts() for d, i in ((0, 1), (0, 5), (1, 2))],
        "mix": run.mix("attempt").dicts(),
        "samples": run.sql("SELECT attempt, step, slot, dataset, index FROM samples ORDER BY ALL").dicts(),
        "steps": [run.step(step).to_dict() for step in (5, 7, 20)],
        "events": run.events,
        "datasets": run.datasets,
        "blocked": [(b.samples, b.reason) for b in run.evidence.log.blocks],
        "first": open_run(path, attempt=0).history.dicts(),
    }


Change = Callable[[Path, random.Random], str | None]


def _all(run: Path) -> list[Path]:
    return sorted(run.rglob("*"))


def _files(run: Path) -> list[Path]:
    return [path for path in _all(run) if path.is_file()]


def flip(run: Path, dice: random.Random) -> str | None:
    """Flip one bit of a file."""
    path = dice.choice(_files(run))
    content = bytearray(path.read_bytes())
    if not content:
        return None
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)
    return _name(run, path)


def cut(run: Path, dice: random.Random) -> str | None:
    """Cut a file off."""
    path = dice.choice(_files(run))
    size = path.stat().st_size
    kept = dice.randrange(size) if dice.random() < 0.5 else max(0, size - dice.randint(1, 40))
    path.write_bytes(path.read_bytes()[:kept])
    return _name(run, path)


def delete(run: Path, dice: random.Random) -> str | None:
    """Delete a file."""
    path = dice.choice(_files(run))
    path.unlink()
    return _name(run, path)


def delete_folder(run: Path, dice: random.Random) -> str | None:
    """Delete a folder with everything in it."""
    path = dice.choice(sorted(p for p in run.rglob("*") if p.is_dir()))
    shutil.rmtree(path)
    return _name(run, path)


def scramble(run: Path, dice: random.Random) -> str | None:
    """Zero, insert or repeat some bytes."""
    path = dice.choice(_files(run))
    content = path.read_bytes()
    if not content:
        return None
    start = dice.randrange(len(content))
    stop = min(len(content), start + dice.randint(1, 200))
    middle = dice.choice([b"\0" * (stop - start), b"", content[start:stop] * 2, dice.randbytes(stop - start)])
    path.write_bytes(content[:start] + middle + content[stop:])
    return _name(run, path)


def double(run: Path, dice: random.Random) -> str | None:
    """Double a line, a record of a tail, or a file under the next number."""
    path = dice.choice(_files(run))
    content = path.read_bytes()
    if path.suffix == ".jsonl":
        lines = content.splitlines(keepends=True)
        place = dice.randrange(len(lines))
        lines.insert(dice.randrange(len(lines) + 1), lines[place])
        path.write_bytes(b"".join(lines))
    elif path.name == "tail":
        records = content[128:].split(b"LREC")[1:]
        if not records:
            return None
        place = dice.randrange(len(records))
        records.insert(dice.randrange(len(records) + 1), records[place])
        path.write_bytes(content[:128] + b"".join(b"LREC" + record for record in records))
    else:
        digits = "".join(c for c in path.stem if c.isdigit())[-6:]
        if not digits or path.parent.name == "plans":
            return None
        target = path.with_name(path.name.replace(digits, f"{int(digits) + dice.randint(1, 3):0{len(digits)}d}"))
        if target.exists():
            return None
        target.write_bytes(content)
        return _name(run, target)
    return _name(run, path)


def reorder(run: Path, dice: random.Random) -> str | None:
    """Take out or exchange lines of a manifest or records of a tail."""
    path = dice.choice([p for p in _files(run) if p.suffix == ".jsonl" or p.name == "tail"])
    content = path.read_bytes()
    head, mark = (b"", b"\n") if path.suffix == ".jsonl" else (content[:128], b"LREC")
    pieces = content[len(head) :].split(mark)
    places = [i for i, piece in enumerate(pieces) if piece.strip()]
    if not places:
        return None
    one, other = dice.choice(places), dice.choice(places)
    if one == other:
        del pieces[one]
    else:
        pieces[one], pieces[other] = pieces[other], pieces[one]
    path.write_bytes(head + mark.join(pieces))
    return _name(run, path)


def swap(run: Path, dice: random.Random) -> str | None:
    """Exchange two files of one kind."""
    files = _files(run)
    one = dice.choice(files)
    others = [
        p for p in files if p.suffix == one.suffix and p != one and p.name.split("-")[0] == one.name.split("-")[0]
    ]
    others += [p for p in files if p.parent.name == one.parent.name and p.suffix == one.suffix and p != one]
    if not others:
        return None
    other = dice.choice(others)
    a, b = one.read_bytes(), other.read_bytes()
    if a == b:
        return None
    one.write_bytes(b)
    other.write_bytes(a)
    return f"{_name(run, one)}|{_name(run, other)}"


def replace_file(run: Path, dice: random.Random) -> str | None:
    """Put a copy of one file in the place of another."""
    files = _files(run)
    one = dice.choice(files)
    others = [p for p in files if p.suffix == one.suffix and p.read_bytes() != one.read_bytes()]
    if not others:
        return None
    one.write_bytes(dice.choice(others).read_bytes())
    return _name(run, one)


def edit(run: Path, dice: random.Random) -> str | None:
    """Change one value so that the file stays valid JSON."""
    path = dice.choice([p for p in _files(run) if p.suffix == ".json"])
    value = json.loads(path.read_text())
    holder, key = dice.choice(_places(value))
    holder[key] = _other(holder[key], dice)
    if isinstance(holder, dict) and dice.random() < 0.1:
        del holder[key]
    content = (json.dumps(value, indent=1) + "\n").encode()
    if content == path.read_bytes():
        return None
    path.write_bytes(content)
    return _name(run, path)


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found.append((value, key))
        found += _places(inner)
    return found


def _other(value: Any, dice: random.Random) -> Any:
    if isinstance(value, bool) or value is None:
        return dice.choice([True, False, None, 0, "x", []])
    if isinstance(value, int | float):
        return dice.choice([value + 1, value - 1, 0, -1, 2**31, 2**63, 2**80, "7", 1e308, value + 0.5])
    if isinstance(value, str):
        swapped = value[:-1] + chr((ord(value[-1:] or "a") ^ 1) or 1) if value else "x"
        return dice.choice(
            [swapped, value.upper(), "", "../" + value, "\x1b[31m", 3, [value], "resume", "closed", "root"]
        )
    if isinstance(value, list):
        return dice.choice([value[::-1], value[1:], value + value[-1:], [], {}, [[]]])
    return dice.choice([{}, [], None, "x", 0])


CHANGES: dict[str, Change] = {
    f.__name__: f
    for f in (flip, cut, delete, delete_folder, scramble, double, reorder, swap, replace_file, edit, edit, flip)
}


def _name(run: Path, path: Path) -> str:
    return str(path.relative_to(run))


class Campaign:
    """Changes and what came of them.

    Args:
        home: Where to work.
        kinds: Which runs.
    """

    def __init__(self, home: Path, kinds: list[tuple[str, int, int]] | None = None) -> None:
        self.home, self.kinds = home, kinds or KINDS
        self.found = Found()
        self.known: dict[Path, str] = {}
        for record, ranks, killed in self.kinds:
            path = home / f"{record}-{ranks}-{'killed' if killed else 'ended'}"
            make_run(path, record, ranks, killed=bool(killed))
            assert open_run(path).verify().holds, open_run(path).verify().faults
            self.known[path] = _plain(answers(path))
            shutil.copytree(path, self._copy(path))

    def _copy(self, original: Path) -> Path:
        return self.home / "work" / original.name

    def change(self, seed: int, number: int) -> None:
        """Make the n-th change of a seed and judge it."""
        dice = random.Random(f"{seed}/{number}")
        original = dice.choice(list(self.known))
        kind = dice.choice(list(CHANGES))
        work = self._copy(original)
        named = CHANGES[kind](work, dice)
        if named is None:
            self.found.figures["nothing to change"] += 1
            return
        self.found.figures["changes"] += 1
        outcome, why = self._judge(work, original, named.split("|"), is_quick=dice.random() < 0.8)
        self.found.figures[outcome] += 1
        if why:
            case = {"seed": seed, "number": number, "run": original.name, "change": kind, "file": named, "why": why}
            self.found.failures.append(case)
        for name in named.split("|"):
            _put_back(original / name, work / name)

    def check_copies(self) -> None:
        """Compare the copies with their runs: what was put back is whole, and asking wrote nothing."""
        for original in self.known:
            copy = self._copy(original)
            same = [p.relative_to(original) for p in _all(original)] == [p.relative_to(copy) for p in _all(copy)]
            if not same or any(
                p.read_bytes() != (copy / p.relative_to(original)).read_bytes() for p in _files(original)
            ):
                self.found.failures.append(f"the copy of {original.name} is not its run any more")

    def _judge(self, work: Path, original: Path, files: list[str], *, is_quick: bool) -> tuple[str, str]:
        """Say what came of a change; quickly: what the files alone say is enough, if they say anything."""
        try:
            verdict = Verdict()
            if is_quick:
                check_files(open_run(work).evidence, verdict, silent)
            if verdict.holds:
                verdict = open_run(work).verify()
            if verdict.holds:
                same = _plain(answers(work)) == self.known[original]
                return ("harmless", "") if same else ("held", "it holds, and an answer changed")
            texts = [f"{f.file} {f.message}" for f in verdict.findings]
        except LadingError as error:
            texts = [str(error)]
        except Exception as error:  # what nobody should ever see
            return "traceback", f"{type(error).__name__}: {error}"
        if any(str(work / file) in text or _parent_named(work, file, text) for file in files for text in texts):
            return "named", ""
        return "unnamed", f"found, but the file is not named: {texts[:2]}"


def _parent_named(work: Path, file: str, text: str) -> bool:
    """Say whether the folder that holds a file is named as missing."""
    parents = [work / file, *(work / file).parents]
    return any(f"{p} " in text or f"{p}:" in text for p in parents if p != work and work in p.parents)


def _plain(value: Any) -> str:
    return json.dumps(value, default=_default, sort_keys=True)


def _default(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else str(value)


def _put_back(original: Path, work: Path) -> None:
    if original.is_dir():
        shutil.copytree(original, work)
    elif original.exists():
        shutil.copyfile(original, work)
    else:
        work.unlink()


@functools.cache
def _campaign(home: Path) -> Campaign:
    warnings.simplefilter("ignore")
    return Campaign(home)


def fifty_changes(home: Path, seed: int, number: int) -> Found:
    """Make the changes 50 n to 50 n + 49 of a seed."""
    campaign = _campaign(home)
    campaign.found = Found()
    for change in range(50 * number, 50 * number + 50):
        campaign.change(seed, change)
    campaign.check_copies()
    return campaign.found


if __name__ == "__main__":
    from tests.campaigns import corruption

    main(corruption.fifty_changes)
