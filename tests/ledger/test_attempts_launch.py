"""Ranks that agree on the number of their attempt without talking."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lading.errors import LedgerError
from lading.identity import World
from lading.ledger.attempts import Launch, launch_token, open_attempt, process_identity
from lading.ledger.run_folder import RunFolder
from lading.runtime.files import Journal


def join(run: RunFolder, rank: int, world_size: int, *, start: int = 0, token: str = "t", process=None) -> int:
    world = World(rank, world_size)
    host = os.uname().nodename
    process = process or process_identity(os.getpid())
    launch, folder = open_attempt(
        run, world, lambda attempt: Launch(attempt, start, world_size, token, None, (), 0.0, host, process)
    )
    assert folder.path.is_dir()
    return launch.attempt


def test_ranks_of_one_launch_share_a_number(tmp_path: Path):
    """Whoever comes first makes the attempt, the others join it."""
    run = RunFolder(tmp_path)

    assert [join(run, rank, 3) for rank in (2, 0, 1)] == [0, 0, 0]
    assert [join(run, rank, 3) for rank in (1, 2, 0)] == [1, 1, 1]


def test_another_world_size_start_or_token_is_another_attempt(tmp_path: Path):
    """Only ranks that started together belong together."""
    run = RunFolder(tmp_path)
    join(run, 0, 2)

    assert join(run, 1, 3) == 1
    assert join(run, 0, 3, start=5) == 2
    assert join(run, 1, 3, start=5, token="other") == 3


def test_nobody_joins_a_crashed_attempt(tmp_path: Path):
    """The opener of the attempt is dead and left no closing line: a rank that comes now is of another launch."""
    run, dead = RunFolder(tmp_path), (999_999_999, 1)
    join(run, 0, 2, process=dead)

    assert join(run, 1, 2) == 1


def test_a_late_rank_joins_an_attempt_that_ended_in_order(tmp_path: Path):
    """Ranks may run one after another, as in a toy."""
    run, dead = RunFolder(tmp_path), (999_999_999, 1)
    join(run, 0, 2, process=dead)
    Journal(run.rank(0, 0).manifest).append({"part": 0, "files": [], "closed": True})

    assert join(run, 1, 2) == 0


def test_one_process_alone_always_begins_anew(tmp_path: Path):
    """A single process needs nobody's agreement."""
    run = RunFolder(tmp_path)

    assert [join(run, 0, 1) for _ in range(3)] == [0, 1, 2]


def test_launch_file_holds_what_readers_need(tmp_path: Path):
    """Where it began, with how many ranks, and who opened it."""
    run = RunFolder(tmp_path)
    join(run, 0, 2, start=7)

    fields = json.loads(run.launch(0).read_text())

    assert (fields["start_step"], fields["world_size"], fields["version"]) == (7, 2, 1)


class FakeStore:
    """A process group's store, as torch offers it."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

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
        for rank in (0, 1):
            monkeypatch.setitem(sys.modules, "torch.distributed", FakeGroup(store, rank))
            numbers.append(join(run, rank, 2, token=f"{turn}{rank}"))

    assert numbers == [0, 0, 1, 1]


class FakeCoordinator:
    """The client of JAX's coordinator: a key is set once."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def key_value_set(self, key: str, value: str) -> None:
        if key in self.values:
            raise RuntimeError("ALREADY_EXISTS")
        self.values[key] = value

    def blocking_key_value_get(self, key: str, milliseconds: int) -> str:
        return self.values[key]


def test_with_jax_processes_rank_0_decides_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Through the coordinator's store."""
    run, client = RunFolder(tmp_path), FakeCoordinator()
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    numbers = []
    for turn in range(2):
        for rank in (0, 1):
            state = SimpleNamespace(client=client, process_id=rank, num_processes=2)
            monkeypatch.setitem(sys.modules, "jax._src.distributed", SimpleNamespace(global_state=state))
            numbers.append(join(run, rank, 2, token=f"{turn}{rank}"))

    assert numbers == [0, 0, 1, 1]


def test_ranks_that_start_at_different_steps_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """They loaded different checkpoints: no step could ever be called applied."""
    run, store = RunFolder(tmp_path), FakeStore()
    monkeypatch.setitem(sys.modules, "torch.distributed", FakeGroup(store, 0))
    join(run, 0, 2, start=10)
    monkeypatch.setitem(sys.modules, "torch.distributed", FakeGroup(store, 1))

    with pytest.raises(LedgerError, match="rank 1 starts at step 20, rank 0 at step 10"):
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
