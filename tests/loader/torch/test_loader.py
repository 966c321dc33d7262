"""Laws 1 to 4 through the loader, and how it iterates, names, pads and resumes."""

from __future__ import annotations

import copy
import dataclasses
import gc
import json
import pickle
import random
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from lading.errors import BadSampleError, LoaderError, PlanError, ResumeError, SourceError, WorldError
from lading.identity import World
from lading.ledger import Ledger
from lading.loader.failure import BadSamplePolicy
from lading.loader.request import Resume
from lading.loader.torch.loader import Loader
from lading.order.mixture.request import Mixture
from lading.report import open_run
from lading.source.columns import Columns
from lading.testing import assert_resumable
from lading.testing.contracts import same


class Squares(Dataset):
    """A map-style dataset of dict samples."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return {"x": torch.tensor([index, index * index])}


class Augmented(Squares):
    """A dataset that augments with all three global generators."""

    def __getitem__(self, index):
        noise = [random.random(), float(np.random.rand()), float(torch.rand(()))]  # noqa: NPY002
        return {"x": torch.tensor([float(index), *noise])}


class Corrupt(Squares):
    """A dataset some of whose samples cannot be read."""

    def __init__(self, n, bad):
        super().__init__(n)
        self.bad = bad

    def __getitem__(self, index):
        if index in self.bad:
            raise OSError(f"unexpected end of file at {index}")
        return super().__getitem__(index)

    def file_of(self, index):
        return f"part-{index // 10}.bin"


@dataclasses.dataclass
class Pair:
    """A dataclass sample."""

    x: torch.Tensor
    y: int


def named(batches):
    """Return (dataset, index) of every row that counts, batch by batch."""
    rows = []
    for batch, bill in batches:
        if isinstance(batch, dict) and "idx" in batch:
            assert batch["idx"].tolist() == bill.idx.tolist()
            assert batch["dataset_idx"].tolist() == bill.dataset_idx.tolist()
        rows.append(bill.samples)
    return rows


def run(loader, rounds=1):
    """Return the names of the batches of some rounds."""
    return [batch for _ in range(rounds) for batch in named(loader.with_bills())]


lengths = st.lists(st.integers(1, 25), min_size=1, max_size=3)


@given(lengths, st.integers(1, 7), st.integers(1, 7), st.integers(0, 99), st.booleans())
def test_ranks_together_deliver_the_plan(lengths, batch, world_size, seed, drop_last):
    """Laws 1, 2 and 4: whatever the world size, the ranks' batches add up to ``plan.bill``, all samples once."""
    sources = {f"d{i}": Columns(x=np.arange(n)) for i, n in enumerate(lengths)}
    drop_last = drop_last and sum(lengths) >= batch

    def loader(rank, size):
        return Loader(sources, global_batch_size=batch, seed=seed, drop_last=drop_last, world=World(rank, size))

    alone = run(loader(0, 1))
    ranks = [run(loader(rank, world_size)) for rank in range(world_size)]

    assert {len(r) for r in ranks} == {len(alone)}, "every rank delivers every step"
    together = [[sample for r in ranks for sample in r[step]] for step in range(len(alone))]
    assert together == alone
    plan = loader(0, 1).plan
    assert alone == [plan.bill(step).samples for step in range(len(alone))]
    seen = [sample for batch in alone for sample in batch]
    assert len(set(seen)) == len(seen) == sum(lengths) - (sum(lengths) % batch if drop_last else 0)


