"""What every loader must do, whatever its face: one suite, run on each of them.

A face is a function that makes a loader of (sources, global batch size, options). ``test_faces`` runs these cases on
torch and NumPy, ``test_faces_jax`` on JAX, which needs processes of its own.
"""

from __future__ import annotations

import io
import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest
from tests.loader.named_sources import SOURCES, by_dataset, carried, named

from lading import BadSamplePolicy, BatchTracker, Columns, Curriculum, Ledger, Mixture, NumpyLoader, Resume, open_run
from lading.errors import BadSampleError, LadingError, LoaderError, ResumeError, SourceError
from lading.identity.content import content_hashes
from lading.kits.adaptive.policy.mixture import SteerToShares
from lading.report.block import block
from lading.report.summary import summarise
from lading.testing import assert_resumable
from lading.testing.contracts import same

GOLDEN_NUMBERS = Path(__file__).parent / "golden" / "random-2.json"
WORKERS = pytest.mark.parametrize("workers", [0, 2])


class Rows:
    """Samples one by one; some cannot be read, some only the second time."""

    def __init__(self, size, bad=(), offset=0):
        self.size, self.bad, self.offset = size, frozenset(bad), offset

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index in self.bad:
            raise OSError(f"unexpected end of file at {index}")
        return {"x": np.float32(self.offset + index)}


class Flaky(Rows):
    """A sample that can be read from the second time on."""

    def __getitem__(self, index):
        if index in self.bad:
            self.bad -= {index}
            raise OSError("the network was gone")
        return super().__getitem__(index)


class Drawing(Rows):
    """Samples that draw from the global generators."""

    def __getitem__(self, index):
        return {"x": np.array([index, random.random(), np.random.rand()], np.float32)}  # noqa: NPY002


class Holes(Rows):
    """Samples of which some are None, as the usual recipe for broken files has them."""

    def __getitem__(self, index):
        return None if index in self.bad else super().__getitem__(index)


class Several(Rows):
    """Samples read several at once, some of which are left out."""

    def __getitems__(self, indices):
        return [self[index] for index in indices if index not in self.bad]


class Table(Rows):
    """Columns that end too early; a row alone is there."""

    def take(self, indices):
        return {"x": indices.astype(np.float32), "y": indices[: len(indices) - (len(indices) > 1)]}


def stacked(samples):
    """Return the batch of some samples."""
    return {"x": np.stack([sample["x"] for sample in samples])}


def without_some(samples):
    """Leave out samples, as a filter in a collate function does."""
    return stacked([sample for sample in samples if sample["x"] != 5])


def doubled(samples):
    """Return every row twice."""
    return stacked([*samples, *samples])


def anything(samples):
    """Return a batch that says of itself that its rows mean nothing."""
    return stacked(samples)


anything.rows = "any"


class EvenOnes:
    """Keeps samples of even numbers, and says which."""

    def __call__(self, samples):
        self.kept = [place for place, sample in enumerate(samples) if sample["x"] % 2 == 0]
        return stacked([samples[place] for place in self.kept])

    def rows(self, batch):
        """Return the places of the rows of a batch."""
        return self.kept


def table(size, offset=0):
    """Columns in memory."""
    return Columns(x=np.arange(offset, offset + size, dtype=np.float32))


def two():
    """Two datasets of different sizes."""
    return {"code": table(300), "prose": table(80, 1000)}


def values(batch):
    """Return the column x of a batch."""
    return np.asarray(batch["x"]).tolist()


def expected_values(bill):
    """Return what ``two`` holds at the rows of a bill."""
    return [1000 * d + i for d, i in zip(bill.dataset_idx.tolist(), bill.idx.tolist(), strict=True)]


def take(batches, count):
    """Return the next ``count`` items; the iterator stays alive."""
    return list(itertools.islice(batches, count))


def commit_all(loader, ledger):
    """Train on what a loader yields."""
    for _, bill in loader.with_bills():
        ledger.commit(bill)


def samples(loader, steps):
    """Return the samples of the next steps, over as many iterations as it takes."""
    found = []
    while len(found) < steps:
        found += [bill.samples for _, bill in take(loader.with_bills(), steps - len(found))]
    return found


@WORKERS
def test_batches_are_those_of_the_plan(face, workers):
    """Rows, names and bills; weights included; every epoch in another order."""
    loader = face(two(), 16, seed=3, weights={"code": 0.7, "prose": 0.3}, num_workers=workers)

    for batch, bill in loader.with_bills():
        assert values(batch) == expected_values(bill)
        assert np.asarray(batch["idx"]).tolist() == bill.idx.tolist()
        assert np.asarray(batch["dataset_idx"]).tolist() == bill.dataset_idx.tolist()
        assert bill.samples == loader.plan.bill(bill.step).samples
    assert loader.epoch == 1 and loader.last_bill.step == len(loader) - 1


