"""Weights of samples as loaders take them: wherever they are written, kept in state and ledger, for every face."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from lading import (
    BadSamplePolicy,
    ChunkedDataLoader,
    Columns,
    Curriculum,
    Ledger,
    Loader,
    NumpyLoader,
    PackedRows,
    TokenStore,
    WeightedConcatDataset,
    audit,
    build_tokens,
    open_run,
)
from lading.errors import CorruptLedgerError, LoaderError, MixtureError, PlanError, ResumeError
from lading.identity import World

LABELS = np.repeat([0, 1, 2], [800, 150, 50])


def data(**columns):
    """Columns in memory: x, label, and more."""
    return Columns(x=np.arange(1000), label=LABELS, **columns)


def taken(loader, epochs=1):
    """Return every row that the model received."""
    return np.concatenate([np.asarray(batch["x"]) for _ in range(epochs) for batch in loader])


class Rows:
    """Samples one by one; those below 5 cannot be read."""

    def __init__(self, size=40):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index < 5:
            raise OSError("unexpected end of file")
        return {"x": index, "label": index % 2}


def test_weights_are_an_array_a_column_a_function_or_a_file(tmp_path):
    """All of them make the same plan; a tensor, too."""
    weights = np.linspace(0, 2, 1000)
    np.save(tmp_path / "w.npy", weights)
    forms = [
        {"data": weights},
        weights,
        torch.from_numpy(weights),
        {"data": "w"},
        "w",
        lambda source: source.columns["w"],
        tmp_path / "w.npy",
        {"data": str(tmp_path / "w.npy")},
    ]

    plans = [NumpyLoader({"data": data(w=weights)}, 32, sample_weights=form).plan for form in forms]

    assert len({plan.fingerprint for plan in plans}) == 1
    assert plans[0].fingerprint != NumpyLoader({"data": data(w=weights)}, 32).plan.fingerprint


@pytest.mark.parametrize("labels", [LABELS, LABELS.astype(str), LABELS * 1.5], ids=["numbers", "texts", "floats"])
def test_balanced_classes_come_alike(labels):
    """As often as each other, whatever the type of the column."""
    loader = NumpyLoader(
        {"data": Columns(x=np.arange(1000), kind=labels)}, 50, sample_weights="balanced:kind", names=False
    )

    rows = taken(loader, epochs=3)

    shares = np.bincount(LABELS[rows]) / len(rows)
    assert np.abs(shares - 1 / 3).max() < 0.01


def test_sources_without_weights_and_the_shares_of_a_mixture_stay():
    """One of two sources is weighted; which source comes where is as without weights."""
    sources = {"a": data(), "b": Columns(x=np.arange(2000, 2100), label=np.zeros(100, int))}
    options = {"seed": 1, "weights": {"a": 0.25, "b": 0.75}}
    weighted = NumpyLoader(sources, 40, sample_weights={"a": LABELS == 2}, **options)

    for step in range(40):
        bill, plain = weighted.plan.bill(step), NumpyLoader(sources, 40, **options).plan.bill(step)
        mine = bill.dataset_idx == 0
        assert bill.dataset_idx.tolist() == plain.dataset_idx.tolist() and (bill.idx[mine] >= 950).all()
        assert bill.idx[~mine].tolist() == plain.idx[~mine].tolist()


def test_what_is_wrong_is_said_when_the_plan_is_made():
    """Names, columns, lengths; a curriculum beside it."""
    wrong = {
        "sample_weights name 'c', but the sources are 'data'": {"c": np.ones(1000)},
        "sample_weights of 'data': expected one number for each sample": {"data": "nothing"},
        "found shape": np.ones(3),
        "that of sample 0 is -1": -np.ones(1000),
    }
    for message, weights in wrong.items():
        with pytest.raises(PlanError, match=message):
            _ = Loader({"data": data()}, 32, sample_weights=weights).plan
    with pytest.raises(MixtureError, match=r"1000 weights were given.* weights of single samples are sample_weights="):
        Loader({"data": data()}, 32, weights=torch.rand(1000))
    with pytest.raises(PlanError, match="one array of sample_weights for 2 sources"):
        _ = Loader({"a": data(), "b": data()}, 32, sample_weights=np.ones(1000)).plan
    with pytest.raises(PlanError, match="sample_weights and curriculum were both given"):
        _ = Loader({"data": data()}, 32, mixture=Curriculum("x"), sample_weights="label").plan


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"chunk_batches": 5}, {"weights": [1.0]}, {"shuffle": "window"}])
def test_the_order_does_not_depend_on_workers_or_ranks_and_resumes_anywhere(workers, options):
    """Law: stopped at any step, on other ranks, the rest is what one process without workers gets."""
    options = {"sample_weights": {"data": LABELS + 0.1}, "seed": 4, "window_samples": 64, **options}
    sources = {"data": data()}
    plan = NumpyLoader(sources, global_batch_size=60, world=World(0, 1), **options).plan
    rank = [
        NumpyLoader(sources, global_batch_size=60, world=World(r, 3), num_workers=workers, **options) for r in range(3)
    ]
    for stop in (0, 1, 4, 16, 17, 20):
        first = NumpyLoader(sources, global_batch_size=60, world=World(1, 2), num_workers=workers, **options)
        first.move_to(stop)
        state = json.loads(json.dumps(first.state_dict()))
        rows = []
        for loader in rank:
            loader.load_state_dict(state)
            batch, bill = next(iter(loader.with_bills()))
            assert bill.step == stop
            rows += np.asarray(batch["x"])[~bill.is_padding].tolist()
        assert rows == plan.bill(stop).idx.tolist()


def test_weights_that_changed_behind_a_checkpoint_are_refused_by_name():
    """One weight of a thousand, by a millionth."""
    weights = np.linspace(1, 2, 1000)
    state = NumpyLoader({"data": data()}, 32, sample_weights=weights).state_dict()
    weights[500] += 1e-6

    for changed in (weights, None):
        with pytest.raises(ResumeError, match=r"differs in 1 place: sample weights \(fingerprint\) \w+ -> "):
            NumpyLoader({"data": data()}, 32, sample_weights=changed).load_state_dict(state)
    assert len(json.dumps(state)) < 1500


def test_a_run_is_kept_read_and_verified_with_its_weights(tmp_path):
    """The table is a file beside the plan; what was used, where, and how much of the data is answered from it."""
    weights = np.where(LABELS == 0, 0.1, 2.0)
    loader = Loader({"data": data()}, 50, seed=2, sample_weights=weights, tracker=Ledger(tmp_path / "run"))
    rows = []
    for _ in range(2):
        for batch in loader:
            rows.append(batch["x"].tolist())
            loader.tracker.commit(loader.last_bill)
    loader.tracker.close()
    run = open_run(tmp_path / "run")
    flat = [row for step in rows for row in step]

    assert run.verify().holds and run.step(25).samples["index"] == rows[25]
    assert len(run.where("data", 990)) == flat.count(990) > 2
    (passes,) = run.passes().dicts()
    assert passes["passes"] == 2.0 and passes["distinct"] == len(set(flat)) < 1000
    (file,) = (tmp_path / "run" / "plans").glob("*.weights")
    assert file.stat().st_size == 8000
    file.write_bytes(file.read_bytes()[:-1])
    assert not open_run(tmp_path / "run").verify().holds
    file.unlink()
    damaged = open_run(tmp_path / "run")
    assert not damaged.verify().holds and "weights" in str(damaged.verify())


def test_a_bad_sample_is_never_replaced_by_one_of_weight_zero():
    """Also by workers, which get no table."""
    weights = np.array([1.0] * 20 + [0.0] * 20)
    for workers in (0, 2):
        policy = BadSamplePolicy("substitute")
        loader = NumpyLoader(Rows(), 10, sample_weights=weights, on_bad_sample=policy, num_workers=workers)
        with pytest.warns(UserWarning, match="could not be read"):
            assert set(taken(loader)) <= set(range(5, 20))


def test_torch_s_sampler_is_pointed_to_its_counterpart():
    """By ``sampler=`` of a Loader, and by ``audit``; chunks take its weights over."""
    dataset, weights = TensorDataset(torch.arange(100.0)), torch.linspace(0.1, 2, 100)
    sampler = WeightedRandomSampler(weights, 100)

    with pytest.raises(LoaderError, match="expected sample_weights=weights"):
        Loader(dataset, 10, sampler=sampler)
    (note,) = [f for f in audit(DataLoader(dataset, 10, sampler=sampler)) if "replacement" in f.fault]
    assert "lading.Loader(dataset, batch_size, sample_weights=weights)" in note.fix
    assert not audit(Loader(dataset, 10, sample_weights=weights))
    chunked = ChunkedDataLoader(dataset, 10, chunk_size=3, sampler=sampler)
    assert chunked.plan == Loader(dataset, 10, chunk_batches=3, seed=42, sample_weights=weights).plan


def test_a_truncated_file_of_weights_is_corrupt_by_name(tmp_path):
    """Opening a ledger again names the file."""
    loader = NumpyLoader({"data": data()}, 50, sample_weights="label", tracker=Ledger(tmp_path / "run"))
    next(iter(loader))
    loader.tracker.close()
    (file,) = (tmp_path / "run" / "plans").glob("*.weights")
    file.write_bytes(b"\0" * 16)

    again = NumpyLoader({"data": data()}, 50, seed=1, sample_weights="label", tracker=Ledger(tmp_path / "run"))
    with pytest.raises(CorruptLedgerError, match=r"\.weights holds other sample weights"):
        next(iter(again))


@pytest.mark.parametrize("mixed", [False, True], ids=["alone", "mixture"])
def test_parts_of_a_source_are_planned_by_their_weights(tmp_path, mixed):
    """``mix`` plans a dataset inside a source by its rows' share of the weights, and counts what was delivered."""
    sizes, often = (60, 30), np.repeat([1.0, 8.0], [60, 60])  # the second dataset comes twice, 480 of 540 of the mass
    parts = WeightedConcatDataset([Columns(x=np.arange(n) + 100 * d) for d, n in enumerate(sizes)], [1, 2])
    sources = {"parts": parts, "other": Columns(x=np.arange(1000, 1040))}
    options = {"weights": {"parts": 0.75, "other": 0.25}} if mixed else {}
    loader = Loader(sources, 20, seed=3, sample_weights={"parts": often}, tracker=Ledger(tmp_path / "run"), **options)
    rows = []
    for batch in loader:
        rows += batch["x"].tolist()
        loader.tracker.commit(loader.last_bill)
    loader.tracker.close()
    run = open_run(tmp_path / "run")

    first, second, other = (np.count_nonzero((np.array(rows) // 100) == kind) for kind in (0, 1, 10))
    found = {row["dataset"]: row for row in run.mix()}
    whole = 0.75 if mixed else 120 / 160
    planned = {name: row["planned"] for name, row in found.items()}
    assert sorted(planned.values()) == pytest.approx(sorted([whole / 9, whole * 8 / 9, 1 - whole]))
    assert sorted(row["samples"] for row in found.values()) == sorted([first, second, other])
    assert first == pytest.approx(len(rows) * whole / 9, abs=8) and run.verify().holds
    (number,) = [d for d, name in enumerate(loader.plan.names) if planned.get(name) == pytest.approx(whole * 8 / 9)]
    assert len(run.where(number, 7)) == rows.count(107) > 2


def test_rows_of_packed_tokens_have_weights(tmp_path):
    """A row comes as often as its weight says, as a model receives it, and resumed as without a break."""
    for number in range(40):
        (tmp_path / f"{number:02}.txt").write_text(chr(65 + number) * (10 + number))
    build_tokens(sorted(tmp_path.glob("*.txt")), tmp_path / "corpus")
    rows = PackedRows(TokenStore(tmp_path / "corpus"), 64)
    weights = np.where(np.arange(len(rows)) % 3 == 0, 3.0, 0.25)
    loader = Loader({"text": rows}, 4, seed=2, sample_weights={"text": weights})

    counts = np.zeros(len(rows), dtype=int)
    contents = {tuple(np.asarray(rows[row]["inputs"]).tolist()): row for row in range(len(rows))}
    received = []
    for batch, bill in loader.with_bills():
        found = [contents[tuple(tokens.tolist())] for tokens in batch["inputs"]]
        assert found == bill.idx.tolist()
        received.append(found)
        np.add.at(counts, found, 1)

    exact = weights * len(rows) / weights.sum()
    assert counts.sum() == len(rows) and (np.abs(counts - exact) < 1).all() and counts.max() > 1
    again = Loader({"text": rows}, 4, seed=2, sample_weights={"text": weights})
    again.move_to(2)
    assert [bill.idx.tolist() for _, bill in again.with_bills()] == received[2:]
