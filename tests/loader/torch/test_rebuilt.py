"""Whatever a framework does to a loader: the batches are the plan's and recorded, or an error says what happened."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.util
import inspect
import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest
from tests.launching import torchrun
from torch.utils.data import BatchSampler, DataLoader

from lading import BatchTracker, ChunkedDataLoader, Columns, Ledger, Loader, open_run
from lading.errors import LadingError, LoaderError

SCRIPT = Path(__file__).parent / "scripts" / "rebuild.py"


def make(tracker=None, **options):
    """Return a loader over two sources, 100 samples in batches of 7."""
    sources = {"a": Columns(x=np.arange(60)), "b": Columns(x=np.arange(100, 140))}
    return Loader(sources, batch_size=7, seed=3, tracker=tracker, **options)


def rebuilt(loader, **options):
    """Build a plain DataLoader from the parts of a loader."""
    return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn, **options)


def values(batches):
    """Return what batches hold, as lists."""
    return [{key: value.tolist() for key, value in batch.items()} for batch in batches]


def test_a_plain_dataloader_of_our_parts_yields_the_plan_and_keeps_the_books(tmp_path):
    """Same samples, same order, names beside them; ledger and state as if the loader itself had been used."""
    ledger = Ledger(tmp_path / "run")
    loader = make(ledger)

    found = []
    for batch in rebuilt(loader):
        found.append(batch)
        ledger.commit(loader.last_bill)
    state = loader.state_dict()
    ledger.close()

    assert values(found) == values(make())
    assert open_run(tmp_path / "run").verify().holds
    assert state["step"] == 15


@pytest.mark.parametrize("workers", [0, 2])
def test_the_default_collate_function_knows_our_batches(tmp_path, workers):
    """``DataLoader(loader.dataset, batch_sampler=loader.batch_sampler)``, nothing else: the same, recorded."""
    ledger = Ledger(tmp_path / "run")
    loader = make(ledger)

    found = []
    for batch in DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, num_workers=workers):
        found.append(batch)
        ledger.commit(loader.delivered() if workers else loader.last_bill)
    ledger.close()

    assert values(found) == values(make())
    assert open_run(tmp_path / "run").verify().holds


def test_a_collate_function_given_to_the_other_loader_is_refused():
    """It would be given a batch that is put together already; the error says where it belongs."""
    loader = make()
    other = DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=lambda samples: list(samples))

    with pytest.raises(LoaderError, match=r"Loader\(\.\.\., collate_fn"):
        next(iter(other))


def test_with_workers_deliveries_are_reported(tmp_path):
    """Until one is, where the run is cannot be said."""
    ledger = Ledger(tmp_path / "run")
    loader = make(ledger)

    found = []
    for batch in rebuilt(loader, num_workers=2):
        if not found:
            with pytest.raises(LoaderError, match=r"loader\.delivered"):
                loader.state_dict()
        found.append(batch)
        ledger.commit(loader.delivered())
    ledger.close()

    assert values(found) == values(make())
    assert open_run(tmp_path / "run").verify().holds


def test_sharded_a_second_time_is_refused():
    """Every second batch of a rank: noticed at the second one."""
    loader = make()
    every_second = list(range(0, 15, 2))

    class Shard(BatchSampler):
        def __init__(self):
            pass

        def __iter__(self):
            return (batch for k, batch in enumerate(loader.batch_sampler) if k in every_second)

        def __len__(self):
            return len(every_second)

    again = DataLoader(loader.dataset, batch_sampler=Shard(), collate_fn=loader.collate_fn)

    with pytest.raises(LoaderError, match="a second time"):
        list(again)


def test_a_cut_or_completed_batch_is_refused():
    """A plain list of numbers is no batch of the plan."""
    loader = make()
    cut = DataLoader(loader.dataset, batch_sampler=[list(b)[:3] for b in loader.batch_sampler])

    with pytest.raises(LoaderError, match=r"cut, completed .* loader\.dataset\.source"):
        next(iter(cut))


def test_skipping_a_head_moves_the_loader():
    """``skip_first_batches`` drops pulls: what follows is the rest, and the state says so."""
    accelerate = pytest.importorskip("accelerate")
    accelerate.Accelerator(cpu=True)
    tracker = BatchTracker()
    loader = make(tracker)

    found = list(accelerate.skip_first_batches(loader, 10))

    assert values(found) == values(make())[10:]
    assert sum(tracker.n_samples_per_dataset.values()) == 30
    assert loader.step == 15


def test_the_view_is_the_users_dataset():
    """Length, items and attributes; ``source`` is the object itself."""
    source = Columns(x=np.arange(10))
    loader = Loader(source, batch_size=3)

    assert loader.dataset.source is source
    assert len(loader.dataset) == 10
    assert loader.dataset[-1] == source[9]
    assert loader.dataset.fingerprint() == source.fingerprint()


def test_accelerate_leaves_the_loader_as_it_is(tmp_path):
    """``prepare`` returns it; the end of an epoch is known, so that odd batches are synced."""
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    ledger = Ledger(tmp_path / "run")
    loader = make(ledger)

    prepared = accelerator.prepare(loader)
    ends = []
    for _, bill in prepared.with_bills():
        ends.append(accelerator.gradient_state.end_of_dataloader)
        ledger.commit(bill)
    ledger.close()

    assert prepared is loader
    assert ends == [False] * 14 + [True]
    assert not accelerator.gradient_state.in_dataloader
    assert open_run(tmp_path / "run").verify().holds


def test_accelerate_saves_and_loads_its_state(tmp_path):
    """``save_state`` and ``load_state`` keep the loader's place."""
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    loader = accelerator.prepare(make())
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    accelerator.save_state(str(tmp_path / "state"))
    rest = values(batches)

    accelerator.load_state(str(tmp_path / "state"))

    assert values(loader) == rest