def test_a_schedule_changes_the_shares_as_planned(face):
    """All code, then all prose."""
    loader = face(two(), 16, mixture=Mixture(schedule=[(0, [1, 0]), ("20ba", [0, 1])]))

    drawn = [bill.counts() for _, bill in loader.with_bills()]

    assert all(set(counts) == {0} for counts in drawn[:20]) and set(drawn[-1]) == {1}
    assert drawn == [loader.plan.bill(step).counts() for step in range(len(drawn))]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunk_batches": 3},
        {"weights": [1, 3]},
        {"sample_weights": {"a": np.arange(23)}},
        {"sample_weights": {"a": np.arange(23)}, "weights": [1, 3]},
    ],
)
def test_a_loader_stopped_after_any_batch_continues(face, options):
    """Law 3, at every step of two iterations."""
    assert_resumable(lambda: face({"a": table(23), "b": table(9)}, 4, seed=5, **options), rounds=2)


def test_a_loader_with_workers_continues(face):
    """Law 3, with worker processes on either side."""
    straight = list(face(Rows(20), 4))
    for before, after in ((2, 0), (0, 2)):
        first = face(Rows(20), 4, num_workers=before)
        take(iter(first), 2)
        second = face(Rows(20), 4, num_workers=after)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert same(list(second), straight[2:])


@WORKERS
def test_chunks_come_one_after_the_other(face, workers):
    """Each iteration yields one chunk; together they are a pass."""
    loader = face(Rows(22), 2, chunk_batches=4, num_workers=workers)

    chunks = [list(loader) for _ in range(3)]

    assert [len(chunk) for chunk in chunks] == [4, 4, 3] and loader.chunk == 3
    assert sorted(value for chunk in chunks for batch in chunk for value in values(batch)) == list(range(22))


@WORKERS
def test_chunks_adapt_on_every_face(face, workers):
    """Sizes and choices: the same decisions and samples with workers that read over the borders, and after a resume."""
    resize = {"policy": "grow_while_improving", "most": 6}
    for chunks in ({"size": 2, "resize": resize}, {"size": 2, "choose": "learning_value", "ahead": 1}):
        runs = []
        for number in (0, workers):
            loader, seen = face(two(), 8, chunk_batches=chunks, num_workers=number), []
            for chunk in range(6):
                if chunk == 4:
                    state, loader = loader.state_dict(), face(two(), 8, chunk_batches=chunks, num_workers=number)
                    loader.load_state_dict(json.loads(json.dumps(state)))
                for batch, bill in loader.with_bills():
                    assert values(batch) == expected_values(bill)
                    seen.append((bill.step, bill.chunk, bill.samples))
                loader.validated(3.0 - chunk if chunk != 2 else 9.0, loss=float(bill.idx.mean()))
            assert [(s, loader.plan.locate(s).chunk) for s in range(loader.plan.first_step, loader.step)] == [
                pair[:2] for pair in seen if pair[0] >= loader.plan.first_step
            ]
            runs.append(seen)
        assert runs[0] == runs[1]


@WORKERS
def test_a_curriculum_comes_easy_first(face, workers):
    """Scores by source, on every face; the state resumes inside the growth."""
    hardness = {name: np.arange(len(source)) for name, source in two().items()}
    loader = face(two(), 8, mixture=Curriculum(hardness, start=0.2, until=12), num_workers=workers)
    first = [next(it)[1] for it in [loader.with_bills()] for _ in range(5)]
    again = face(two(), 8, mixture=Curriculum(hardness, start=0.2, until=12), num_workers=workers)
    again.load_state_dict(loader.state_dict())

    rest = [bill for _, bill in again.with_bills()]

    assert [b.samples for b in first + rest] == [loader.plan.bill(s).samples for s in range(5 + len(rest))]
    assert np.mean(first[0].idx) < np.mean(rest[-1].idx)


@WORKERS
def test_a_reweighting_acts_after_what_was_prefetched(face, workers):
    """Delivered equals planned, whatever was on its way."""
    loader = face(two(), 16, mixture=Mixture([1, 1], lookahead_steps=4, epoch_samples=16 * 40), num_workers=workers)
    delivered = []

    for _, bill in loader.with_bills():
        delivered.append(bill.samples)
        if bill.step in (3, 9):
            loader.reweight([1, bill.step])

    assert delivered == [loader.plan.bill(step).samples for step in range(40)] and loader.plan.events


def test_a_policy_steers_and_is_remembered(face):
    """Its weights are events; a resumed loader decides as the first would have."""

    def make():
        policy = SteerToShares({"code": 1, "prose": 1}, every_steps=5)
        mixture = Mixture([9, 1], lookahead_steps=2, epoch_samples=16 * 60, policy=policy)
        return face(two(), 16, mixture=mixture)

    whole, first, second = make(), make(), make()
    straight = samples(whole, 60)
    head = samples(first, 33)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))

    assert head + samples(second, 27) == straight
    assert np.mean([s.dataset for step in straight[30:] for s in step]) > 0.4


