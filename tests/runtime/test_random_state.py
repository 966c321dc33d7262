"""Random numbers are put back exactly, and those of a batch are its own."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

from lading.runtime.random_state import (
    capture,
    isolated_rng,
    packed,
    restore,
    same,
    seed,
    unpacked,
    untouched,
)

GOLDEN = Path(__file__).parent / "golden" / "random-2.json"

DRAWS = {
    "random": random.random,
    "gauss": lambda: random.gauss(0, 1),  # keeps a second number back
    "numpy": lambda: float(np.random.random_sample()),  # noqa: NPY002
    "normal": lambda: float(np.random.normal()),  # noqa: NPY002  # keeps a second number back
    "bytes": lambda: np.random.bytes(7).hex(),  # noqa: NPY002
    "torch": lambda: float(torch.rand(())),
    "randn": lambda: float(torch.randn(())),
}
keys = st.integers(0, 2**63 - 1) | st.integers(0, 2**32 - 1)
draws = st.lists(st.sampled_from(sorted(DRAWS)), max_size=40)


@pytest.fixture(autouse=True)
def kept():
    """Leave the generators of the test process as they were."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    yield
    random.setstate(before[0])
    np.random.set_state(before[1])  # noqa: NPY002
    torch.set_rng_state(before[2])


def drawn(names):
    """Draw by name."""
    return [DRAWS[name]() for name in names]


def seeded(key):
    """Seed everything."""
    random.seed(key)
    np.random.seed([key & 0xFFFFFFFF, key >> 32])  # noqa: NPY002
    torch.random.default_generator.manual_seed(key)


@given(keys, draws, draws, draws)
def test_a_batch_gets_its_own_numbers_and_training_goes_undisturbed(key, before, inside, after):
    """Inside: the numbers of the key. After: what would have come without it, cached normals too."""
    seeded(7)
    expected = [drawn(before), drawn(after)]
    seed(key)
    expected_inside = [*drawn(inside), torch.initial_seed()]

    seeded(7)
    found = [drawn(before)]
    with isolated_rng(key):
        found_inside = [*drawn(inside), torch.initial_seed()]
    found.append(drawn(after))

    assert found == expected and found_inside == expected_inside


@given(st.lists(st.sampled_from(["batch", *DRAWS]), max_size=60))
def test_batches_between_any_draws_of_training_are_not_noticed(events):
    """Whichever generator training draws from between batches, and however often."""
    names = [name for name in events if name != "batch"]
    seeded(5)
    expected = drawn(names)

    seeded(5)
    found = []
    for name in events:
        if name == "batch":
            with isolated_rng(6):
                drawn(DRAWS)
        else:
            found.append(DRAWS[name]())

    assert found == expected


@given(draws, draws)
def test_a_snapshot_survives_a_checkpoint(before, after):
    """Through JSON."""
    seeded(3)
    drawn(before)
    snapshot = capture()
    expected = drawn(after)

    restore(unpacked(json.loads(json.dumps(packed(snapshot)))))

    assert same(capture(), snapshot) and drawn(after) == expected


@pytest.mark.parametrize("case", json.loads(GOLDEN.read_text())["keys"], ids=lambda case: case["key"])
def test_the_numbers_of_a_key_are_frozen(case):
    """A resumed run draws what the run before would have drawn, on every machine, with or without torch."""
    with isolated_rng(int(case["key"])):
        found = {name: [draw(), draw(), draw()] for name, draw in DRAWS.items()}

    assert found == case["drawn"]


@pytest.mark.parametrize("key", [0, 11, 12, 2**63 - 1])
def test_no_generator_gives_the_numbers_of_another(key):
    """Python's and NumPy's did, once: both filled their words alike from the same seed."""
    with isolated_rng(key):
        drawn_by_all = [
            [random.random() for _ in range(50)],
            np.random.random_sample(50).tolist(),  # noqa: NPY002
            torch.rand(50, dtype=torch.float64).tolist(),
        ]

    assert len({round(number * 2**32) for numbers in drawn_by_all for number in numbers}) == 150


def test_numbers_of_batches_inside_each_other():
    """A collate function may look at another loader: the numbers around it are put back, each in its turn."""
    seeded(2)
    with isolated_rng(3):
        expected = drawn([*DRAWS, *DRAWS])
    outside = drawn(DRAWS)

    seeded(2)
    with isolated_rng(3):
        found = drawn(DRAWS)
        with isolated_rng(4):
            drawn(DRAWS)
        found += drawn(DRAWS)

    assert found == expected and drawn(DRAWS) == outside


def test_keys_side_by_side_give_each_generator_other_numbers():
    """Worker processes are seeded by number: neither NumPy's nor torch's may be the same in two of them."""
    found = []
    for key in range(100, 120):
        seed(key)
        found.append(drawn(DRAWS))

    assert all(len(set(column)) == 20 for column in zip(*found, strict=True))


def test_an_error_puts_the_numbers_back():
    """A bad sample is no reason to change training's numbers."""
    seeded(1)
    expected = drawn(DRAWS)
    seeded(1)

    with pytest.raises(ZeroDivisionError), isolated_rng(9):
        drawn(DRAWS)[1 // 0]

    assert drawn(DRAWS) == expected


def test_a_snapshot_holds_another_generator_in_numpys_place():
    """NumPy lets users replace the generator behind np.random."""
    own = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(4))
        snapshot = capture()
        expected = drawn(["numpy", "bytes"])
        restore(unpacked(packed(snapshot)))

        assert drawn(["numpy", "bytes"]) == expected
    finally:
        np.random.set_bit_generator(own)


def test_torch_is_never_imported():
    """NumPy's and Python's numbers are kept without it."""
    code = (
        "import sys, random\nfrom lading.runtime.random_state import isolated_rng, untouched\n"
        "random.seed(1); a = random.random(); random.seed(1)\n"
        "with isolated_rng(2): random.random()\n"
        "with untouched(): random.random()\n"
        "assert random.random() == a and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


class Noisy(Dataset):
    """A dataset with a generator of its own."""

    def __init__(self):
        self.rng = np.random.default_rng(3)
        self.dice = random.Random(4)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index + self.rng.random() + self.dice.random()


def test_generators_inside_samplers_and_datasets_are_put_back():
    """A batch sampler's inner sampler has one: the first version forgot it."""

    def loader():
        inner = RandomSampler(range(8), generator=torch.Generator().manual_seed(1))
        return DataLoader(Noisy(), batch_sampler=BatchSampler(inner, 4, False))

    expected, looked = [batch.tolist() for batch in loader()], loader()
    with untouched(looked) as rewind:
        next(iter(looked))
        rewind()
        next(iter(looked))

    assert [batch.tolist() for batch in looked] == expected