@given(lengths, st.integers(1, 7), st.integers(0, 60), st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_resume_on_other_ranks_continues_as_if_nothing_had_happened(lengths, batch, stop, before, after, chunked):
    """Law 3: stop anywhere, continue with any other number of ranks."""
    sources = {f"d{i}": Columns(x=np.arange(n)) for i, n in enumerate(lengths)}
    chunk = 2 if chunked else None

    def loader(rank, size):
        return Loader(sources, global_batch_size=batch, world=World(rank, size), chunk_batches=chunk)

    straight = take(loader(0, 1), stop + 5)
    states = []
    for rank in range(before):
        first = loader(rank, before)
        take(first, stop)
        states.append(json.loads(json.dumps(first.state_dict())))
    assert all(state == states[0] for state in states), "the state is the same on every rank"
    rest = []
    for rank in range(after):
        second = loader(rank, after)
        second.load_state_dict(states[0])
        rest.append(take(second, 5))

    assert [[sample for r in rest for sample in r[i]] for i in range(5)] == straight[stop:]


def take(loader, count):
    """Return the names of the next ``count`` batches, over as many rounds as it takes."""
    rows = []
    while len(rows) < count:
        for batch, bill in loader.with_bills():
            rows += named([(batch, bill)])
            if len(rows) == count:
                break
    return rows


@pytest.mark.parametrize("chunk", [None, 3])
def test_resumable_after_every_batch(chunk):
    """The public helper restores at every step, over two rounds."""
    assert_resumable(lambda: Loader(Squares(23), 4, seed=5, chunk_batches=chunk), rounds=2)


def test_the_resume_helper_can_fail():
    """A loader that forgets its place is caught."""

    class Forgetful(Loader):
        def load_state_dict(self, state, **kwargs):
            pass

    with pytest.raises(AssertionError, match=r"stopped after 1 batches and restored, batch 1 differs"):
        assert_resumable(lambda: Forgetful(Squares(23), 4))


def test_workers_change_nothing():
    """Batches, names and even the global generators' numbers are equal for 0, 1 and 2 workers, also persistent."""
    results = []
    for workers in (0, 1, 2):
        loader = Loader({"a": Augmented(11), "b": Augmented(6)}, 4, num_workers=workers, persistent_workers=workers > 1)
        results.append([batch for _ in range(2) for batch in loader])

    assert same(results[0], results[1]) and same(results[0], results[2])
    assert not same(results[0][0]["x"], results[0][5]["x"]), "another epoch, other numbers"


class Keyed(Squares):
    """A source that wants randomness and gets it with the bill."""

    def item_keyed(self, index, *, epoch, key):
        return {"x": torch.tensor(index), "epoch": epoch, "key": key >> 1}


def test_epoch_and_keys_reach_persistent_workers():
    """They travel with the bill: equal for 0, 1 and 2 workers, for any rank, new in every epoch."""
    results = []
    for workers in (0, 1, 2):
        loader = Loader(Keyed(10), 3, num_workers=workers, persistent_workers=workers > 0)
        results.append([batch for _ in range(3) for batch in loader])

    assert same(results[0], results[1]) and same(results[0], results[2])
    assert [batch["epoch"].unique().tolist() for batch in results[0]] == [[e] for e in (0, 1, 2) for _ in range(4)]
    keys = {
        (e, int(i)): int(k) for b in results[0] for i, k, e in zip(b["idx"], b["key"], b["epoch"].tolist(), strict=True)
    }
    assert len(set(keys.values())) == 30
    for rank in range(2):
        for batch in Loader(Keyed(10), global_batch_size=3, world=World(rank, 2)):
            assert all(keys[0, int(i)] == int(k) for i, k in zip(batch["idx"], batch["key"], strict=True))


def test_reading_data_leaves_the_generators_of_training_alone():
    """Global generators stand after a batch where they stood before."""
    torch.manual_seed(1), np.random.seed(1), random.seed(1)  # noqa: NPY002
    expected = torch.rand(3), np.random.rand(3), random.random()  # noqa: NPY002
    torch.manual_seed(1), np.random.seed(1), random.seed(1)  # noqa: NPY002
    for workers in (0, 1):
        list(Loader(Augmented(8), 4, num_workers=workers))

    found = torch.rand(3), np.random.rand(3), random.random()  # noqa: NPY002
    assert same(expected, found)


def test_resume_with_other_workers():
    """A state taken with 2 workers continues with none, and the other way round."""
    straight = list(Loader(Augmented(40), 4))
    for before, after in ((2, 0), (0, 2)):
        first = Loader(Augmented(40), 4, num_workers=before)
        take(first, 3)
        second = Loader(Augmented(40), 4, num_workers=after)
        second.load_state_dict(first.state_dict())
        assert same(list(second), straight[3:])


@given(st.integers(1, 30), st.integers(1, 6), st.integers(0, 5), st.integers(1, 3))
@settings(max_examples=20)
def test_list_equals_copies_taken_one_by_one(n, batch, seed, prefetch):
    """No batch is overwritten by a later one, with the prefetch thread too."""
    data = TensorDataset(torch.arange(n * 3).reshape(n, 3), torch.arange(n))

    held = list(Loader(data, batch, seed=seed, prefetch=prefetch))
    copies = [copy.deepcopy(b) for b in Loader(data, batch, seed=seed, prefetch=0)]

    assert same(held, copies)


def test_is_a_dataloader_with_its_arguments_as_attributes():
    """isinstance, len, dataset and what was asked for."""
    data = Squares(10)
    loader = Loader(data, 4, num_workers=2, pin_memory=True, drop_last=True, prefetch_factor=3)

    assert isinstance(loader, DataLoader) and loader.dataset.source is data and len(loader) == 2
    assert (loader.batch_size, loader.num_workers, loader.pin_memory) == (4, 2, True)
    assert (loader.drop_last, loader.prefetch_factor, loader.seed, loader.shuffle) == (True, 3, 0, True)
    assert len(Loader({"a": data, "b": data}, 4).dataset) == 20
    assert isinstance(loader.sampler, torch.utils.data.DistributedSampler)
    whole = Loader(data, 4)
    flat, length = list(whole.sampler), len(whole.sampler)
    assert flat == [s.index for batch in run(whole) for s in batch] and length == 10


def test_breaking_off_starts_the_same_epoch_again():
    """As torch does; only a loaded state continues inside an epoch."""
    loader = Loader(Squares(20), 4)
    first = next(iter(loader))
    again = list(loader)

    assert same(first, again[0]) and len(again) == 5
    assert loader.epoch == 1 and loader.step == 5
    next(iter(loader))
    state = loader.state_dict()
    assert state["step"] == 6 and state["epoch"] == 1
    loader.load_state_dict(state)
    assert len(loader) == 5 and len(list(loader)) == 4
    assert loader.epoch == 2


def test_the_last_batch_moves_the_loader_on_without_stopiteration():
    """Frameworks never ask past the end; the loader is at the next epoch as soon as the last is yielded."""
    loader = Loader(Squares(8), 4)
    batches = iter(loader)
    next(batches), next(batches)

    assert (loader.epoch, loader.step) == (1, 2)
    assert same(next(iter(loader)), next(iter(Loader(Squares(8), 4)))) is False


def test_set_epoch_moves_only_to_another_epoch():
    """The framework's set_epoch after a resume does not undo it; in chunks it is ignored."""
    loader = Loader(Squares(20), 4)
    loader.set_epoch(3)
    third = list(loader)
    loader.set_epoch(3)
    assert same(list(loader), third) and loader.epoch == 4

    resumed = Loader(Squares(20), 4)
    batches = iter(resumed)
    next(batches)
    state = resumed.state_dict()
    other = Loader(Squares(20), 4)
    other.load_state_dict(state)
    other.set_epoch(0)
    assert len(list(other)) == 4
    chunked = Loader(Squares(20), 4, chunk_batches=2)
    chunked.set_epoch(7)
    assert chunked.epoch == 0


def test_chunks_come_one_after_the_other_and_cover_everything():
    """112 samples in chunks: each iteration one chunk, the last of a pass short; then the next pass."""
    loader = Loader(Squares(22), 2, chunk_batches=4)

    sizes, seen = [], []
    for _ in range(3):
        sizes.append(len(loader))
        seen += [s for batch in named(loader.with_bills()) for s in batch]

    assert sizes == [4, 4, 3] and sorted(seen) == [(0, i) for i in range(22)]
    assert loader.chunk == 3 and loader.epoch == 1 and len(loader) == 4


def test_bills_for_frameworks_that_hand_out_only_batches():
    """``last_bill`` and ``bill_at`` name the batch at hand, also the last of an epoch."""
    loader = Loader(Squares(10), 4)
    for number, batch in enumerate(loader):
        assert loader.last_bill.idx.tolist() == batch["idx"].tolist()
        assert loader.bill_at(number).batch_id == loader.last_bill.batch_id
        assert loader.bill_at(0).step == 0


def test_changing_a_batch_changes_neither_bill_nor_order():
    """What the caller writes into a batch stays in the batch, also where memory is reused."""
    loader = Loader(Columns(x=torch.arange(600_000.0).reshape(2000, 300)), 500)
    expected = [bill.idx.tolist() for bill in map(loader.plan.bill, range(4))]
    for number, (batch, bill) in enumerate(loader.with_bills()):
        assert batch["x"][:, 0].tolist() == [300.0 * i for i in bill.idx.tolist()]
        batch["idx"].zero_(), batch["x"].zero_()
        assert bill.idx.tolist() == expected[number]


def test_held_batches_are_never_overwritten():
    """Batches, views of them and their NumPy arrays keep their values while buffers are reused around them."""
    data = torch.arange(3_000_000.0).reshape(10_000, 300)
    held, copies = [], []
    for number, batch in enumerate(Loader(Columns(x=data), 1000)):
        kept = (batch["x"], batch["x"][5:7], batch["x"].numpy(), batch["x"].T)[number % 4]
        held.append(kept)
        copies.append(np.asarray(kept).copy())
        del batch, kept

    assert all(np.array_equal(np.asarray(h), c) for h, c in zip(held, copies, strict=True))


def test_peeking_takes_nothing_from_the_run():
    """Batches looked at inside ``peeking`` come again, and the tracker never hears of them."""
    said = []

    class Tracker:
        def update(self, bill):
            said.append(bill.step)

        def flush(self):
            said.append("flush")

    loader = Loader(Squares(20), 4, tracker=Tracker())
    next(iter(loader))
    state = loader.state_dict()
    loader.load_state_dict(state)
    with loader.peeking():
        next(iter(loader))
    rest = list(loader)

    assert len(rest) == 4 and said == [0, "flush", 1, 2, 3, 4]


def test_every_kind_of_source_is_read():
    """Tensors, subsets, concatenations, arrays, memory maps, lists; dicts, tuples, dataclasses, bare samples."""
    tensors = TensorDataset(torch.arange(12).reshape(6, 2), torch.arange(6))
    cases = {
        "tensor dataset": tensors,
        "subset": Subset(tensors, [5, 3, 1]),
        "subset of a map dataset": Subset(Squares(6), [5, 3, 1]),
        "concat": ConcatDataset([Squares(3), Squares(4)]),
        "tensor": torch.arange(6).reshape(3, 2),
        "array": np.arange(6).reshape(3, 2),
        "list of tuples": [(i, float(i)) for i in range(5)],
        "list of dicts": [{"x": i, "text": str(i)} for i in range(5)],
        "bare": [1.0, 2.0, 3.0],
        "columns": Columns(x=np.arange(5), y=torch.arange(5)),
    }
    for name, source in cases.items():
        expected = list(DataLoader(source if not isinstance(source, np.ndarray) else list(source), batch_size=2))
        found = list(Loader(source, 2, shuffle=False, names=False))
        assert len(found) == len(expected), name
        assert all(same(list(f) if isinstance(f, list) else f, e) for f, e in zip(found, expected, strict=True)), name


def test_dataclass_samples_keep_their_type():
    """torch's collate refuses dataclasses; ours collates their fields."""
    batch = next(iter(Loader([Pair(torch.ones(2) * i, i) for i in range(4)], 2, shuffle=False)))

    assert isinstance(batch, Pair) and batch.x.tolist() == [[0, 0], [1, 1]] and batch.y.tolist() == [0, 1]


def test_memory_maps_are_gathered(tmp_path):
    """A memory-mapped array is a source like any other."""
    np.save(tmp_path / "a.npy", np.arange(100).reshape(50, 2))
    loader = Loader(np.load(tmp_path / "a.npy", mmap_mode="r"), 8)

    assert sorted(torch.cat(list(loader))[:, 0].tolist()) == list(range(0, 100, 2))


def test_hugging_face_datasets_are_read_as_torch_reads_them():
    """``take`` of a Hugging Face dataset means something else and is not called."""
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"x": list(range(10)), "text": [str(i) for i in range(10)]})

    batches = list(Loader(data, 4, shuffle=False))

    assert batches[0]["x"].tolist() == [0, 1, 2, 3] and batches[0]["text"] == ["0", "1", "2", "3"]
    assert batches[2]["idx"].tolist() == [8, 9]


