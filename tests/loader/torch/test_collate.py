"""Samples are collated as torch does, in memory that is used again once it is unused."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from lading import Loader
from lading.loader.torch.collate import Collate
from lading.source.columns import MIN_BYTES

LARGE = MIN_BYTES // 4  # float32 numbers of a sample: two make a batch that is large enough


class Doubles:
    """Float32 and float64 samples in turn."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((LARGE,), index / 3, dtype=torch.float64 if index % 2 else torch.float32)


def _samples(kind: str, size: int) -> list:
    rng = np.random.default_rng(0)
    arrays = [rng.random((3, size), dtype=np.float32) for _ in range(4)]
    tensors = [torch.from_numpy(array) for array in arrays]
    return {
        "tensors": tensors,
        "arrays": arrays,
        "dicts": [{"x": t, "y": 1} for t in tensors],
        "tuples": [(t, 2.0) for t in tensors],
        "turned": [t.T for t in tensors],
        "promoted": [tensors[0], *(t.double() for t in tensors[1:])],
        "complex": [torch.complex(t, t).conj() for t in tensors],
        "bfloat16": [t.bfloat16() for t in tensors],
        "parameters": [torch.nn.Parameter(t) for t in tensors],
        "a later gradient": [tensors[0], *(t.clone().requires_grad_() for t in tensors[1:])],
    }[kind]


KINDS = ["tensors", "arrays", "dicts", "tuples", "turned", "promoted", "complex", "bfloat16", "parameters"]


@pytest.mark.parametrize("size", [1, LARGE])
@pytest.mark.parametrize("kind", [*KINDS, "a later gradient"])
def test_a_batch_is_what_torch_would_make_of_it(kind, size):
    """Values, types, containers and gradients are those of default_collate."""
    samples = _samples(kind, size)

    found, expected = Collate()(samples), default_collate(samples)

    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    tensors = [b for b in (found, expected) if isinstance(b, torch.Tensor)]
    assert len({(t.requires_grad, type(t)) for t in tensors}) <= 1


SCALARS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.floats(),
    st.sampled_from([np.uint8(3), np.int64(-4), np.float32(0.5), torch.tensor(7), torch.tensor(0.5), "text", None, 1j]),
)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1) | st.lists(st.floats() | st.booleans(), min_size=1),
    st.lists(SCALARS, max_size=5),
)
def test_numbers_are_what_torch_would_make_of_them(numbers, others):
    """Integers, floats, booleans, mixed with whatever else: values, type, or the type of the error."""
    samples = [*numbers, *others]
    for form in (lambda s: s, lambda s: {"x": s, "y": (s, 1)}):
        found, expected = (_tried(way, [form(s) for s in samples]) for way in (Collate(), default_collate))

        if isinstance(expected, type):
            assert found is expected
        else:
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def _tried(way, samples):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # slow, says torch
        try:
            return way(samples)
        except Exception as error:
            return type(error)


def test_a_batch_of_numbers_can_be_written_to_and_sent():
    """It has memory of its own."""
    batch = Collate()([1, 2, 3])
    batch += 1

    assert batch.tolist() == pickle.loads(pickle.dumps(batch)).tolist() == batch.clone().share_memory_().tolist()


def test_memory_is_used_again_only_when_the_batch_is_gone():
    """A batch that is held, or a view of it, keeps its values."""
    collate, samples = Collate(), _samples("tensors", LARGE)

    held = collate(samples)[1]
    again = collate([s + 1 for s in samples])
    address = again.data_ptr()
    del again
    third = collate([s + 2 for s in samples])

    assert third.data_ptr() == address, "unused memory is filled again"
    assert torch.equal(held, samples[1]), "a view keeps its memory"


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ([torch.zeros(2, LARGE), torch.zeros(3, LARGE)], "equal size"),
        ([torch.zeros(2).to_sparse()] * 2, "sparse"),
    ],
)
def test_what_cannot_be_stacked_is_refused_in_the_words_of_torch(samples, says):
    """The error is torch's own."""
    with pytest.raises(RuntimeError, match=says):
        Collate()(samples)


@pytest.mark.parametrize("sample", [torch.zeros(2), 1, 1.0])
def test_a_way_that_the_user_taught_torch_is_taken(monkeypatch, sample):
    """Whoever replaced an entry in torch's map gets what it does."""
    kind = torch.Tensor if isinstance(sample, torch.Tensor) else type(sample)
    monkeypatch.setitem(default_collate_fn_map, kind, lambda batch, collate_fn_map=None: len(batch))

    assert Collate()([sample] * 3) == 3
    assert Collate()([{"x": sample}] * 3) == {"x": 3}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_types_are_promoted_alike_with_and_without_workers(num_workers):
    """torch's own workers keep the first sample's type."""
    loader = Loader(Doubles(), 4, shuffle=False, num_workers=num_workers)

    assert [batch.dtype for batch in loader] == [torch.float64] * 2


def test_a_batch_of_another_size_does_not_keep_the_memory_of_all_before():
    """What is kept has a limit, whatever sizes come."""
    collate = Collate()

    for rows in range(40):
        collate([torch.zeros(1 + rows, LARGE)] * 4)

    kept = sum(size * len(shelf) for size, shelf in collate.memory._shelves.items())
    assert kept <= 1 << 28