@WORKERS
def test_blocked_samples_are_replaced_after_what_was_prefetched(face, workers):
    """In the middle of an iteration: what was delivered is what the plan, with the event, says."""
    loader = face({"code": Rows(400)}, 4, num_workers=workers)
    batches = loader.with_bills()
    head = take(batches, 3)
    soon, late = (loader.plan.bill(step).samples[1].index for step in (5, 90))

    loader.block("code", [soon, late], reason="spike")
    delivered = [bill.samples for _, bill in [*head, *batches]]

    assert delivered == [loader.plan.bill(step).samples for step in range(100)]
    assert (0, soon) in delivered[5] and (0, late) not in delivered[90]


def test_samples_blocked_before_an_iteration_are_replaced_in_it(face):
    """Nothing was prefetched, so nothing has to be waited for; the state carries the event."""
    loader = face({"code": Rows(40)}, 4)
    first = loader.plan.bill(0).samples[0].index
    loader.block("code", [first])
    resumed = face({"code": Rows(40)}, 4)
    resumed.load_state_dict(loader.state_dict())

    assert (0, first) not in [s for step in samples(loader, 10) for s in step]
    assert (0, first) not in [s for step in samples(resumed, 10) for s in step]


def test_samples_blocked_by_command_are_replaced_from_the_next_attempt_on(face, tmp_path):
    """``lading block`` writes to the run; the next loader that records there honours it."""
    with Ledger(tmp_path) as ledger:
        first = face({"code": Rows(40)}, 4, tracker=ledger)
        for _, bill in take(first.with_bills(), 3):
            ledger.commit(bill)
        state = first.state_dict()
    index = first.plan.bill(5).samples[2].index
    block(open_run(tmp_path), [f"code:{index}"])

    with Ledger(tmp_path) as ledger:
        second = face({"code": Rows(40)}, 4, tracker=ledger)
        second.load_state_dict(state)
        rest = [bill.samples for _, bill in second.with_bills() if ledger.commit(bill) is None]

    assert (0, index) not in [s for step in rest for s in step] and len(rest) == 7
    assert open_run(tmp_path).verify()


@WORKERS
def test_a_bad_sample_is_named(face, workers):
    """Dataset, index, step and batch id, also from a worker; the loader stays before that step."""
    loader = face({"good": Rows(5), "web": Rows(20, bad={13})}, 4, seed=2, num_workers=workers)

    with pytest.raises(BadSampleError, match="sample 13 of dataset 'web' could not be read for batch e0-s") as caught:
        list(loader)

    place = loader.plan.where("web", 13)[0]
    assert (caught.value.dataset, caught.value.index, caught.value.step) == ("web", 13, place.step)
    assert loader.step == place.step


@WORKERS
@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_bad_samples_are_skipped_or_substituted(face, policy, workers, tmp_path):
    """Law 4: the plan plus the recorded deviations is what was delivered; the ledger verifies."""
    bad = {3, 13}
    ledger = Ledger(tmp_path)
    loader = face({"web": Rows(20, bad)}, 4, on_bad_sample=policy, num_workers=workers, tracker=ledger)

    with pytest.warns(UserWarning, match="could not be read at step .* and was (skipped|substituted)"):
        delivered = [(batch, bill) for batch, bill in loader.with_bills() if ledger.commit(bill) is None]
    ledger.close()

    assert {d.index for _, d in loader.bad_samples} == bad
    for batch, bill in delivered:
        real = bill.is_real
        assert np.asarray(batch["x"])[real].tolist() == bill.idx[real].tolist() and not bad & set(bill.idx[real])
        if policy == "skip":
            assert np.asarray(batch["is_padding"]).tolist() == bill.is_padding.tolist()
    assert sum(bill.num_samples for _, bill in delivered) == (18 if policy == "skip" else 20)
    assert open_run(tmp_path).verify()


def test_a_substitute_is_not_blocked_and_padding_is_no_deviation(face, tmp_path):
    """Pairs of policies: a blocked sample is no substitute, and a bad row that only fills up is no event."""
    loader = face({"web": Rows(6, bad={2})}, 4, shuffle=False, on_bad_sample="substitute", pad=True)
    candidates = [s for s in range(6) if s != 2]
    blocked = candidates[:3]
    loader.block("web", blocked)

    with pytest.warns(UserWarning, match="substituted"):
        delivered = list(loader.with_bills())

    for batch, bill in delivered:
        assert not {2, *blocked} & set(np.asarray(batch["idx"]).tolist())
        assert all(d.slot < bill.global_size for d in bill.deviations)
        # A substitute of a blocked sample may be the bad one, which then is replaced in the same slot.
        assert len({(d.slot, d.index) for d in bill.deviations}) == len(bill.deviations)


def test_bad_samples_have_a_limit(face):
    """A dataset that is broken as a whole stops the run."""
    loader = face(Rows(20, bad={1, 2, 3}), 4, on_bad_sample=BadSamplePolicy("skip", limit=1))

    with (
        pytest.raises(LoaderError, match="more than 1 samples could not be read"),
        pytest.warns(UserWarning, match="skipped"),
    ):
        list(loader)