def test_a_subclass_of_a_hugging_face_dataset_is_one():
    """Its take(n) means the first n, wherever its class lives; it used to be taken for our own take(indices)."""
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"x": list(range(10))})
    data.__class__ = type("Mine", (datasets.Dataset,), {})

    assert [batch["x"].tolist() for batch in Loader(data, batch_size=5, shuffle=False)] == [
        [*range(5)],
        [*range(5, 10)],
    ]


def test_mixed_column_sources_keep_slot_order():
    """Rows of several sources stand in the order of the bill; a misfit is named."""
    a, b = (
        Columns(x=np.arange(8), s=np.array(list("abcdefgh"))),
        Columns(x=np.arange(100, 108), s=np.array(list("ABCDEFGH"))),
    )
    for batch, bill in Loader({"a": a, "b": b}, 5).with_bills():
        assert batch["x"].tolist() == [i + 100 * d for d, i in bill.samples]
        assert list(batch["s"]) == [("abcdefgh", "ABCDEFGH")[d][i] for d, i in bill.samples]

    with pytest.raises(SourceError, match=r"'a' and 'b' do not fit into one batch: .*give them the same keys"):
        list(Loader({"a": a, "b": Columns(y=np.arange(8))}, 16))


def test_names_can_be_renamed_or_left_out_and_clashes_are_refused():
    """A dataset with an ``idx`` of its own gets an error that offers the way out."""
    own = [{"idx": i, "x": i} for i in range(4)]

    with pytest.raises(SourceError, match=r"has a key 'idx' of its own.*names=\{\"idx\": \"sample_idx\"\}"):
        list(Loader(own, 2))
    renamed = next(iter(Loader(own, 2, shuffle=False, names={"idx": "sample_idx"})))
    assert renamed["sample_idx"].tolist() == [0, 1] and "dataset_idx" in renamed
    assert set(next(iter(Loader(own, 2, names=False)))) == {"idx", "x"}
    with pytest.raises(LoaderError, match="names has id: expected keys among"):
        next(iter(Loader(own, 2, names={"id": "x"})))


