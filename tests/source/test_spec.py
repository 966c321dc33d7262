"""Checking any batch against what its source declares."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from lading.errors import BatchError
from lading.source.spec import BatchSpec, Field, validate_batch

SPEC = BatchSpec(
    {
        "image": Field(("B", 3, "S", "S"), "float32"),
        "mask": Field(("B", "S", "S"), "bool"),
        "label": Field(("B",), "int64", below=10),
        "weight": Field(("B",), "float32", low=0, high=1.5),
    }
)


def batch(rows=4, size=5, **changes):
    """A batch that holds to the spec but for the changes."""
    good = {
        "image": np.zeros((rows, 3, size, size), np.float32),
        "mask": np.ones((rows, size, size), bool),
        "label": np.arange(rows),
        "weight": np.full(rows, 0.5, np.float32),
    }
    return {key: value for key, value in (good | changes).items() if value is not None}


def spoiled(key, place, value, **changes):
    """A batch with one wrong element."""
    made = batch(**changes)
    made[key][place] = value
    return made


@given(st.integers(1, 6), st.integers(1, 6))
def test_a_good_batch_of_any_size_is_true(rows, size):
    """Words stand for any size, as long as it is one size."""
    assert validate_batch(batch(rows, size), SPEC) is True


@pytest.mark.parametrize("convert", [torch.from_numpy, np.asarray, lambda a: torch.from_numpy(a).requires_grad_(False)])
def test_torch_and_numpy_are_checked_alike(convert):
    """Arrays of either kind."""
    assert validate_batch({key: convert(value) for key, value in batch().items()}, SPEC)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            batch(label=None),
            r"Batch keys mismatch. Expected: \['image', 'label', 'mask', 'weight'\], Got: \['image', 'm",
        ),
        (
            batch(other=np.zeros(4)),
            r"Batch keys mismatch. Expected: .*, Got: \['image', 'label', 'mask', 'other', 'wei",
        ),
        ([1, 2], "Batch keys mismatch. Expected: .*, Got: a list without keys"),
        (batch(image=np.zeros((4, 1, 5, 5), np.float32)), r"image shape mismatch: \(4, 1, 5, 5\) != \(4, 3, 5, 5\)"),
        (batch(mask=np.ones((4, 5, 6), bool)), r"mask shape mismatch: \(4, 5, 6\) != \(4, 5, 5\)"),
        (batch(label=np.arange(3)), r"label shape mismatch: \(3,\) != \(4\)"),
        (batch(label=np.zeros((4, 1), np.int64)), r"label shape mismatch: \(4, 1\) != \(4\)"),
        (batch(label=np.arange(4, dtype=np.int32)), "label dtype mismatch: int32 != int64"),
        (batch(label=[0, 1, 2, 3]), "label dtype mismatch: list != int64"),
        (spoiled("image", (2, 0, 0, 1), np.nan), "NaN detected in image: row 2 of the batch"),
        (spoiled("image", (3, 0, 0, 1), -np.inf), "Inf detected in image: row 3 of the batch"),
        (spoiled("label", 1, -1), "label must be non-negative: row 1"),
        (spoiled("label", 1, 12), "label must be < 10, got max 12: row 1"),
        (spoiled("weight", 3, -0.1), "weight must be >= 0: row 3"),
        (spoiled("weight", 3, 1.6), "weight must be <= 1.5: row 3"),
    ],
)
def test_each_fault_has_its_message(found, message):
    """An AssertionError that is raised, not asserted."""
    with pytest.raises(BatchError, match=message) as caught:
        validate_batch(found, SPEC)
    assert isinstance(caught.value, AssertionError)


def test_faults_are_found_in_order():
    """Keys before shapes before types before NaN before ranges."""
    worst = batch(label=np.full(4, 99), weight=np.full(4, np.nan, np.float32))
    worst["mask"] = np.ones((4, 5, 5), np.float32)
    worst["image"] = np.zeros((4, 1, 5, 5), np.float32)
    expected = ["keys mismatch", "image shape", "mask dtype", "NaN detected in weight", "label must be <"]
    repairs = [("extra", None), ("image", batch()["image"]), ("mask", batch()["mask"]), ("weight", batch()["weight"])]
    worst["extra"] = np.zeros(4)
    for message, repair in zip(expected, [*repairs, None], strict=True):
        with pytest.raises(BatchError, match=message):
            validate_batch(worst, SPEC)
        if repair is not None:
            worst = {k: v for k, v in (worst | dict([repair])).items() if v is not None}


def test_names_lading_adds_are_allowed_unless_strict():
    """idx, dataset_idx and is_padding."""
    named = batch(idx=np.arange(4), dataset_idx=np.zeros(4, int), is_padding=np.zeros(4, bool))

    assert validate_batch(named, SPEC)
    with pytest.raises(BatchError, match=r"Batch keys mismatch"):
        validate_batch(named, SPEC, strict=True)


def test_rows_are_named_by_whoever_knows():
    """The caller may say which sample a row is."""
    with pytest.raises(BatchError, match=r"NaN detected in image: sample 102$"):
        validate_batch(spoiled("image", 2, np.nan), SPEC, name_row=lambda row: f"sample {100 + row}")


def test_bfloat16_is_checked_as_well():
    """A type NumPy does not know."""
    spec = BatchSpec({"x": Field(("B",), "bfloat16")})

    assert validate_batch({"x": torch.ones(3, dtype=torch.bfloat16)}, spec)
    with pytest.raises(BatchError, match=r"NaN detected in x"):
        validate_batch({"x": torch.full((3,), float("nan"), dtype=torch.bfloat16)}, spec)


def test_an_empty_batch_holds():
    """Nothing in it can be wrong."""
    assert validate_batch(batch(rows=0), SPEC)
