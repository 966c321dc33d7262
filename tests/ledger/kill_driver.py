"""Train, be killed, resume from any checkpoint ever taken, many times over; law 8 checked after every kill.

    python kill_driver.py FOLDER KILLS SEED      prints one JSON line: what was seen after every kill

Ranks are forked and die by a real ``kill -9`` at a random moment. Each has a real loader with 0 to 2 workers. The
"model" is the list of the (attempt, step) it was trained on; a checkpoint holds the loader's state and the model.
An attempt resumes from a random checkpoint of any attempt, with 1 to 4 ranks; some loops break off and iterate again
without loading a state. What the ranks got is compared, sample by
sample and digest by digest, with a run that nothing interrupts.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from lading.identity import World
from lading.ledger import Ledger
from lading.loader import Loader
from lading.report import open_run

DATA = {"code": np.arange(700), "prose": np.arange(301)}
G, SEED, TOTAL = 12, 5, 260

Checkpoint = dict[str, Any]


def fingerprint_of(datasets: Any, indices: Any) -> int:
    """Return a sum over samples that has nothing in common with Lading's digests."""
    values = np.asarray(datasets, dtype=np.int64) * 1_000_003 + np.asarray(indices, dtype=np.int64) + 1
    return int((values * values % 1_000_000_007).sum())


class Steady(random.Random):
    """Dice that never break off and take no checkpoint."""

    def random(self) -> float:
        """Return the largest throw."""
        return 1.0

    def choice(self, options: Any) -> Any:
        """Return the first."""
        return options[0]


class Rank:
    """One rank of one launch."""

    def __init__(self, folder: Path, world: World, tag: str, seed: int, checkpoint: Checkpoint | None) -> None:
        self.folder, self.world, self.tag = folder, world, tag
        self.dice = random.Random(seed) if seed >= 0 else Steady()  # the same on every rank of the launch
        self.ledger = Ledger(folder / "run", flush_every=15, part_rows={"batches": 40})
        workers = self.dice.choice([0, 0, 1, 2])
        options = {"num_workers": workers, "tracker": self.ledger, "world": world}
        self.loader = Loader(dict(DATA), global_batch_size=G, seed=SEED, names=False, **options)
        self.model: list[list[int]] = []
        self.count = self.met = 0
        if checkpoint is not None:
            self.loader.load_state_dict(checkpoint["state"])
            self.model = checkpoint["model"]

    def train(self) -> None:
        """Train to the end, break off now and then, take checkpoints."""
        while self.loader.step < TOTAL:
            self.meet()
            limit = self.dice.randint(3, 60) if self.dice.random() < 0.4 else TOTAL
            for place, (batch, bill) in enumerate(self.loader.with_bills()):
                self.use(batch, bill)
                if bill.step + 1 >= TOTAL or place + 1 == limit:
                    break  # the next iteration begins its epoch again: a replay
                if self.dice.random() < 0.1:
                    self.save()
        self.ledger.close()
        (self.folder / "model.json").write_text(json.dumps(self.model))

    def meet(self) -> None:
        """Wait for the other ranks, as a collective would: none is an iteration ahead."""
        (self.folder / "checkpoints" / f"{self.tag}-{self.met}-{self.world.rank}.met").touch()
        while len(list((self.folder / "checkpoints").glob(f"{self.tag}-{self.met}-*.met"))) < self.world.world_size:
            time.sleep(0.001)
        self.met += 1

    def use(self, batch: Any, bill: Any) -> None:
        """Make an update of a batch."""
        time.sleep(0.0005)
        self.ledger.commit(bill, update=len(self.model), loss=1.0 / (bill.step + 1))
        rows = np.asarray(batch)[bill.is_real]
        self.model.append([self.ledger.attempt or 0, bill.step, fingerprint_of(bill.dataset_idx[bill.is_real], rows)])

    def save(self) -> None:
        """Take a checkpoint; it counts once all ranks have theirs."""
        path = self.folder / "checkpoints" / f"{self.tag}-{self.count}-{self.world.rank}.json"
        self.count += 1
        aside = path.with_suffix(".tmp")
        aside.write_text(json.dumps({"state": self.loader.state_dict(), "model": self.model}))
        os.replace(aside, path)


def launch(folder: Path, world_size: int, tag: str, seed: int, checkpoint: Checkpoint | None) -> list[int]:
    """Start the ranks of an attempt; return their process ids."""
    children = []
    for rank in range(world_size):
        child = os.fork()
        if child == 0:
            try:
                warnings.simplefilter("ignore")  # a second root warns, as it should
                Rank(folder, World(rank, world_size), tag, seed, checkpoint).train()
                os._exit(0)
            except BaseException as error:
                print(f"{tag} rank {rank}: {error!r}", file=sys.stderr, flush=True)
                os._exit(1)
        children.append(child)
    return children


def wait_for(folder: Path, tag: str, files: int) -> None:
    """Wait until an attempt left some files; a kill right at the start is a moment, too."""
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline and len(list((folder / "checkpoints").glob(f"{tag}-*.json"))) < files:
        time.sleep(0.002)