def test_accelerate_leaves_chunks_as_they_are(tmp_path):
    """``prepare`` returns the chunked loader; its chunks, its tracker and its state in the middle of one are kept."""
    accelerate = pytest.importorskip("accelerate")
    accelerator, tracker = accelerate.Accelerator(cpu=True), BatchTracker()
    loader = ChunkedDataLoader(range(20), 3, chunk_size=3, tracker=tracker)

    prepared = accelerator.prepare(loader)
    first = [batch.tolist() for batch in prepared]
    batches = iter(prepared)
    next(batches)
    accelerator.save_state(str(tmp_path / "state"))
    rest = [batch.tolist() for batch in batches]
    accelerator.load_state(str(tmp_path / "state"))

    assert prepared is loader
    assert [batch.tolist() for batch in prepared] == rest and len(first) == 3
    assert rest == [loader.plan.bill(step).idx.tolist() for step in (4, 5)]
    assert tracker.samples_idx_per_dataset[0][:9] == [*itertools.chain(*first)]
    plain = accelerator.prepare(ChunkedDataLoader(range(20), 3))
    assert [batch.tolist() for batch in plain] == [batch.tolist() for batch in DataLoader(range(20), 3)]


def test_looking_at_the_attributes_changes_nothing():
    """Accelerate is loaded, but there is no Accelerator: the loader iterates as before (it was an error)."""
    accelerate = pytest.importorskip("accelerate")
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    loader = make()

    assert dict(inspect.getmembers(loader))["_is_accelerate_prepared"] is False
    assert values(loader) == values(make())


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_copy_yields_the_same(how):
    """Copied or pickled, also after it has iterated."""
    loader, other = make(), make()
    next(iter(loader)), next(iter(other))

    assert values(how(loader)) == values(make())
    assert values(rebuilt(how(other))) == values(make())


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
@pytest.mark.parametrize(
    "build", [rebuilt, lambda loader: DataLoader(loader.dataset, batch_sampler=loader.batch_sampler)]
)
def test_a_loader_built_from_a_copy_reports_to_the_copy(how, build):
    """Its books are kept, too; a copied collate function used to notify nobody."""
    loader, tracker = how(make()), BatchTracker()
    loader.tracker = tracker

    list(build(loader))

    assert loader.state_dict()["step"] == 15
    assert sum(tracker.n_samples_per_dataset.values()) == 100


