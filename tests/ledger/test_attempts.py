"""Ranks that agree on the number of their attempt without talking, and attempts that do not meet."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from lading.errors import CorruptLedgerError, LedgerError
from lading.identity import World
from lading.ledger import Ledger, attempts
from lading.ledger.attempts import Opened, Request, launch_token, open_attempt
from lading.ledger.begun import CLOSED, FAILED, RUNNING, read_begun, write_begun
from lading.ledger.description import describe, new_description
from lading.ledger.launch import Launch
from lading.ledger.log import Log, begin_log
from lading.ledger.rank_store import warm_up
from lading.ledger.run_folder import RunFolder
from lading.order import Plan
from lading.runtime.processes import process_identity

DEAD = (999_999_999, 1)


def opened(run: RunFolder, rank: int, world_size: int, *, start: int = 0, token: str = "", process=None, **options):
    description = describe(run, new_description("0", "names", ("code",)))
    begin_log(run, description.sha256)
    host, process = os.uname().nodename, process or process_identity(os.getpid())
    token = token or launch_token(World(rank, world_size))

    def make(log: Log) -> Launch:
        number = max(log.launches, default=-1) + 1
        return Launch(
            number, "root", None, start, world_size, token, None, None, (), (), host, process, "0", datetime_now()
        )

    request = Request(description.run, description.sha256, World(rank, world_size), make, **options)
    return open_attempt(run, request)


def datetime_now() -> float:
    return datetime.datetime.now(tz=datetime.UTC).timestamp()


def join(run: RunFolder, rank: int, world_size: int, **options) -> int:
    found = opened(run, rank, world_size, **options)
    assert found.folder.path.is_dir()
    return found.launch.attempt


def end(found: Opened, state: str = CLOSED) -> None:
    write_begun(found.folder, replace(found.begun, state=state, rows=0, rows_sha256="0" * 64))


def die(found: Opened) -> None:
    write_begun(found.folder, replace(found.begun, state=RUNNING, process=DEAD))


def test_ranks_of_one_launch_share_a_number(tmp_path: Path):
    """Whoever comes first makes the attempt, the others join it."""
    run = RunFolder(tmp_path)

    first = [opened(run, rank, 3) for rank in (2, 0, 1)]
    for found in first:
        end(found)
    second = [opened(run, rank, 3) for rank in (1, 2, 0)]

    assert [found.launch.attempt for found in first] == [0, 0, 0]
    assert [found.launch.attempt for found in second] == [1, 1, 1]
    assert [found.is_opener for found in first] == [True, False, False]
    assert len({found.launch.sha256 for found in first}) == 1


def test_a_rank_that_starts_elsewhere_is_refused(tmp_path: Path):
    """Ranks of one launch that loaded different checkpoints: no step could ever be called applied."""
    run = RunFolder(tmp_path)
    join(run, 0, 2, start=10)

    with pytest.raises(LedgerError, match="rank 1 starts at step 20, the others at step 10: expected the same"):
        join(run, 1, 2, start=20)


DISAGREEMENTS = {
    "seed 1 -> 2": {"seed": 2},
    "dataset 'code' 900 -> 901 samples": {"lengths": {"code": 901}},
    "global batch size 8 -> 16": {"batch_size": 16},
    "shuffle full -> none": {"shuffle": "none"},
    "drop_last False -> True": {"drop_last": True},
    "starts at step 20, the others at step 0": {"start": 20},
}


def train_until_refused(path: Path, rank: int, said: Path, start: int = 0, **changed) -> None:
    """Train as one rank of two, without a process group, until the ledger says no."""
    plan = Plan.make(**({"lengths": {"code": 900}, "batch_size": 8, "seed": 1} | changed))
    deadline, step = time.monotonic() + 600, start
    try:
        with Ledger(path, plan, rank=rank, world_size=2, on_error="warn" if rank == 0 else "raise") as ledger:
            ledger.begin(start)
            said.with_suffix(".open").touch()
            while time.monotonic() < deadline:
                ledger.commit(plan.bill(step, world=World(rank, 2)))
                step += 1
                time.sleep(0.01)
    except LedgerError as error:
        said.write_text(str(error))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_without_a_process_group_the_refused_rank_takes_the_others_with_it(tmp_path: Path):
    """Six kinds of disagreement: both ranks end with the same sentence within seconds, whatever ``on_error`` says."""
    began, children = time.monotonic(), []
    warm_up()
    Plan.make({"code": 900}, 8).bill(0)
    for rank in (0, 1):
        for number, changed in enumerate(DISAGREEMENTS.values()):
            child = os.fork()
            if child == 0:
                with contextlib.suppress(BaseException):
                    options = changed if rank else {}
                    train_until_refused(tmp_path / str(number), rank, tmp_path / f"{number}-{rank}.txt", **options)
                os._exit(0)
            children.append(child)
        while rank == 0 and len(list(tmp_path.glob("*.open"))) < len(DISAGREEMENTS):
            time.sleep(0.01)
            assert time.monotonic() < began + 600
    for child in children:
        os.waitpid(child, 0)

    for number, words in enumerate(DISAGREEMENTS):
        first, second = ((tmp_path / f"{number}-{rank}.txt").read_text() for rank in (0, 1))
        assert first == second and words in first and first.startswith("rank 1 "), (first, second)
        assert read_begun(tmp_path / str(number) / "ledger/attempt=0000/begun/00000.json").state == FAILED
        ends = [(tmp_path / f"{number}-{rank}.txt").stat().st_mtime for rank in (0, 1)]
        assert ends[0] - ends[1] < 60


def test_another_world_size_is_another_attempt_and_waits_for_the_first(tmp_path: Path):
    """Only ranks that started together belong together; two attempts do not write at once."""
    run = RunFolder(tmp_path)
    found = opened(run, 0, 2)

    with pytest.raises(LedgerError, match=r"rank 0 of attempt 0 is running: process .* Expected one attempt at a time"):
        join(run, 1, 3)
    assert join(run, 1, 3, fork=True) == 1
    end(found)
    assert join(run, 0, 4, fork=True) == 2


@pytest.mark.parametrize("leave", [die, end])
def test_a_relaunch_does_not_join_an_attempt_that_died_or_closed(tmp_path: Path, leave):
    """The same parent process started both, one rank never began, the other is gone: a new attempt for both."""
    run = RunFolder(tmp_path)
    leave(opened(run, 0, 2))

    assert [join(run, rank, 2) for rank in (1, 0)] == [1, 1]


def test_a_relaunch_does_not_join_an_attempt_whose_opener_died(tmp_path: Path):
    """Its token is the same where plain processes have the same parent."""
    run = RunFolder(tmp_path)
    found = opened(run, 0, 2, process=DEAD)
    die(found)

    assert join(run, 1, 2) == 1


def test_one_process_alone_always_begins_anew(tmp_path: Path):
    """A single process needs no agreement."""
    run = RunFolder(tmp_path)
    numbers = []
    for _ in range(3):
        found = opened(run, 0, 1)
        numbers.append(found.launch.attempt)
        end(found)

    assert numbers == [0, 1, 2]


def test_a_rank_that_another_process_has_is_refused(tmp_path: Path):
    """Two processes that both think they are rank 0."""
    run = RunFolder(tmp_path)
    join(run, 0, 2)

    with pytest.raises(LedgerError, match="rank 0 of attempt 0 is running"):
        join(run, 0, 2)


def test_a_crash_between_claim_and_launch_leaves_no_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The claim that is left does not count, and the number is used by the next."""
    run = RunFolder(tmp_path)
    monkeypatch.setattr("lading.ledger.attempts.append", lambda *args: (_ for _ in ()).throw(SystemExit))
    with pytest.raises(SystemExit):
        join(run, 0, 1)
    monkeypatch.undo()

    assert len(run.claims(0)) == 1
    assert join(run, 0, 1) == 0