def test_a_read_error_that_does_not_come_again_is_no_bad_sample(face):
    """Under skip and substitute the batch is read again; under raise the error says what happened."""
    delivered = list(face(Flaky(8, bad={5}), 4, on_bad_sample="skip").with_bills())

    assert not any(bill.deviations for _, bill in delivered)
    assert sorted(v for batch, _ in delivered for v in values(batch)) == list(range(8))
    with pytest.raises(SourceError, match=r"could not be read: OSError: the network was gone\. Each of its samples"):
        list(face(Flaky(8, bad={5}), 4))


@WORKERS
def test_content_is_recorded(face, workers, tmp_path):
    """``record="content"`` keeps a hash of each row, the same for every face."""
    with Ledger(tmp_path, record="content") as ledger:
        loader = face({"data": table(18)}, 4, pad=True, tracker=ledger, num_workers=workers)
        for _, bill in loader.with_bills():
            ledger.commit(bill)
    run = open_run(tmp_path)

    expected = content_hashes({"x": np.arange(18, dtype=np.float32)}, 18).view(np.int64)
    for step in range(len(loader)):
        assert run.content_of(step) == dict(enumerate(expected[loader.plan.bill(step).idx].tolist()))


@pytest.mark.parametrize("make", SOURCES)
@WORKERS
def test_the_names_that_count_are_those_of_the_batch(face, make, workers, tmp_path):
    """Tagged and concatenated datasets: batch, bill, tracker and ledger name the same samples."""
    tracker, ledger = BatchTracker(), Ledger(tmp_path)
    loader = face(make(), 3, tracker=[tracker, ledger], num_workers=workers)
    seen = []

    for batch, bill in loader.with_bills():
        assert [s for s, real in zip(carried(batch), bill.is_real, strict=True) if real] == named(batch) == bill.samples
        seen += named(batch)
        ledger.commit(bill)
    ledger.close()

    assert tracker.samples_idx_per_dataset == by_dataset(seen)
    assert open_run(tmp_path).verify().holds


def test_the_last_batch_is_padded(face):
    """Rows that fill up are marked, repeat a row and count nowhere."""
    loader = face(table(10), 4, shuffle=False, pad=True)

    *_, (batch, bill) = loader.with_bills()

    assert values(batch) == [8, 9, 8, 9] or values(batch)[:2] == [8, 9]
    assert len(values(batch)) == 4 and np.asarray(batch["is_padding"]).tolist() == [False, False, True, True]
    assert bill.num_samples == 2


def test_drop_last_drops_the_incomplete_global_batch(face):
    """And only that."""
    assert len(list(face(table(10), 4, drop_last=True))) == 2


def test_peeking_takes_nothing_from_the_run(face):
    """Batches that were looked at come again, and the tracker is not notified."""
    tracker = BatchTracker()
    loader = face(table(20), 4, tracker=tracker)
    training = iter(loader)
    next(training)
    with loader.peeking():
        next(iter(loader))

    assert tracker.n_samples_per_dataset == {0: 4} and loader.step == 1
    assert len(list(training)) == 4 and loader.step == 5


def test_prefetching_draws_nothing_from_the_generators_of_training(face):
    """Code that may draw never runs in a thread: the loop's own numbers, and the batches, are those of prefetch=0."""

    def run(prefetch):
        random.seed(1), np.random.seed(1)  # noqa: NPY002
        drawn, batches = [], []
        for batch in face(Drawing(80), 4, prefetch=prefetch):
            drawn.append((random.random(), float(np.random.rand())))  # noqa: NPY002
            batches.append(values(batch))
        return drawn, batches

    assert run(2) == run(0)


class Normals(Rows):
    """Samples of normal numbers, which Python and NumPy draw in pairs and keep one of."""

    def __getitem__(self, index):
        drawn = random.random(), random.gauss(0, 1), np.random.rand(), np.random.normal()  # noqa: NPY002
        return {"x": np.array([index, *drawn], np.float32)}


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_random_numbers_are_those_of_the_golden_file(face, workers):
    """Two epochs with any number of workers, resumed with another: each batch has the numbers it had in version 2."""

    def make(num_workers):
        return face(Normals(6), 2, seed=3, shuffle=False, num_workers=num_workers)

    first, second = make(workers), make(2 - workers)
    head = take(iter(first), 2)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    found = [values(batch) for batch in [*head, *second, *second]]

    assert found == json.loads(GOLDEN_NUMBERS.read_text())["batches"]


@WORKERS
def test_training_draws_its_own_normals_between_batches(face, workers):
    """A normal that waits after a pair was drawn is there after the batch, Python's and NumPy's."""

    def drawn(batches):
        random.seed(1), np.random.seed(1)  # noqa: NPY002
        return [(random.gauss(0, 1), float(np.random.normal())) for _ in batches]  # noqa: NPY002

    assert drawn(face(Normals(22), 2, num_workers=workers)) == drawn(range(11))


