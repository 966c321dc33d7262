"""Train, be killed, resume, many times over: ranks are forked, and die by a real ``kill -9`` at a random moment.

    python kill_driver.py RUN KILLS SEED      prints one JSON line: what a reader saw after every kill

The "model" is nothing; a checkpoint is a marker file that each rank leaves after it flushed, as a loader's state does.
A resumed attempt starts at a random checkpoint that all ranks of some attempt had reached, with 1 to 3 ranks.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from lading.identity import World
from lading.ledger import Ledger
from lading.order import Plan
from lading.report import open_run

PLAN = Plan.make({"code": 700, "prose": 301}, batch_size=12, seed=5)
TOTAL, EVERY = 300, 20


def train(run: Path, world: World, start: int, tag: str) -> None:
    """Be one rank of one attempt."""
    ledger = Ledger(run, PLAN, flush_every=15, part_rows={"batches": 40})
    for step in range(start, TOTAL):
        bill = PLAN.bill(step, world=world)
        ledger.deliver(bill)
        time.sleep(0.0005)
        ledger.commit(bill, update=step, loss=1.0 / (step + 1))
        if (step + 1) % EVERY == 0:
            ledger.flush()
            (run / "checkpoints" / f"{step + 1}-{tag}-{world.rank}").touch()
    ledger.close()


def launch(run: Path, world_size: int, start: int, tag: str) -> list[int]:
    """Start the ranks of an attempt; return their process ids."""
    children = []
    for rank in range(world_size):
        child = os.fork()
        if child == 0:
            try:
                train(run, World(rank, world_size), start, tag)
                os._exit(0)
            except BaseException as error:
                print(f"rank {rank}: {error!r}", file=sys.stderr, flush=True)
                os._exit(1)
        children.append(child)
    return children


def wait_for(run: Path, tag: str, markers: int) -> None:
    """Wait until an attempt left some markers; a kill right at the start is a moment, too."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and len(list((run / "checkpoints").glob(f"*-{tag}-*"))) < markers:
        time.sleep(0.002)


def checkpoints(run: Path, sizes: dict[str, int]) -> list[int]:
    """Return the steps that all ranks of some attempt had flushed."""
    found: dict[tuple[int, str], int] = {}
    for marker in (run / "checkpoints").iterdir():
        step, tag, _ = marker.name.split("-")
        found[int(step), tag] = found.get((int(step), tag), 0) + 1
    return sorted({0, *(step for (step, tag), ranks in found.items() if ranks == sizes[tag])})


def forget_after(run: Path, step: int) -> None:
    """Remove checkpoints that the resumed run has not reached: their line of history is gone."""
    for marker in (run / "checkpoints").iterdir():
        if int(marker.name.split("-")[0]) > step:
            marker.unlink()


def main(path: str, kills: int, seed: int) -> None:
    """Kill and resume, then finish."""
    run, dice = Path(path), random.Random(seed)
    (run / "checkpoints").mkdir(parents=True)
    seen, sizes = [], {}
    start = 0
    for attempt in range(kills + 1):
        world_size, tag = dice.randint(1, 3), f"a{attempt}"
        sizes[tag] = world_size
        children = launch(run, world_size, start, tag)
        if attempt < kills:
            wait_for(run, tag, dice.choice([0, 1, 1, 2, 3, 5, 8]))
            time.sleep(0.05 * dice.random())
            for child in dice.sample(children, len(children)):
                os.kill(child, signal.SIGKILL)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        try:
            opened = open_run(run)
            verdict = opened.verify()
            steps = opened.history["step"]
        except OSError as error:  # killed before anything was written
            seen.append({"codes": codes, "nothing": str(error)})
            continue
        last = max(steps, default=-1)
        reached = [c for c in checkpoints(run, sizes) if c <= last + 1]
        seen.append(
            {
                "codes": codes,
                "from": start,
                "world_size": world_size,
                "holds": verdict.holds,
                "faults": [f.message for f in verdict.faults],
                "each_once": steps == list(range(len(steps))),
                "steps": len(steps),
                "lost": max(c for c in checkpoints(run, sizes)) > last + 1,
            }
        )
        start = dice.choice(reached)
        forget_after(run, start)
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