def test_the_log_holds_what_readers_need(tmp_path: Path):
    """Where it began, with how many ranks, and who opened it; the chain begins with run.json."""
    run = RunFolder(tmp_path)
    join(run, 0, 2, start=7)

    fields = json.loads(run.record(0).read_text())

    assert (fields["type"], fields["start_step"], fields["world_size"], fields["attempt"]) == ("launch", 7, 2, 0)
    assert json.loads(run.head.read_text())["number"] == 0
    assert read_begun(run.rank(0, 0).begun).state == "opening"


def test_a_log_that_lost_a_record_is_not_continued(tmp_path: Path):
    """Nothing would say which attempts there were."""
    run = RunFolder(tmp_path)
    end(opened(run, 0, 1))
    run.record(0).unlink()

    with pytest.raises(CorruptLedgerError, match=r"000000.json is missing: .*head.json knows it: the run cannot be"):
        join(run, 0, 1)


class FakeStore:
    """A process group's store, as torch offers it."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    timeout = datetime.timedelta(seconds=5)

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def add(self, key: str, amount: int) -> int:
        self.values[key] = str(int(self.values.get(key, b"0")) + amount).encode()
        return int(self.values[key])

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self.values[key]


class FakeGroup:
    """``torch.distributed`` with an initialised group of two."""

    def __init__(self, store: FakeStore, rank: int) -> None:
        self.rank = rank
        self.distributed_c10d = type("c10d", (), {"_get_default_store": staticmethod(lambda: store)})

    def is_available(self) -> bool:
        return True

    is_initialized = is_available

    def get_rank(self) -> int:
        return self.rank

    def get_world_size(self) -> int:
        return 2


def test_with_a_process_group_rank_0_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Tokens do not matter then: the store is the launch."""
    run, store = RunFolder(tmp_path), FakeStore()
    numbers = []
    for turn in range(2):
        found = []
        for rank in (0, 1):
            monkeypatch.setitem(sys.modules, "torch.distributed", FakeGroup(store, rank))
            found.append(opened(run, rank, 2, token=f"{turn}{rank}"))
        numbers += [one.launch.attempt for one in found]
        for one in found:
            end(one)

    assert numbers == [0, 0, 1, 1]