class Around(Rows):
    """Samples that look into a loader inside, and then draw."""

    def __init__(self, size, inside):
        super().__init__(size)
        self.inside = inside

    def __getitem__(self, index):
        before = random.random()
        first = next(iter(self.inside))["x"][0]
        return {"x": np.array([before, *np.asarray(first), random.random(), np.random.rand()], np.float32)}  # noqa: NPY002


def test_a_loader_inside_a_dataset_has_numbers_of_its_own(face):
    """In this process and in a worker: those around it go on where they were."""
    none, one = (
        [values(batch) for batch in face(Around(4, NumpyLoader(Normals(4), 2)), 2, num_workers=n)] for n in (0, 1)
    )

    assert none == one and len({row[1] for batch in none for row in batch}) == 1


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_prefetching_changes_nothing(face, prefetch):
    """Batches that are held keep their values; the state speaks of batches yielded."""
    loader = face(two(), 8, prefetch=prefetch)
    batches = iter(loader)

    held = take(batches, 5)

    assert loader.step == 5 and loader.state_dict()["step"] == 5
    assert same([*held, *batches], list(face(two(), 8, prefetch=0)))


@WORKERS
@pytest.mark.parametrize("persistent", [False, True])
def test_two_live_iterators_never_exchange_bills(face, workers, persistent):
    """A batch and its bill travel together, or the older iterator is ended with a sentence."""
    loader = face(Rows(40), 4, num_workers=workers, persistent_workers=persistent and workers > 0)
    older = loader.with_bills()
    take(older, 2)

    newer = loader.with_bills()
    pairs = take(newer, 2)
    if persistent and workers:
        with pytest.raises(LoaderError, match="a newer iteration over this loader took its worker processes"):
            next(older)
    else:
        pairs += take(older, 2)
    pairs += take(newer, 2)

    assert len(pairs) >= 4 and all(values(batch) == bill.idx.tolist() for batch, bill in pairs)
    assert loader.step == 4, "only the newest moves the loader"


def test_a_state_before_pending_batches_repeats_them(face):
    """A checkpoint inside a gradient accumulation: the state before its first batch."""
    loader = face(two(), 8, mixture=Mixture([1, 1], lookahead_steps=1))
    batches = loader.with_bills()
    bills = [bill for _, bill in take(batches, 5)]
    loader.reweight([0, 1])
    state = loader.state_dict(before=bills[3])

    resumed = face(two(), 8, mixture=Mixture([1, 1], lookahead_steps=1))
    resumed.load_state_dict(state)

    assert [bill.samples for _, bill in take(resumed.with_bills(), 2)] == [bill.samples for bill in bills[3:]]
    assert resumed.plan.events == ()
    with pytest.raises(LoaderError, match="is no batch that this loader yielded"):
        resumed.state_dict(before=loader.plan.bill(30))


def test_a_changed_batch_size_is_refused_or_an_event(face):
    """On the constructor or on the call, by the same object."""
    first = face(table(40), 4)
    head = samples(first, 3)
    state = first.state_dict()

    with pytest.raises(ResumeError, match=r"global batches of 4 samples, this loader makes 8.*Resume\(rebatch=True\)"):
        face(table(40), 8).load_state_dict(state)
    second = face(table(40), 8, on_resume=Resume(rebatch=True))
    second.load_state_dict(state)
    rest = samples(second, 4)
    third = face(table(40), 8)
    third.load_state_dict(state, Resume(rebatch=True))

    assert sorted(s for batch in head + rest for s in batch) == [(0, i) for i in range(40)]
    assert samples(third, 4) == rest


@pytest.mark.parametrize("options", [{}, {"chunk_batches": 4}])
def test_progress_bars_end_at_the_end(face, options):
    """``len`` is that of the whole epoch or chunk; after a resume ``batches_done`` is where tqdm and rich begin."""
    tqdm, rich = pytest.importorskip("tqdm").tqdm, pytest.importorskip("rich.progress")
    first, loader = (face(table(23), 2, **options) for _ in range(2))
    take(first.with_bills(), 3)
    loader.load_state_dict(first.state_dict())
    whole = len(loader)

    bar = tqdm(loader.with_bills(), initial=loader.batches_done, file=io.StringIO())
    ran = [bill.step for _, bill in bar]

    assert len(loader.with_bills()) == len(loader) and whole == (4 if options else 12)
    assert ran == list(range(3, whole))
    assert (bar.n, bar.total) == (whole, whole)

    first, loader = (face(table(23), 2, **options) for _ in range(2))
    take(first.with_bills(), 3)
    loader.load_state_dict(first.state_dict())
    assert loader.batches_done == 3
    with rich.Progress(console=rich.Console(file=io.StringIO())) as progress:
        # Not progress.track(completed=...): in rich 15 its thread forgets where it began.
        task = progress.add_task("epoch", total=len(loader), completed=loader.batches_done)
        for _ in loader.with_bills():
            progress.advance(task)
    assert progress.tasks[0].percentage == 100
    assert loader.batches_done == 0  # the next epoch or chunk


