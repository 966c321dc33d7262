"""The JAX loader: one process here, several in real ones."""

from __future__ import annotations

import inspect
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from tests.launching import kill_all, read_jsonl, wait_for
from tests.loader.jax import jax_processes

from lading.batch import LLMIndexedBatch, llm_batch
from lading.errors import LoaderError, OptionError, ResumeError, SourceError
from lading.ledger import Ledger
from lading.loader.iteration import LARGE_BYTES
from lading.loader.jax.loader import JaxLoader
from lading.loader.request import PlainOptions, Resume
from lading.order import Plan
from lading.order.mixture.request import Mixture
from lading.report import open_checkpoint
from lading.report.checkpoint.check import check
from lading.source.columns import Columns
from lading.source.tokens.write import TokenWriter
from lading.testing import assert_resumable

SCRIPT = Path(jax_processes.__file__)
ROWS = 26


def table(rows=ROWS):
    """Two columns."""
    return Columns(x=np.arange(rows * 3, dtype=np.float32).reshape(rows, 3), y=np.arange(rows) * 10)


class Numbers:
    """A vocabulary of 100 with E 99."""

    vocab_size = 100
    eod_token_id = 99

    def encode(self, text):
        """Not used: ids are ready."""
        raise AssertionError


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A token store whose rows are no multiple of the batch."""
    random = np.random.default_rng(0)
    with TokenWriter(tmp_path_factory.mktemp("jax") / "corpus", Numbers()) as writer:
        for length in random.integers(1, 30, 40):
            writer.add(random.integers(0, 90, length))
    return str(writer.out)


def test_batches_are_those_of_the_plan():
    """Rows, names and padding of every step; dtypes that JAX keeps."""
    loader = JaxLoader({"table": table()}, 8, seed=3)

    for batch, bill in loader.with_bills():
        expected = loader.plan.bill(bill.step, pad=True)
        assert isinstance(batch["x"], jax.Array) and batch["x"].shape == (8, 3)
        assert batch["idx"].tolist() == expected.idx.tolist() and batch["y"].tolist() == (expected.idx * 10).tolist()
        assert batch["is_padding"].tolist() == expected.is_padding.tolist()
        assert batch["idx"].dtype == batch["dataset_idx"].dtype == jnp.int32
    assert len(loader) == 4 and batch["is_padding"].sum() == 6 and loader.last_bill.num_samples == 2


def test_an_epoch_visits_every_sample_once_and_the_next_differs():
    """Padding left out."""
    loader = JaxLoader(table(), 8)

    first, second = ([np.asarray(b["idx"])[~np.asarray(b["is_padding"])] for b in loader] for _ in range(2))
    first, second = np.concatenate(list(first)), np.concatenate(list(second))

    assert sorted(first) == sorted(second) == list(range(ROWS)) and first.tolist() != second.tolist()
    assert loader.epoch == 2


def test_nothing_but_the_last_batch_compiles_differently():
    """Shapes are static: one compilation for all steps."""
    loader = JaxLoader(table(), 8)
    step = jax.jit(lambda batch: jnp.where(batch["is_padding"], 0, batch["y"]).sum())

    total = sum(int(step(batch)) for batch in loader)

    assert total == sum(range(ROWS)) * 10 and step._cache_size() == 1


def test_packed_rows_come_as_llm_batches(store):
    """convert=llm_batch; padding rows have segment 0 and document 0."""
    loader = jax_processes.make_loader(store)

    batches = list(loader)

    assert all(isinstance(batch, LLMIndexedBatch) and isinstance(batch.inputs, jax.Array) for batch in batches)
    whole = loader.sources["corpus"].take(loader.plan.bill(1).idx)
    assert batches[1].equals(llm_batch(whole))
    short = len(loader.sources["corpus"]) % 8
    assert (
        0 < short < 8
        and not batches[-1].targets_segmentation[short:].any()
        and not batches[-1].document_idx[short:].any()
    )


def test_batches_that_are_held_do_not_change(store):
    """The source fills its buffers again; what JAX was given stays."""
    held = list(jax_processes.make_loader(store))

    again = list(jax_processes.make_loader(store, prefetch=0))

    assert len(held) == len(again) and all(one.equals(other) for one, other in zip(held, again, strict=True))


def test_the_loader_can_be_stopped_and_restored_at_every_step():
    """State speaks of batches yielded, never of prefetched ones."""
    assert_resumable(lambda: JaxLoader({"table": table()}, 8, chunk_batches=3), rounds=3)


def test_state_goes_through_orbax(tmp_path, store):
    """JsonSave beside the weights, restored in a fresh loader."""
    loader = jax_processes.make_loader(store)
    iterator = iter(loader)
    next(iterator)
    weights = {"w": jnp.arange(3.0)}
    with ocp.CheckpointManager(tmp_path / "checkpoints") as manager:
        items = ocp.args.Composite(weights=ocp.args.StandardSave(weights), loader=ocp.args.JsonSave(loader.get_state()))
        manager.save(1, args=items)
        manager.wait_until_finished()
        asked = ocp.args.Composite(weights=ocp.args.StandardRestore(weights), loader=ocp.args.JsonRestore())
        found = manager.restore(1, args=asked)

    fresh = jax_processes.make_loader(store)
    fresh.set_state(found["loader"])

    assert fresh.step == 1 and next(iter(fresh)).equals(next(iterator))
    assert found["weights"]["w"].tolist() == [0.0, 1.0, 2.0]


def test_a_checkpoint_of_orbax_has_a_waybill(tmp_path):
    """The line of the recipe: all that Orbax wrote is covered, and what was used before it is known."""
    ledger = Ledger(tmp_path / "run")
    loader = JaxLoader({"table": table()}, 8, tracker=ledger)
    used: set[int] = set()
    with ocp.CheckpointManager(tmp_path / "checkpoints") as manager:
        for step, (_, bill) in zip(range(2), loader.with_bills(), strict=False):
            ledger.commit(bill, update=step)
            used |= {index for _, index in bill.samples}
        items = ocp.args.Composite(
            weights=ocp.args.StandardSave({"w": jnp.arange(3.0)}), loader=ocp.args.JsonSave(loader.state_dict())
        )
        manager.save(loader.step, args=items)
        manager.wait_until_finished()
        ledger.checkpoint(manager.directory / str(loader.step), loader.state_dict())
        ledger.close()

    opened = open_checkpoint(tmp_path / "checkpoints" / "2")

    assert check(opened).holds and not check(opened).not_covered
    assert any(name.startswith("weights/") for name in opened.waybill.files)
    assert {i for i in range(len(table())) if opened.seen("table", i).answer} == used


def test_a_state_of_another_run_is_refused():
    """Seed and data are checked; another G only when allowed."""
    state = JaxLoader(table(), 8, seed=1).get_state()

    with pytest.raises(ResumeError, match="seed 1 -> 2"):
        JaxLoader(table(), 8, seed=2).set_state(json.dumps(state))
    with pytest.raises(ResumeError, match="global batches of 8 samples, this loader makes 4"):
        JaxLoader(table(), 4, seed=1).set_state(state)
    smaller = JaxLoader(table(), 4, seed=1)
    smaller.set_state(state, Resume(rebatch=True))
    assert next(iter(smaller))["x"].shape == (4, 3)


def test_epochs_are_chosen_and_iterations_restart():
    """set_epoch moves; breaking off and iterating again restarts the epoch."""
    loader = JaxLoader(table(), 8)
    loader.set_epoch(2)
    first = next(iter(loader))["idx"].tolist()

    assert loader.epoch == 2 and next(iter(loader))["idx"].tolist() == first
    assert first == loader.plan.bill(loader.plan.epoch_start(2)).idx.tolist()


def test_mixtures_and_chunks():
    """Weights reach the plan; rows of several sources are interleaved."""
    loader = JaxLoader({"a": table(), "b": table(40)}, 8, weights={"a": 3, "b": 1}, chunk_batches=4)

    batches = list(loader)

    assert len(batches) == len(loader) == 4
    for batch in batches:
        assert batch["y"].tolist() == (batch["idx"] * 10).tolist()
    assert sum(int((batch["dataset_idx"] == 0).sum()) for batch in batches) == pytest.approx(24, abs=2)
    flat = JaxLoader({"a": table(), "b": table(40)}, 8, mixture=Mixture(temperature=1e9))
    assert flat.plan.mixture is not None and 0 < int(next(iter(flat))["dataset_idx"].sum()) < 8


def test_sources_of_samples_and_tuples():
    """Anything with __getitem__: samples are stacked, tuples stay tuples."""
    pairs = [(np.full(2, i, np.float32), i) for i in range(8)]

    (x, y), *_ = JaxLoader(pairs, 4, shuffle=False)

    assert x.shape == (4, 2) and y.tolist() == [0, 1, 2, 3]


def test_the_tracker_hears_of_what_was_handed_out():
    """Not of what was prefetched; and it is flushed before a state is taken."""

    class Tracker:
        def __init__(self):
            self.steps, self.flushes = [], 0

        def update(self, bill):
            self.steps.append(bill.step)

        def flush(self):
            self.flushes += 1

    tracker = Tracker()
    loader = JaxLoader(table(), 8, tracker=tracker)
    iterator = iter(loader)
    next(iterator), next(iterator)
    loader.get_state()

    assert tracker.steps == [0, 1] and tracker.flushes == 1


def test_a_ready_plan_is_followed():
    """And refused where it does not fit."""
    plan = Plan.make({"table": ROWS}, batch_size=8, seed=9)

    assert next(iter(JaxLoader({"table": table()}, 8, plan=plan)))["idx"].tolist() == plan.bill(0).idx.tolist()
    with pytest.raises(LoaderError, match="the plan has batches of 8 rows from 1 datasets, the loader 4 from 1"):
        JaxLoader({"table": table()}, 4, plan=plan)


def test_what_jax_cannot_take_is_named():
    """Texts, names of the dataset's own, numbers that would be cut, samples that cannot be read."""
    big = np.full(4, 1 << 40)

    class Broken:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            raise OSError("disk on fire")

    class Uneven(Broken):
        def __getitem__(self, index):
            return np.zeros(index)

    for source, message in [
        (Columns(t=np.array(["a"] * 4)), r"column \['t'\] holds <U1 of shape \(4,\)"),
        (Columns(idx=np.arange(4)), "dataset .data. has a key .idx. of its own"),
        (Columns(n=big), "an array of int64 holds 1099511627776, but JAX keeps only int32"),
        (
            Broken(),
            r"sample \d of dataset 'data' could not be read for batch e0-s0-\w+ of step 0: OSError: disk on fire",
        ),
        (Uneven(), r"batch e0-s0-\w+ of step 0 could not be put together, although each"),
    ]:
        with pytest.raises(SourceError, match=message):
            next(iter(JaxLoader(source, 4)))