def test_what_keeps_rank_0_from_opening_is_said_by_every_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No rank waits for a number that will not come."""
    run, store = RunFolder(tmp_path), FakeStore()
    join(run, 0, 1)

    for rank in (0, 1):
        monkeypatch.setitem(sys.modules, "torch.distributed", FakeGroup(store, rank))
        with pytest.raises(LedgerError, match="rank 0 of attempt 0 is running"):
            join(run, rank, 2)


class FakeCoordinator:
    """The client of JAX's coordinator."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        self.values[key] = value

    def key_value_increment(self, key: str, amount: int) -> int:
        self.values[key] = str(int(self.values.get(key, "0")) + amount)
        return int(self.values[key])

    def key_value_try_get(self, key: str) -> str:
        if key not in self.values:
            raise RuntimeError("NOT_FOUND")
        return self.values[key]


def test_with_jax_processes_rank_0_decides_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Through the coordinator's store."""
    run, client = RunFolder(tmp_path), FakeCoordinator()
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    numbers = []
    for rank in (0, 1):
        state = SimpleNamespace(client=client, process_id=rank, num_processes=2)
        monkeypatch.setitem(sys.modules, "jax._src.distributed", SimpleNamespace(global_state=state))
        numbers.append(join(run, rank, 2, token=str(rank)))

    assert numbers == [0, 0]


def test_ranks_that_start_at_different_steps_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """They loaded different checkpoints: no step could ever be called applied."""
    run, store = RunFolder(tmp_path), FakeStore()
    monkeypatch.setitem(sys.modules, "torch.distributed", FakeGroup(store, 0))
    join(run, 0, 2, start=10)
    monkeypatch.setitem(sys.modules, "torch.distributed", FakeGroup(store, 1))

    with pytest.raises(LedgerError, match="rank 1 starts at step 20, the others at step 10"):
        join(run, 1, 2, start=20)


def test_tokens_tell_launches_apart(monkeypatch: pytest.MonkeyPatch):
    """An explicit token wins; restarts of an elastic launch differ."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
    tokens = set()
    for count in ("0", "1"):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", count)
        tokens.add(launch_token(World(0, 2)))
    assert len(tokens) == 2

    monkeypatch.setenv("LADING_LAUNCH", "mine")
    assert launch_token(World(0, 2)) == "mine"


def test_a_rank_of_another_machine_is_waited_for_with_a_word(tmp_path: Path):
    """A pod that comes back under another host name says why it waits, and what to do."""
    run = RunFolder(tmp_path)
    found = opened(run, 0, 1)
    write_begun(found.folder, replace(found.begun, state=RUNNING, host="pod-7"))
    lately = time.time() - 58
    os.utime(found.folder.begun, (lately, lately))

    with pytest.warns(UserWarning, match=r"rank 0 of attempt 0 wrote to .* on pod-7 less than a minute ago.*waiting"):
        again = opened(run, 0, 1)

    assert again.launch.attempt == 1


def test_of_two_processes_with_one_rank_the_second_is_refused(tmp_path: Path):
    """They looked at the same moment, and both found the place free."""
    run = RunFolder(tmp_path)
    first = opened(run, 0, 2)
    request = Request(first.begun.run, "", World(0, 2), lambda log: first.launch)

    with pytest.raises(LedgerError, match=r"belongs to another process already: two processes write as rank 0"):
        attempts._joins(run, request, first.launch)
