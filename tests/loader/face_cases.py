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
from lading.errors import BadSampleError, LoaderError, ResumeError, SourceError
from lading.identity.content import content_hashes
from lading.loader.policy.mixture import SteerToShares
from lading.report.block import block
from lading.testing import assert_resumable
from lading.testing.resumable import same

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


@pytest.mark.parametrize("options", [{}, {"chunk_batches": 3}, {"weights": [1, 3]}])
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


@pytest.mark.parametrize("options", [{}, {"drop_last": True}])
def test_nothing_to_deliver_is_an_empty_iteration(face, options):
    """No sample, or fewer than a batch that must be complete."""
    loader = face({"a": Rows(3 if options else 0)}, 4, **options)

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