def test_sources_that_do_not_fit_together_are_named():
    """Both datasets, and what each has."""
    sources = {"a": Columns(x=np.arange(8)), "b": Columns(y=np.arange(8))}

    with pytest.raises(SourceError, match="datasets 'a' and 'b' do not fit into one batch: x: int64 rows"):
        list(JaxLoader(sources, 8))


def test_the_loader_needs_no_torch():
    """JAX users install no torch."""
    program = (
        "import sys, numpy as np\nfrom lading.loader.jax.loader import JaxLoader\n"
        "print(len(list(JaxLoader(np.arange(8), 4))), 'torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert run.stdout.split() == ["2", "False"], run.stderr


MESHES = """
import jax, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
from lading.errors import LoaderError
from lading.source.columns import Columns
from lading.loader.iteration import LARGE_BYTES
from lading.loader.jax.loader import JaxLoader

data = Columns(x=np.arange(16 * 6).reshape(16, 6), y=np.arange(16))
devices = np.array(jax.devices())
expected = [batch["x"] for batch in JaxLoader(data, 8, mesh=Mesh(devices[:1], ("data",)))]
layouts = [
    (Mesh(devices, ("data",)), None),
    (Mesh(devices.reshape(2, 2), ("data", "model")), None),
    (Mesh(devices.reshape(2, 2), ("model", "data")), P("data")),
    (Mesh(devices.reshape(2, 2), ("data", "seq")), P("data", "seq")),
    (Mesh(devices.reshape(2, 2), ("a", "b")), P(("a", "b"))),
    (Mesh(devices, ("data",)), P()),
]
for mesh, spec in layouts:
    loader = JaxLoader(data, 8, mesh=mesh, spec=spec)
    for batch, wanted in zip(loader, expected, strict=True):
        assert batch["x"].sharding.mesh == mesh and batch["x"].is_fully_addressable
        np.testing.assert_array_equal(batch["x"], wanted)
        assert int(jax.jit(lambda b: b["y"].sum())(batch)) == int(wanted[:, 0].sum()) // 6
try:
    next(iter(JaxLoader(data, 6, mesh=layouts[0][0])))
except LoaderError as error:
    print(error)
"""


@pytest.mark.launch
def test_any_mesh_gives_the_same_global_batches():
    """Four devices: data parallel, with model parallel copies, cut along the sequence, replicated."""
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}

    run = subprocess.run([sys.executable, "-c", MESHES], capture_output=True, text=True, env=env, check=False)

    assert run.returncode == 0, run.stderr
    assert "a global batch of 6 rows cannot be cut into 4 equal shards" in run.stdout