def test_batches_done_counts_while_iterating_and_starts_again_after_a_break(face):
    """As the loader does: what is broken off is iterated from its start."""
    loader = face(table(10), 2)
    done = []
    for _ in loader:
        done.append(loader.batches_done)
        if len(done) == 3:
            break

    assert done == [1, 2, 3]
    assert len(list(loader)) == 5
    assert loader.batches_done == 0


def test_nothing_to_deliver_is_an_empty_iteration(face):
    """Fewer samples than a batch that must be complete."""
    loader = face({"a": Rows(3)}, 4, drop_last=True)

    assert len(loader) == len(list(loader)) == loader.batches_done == 0


@WORKERS
def test_a_failed_iteration_says_that_it_ended(face, workers):
    """With and without workers: neither silence nor the next batch; a new iteration starts the epoch anew."""
    loader = face({"a": Rows(8, bad=[5])}, 2, shuffle=False, num_workers=workers)
    batches = iter(loader)
    next(batches), next(batches)
    with pytest.raises(OSError, match="unexpected end of file at 5"):
        next(batches)

    for _ in range(2):
        with pytest.raises(LoaderError, match="ended with an error: BadSampleError"):
            next(batches)
    assert next(iter(loader))["idx"].tolist() == [0, 1]


@WORKERS
def test_samples_blocked_from_the_beginning_never_come(face, workers):
    """The bills are the plan's, no batch holds them, and a bad sample is not replaced by one."""
    blocked = {"code": [3, 9, 250], "prose": [0]}
    loader = face(two(), 20, blocked=blocked, num_workers=workers)

    seen = []
    for batch, bill in loader.with_bills():
        assert values(batch) == expected_values(bill)
        assert bill.samples == loader.plan.bill(bill.step).samples
        seen += bill.samples

    assert not {(0, 3), (0, 9), (0, 250), (1, 0)} & set(seen) and len(seen) == 380
    assert loader.blocked == blocked and loader.plan.fingerprint != face(two(), 20).plan.fingerprint


@pytest.mark.parametrize("kind", [{}, {"num_workers": 2}, {"num_workers": 2, "workers": "threads"}])
@pytest.mark.parametrize("collate", [without_some, doubled])
def test_a_batch_that_is_not_its_bill_is_refused(face, kind, collate, tmp_path):
    """Rows left out or doubled by a collate function: an error at that batch, and no book says that it was used."""
    source = Rows(12)
    source.random_free = collate.random_free = True  # threads want it
    ledger = Ledger(tmp_path)
    loader = face({"web": source}, 4, shuffle=False, collate_fn=collate, tracker=ledger, **kind)

    with pytest.raises(
        SourceError, match=r"batch e0-s\d+-\w+ of step \d was made of 4 samples, and nothing in it has so"
    ):
        commit_all(loader, ledger)
    ledger.close()

    assert loader.step == (1 if collate is without_some else 0)


@WORKERS
@pytest.mark.parametrize("policy", ["raise", "skip", "substitute"])
@pytest.mark.parametrize("source", [Holes, Several])
def test_a_sample_that_is_none_or_left_out_is_a_bad_sample(face, workers, policy, source, tmp_path):
    """Before any collate function sees it, by the policy; the books know."""
    ledger = Ledger(tmp_path)
    data = {"web": source(12, bad={5})}
    options = {"collate_fn": without_some, "on_bad_sample": policy, "num_workers": workers, "tracker": ledger}
    loader = face(data, 4, shuffle=False, **options)

    if policy == "raise":
        with pytest.raises(BadSampleError, match="sample 5 of dataset 'web' could not be read"):
            list(loader)
        ledger.close()
        return
    with pytest.warns(UserWarning, match="sample 5 of dataset 'web' could not be read"):
        delivered = [(values(batch), bill) for batch, bill in loader.with_bills() if ledger.commit(bill) is None]
    ledger.close()

    assert all(found == bill.idx.tolist() and 5 not in bill.idx for found, bill in delivered)
    assert sum(bill.num_samples for _, bill in delivered) == (11 if policy == "skip" else 12)
    assert open_run(tmp_path).verify() and len(open_run(tmp_path).bad()) == 1


@WORKERS
def test_columns_with_too_few_rows_are_refused(face, workers):
    """Each column of ``take()`` is counted; nothing is said of a bad sample, since each can be read alone."""
    with pytest.raises(SourceError, match=r"a Table gave 3 rows of 'y' where 4 were asked for \(take\)"):
        list(face({"web": Table(12)}, 4, num_workers=workers))


