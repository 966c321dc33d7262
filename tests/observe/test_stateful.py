"""Come from torchdata's StatefulDataLoader. Its states are written here by its documented keys; where torchdata is
installed (``make bench`` does it), its own are used, too."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, TensorDataset

from lading import Loader, open_run, track
from lading.errors import ResumeError
from lading.observe import import_stateful

DATA = TensorDataset(torch.arange(50))


def plain(*, shuffle):
    """Return a DataLoader with the sampler that StatefulDataLoader makes for itself."""
    generator = torch.Generator().manual_seed(1)
    sampler = RandomSampler(DATA, generator=generator) if shuffle else SequentialSampler(DATA)
    return DataLoader(DATA, batch_size=8, sampler=sampler)


def written(batches, *, shuffle, workers=False, finished=False, epoch=0):
    """Return the state that torchdata writes after so many batches of an epoch, by its keys."""
    sampler = plain(shuffle=shuffle).sampler
    for _ in range(epoch):
        list(sampler)
    inner = {"sampler_iter_state": {"generator": sampler.generator.get_state(), "yielded": 0}} if shuffle else {}
    main = {
        "_sampler_iter_state": {"samples_yielded": min(batches * 8, 50), **inner},
        "_index_sampler_state": None,
        "_sampler_iter_yielded": batches,
        "_IterableDataset_len_called": None,
        "_shared_seed": None,
    }
    if not workers:
        own = {"fetcher_state": None, "dataset_state": None, "_num_yielded": batches}
        return {**main, **own, "_iterator_finished": finished}
    main["_sampler_iter_state"]["samples_yielded"] = 50  # prefetched
    worker = {"worker_id": 0, "fetcher_state": None, "dataset_state": None}
    snapshot = {
        "_snapshot_step": batches - batches % 2,
        "_last_yielded_worker_id": 0,
        "_main_snapshot": {**main, "_num_workers": 1, "_base_seed": 3},
        "_worker_snapshots": {"worker_0": worker},
    }
    return {"_snapshot": snapshot, "_steps_since_snapshot": batches % 2, "_iterator_finished": finished}


STATES = pytest.mark.parametrize("state_of", [written])


def values(batches):
    """Return the samples of batches."""
    return [x.tolist() for (x,) in batches]


@STATES
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("workers", [False, True])
@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("batches", [0, 3, 6])
def test_a_tracked_loader_continues_in_the_old_order(state_of, shuffle, workers, epoch, batches, tmp_path):
    """What is left of the epoch, and the epoch after it, are those of the old loader; the books begin there."""
    old = plain(shuffle=shuffle)
    epochs = [values(old) for _ in range(3)]
    loader = track(plain(shuffle=shuffle), run=tmp_path / "run")

    import_stateful(state_of(batches, shuffle=shuffle, workers=workers, epoch=epoch), loader, epoch=epoch)

    assert values(loader) == epochs[epoch][batches:]
    assert values(loader) == epochs[epoch + 1]
    loader.close()
    run = open_run(tmp_path / "run")
    assert run.history["step"] == list(range(7 * epoch + batches, 7 * epoch + 14))
    assert run.verify().holds


@STATES
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_finished_epoch_is_followed_by_the_next(state_of, shuffle):
    """Whether the end was asked for or not."""
    old = plain(shuffle=shuffle)
    epochs = [values(old) for _ in range(2)]
    loader = track(plain(shuffle=shuffle))

    import_stateful(state_of(7, shuffle=shuffle, finished=True), loader)

    assert loader.epoch == 1
    assert values(loader) == epochs[1]


@STATES
@pytest.mark.parametrize("workers", [False, True])
def test_a_loader_takes_over_where_data_is_read_in_sequence(state_of, workers):
    """The same batches; shuffled, only at an epoch's end."""
    loader = Loader(DATA, batch_size=8, shuffle=False)

    import_stateful(state_of(3, shuffle=False, workers=workers), loader, epoch=2)

    assert (loader.step, loader.epoch) == (17, 2)
    assert values(loader) == values(plain(shuffle=False))[3:]
    shuffled = Loader(DATA, batch_size=8)
    import_stateful(state_of(7, shuffle=True, workers=workers, finished=True), shuffled)
    assert (shuffled.step, shuffled.epoch) == (7, 1)
    with pytest.raises(ResumeError, match=r"in another order .* track"):
        import_stateful(state_of(3, shuffle=True, workers=workers), Loader(DATA, batch_size=8))


def changed(state, **changes):
    """Return a state with other values; None stands for a key that is missing."""
    return {key: value for key, value in {**state, **changes}.items() if value != "missing"}


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (None, "expected an object"),
        ({}, "_iterator_finished: expected true or false, found nothing"),
        ({"step": 3, "version": 1}, "_iterator_finished"),
        (changed(written(3, shuffle=False), _num_yielded="missing"), "_num_yielded: expected"),
        (changed(written(3, shuffle=False), _num_yielded=-1), "_num_yielded"),
        (changed(written(3, shuffle=False), _num_yielded=99), "after 99 batches"),
        (changed(written(3, shuffle=False), _num_yielded=2), "24 samples"),
        (changed(written(3, shuffle=False), fetcher_state={"fetcher_ended": False}), "IterableDataset"),
        (changed(written(3, shuffle=False), dataset_state={"at": 3}), "dataset itself"),
        (changed(written(3, shuffle=False), _sampler_iter_state=[1]), "_sampler_iter_state"),
        ({"_snapshot": {}, "_iterator_finished": False}, "_worker_snapshots"),
    ],
)
@pytest.mark.parametrize(
    "make", [lambda: track(plain(shuffle=False)), lambda: Loader(DATA, batch_size=8, shuffle=False)]
)
def test_a_wrong_state_is_refused(state, words, make):
    """By name, and the loader stays where it was."""
    loader = make()

    with pytest.raises(ResumeError, match=words):
        import_stateful(state, loader)
    assert loader.step == 0


def test_a_generator_that_is_none_and_samplers_that_cannot_draw_again_are_refused():
    """A damaged generator; a sampler without one; another kind of sampler."""
    state = written(3, shuffle=True)
    state["_sampler_iter_state"]["sampler_iter_state"]["generator"] = torch.zeros(7, dtype=torch.uint8)
    with pytest.raises(ResumeError, match="generator is damaged"):
        import_stateful(state, track(plain(shuffle=True)))
    state["_sampler_iter_state"]["sampler_iter_state"]["generator"] = "seed 1"
    with pytest.raises(ResumeError, match=r"torch\.Generator"):
        import_stateful(state, track(plain(shuffle=True)))
    for loader in (DataLoader(DATA, batch_size=8, shuffle=True), plain(shuffle=False)):
        with pytest.raises(ResumeError, match=r"RandomSampler\(dataset, generator"):
            import_stateful(written(3, shuffle=True), track(loader))
    with pytest.raises(ResumeError, match="sequential order"):
        import_stateful(written(3, shuffle=False), track(plain(shuffle=True)))


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata calls it
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("batches", [0, 3, 6])
def test_a_state_of_torchdata_itself_continues_its_epoch(shuffle, workers, epoch, batches):
    """The rest of the epoch is what the old loader would have yielded; torch's sampler then draws epochs of its own."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    old = stateful.StatefulDataLoader(DATA, batch_size=8, shuffle=shuffle, num_workers=workers)
    for _ in range(epoch):
        list(old)
    taken = iter(old)
    list(itertools.islice(taken, batches))
    state = old.state_dict()
    loader = track(plain(shuffle=shuffle))

    import_stateful(state, loader, epoch=epoch)

    assert values(loader) == values(taken)