def test_evaluation_counts_every_sample_once_on_any_number_of_ranks():
    """21 samples on 2 and 4 ranks: every rank delivers every step, padding marked, 21 counted."""
    for world_size in (2, 4):
        counted, steps = [], set()
        for rank in range(world_size):
            batches = list(Loader(Squares(21), 3, shuffle=False, world=World(rank, world_size)))
            steps.add(len(batches))
            assert all("is_padding" in b and len(b["x"]) == 3 for b in batches)
            counted += [
                i
                for b in batches
                for i, pad in zip(b["idx"].tolist(), b["is_padding"].tolist(), strict=True)
                if not pad
            ]
        assert sorted(counted) == list(range(21)) and len(steps) == 1


def test_loss_weight_makes_the_mean_over_ranks_the_mean_over_samples():
    """Unequal shares and padding: DDP's mean of weighted means is the exact mean."""
    values = np.random.default_rng(0).random(21)
    loaders = [Loader(Columns(x=values), global_batch_size=8, world=World(r, 3)) for r in range(3)]
    for step, parts in enumerate(zip(*(ld.with_bills() for ld in loaders), strict=True)):
        means = []
        for batch, bill in parts:
            real = torch.from_numpy(bill.is_real)
            means.append(float(batch["x"][real].mean()) * bill.loss_weight if bill.num_samples else 0.0)
        bill = loaders[0].plan.bill(step)
        assert np.mean(means) == pytest.approx(values[bill.idx].mean())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_corrupt_sample_is_named(workers):
    """The error carries dataset, index, file, step and batch id, also from a worker."""
    loader = Loader({"good": Squares(5), "web": Corrupt(20, {13})}, 4, num_workers=workers, seed=2)

    with pytest.raises(
        BadSampleError, match=r"sample 13 of dataset 'web' \(part-1.bin\) could not be read for batch e0-s"
    ) as caught:
        list(loader)

    place = loader.plan.where("web", 13)[0]
    error = caught.value
    assert (error.dataset, error.index, error.file, error.step) == ("web", 13, "part-1.bin", place.step)
    assert error.batch_id == loader.plan.bill(place.step).batch_id
    assert "unexpected end of file" in str(error) and loader.step == place.step


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_bad_samples_are_skipped_or_substituted_and_reported(workers, policy):
    """The run continues; law 4: the plan plus the recorded deviations is what was delivered."""
    bad = {3, 13}
    loader = Loader({"web": Corrupt(20, bad)}, 4, num_workers=workers, on_bad_sample=policy)

    with pytest.warns(UserWarning, match="could not be read at step .* and was (skipped|substituted)"):
        delivered = list(loader.with_bills())

    assert {d.index for _, d in loader.bad_samples} == bad
    for batch, bill in delivered:
        planned = loader.plan.bill(bill.step)
        changed = {d.slot: d for d in bill.deviations}
        for slot, index in enumerate(planned.idx.tolist()):
            if slot not in changed:
                assert batch["x"][slot, 0] == index and not bill.is_padding[slot]
            elif policy == "skip":
                assert bill.is_padding[slot] and batch["is_padding"][slot] and changed[slot].index == index
            else:
                assert batch["x"][slot, 0] == changed[slot].substitute == bill.idx[slot]
        assert loader.bill_at(bill.step).digest == bill.digest
    count = sum(bill.num_samples for _, bill in delivered)
    assert count == (18 if policy == "skip" else 20)