@WORKERS
def test_rows_that_are_not_counted_are_noted_once(face, workers, tmp_path):
    """In each attempt, however many epochs it has; ``show`` and ``verify`` repeat it."""
    state = None
    for _ in range(2):
        with Ledger(tmp_path) as ledger:
            loader = face({"web": Rows(12)}, 4, collate_fn=anything, num_workers=workers, tracker=ledger)
            if state is not None:
                loader.load_state_dict(state)
            commit_all(loader, ledger)
            commit_all(loader, ledger)
            state = loader.state_dict()
    run = open_run(tmp_path)
    text = "the rows of batches are not counted: anything makes what cannot be (rows='any')"

    assert [remark.message for remark in run.verify().findings] == [f"attempt 0: {text}", f"attempt 1: {text}"]
    assert summarise(run).facts["noted"] == f"attempt 0: {text}; attempt 1: {text}"


@WORKERS
def test_what_a_collate_function_left_out_is_booked_by_name(leaving_face, workers, tmp_path):
    """Batch, bill, ledger, ``step``, ``where`` and ``bad`` agree; it is no bad sample, and has no limit."""
    tracker, ledger = BatchTracker(), Ledger(tmp_path)
    loader = leaving_face(
        {"web": Rows(300)}, 60, collate_fn=EvenOnes(), num_workers=workers, tracker=[tracker, ledger], seed=3
    )

    seen = []
    for batch, bill in loader.with_bills():
        assert values(batch) == bill.idx.tolist() == np.asarray(batch["idx"]).tolist()
        seen += values(batch)
        ledger.commit(bill)
    ledger.close()
    run = open_run(tmp_path)

    assert sorted(seen) == list(range(0, 300, 2)) == sorted(tracker.samples_idx_per_dataset[0])
    assert run.verify().holds and len(run.bad()) == 150 and not loader.bad_samples
    assert [row["note"] for row in run.where("web", 7).dicts()] == ["left out (by the collate function)"]
    assert sum(bool(row["note"]) for row in run.step(0).samples.dicts()) == 60 - len(loader.bill_at(0))


WRONG = [
    ({"weights": [1, -1]}, "a weight is -1: expected a finite number, 0 or above"),
    ({"weights": [1, float("nan")]}, "a weight is nan: expected a finite number"),
    ({"weights": [0, 0]}, "all weights are zero: nothing would ever be drawn"),
    ({"weights": {"code": "much", "prose": 1}}, "a weight is 'much': expected a finite number"),
    ({"weights": "ab"}, "weights"),
    ({"weights": {"code": 1, "talk": 1}}, "talk"),
    ({"mixture": Mixture(schedule="soon")}, "is no point of a schedule: expected a pair"),
    ({"mixture": Mixture(schedule=[(0, [-1, 1])])}, "a weight is -1"),
    ({"mixture": Mixture([1, 1], stopping="never")}, "stopping='never': expected one of restart"),
    ({"mixture": 3}, "expected"),
    ({"fingerprint": "all"}, "fingerprint is 'all': expected None, 'sample' or 'full'"),
    ({"fingerprint": True}, "fingerprint is True: expected None"),
    ({"seed": -1}, r"seed is -1: expected an integer from 0 to 2\*\*64 - 1"),
    ({"seed": 1 << 64}, r"seed is 18446744073709551616: expected an integer from 0 to 2\*\*64 - 1"),
    ({"seed": 1.5}, "seed is 1.5: expected an integer"),
    ({"on_resume": True}, r"on_resume is True: expected lading.Resume\(...\)"),
    (
        {"tracker": "runs/7"},
        r"tracker is 'runs/7': expected a ledger, not its folder, because you commit to it. Pass tracker=lading.Ledger",
    ),
    ({"tracker": 3}, r"tracker is 3: expected anything with update\(bill\) and flush\(\)"),
    ({"tracker": [Path("runs")]}, "tracker is 'runs': expected a ledger"),
    ({"shuffle": "some"}, "shuffle is 'some': expected True, False or 'window'"),
    ({"window_samples": 0}, "window_samples is 0: expected an integer of at least 1"),
    ({"chunk_batches": 0}, "chunk"),
    ({"blocked": {"talk": [1]}}, "no dataset 'talk' in the plan"),
    ({"blocked": {"code": [999]}}, "dataset 'code' has no sample 999"),
    ({"blocked": {"code": [1.5]}}, "expected the indices of samples, integers"),
    ({"blocked": [1]}, "expected indices by the name of their dataset"),
    ({"names": {"number": "x"}}, "names has number: expected keys among idx"),
    ({"names": "idx"}, "names is 'idx': expected a dict of different texts"),
    ({"names": {"idx": "a", "dataset_idx": "a"}}, "expected a dict of different texts"),
    ({"on_bad_sample": "ignore"}, "on_bad_sample has 'ignore': expected one of raise, skip, substitute"),
    ({"on_bad_sample": {"talk": "skip"}}, "on_bad_sample has 'talk'"),
    ({"prefetch": -1}, "prefetch is -1: expected an integer of at least 0"),
    ({"prefetch": 1.5}, "prefetch is 1.5: expected an integer"),
    ({"workers": "some"}, "workers is 'some': expected 'processes' or 'threads'"),
    ({"num_workers": -1}, "num_workers is -1: expected an integer of at least 0"),
    ({"num_workers": "2"}, "num_workers is '2': expected an integer"),
    ({"num_workers": 1, "prefetch_factor": 0}, "prefetch_factor is 0: expected an integer of at least 1"),
    ({"prefetch_factor": 2}, "prefetch_factor=2 is about workers, and there are none"),
    ({"persistent_workers": True}, "persistent_workers=True is about workers, and there are none"),
    ({"persistent_workers": "yes"}, "persistent_workers is 'yes': expected True or False"),
    ({"timeout": -1}, "timeout is -1: expected seconds, 0 or more"),
    ({"timeout": "1s"}, "timeout is '1s': expected seconds"),
    ({"num_workers": 1, "multiprocessing_context": "thread"}, "multiprocessing_context is 'thread': expected one of"),
    ({"worker_init_fn": 3}, "worker_init_fn is 3: expected a function"),
    ({"collate_fn": "stack"}, "collate_fn is 'stack': expected a function"),
    ({"drop_last": "yes"}, "drop_last is 'yes': expected True or False"),
    ({"unknown": 1}, "has no option 'unknown'"),
]