def start(processes, store, folder, steps, pause=0.0):
    """Start the script in some processes that find each other."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    folder.mkdir(exist_ok=True)
    words = [str(processes), str(port), store, str(folder), str(steps), str(pause)]
    root = str(SCRIPT.parents[2])
    return [
        subprocess.Popen([sys.executable, str(SCRIPT), str(n), *words], stderr=subprocess.PIPE, text=True, cwd=root)
        for n in range(processes)
    ]


def finish(running):
    """Wait for all processes; one that fails fails the test with its output."""
    for process in running:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors


def held(folder, processes):
    """Rows of every step, the processes' put together; the last life of a step counts."""
    steps: dict[int, dict[int, list]] = {}
    for n in range(processes):
        for line in read_jsonl(folder / f"process{n}-of-{processes}.jsonl"):
            rows = {int(row): values for row, values in line["rows"].items()}
            steps.setdefault(line["step"], {}).update(rows)
            steps[line["step"]]["total"] = line["total"]
            assert line["shape"] == [8, 16] and (processes == 1 or len(rows) == 4)
    return steps


@pytest.mark.launch
def test_two_processes_share_the_global_batches_of_one_and_one_goes_on_after_a_kill(tmp_path, store):
    """Each process holds half of every batch and sums over all of it; after kill -9, one continues exactly there."""
    finish(start(1, store, tmp_path / "one", 9))
    expected = held(tmp_path / "one", 1)

    running = start(2, store, tmp_path / "two", 1000, pause=0.05)
    wait_for(tmp_path / "two" / "state.json")
    while json.loads((tmp_path / "two" / "state.json").read_text())["step"] < 4:
        time.sleep(0.02)
    kill_all([process.pid for process in running])
    for process in running:
        process.communicate()
    before = held(tmp_path / "two", 2)
    stopped = json.loads((tmp_path / "two" / "state.json").read_text())["step"]
    finish(start(1, store, tmp_path / "two", 9))
    after = held(tmp_path / "two", 1)

    assert stopped >= 4 and min(after) == stopped
    assert {**{step: rows for step, rows in before.items() if step < stopped}, **after} == expected


def test_options_are_those_of_a_loader_without_torch():
    """In its signature; those of ranks and misspelled ones are refused by name."""
    shown = inspect.signature(JaxLoader).parameters

    assert set(PlainOptions.__annotations__) < set(shown) and "pad" not in shown
    with pytest.raises(OptionError, match=r"JaxLoader has no option 'wieghts': did you mean weights"):
        JaxLoader(np.arange(16), 8, wieghts=[1])
    with pytest.raises(OptionError, match="JaxLoader has no option 'pad'"):
        JaxLoader(np.arange(16), 8, pad=False)


def test_batches_are_made_ahead_in_a_thread_where_they_are_large():
    """By their size, as with every face; small ones, which a thread hands over in longer than they take, are not."""
    made = []

    def noted(host):
        made.append(threading.current_thread() is threading.main_thread())
        return host

    noted.random_free = True
    for width, expected in ((1, [True] * 4), (LARGE_BYTES // 4, [True, False, False, False])):
        made.clear()
        for _ in JaxLoader(np.zeros((16, width), np.float32), 4, convert=noted):
            pass

        assert made == expected