def test_bad_samples_have_a_limit_and_policies_are_checked():
    """A dataset that is broken as a whole stops the run."""
    with (
        pytest.raises(LoaderError, match="more than 1 samples could not be read"),
        pytest.warns(UserWarning, match="skipped"),
    ):
        list(Loader(Corrupt(20, {1, 2, 3}), 4, on_bad_sample=BadSamplePolicy("skip", limit=1)))
    with pytest.raises(SourceError, match="nor can 3 others tried"):
        list(Loader(Corrupt(4, {0, 1, 2, 3}), 4, on_bad_sample="substitute"))
    with pytest.raises(LoaderError, match="on_bad_sample has 'ignore': expected one of raise, skip, substitute"):
        Loader(Squares(4), 2, on_bad_sample="ignore")
    with pytest.raises(SourceError, match="could not be put together, although each of its samples can be read alone"):
        list(Loader([torch.ones(1), torch.ones(2)], 2))


def test_states_that_do_not_belong_are_refused_with_each_difference():
    """Changed seed, length, content: named one by one, with the override."""
    old = Loader({"code": Squares(10)}, 4, seed=1)
    state = old.state_dict()

    with pytest.raises(
        ResumeError, match=r"differs in 2 places: dataset 'code' 10 -> 9 samples, seed 1 -> 2\. Samples of this epoch"
    ):
        Loader({"code": Squares(9)}, 4, seed=2).load_state_dict(state)
    Loader({"code": Squares(9)}, 4, seed=2).load_state_dict(state, Resume(changed_plan=True))

    changed = torch.arange(10.0)
    before = Loader(changed, 4, fingerprint="full").state_dict()
    Loader(changed.clone(), 4, fingerprint="full").load_state_dict(before)
    with pytest.raises(ResumeError, match="dataset 'data' content"):
        Loader(changed + 1, 4, fingerprint="full").load_state_dict(before)


