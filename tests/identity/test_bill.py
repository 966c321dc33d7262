"""Names, shares, padding and digests of bills."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.errors import WorldError
from lading.identity import Bill, Deviation, SampleId, World, digest, fingerprint, total_digest
from lading.identity.bill import observed_id
from lading.identity.hashing import (
    as_signed,
    as_u64,
    as_unsigned,
    fold,
    fold_int,
    key64,
    keys64,
    mix64,
    mix64_int,
    sample_hashes,
)
from lading.runtime import compiled


def bill(size=5, **changes):
    """Return a whole bill of ``size`` samples of two datasets."""
    fields = {
        "batch_id": "e0-s3-00c0ffee",
        "step": 3,
        "epoch": 0,
        "chunk": None,
        "position": 12,
        "slots": np.arange(size),
        "dataset_idx": (np.arange(size) % 2).astype(np.int32),
        "idx": np.arange(size) * 10,
        "is_padding": np.zeros(size, dtype=bool),
        "global_size": size,
        "names": ("code", "prose"),
    }
    return Bill(**{**fields, **changes})


def test_a_bill_names_its_samples():
    """Names, counts and length leave padding where it belongs."""
    padded = bill(is_padding=np.array([False, False, False, True, True]))

    assert bill().samples == [SampleId(0, 0), SampleId(1, 10), SampleId(0, 20), SampleId(1, 30), SampleId(0, 40)]
    assert padded.samples == bill().samples[:3] and len(padded) == 5 and padded.num_samples == 3
    assert bill().counts() == {0: 3, 1: 2} and padded.counts() == {0: 2, 1: 1}
    assert "e0-s3-00c0ffee" in repr(bill()) and "rank 1/2" in repr(bill().share(World(1, 2)))


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 12))
def test_shares_partition_the_bill(size, world_size, missing):
    """Every row that counts goes to exactly one rank; every rank gets at least one row; digests add up."""
    whole = bill(size)
    full = size + missing

    shares = [whole.share(World(rank, world_size), full_size=full) for rank in range(world_size)]

    assert [s for share in shares for s in share.samples] == whole.samples
    assert all(
        len(share) == max(1, World(r, world_size).share(full)[1] - World(r, world_size).share(full)[0])
        for r, share in enumerate(shares)
    )
    assert total_digest(s.digest for s in shares) == whole.digest
    assert np.mean([s.loss_weight for s in shares]) == pytest.approx(1)


def test_deviations_go_with_their_rank():
    """A rank's share carries the deviations of its own slots only."""
    changed = bill(4, deviations=(Deviation(1, "skipped", 1, 10), Deviation(3, "skipped", 1, 30)))

    assert [d.slot for d in changed.share(World(0, 2)).deviations] == [1]
    assert [d.slot for d in changed.share(World(1, 2)).deviations] == [3]


columns = st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**31 - 1), st.integers(0, 2**62)), max_size=30)


@given(columns)
def test_digest_kernel_and_reference_agree(rows):
    """The compiled digest is the sum of the plain hashes, to the last bit."""
    positions, datasets, indices = (
        (np.array(c, dtype=np.int64) for c in zip(*rows, strict=True))
        if rows
        else (np.empty(0, dtype=np.int64) for _ in range(3))
    )

    assert digest(positions, datasets, indices) == int(sample_hashes(positions, datasets, indices).sum(dtype=np.uint64))


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_digest_leaves_padding_out(monkeypatch, is_compiled):
    """Both ways of working it out; the plain one was compared without padding only."""
    if is_compiled and not compiled.enabled():
        pytest.skip("nothing is compiled here")
    monkeypatch.setattr(compiled, "enabled", lambda: is_compiled)
    padded = bill(is_padding=np.array([False, False, False, True, True]))

    assert padded.digest == digest(padded.position + padded.slots[:3], padded.dataset_idx[:3], padded.idx[:3])
    assert padded.digest != bill().digest


def test_padding_repeats_the_head_in_order():
    """Rows that only fill up are the first of the batch, one after another."""
    last = bill(5).share(World(1, 2), full_size=14)

    assert last.idx[last.is_padding].tolist() == [20, 30, 40, 0, 10, 20, 30]


@given(st.integers(0, 2**64 - 1) | st.sampled_from([2**63 - 1, 2**63, 2**64 - 1]))
def test_signed_digests_come_back(value):
    """Parquet and SQL get signed integers; nothing is lost."""
    assert as_unsigned(as_signed(value)) == value and -(2**63) <= as_signed(value) < 2**63


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_scalar_and_array_hashes_agree(a, b):
    """Python integers and NumPy columns give the same hash."""
    assert int(mix64(as_u64(np.uint64(a)))[0]) == mix64_int(a)
    assert int(fold(as_u64(np.uint64(a)), as_u64(np.uint64(b)))[0]) == fold_int(a, b)
    assert int(keys64(key64("x"), np.array([a], dtype=np.uint64))[0]) == key64("x", a)


GOLDEN_KEYS = (5197578548964807871, 15765307853683196691, 4922461756044938104)
GOLDEN_DIGEST = 6286466442468336938
GOLDEN_PRINT = "31d43c749b48d867"


def test_hashes_are_frozen():
    """Golden values: a change here changes every order and digest ever made."""
    assert key64(0) == GOLDEN_KEYS[0] and key64(7, "substitute") == GOLDEN_KEYS[1] and key64(-1) == GOLDEN_KEYS[2]
    assert bill().digest == GOLDEN_DIGEST
    assert fingerprint({"b": [1, None], "a": "ü"}) == GOLDEN_PRINT


def test_worlds_are_found_in_the_environment(monkeypatch):
    """Arguments, else the environment, else alone; nonsense is refused."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert World.current() == World(0, 1) and World.current(1, 3) == World(1, 3)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert World.current() == World(2, 4)
    monkeypatch.setenv("RANK", "x")
    with pytest.raises(WorldError, match="RANK='x' and WORLD_SIZE='4' in the environment are not integers"):
        World.current()
    with pytest.raises(WorldError, match="rank 3 of world size 3 is impossible"):
        World(3, 3)
    with pytest.raises(WorldError, match="expected both or neither"):
        World.current(rank=1)


def test_an_id_of_the_samples_is_worked_out_when_it_is_asked_for():
    """It is that of the rows the bill was made of; a copy and a pickled bill have the same one."""
    made = bill(batch_id="")
    assert "batch_id" not in vars(made)

    again = pickle.loads(pickle.dumps(made))
    named = observed_id(made.digest, made.epoch, made.step)

    assert made.batch_id == named == again.batch_id == made.replace(names=("a", "b")).batch_id
    assert bill(batch_id="", idx=np.arange(5)).batch_id != named
    assert not hasattr(made, "batch_ids")
