"""Looking at the first batch changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from lading.kits.jasper import validate_first_batch
from lading.source.spec import BatchSpec, Field

DATA = [{"x": torch.tensor(float(i))} for i in range(12)]
SPEC = BatchSpec({"x": Field(("B",))})


def inner():
    """A batch sampler of the user's own, around a sampler with a generator."""
    return DataLoader(
        DATA, batch_sampler=BatchSampler(RandomSampler(DATA, generator=torch.Generator().manual_seed(5)), 4, False)
    )


def outer():
    """A DataLoader with a generator."""
    return DataLoader(DATA, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("make", [inner, outer])
def test_a_validated_loader_yields_what_it_would_have_yielded(make):
    """Also where the generator is inside a batch sampler's sampler, which the first version forgot."""
    plain, looked = make(), make()
    expected = [batch["x"].tolist() for _ in range(2) for batch in plain]

    assert validate_first_batch(looked, spec=SPEC)

    assert [batch["x"].tolist() for _ in range(2) for batch in looked] == expected
    assert np.unique(expected).size == 12