def test_another_global_batch_size_is_an_event():
    """Refused by default; with the override nothing repeats and nothing is missed."""
    first = Loader(Squares(40), 4)
    head = take(first, 3)
    state = first.state_dict()
    second = Loader(Squares(40), 7)

    with pytest.raises(ResumeError, match=r"global batches of 4 samples, this loader makes 7.*Resume\(rebatch=True\)"):
        second.load_state_dict(state)
    second.load_state_dict(state, Resume(rebatch=True))
    rest = take(second, 4)
    later = second.state_dict()
    third = Loader(Squares(40), 7)
    third.load_state_dict(later)

    assert sorted(s for batch in head + rest for s in batch) == [(0, i) for i in range(40)]
    assert third.plan.bill(7).samples == second.plan.bill(7).samples and third.epoch == 1
    assert take(third, 2) == take(second, 2)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda s: {k: v for k, v in s.items() if k != "summary"}, "the state lacks summary"),
        (lambda s: {"epoch": 3}, "damaged, or another loader's"),
        (lambda s: [1], "a loader state is a dict: found list"),
        (lambda s: {**s, "version": 99}, "version 99, this Lading reads 1"),
        (lambda s: {**s, "summary": "{"}, "the state: summary: expected JSON"),
        (lambda s: {**s, "events": "[{}]"}, r"the state: events: \[0\].kind: expected one of"),
        (lambda s: {**s, "position": 3}, "the state says position 3 in epoch 0 for step 2, its plan says 8"),
    ],
)
def test_damaged_states_are_refused(damage, message):
    """A truncated or foreign state gives a clear error and leaves the loader where it was."""
    loader = Loader(Squares(20), 4)
    take(loader, 2)
    state = loader.state_dict()

    with pytest.raises(ResumeError, match=message):
        loader.load_state_dict(damage(state))
    assert loader.state_dict() == state


