"""The ledger, forked and threaded: a call that would go nowhere, or under the loop's feet, is refused by name."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.cli.calling import ask

from lading import Columns, Loader
from lading.errors import LedgerError
from lading.ledger import Ledger
from lading.order import Plan
from lading.report import open_run

PLAN = Plan.make({"code": 970}, batch_size=8, seed=3)

ENTRIES: dict[str, Callable[[Ledger], object]] = {
    "begin": lambda ledger: ledger.begin(1),
    "deliver": lambda ledger: ledger.deliver(PLAN.bill(1)),
    "commit": lambda ledger: ledger.commit(PLAN.bill(1)),
    "skip": lambda ledger: ledger.skip(PLAN.bill(1), "overflow"),
    "validated": lambda ledger: ledger.validated(1, {"metric": 1.0, "loss": 1.0, "on": {}}),
    "mark": lambda ledger: ledger.mark(1),
    "flush": lambda ledger: ledger.flush(),
    "close": lambda ledger: ledger.close(),
}


def in_a_fork(action: Callable[[], object]) -> str:
    """Do something in a fork of this process; return the error it ends with."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            action()
        except BaseException:
            os.write(write, traceback.format_exc().encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_refuses_another_process(tmp_path: Path, entry: str):
    """A notebook looked at a batch, then forked its ranks: nothing they did was written."""
    ledger = Ledger(tmp_path, PLAN)
    ledger.commit(PLAN.bill(0))

    said = in_a_fork(lambda: ENTRIES[entry](ledger))

    assert "LedgerError" in said
    assert f"opened in process {os.getpid()}" in said
    ledger.commit(PLAN.bill(1))
    ledger.close()
    assert open_run(tmp_path).history["step"] == [0, 1]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_ledger_that_has_opened_nothing_may_be_forked(tmp_path: Path):
    """Each fork opens what it writes; so it always was."""
    ledger = Ledger(tmp_path, PLAN)

    def train() -> None:
        ledger.commit(PLAN.bill(0))
        ledger.close()

    assert in_a_fork(train) == ""
    assert open_run(tmp_path).history["step"] == [0]


_DAEMON = """
import os, sys
from lading import Columns, Ledger, Loader
import numpy as np
ledger = Ledger(sys.argv[1])
loader = Loader(Columns(x=np.arange(400)), batch_size=8, tracker=ledger)
batches = iter(loader.with_bills())
next(batches)                       # a look at the first batch
if os.fork():
    os._exit(0)
for batch, bill in batches:         # what trains is another process
    ledger.commit(bill)
ledger.close()
"""


def test_a_trainer_that_daemonises_after_its_first_batch_stops_with_a_sentence(tmp_path: Path):
    """It recorded nothing, and said so at the end of nothing."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _DAEMON, str(tmp_path)], check=False, capture_output=True, text=True
    )

    assert "LedgerError: this ledger was opened in process" in done.stderr
    assert ask("verify", tmp_path)[0] == 1


def test_a_state_is_not_taken_by_another_thread_than_the_one_that_trains(tmp_path: Path):
    """It would belong to no step: the loop goes on while it is taken."""
    ledger = Ledger(tmp_path)
    loader = Loader(Columns(x=np.arange(800)), batch_size=8, tracker=ledger)
    refused: list[str] = []
    trained = threading.Event()

    def save() -> None:
        while not trained.is_set():
            try:
                loader.state_dict()
            except LedgerError as error:
                refused.append(str(error))

    savers = [threading.Thread(target=save, name=f"saver-{k}") for k in range(3)]
    for saver in savers:
        saver.start()
    for _, bill in loader.with_bills():
        ledger.commit(bill)
    trained.set()
    for saver in savers:
        saver.join()
    ledger.close()

    run = open_run(tmp_path)
    assert run.history["step"] == list(range(100))
    assert len(run.evidence.attempts) == 1
    assert "thread 'saver-" in refused[0] and "thread 'MainThread'" in refused[0]


def test_a_state_is_taken_by_any_thread_once_training_is_over(tmp_path: Path):
    """A thread that trained and ended leaves its ledger to the one that waited for it."""
    ledger = Ledger(tmp_path, PLAN)
    training = threading.Thread(target=lambda: ledger.commit(PLAN.bill(0)))
    training.start()
    training.join()

    mark = ledger.mark(1)
    ledger.close()

    assert mark is not None and mark["attempt"] == 0


def test_threads_that_commit_what_another_delivers_lose_nothing(tmp_path: Path):
    """Fates that come from elsewhere are recorded as if they came from the loop."""
    ledger = Ledger(tmp_path, PLAN)
    ledger.deliver(PLAN.bill(0))

    def commit(first: int) -> None:
        for step in range(first, 400, 4):
            ledger.commit(PLAN.bill(step))

    for step in range(1, 400):
        ledger.deliver(PLAN.bill(step))
    threads = [threading.Thread(target=commit, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.close()

    assert open_run(tmp_path).history["step"] == list(range(400))


def test_a_ledger_that_has_opened_nothing_is_sent_to_another_process(tmp_path: Path):
    """Spawned ranks get theirs pickled."""
    ledger = pickle.loads(pickle.dumps(Ledger(tmp_path, PLAN)))
    ledger.commit(PLAN.bill(0))
    ledger.close()

    assert open_run(tmp_path).history["step"] == [0]