def checkpoints(folder: Path, sizes: dict[str, int]) -> list[Checkpoint]:
    """Return the checkpoints that all ranks of an attempt have, oldest first."""
    found: dict[tuple[str, int], list[Checkpoint]] = {}
    for path in sorted((folder / "checkpoints").glob("*.json")):
        tag, number, _ = path.stem.split("-")
        found.setdefault((tag, int(number)), []).append(json.loads(path.read_text()))
    whole = [(key, ranks) for key, ranks in found.items() if len(ranks) == sizes[key[0]]]
    return [{**ranks[0], "tag": tag, "ranks": ranks} for (tag, _), ranks in sorted(whole, key=lambda item: item[0])]


def check(folder: Path, taken: list[Checkpoint]) -> dict[str, Any]:
    """Compare every one of some checkpoints with the history of its attempt, and verify the newest."""
    run = open_run(folder / "run")
    verdict = run.verify(allow_empty=True)
    wrong = []
    for checkpoint in taken:
        line = open_run(folder / "run", attempt=checkpoint["state"]["attempt"])
        history = list(zip(line.history["attempt"], line.history["step"], strict=True))
        model = [(attempt, step) for attempt, step, _ in checkpoint["model"]]
        if history[: len(model)] != model:
            wrong.append({"attempt": checkpoint["state"]["attempt"], "history": history[-5:], "model": model[-5:]})
        if not line.verify(allow_empty=True).holds:
            wrong.append({"faults": [f.message for f in line.verify(allow_empty=True).faults]})
        wrong += recounted(folder, checkpoint)
    wrong += digests_differ(folder)
    return {
        "holds": verdict.holds,
        "faults": [f.message for f in verdict.faults],
        "wrong": wrong,
        "steps": len(run.history),
        "last": max(run.history["step"], default=-1),
    }


@functools.cache
def uninterrupted(folder: Path) -> dict[int, tuple[int, int]]:
    """Train once without a kill; return of each step the fingerprint of its samples and the digest in history."""
    child = launch(folder / "uninterrupted", 1, "whole", seed=-1, checkpoint=None)[0]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    model = json.loads((folder / "uninterrupted" / "model.json").read_text())
    history = open_run(folder / "uninterrupted" / "run").history
    digests = dict(zip(history["step"], history["digest"], strict=True))
    assert [step for _, step, _ in model] == list(range(TOTAL)) == history["step"]
    return {step: (value, digests[step]) for _, step, value in model}


def recounted(folder: Path, checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """Compare what the ranks of the newest attempt really got with the run that nothing interrupted, and with the plan
    and the samples that the ledger says were used."""
    newest, whole = checkpoint["state"]["attempt"], uninterrupted(folder)
    got: dict[int, int] = {}
    for rank in checkpoint["ranks"]:
        for attempt, step, value in rank["model"]:
            if attempt == newest:
                got[step] = got.get(step, 0) + value
    wrong = [step for step, value in got.items() if whole[step][0] != value]
    run = open_run(folder / "run", attempt=newest)
    rows = run.sql(f"SELECT step, dataset, index FROM samples WHERE attempt = {newest}").dicts()
    said: dict[int, list[tuple[int, int]]] = {}
    for row in rows:
        said.setdefault(row["step"], []).append((row["dataset"], row["index"]))
    unlike = [step for step, value in got.items() if fingerprint_of(*zip(*said[step], strict=True)) != value]
    found = [{"samples differ at": wrong[:5]}] if wrong else []
    return found + ([{"the ledger's samples differ at": unlike[:5]}] if unlike else [])


def digests_differ(folder: Path) -> list[dict[str, Any]]:
    """Compare every digest of the newest line with the run that nothing interrupted."""
    whole, history = uninterrupted(folder), open_run(folder / "run").history
    pairs = zip(history["step"], history["digest"], strict=True)
    wrong = [step for step, digest in pairs if digest != whole[step][1]]
    return [{"digests differ at": wrong[:5]}] if wrong else []


def main(path: str, kills: int, seed: int) -> None:
    """Kill and resume, then finish."""
    folder, dice = Path(path), random.Random(seed)
    for place in (folder, folder / "uninterrupted"):
        (place / "checkpoints").mkdir(parents=True)
    seen, sizes = [], {}
    for attempt in range(kills + 1):
        began = time.monotonic()
        world_size, tag = dice.choice([1, 1, 2, 2, 3, 4]), f"a{attempt:04d}"
        is_last = attempt == kills
        sizes[tag] = world_size
        known = checkpoints(folder, sizes)
        chosen = dice.choice(known[-12:]) if known and dice.random() > 0.05 else None
        children = launch(folder, world_size, tag, dice.randrange(1 << 30), chosen)
        if not is_last:
            wait_for(folder, tag, dice.choice([0, 1, 2, 4, 8, 12]) * world_size)
            time.sleep(0.05 * dice.random())
            for child in dice.sample(children, len(children)):
                os.kill(child, signal.SIGKILL)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        life: dict[str, Any] = {"codes": codes, "ranks": world_size}
        if (folder / "run" / "log" / "000000.json").exists():
            mine = [c for c in checkpoints(folder, sizes) if c["tag"] == tag]
            others = dice.sample(known, min(1, len(known)))
            life |= check(folder, [*mine[-1:], *others])
        seen.append({**life, "seconds": time.monotonic() - began})
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
