"""A loop that samples, filters and trains, resumes from its newest checkpoint, and may be killed at any moment."""

import json
import os
import sys
import time
from pathlib import Path

from lading import Plan, Rollout, RolloutBooks, RolloutGroup

run, updates, pause = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
state_file = run.with_suffix(".json")
books = RolloutBooks(run, Plan.make({"math": 50}, batch_size=4), group_size=4)
first = 0
if state_file.exists():
    saved = json.loads(state_file.read_text())
    first = saved["update"] + 1
    books.load(saved)
for update in range(first, updates):
    waiting = books.open_rollouts()
    made = books.made([RolloutGroup(p.group, [Rollout([p.index, k]) for k in range(4)], update) for p in books.draw(2)])
    if update == first:
        print("trains", flush=True)
    time.sleep(pause)
    books.drop([n for n in waiting if n % 3 == 0], "stale")  # some of the step before are too old by now
    books.drop([n for n in made if n % 5 == 0], "length")
    open_now = books.open_rollouts()
    books.used([n for n in open_now if n % 2 or n in waiting], update, loss=1.0)
    if update % 3 == 0:
        aside = state_file.with_suffix(".new")
        aside.write_text(json.dumps(books.state()))
        os.replace(aside, state_file)
books.drop(books.open_rollouts(), "end of training")
books.close()