def test_state_is_small_flat_json():
    """Under 2 kB without weights and events, whatever the number of datasets; flat values only."""
    loader = Loader({f"a dataset with a long name {i}": Squares(3) for i in range(500)}, 4)
    state = loader.state_dict()

    assert len(json.dumps(state)) < 2000
    assert all(isinstance(v, int | str) for v in state.values())
    assert list(state) == list(Loader(Squares(3), 2).state_dict())


def test_blocked_samples_are_replaced_after_what_may_be_prefetched():
    """``block`` is an event: in the state, and honoured after a resume."""
    loader = Loader({"code": Squares(20)}, 4, mixture=Mixture(lookahead_steps=1))
    head = take(loader, 2)
    index = loader.plan.bill(3).samples[1].index
    loader.block("code", [index], reason="loss spike")
    state = loader.state_dict()
    resumed = Loader({"code": Squares(20)}, 4)
    resumed.load_state_dict(state)
    rest = take(resumed, 3)

    assert resumed.plan.events == loader.plan.events
    assert (0, index) not in [s for batch in rest for s in batch] and head == take(Loader({"code": Squares(20)}, 4), 2)
    with pytest.raises(LoaderError, match="would change steps already yielded"):
        resumed.add_event(loader.plan.events[0])


def test_world_is_frozen_at_first_use(monkeypatch):
    """Looked up when first needed; a later difference is an error."""
    loader = Loader(Squares(20), 4)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert loader.world.rank == 1 and loader.plan.global_batch_size == 8
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(WorldError, match="began as rank 1 of 2 and is now rank 1 of 4"):
        iter(loader)


@pytest.mark.parametrize(
    ("make_it", "error", "message"),
    [
        (lambda: Loader(Squares(4)), PlanError, "no batch size"),
        (lambda: Loader(Squares(4), 2, shuffle="yes"), PlanError, "shuffle is 'yes'"),
        (
            lambda: Loader((i for i in range(3)), 2),
            SourceError,
            "without __len__ or __getitem__.*TaggedIterableDataset",
        ),
        (
            lambda: Loader(Squares(4), 2, sampler=torch.utils.data.RandomSampler(range(3))),
            LoaderError,
            "RandomSampler was injected",
        ),
        (lambda: Loader(Squares(4), 2, fingerprint="all").plan, SourceError, "expected None, 'sample' or 'full'"),
        (lambda: Loader([], 2), SourceError, "dataset 'data' is empty: a list without a sample"),
    ],
)
def test_misuse_is_refused_with_a_way_out(make_it, error, message):
    """Each error says what was expected, what was found and what to do."""
    with pytest.raises(error, match=message):
        make_it()


def test_torch_arguments_work_as_people_know_them():
    """collate_fn, worker_init_fn, timeout and multiprocessing_context reach the workers; torch's checks are ours."""
    loader = Loader(
        Squares(8),
        4,
        num_workers=1,
        collate_fn=_total,
        worker_init_fn=_mark,
        timeout=600,
        multiprocessing_context="fork",
    )
    totals = list(loader)

    assert sum(totals) == sum(i + i * i for i in range(8)) + 2000
    with pytest.raises(ValueError, match="prefetch_factor"):
        Loader(Squares(8), 4, prefetch_factor=2)


_MARK = 0