def test_fabric_leaves_the_order_alone():
    """Lightning Fabric wraps; the batches are the plan's."""
    fabric_module = pytest.importorskip("lightning.fabric")
    fabric = fabric_module.Fabric(accelerator="cpu", devices=1)

    assert values(fabric.setup_dataloaders(make())) == values(make())


def rows_of_the_table():
    """Return the rows that the launch runs on two processes."""
    spec = importlib.util.spec_from_file_location("rebuild", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_process_sees_every_sample_once_or_is_refused(tmp_path):
    """The same rows on one process."""
    pytest.importorskip("accelerate"), pytest.importorskip("lightning")
    table = rows_of_the_table()
    found = {name: table.run(tmp_path, name, change) for name, change in table.ROWS.items()}

    for row, text in found.items():
        assert text.startswith("refused") == row.startswith("wrong"), (row, text)
        if row == "skip-three":
            assert text.split() == found["itself"].split()[24:]
        elif not row.startswith("wrong"):
            assert sorted(map(int, text.split())) == list(range(100)), row
            assert open_run(tmp_path / row).verify().holds, row
    assert "a second time" in found["wrong-sharded"]


@pytest.mark.launch
def test_two_processes_see_every_sample_once_or_are_refused(tmp_path):
    """All rows of the table on two processes, in one launch: 100 samples, 100 seen, or a named error."""
    torchrun(SCRIPT, 2, tmp_path)

    rows = {path.name.split(".")[0] for path in tmp_path.glob("*.0.txt")}
    assert len(rows) >= 18
    for row in rows:
        seen = [(tmp_path / f"{row}.{rank}.txt").read_text() for rank in range(2)]
        assert all(text.startswith("refused") for text in seen) == row.startswith("wrong"), (row, seen)
        if row.startswith("wrong"):
            continue
        counted = sorted(int(number) for text in seen for number in text.split())
        if row == "skip-three":
            whole = sorted(
                int(n) for rank in range(2) for n in (tmp_path / f"itself.{rank}.txt").read_text().split()[24:]
            )
            assert counted == whole and len(counted) == 52
            continue
        assert counted == list(range(100)), row
        assert open_run(tmp_path / row).verify().holds, row


def without_some(samples):
    """Leave samples out."""
    return {"x": np.array([sample["x"] for sample in samples if sample["x"] != 5])}


class Counting:
    """Samples one by one; some are None."""

    def __init__(self, holes=()):
        self.holes = holes

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return None if index in self.holes else {"x": index}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_built_from_ours_counts_rows_too(workers):
    """Plain DataLoader, Accelerate's skip_first_batches: rows left out and samples that are None."""
    skip_first_batches = pytest.importorskip("accelerate").skip_first_batches

    for build in (rebuilt, lambda loader, **options: skip_first_batches(rebuilt(loader, **options), 1)):
        loader = Loader(Counting(), 4, shuffle=False, collate_fn=without_some)
        with pytest.raises(LadingError, match=r"of step 1 was made of 4 samples, and nothing in it has so many rows"):
            list(build(loader, num_workers=workers))
        loader = Loader(Counting(holes={6}), 4, shuffle=False)
        with pytest.raises(LadingError, match="sample 6 of dataset 'data' could not be read"):
            list(build(loader, num_workers=workers))


def joined(samples):
    """Join samples to one text."""
    return " ".join(str(sample["x"]) for sample in samples)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_built_from_ours_notes_that_rows_are_not_counted(workers, tmp_path):
    """What the collate function says of itself is known here; what only a worker could see is refused."""
    said = functools.partial(joined)
    said.rows = "any"
    with Ledger(tmp_path) as ledger:
        loader = Loader(Counting(), 4, collate_fn=said, tracker=ledger)
        for _ in rebuilt(loader, num_workers=workers):
            ledger.commit(loader.delivered()[0] if workers else loader.last_bill)

    text = "attempt 0: the rows of batches are not counted: joined makes what cannot be (rows='any')"
    assert [remark.message for remark in open_run(tmp_path).verify().findings] == [text]
    unsaid = Loader(Counting(), 4, collate_fn=joined)
    with pytest.raises(LadingError, match="holds no arrays, and a worker") if workers else contextlib.nullcontext():
        list(rebuilt(unsaid, num_workers=workers))