@pytest.mark.parametrize(("options", "text"), WRONG, ids=[str(options)[:60] for options, _ in WRONG])
def test_a_wrong_argument_is_refused_when_the_loader_is_made(face, options, text):
    """Every face, in the user's words, before anything is read."""
    with pytest.raises(LadingError, match=text):
        face(two(), 4, **options)


@pytest.mark.parametrize("size", [0, -1, 2.5, "4", True])
def test_a_wrong_batch_size_is_refused(face, size):
    """An integer of at least 1."""
    with pytest.raises(LadingError, match=f"batch_size is {size!r}: expected an integer of at least 1"):
        face(two(), size)


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        (
            "train.bin",
            "dataset 'data' is 'train.bin', a str: expected the dataset itself. Open it first: lading.Windows",
        ),
        ({"web": "train.bin"}, "dataset 'web' is 'train.bin', a str"),
        (Path("train.bin"), "dataset 'data' is 'train.bin', a PosixPath: expected the dataset itself"),
        ([], "dataset 'data' is empty: a list without a sample"),
        ({"a": Rows(5), "b": Rows(0)}, "dataset 'b' is empty: a Rows without a sample"),
        ({}, "sources is empty: expected a dataset"),
        (
            {"x": np.zeros((6, 3), np.float32), "y": np.zeros(6, np.int64)},
            r"'x' and 'y' do not fit into one batch: float32 rows of shape \(3,\) and int64 rows of shape \(\). If "
            r"they are columns of one dataset, pass lading.Columns\(x=x, y=y\)",
        ),
        ({"a": table(5), "b": np.zeros(5, np.float32)}, "'a' and 'b' do not fit into one batch"),
    ],
    ids=["text", "named text", "path", "empty", "one of them empty", "nothing", "columns", "other keys"],
)
def test_what_is_no_source_is_refused(face, sources, text):
    """Instead of training on characters, on nothing, or on rows of x and y mixed."""
    with pytest.raises(SourceError, match=text):
        face(sources, 2)


@WORKERS
@pytest.mark.parametrize("seed", range(4))
def test_samples_of_other_keys_are_refused_by_the_first_batch_that_mixes_them(face, workers, seed):
    """Nothing is read when a loader is made; a key would be lost or not by which sample comes first in a batch."""
    sources = {"a": [{"x": 1.0}] * 6, "b": [{"x": 1.0, "y": 2.0}] * 6}

    with pytest.raises(SourceError, match=r"'[ab]' and '[ab]' do not fit into one batch: keys x(, y)? and keys x"):
        list(face(sources, 12, seed=seed, num_workers=workers))


def test_arrays_that_may_be_columns_are_warned_of(face):
    """Two datasets are legal; with weights, or of other lengths, they can be nothing else."""
    arrays = {"a": np.zeros(6), "b": np.ones(6)}

    with pytest.warns(UserWarning, match=r"taken for a dataset whose rows are samples.*lading.Columns\(a=a, b=b\)"):
        loader = face(arrays, 2)
    assert sum(bill.num_samples for _, bill in loader.with_bills()) == 12
    face(arrays, 2, weights=[1, 1])
    face({"a": np.zeros(6), "b": np.ones(4)}, 2)


def test_wrong_arguments_of_methods_are_refused(face):
    """A resume that is none, and samples whose names are no integers."""
    loader = face(two(), 4)

    with pytest.raises(LadingError, match=r"on_resume is True: expected lading.Resume"):
        loader.load_state_dict(loader.state_dict(), True)
    with pytest.raises(LadingError, match="expected their indices, integers"):
        loader.block("code", [1.5])
    with pytest.raises(LadingError, match=r"1.5 is no index of dataset 'code': expected an integer"):
        loader.plan.where("code", 1.5)