def _mark(worker):
    global _MARK
    _MARK = 1000


def _total(samples):
    return _MARK + int(sum(s["x"].sum() for s in samples))


def test_an_error_in_the_prefetch_thread_reaches_the_caller():
    """Nothing hangs, the thread ends."""

    class Broken(Columns):
        def take(self, indices):
            if 7 in indices:
                raise ValueError("no row seven")
            return super().take(indices)

        def __getitem__(self, index):
            return {k: v[0] for k, v in self.take(np.array([index])).items()}

    with pytest.raises(BadSampleError, match="sample 7 of dataset 'data'"):
        list(Loader(Broken(x=np.arange(20)), 2, prefetch=2))


@pytest.mark.parametrize("persistent", [False, True])
def test_a_loader_that_is_let_go_ends_its_workers_at_once(persistent):
    """Nothing keeps it alive in a circle: shutting workers down from the garbage collector takes torch 10 seconds."""
    loader = Loader(Squares(400), 4, num_workers=2, persistent_workers=persistent)
    batches = iter(loader)
    next(batches)
    reference = weakref.ref(loader)
    gc.disable()
    try:
        del batches, loader
        assert reference() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_loader_that_has_iterated_can_be_pickled(workers, persistent):
    """The copy is where the original is, and yields the same; its sampler is a view of its own engine."""
    loader = Loader(Squares(40), 4, num_workers=workers, persistent_workers=persistent and workers > 0)
    batches = iter(loader)
    next(batches)

    twin = pickle.loads(pickle.dumps(loader))

    assert twin.state_dict() == loader.state_dict() and twin.last_bill.batch_id == loader.last_bill.batch_id
    assert list(twin.sampler) == list(loader.sampler) == list(Loader(Squares(40), 4).sampler)
    twin.load_state_dict(twin.state_dict())
    assert same(list(twin), list(batches))


def test_workers_fork_beside_a_ledger_in_every_epoch(tmp_path):
    """A ledger's thread writes while workers start again and again; batches and record are right."""
    with Ledger(tmp_path / "run") as ledger:
        loader = Loader(Squares(40), 4, num_workers=2, tracker=ledger)
        seen = [bill.samples for _ in range(3) for batch, bill in loader.with_bills() if ledger.commit(bill) is None]

    assert seen == [loader.plan.bill(step).samples for step in range(30)]
    assert open_run(tmp_path / "run").verify()


def test_arguments_come_as_in_torch():
    """By torch's name for the dataset, shuffle in third place, None as torch's default has it."""
    rows = np.arange(10)

    assert [batch.tolist() for batch in Loader(rows, 4, False)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [batch.tolist() for batch in Loader(dataset=rows, batch_size=4, shuffle=None)] == [
        batch.tolist() for batch in Loader(rows, 4)
    ]
    with pytest.raises(LoaderError, match="no dataset"):
        Loader(batch_size=4)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_nothing_to_deliver_is_length_0(num_workers):
    """As in torch: fewer samples than a batch that must be complete."""
    loader = Loader(range(10), 40, drop_last=True, num_workers=num_workers)

    assert len(loader) == len(iter(loader)) == len(list(loader)) == 0
    assert loader.batches_done == 0
    with pytest.raises(PlanError):
        loader.state_dict()


class Touchy:
    """A collate function that dislikes one sample until it is calm."""

    is_calm = False

    def __call__(self, samples):
        if 4 in samples and not self.is_calm:
            raise KeyError("four")
        return samples


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_ends_the_iteration_and_is_not_silent_afterwards(num_workers):
    """It is of the user's type; whoever asks for more hears that it is over, and a new iteration starts anew."""
    collate = Touchy()
    loader = Loader(range(8), 2, shuffle=False, collate_fn=collate, num_workers=num_workers)
    batches = iter(loader)
    first = [next(batches), next(batches)]
    with pytest.raises(KeyError) as caught:
        next(batches)
    for _ in range(2):
        with pytest.raises(LoaderError, match="ended with an error"):
            next(batches)

    assert isinstance(caught.value, SourceError) and isinstance(caught.value.__cause__, KeyError)
    collate.is_calm = True
    assert list(loader) == [*first, [4, 5], [6, 7]]
