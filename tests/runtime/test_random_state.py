"""Random numbers are put back exactly, by copying memory or the slow way."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

from lading.runtime import random_state, splitmix, twisters
from lading.runtime.random_state import as_captured, capture, isolated_rng, packed, restore, same, unpacked, untouched

DRAWS = {
    "random": random.random,
    "gauss": lambda: random.gauss(0, 1),  # keeps a second number back
    "numpy": lambda: float(np.random.random_sample()),  # noqa: NPY002
    "normal": lambda: float(np.random.normal()),  # noqa: NPY002  # keeps a second number back
    "bytes": lambda: np.random.bytes(7).hex(),  # noqa: NPY002
    "torch": lambda: float(torch.rand(())),
    "randn": lambda: float(torch.randn(())),
}
draws = st.lists(st.sampled_from(sorted(DRAWS)), max_size=40)


@pytest.fixture(autouse=True)
def kept():
    """Leave the generators of the test process as they were."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    yield
    random.setstate(before[0])
    np.random.set_state(before[1])  # noqa: NPY002
    torch.set_rng_state(before[2])


@pytest.fixture(params=["compiled", "plain", "documented"])
def way(request, monkeypatch):
    """Every way to a state: compiled, in NumPy, as documented."""
    monkeypatch.setattr(random_state, "_known", random_state._Known(None, None, None))
    if request.param == "documented":
        monkeypatch.setattr(random_state, "_exchange_of_now", lambda: None)
    elif request.param == "plain":
        monkeypatch.setattr(twisters.compiled, "enabled", lambda: False)
    return request.param


def drawn(names):
    """Draw by name."""
    return [DRAWS[name]() for name in names]


def seeded(key):
    """Seed everything."""
    random.seed(key)
    np.random.seed([key & 0xFFFFFFFF, key >> 32])  # noqa: NPY002
    torch.random.default_generator.manual_seed(key)


def test_the_generators_of_this_machine_are_known():
    """They are exchanged in memory here; where they are not known, everything works, ten times slower."""
    assert random_state._exchange_of_now() is not None


@given(st.integers(0, 2**63 - 1) | st.integers(0, 2**32 - 1), draws, draws, draws)
def test_a_batch_gets_its_own_numbers_and_training_goes_undisturbed(way, key, before, inside, after):
    """Inside: the numbers of the key. After: what would have come without it, cached normals too."""
    seeded(7)
    expected = [drawn(before), drawn(after)]
    words = splitmix.words(key, 1872)
    random.setstate((3, (*words[:624].tolist(), 624), None))
    np.random.set_state(("MT19937", words[624:1248], 624, 0, 0.0))  # noqa: NPY002
    fields = np.zeros(torch.get_rng_state().numel() // 8, np.uint64)
    fields[0], fields[1], fields[3:627] = key, 1 | 1 << 32, words[1248:]  # seed, one word left and seeded, words
    torch.set_rng_state(torch.from_numpy(fields.view(np.uint8)))
    expected_inside = [*drawn(inside), torch.initial_seed()]

    seeded(7)
    found = [drawn(before)]
    with isolated_rng(key):
        found_inside = [*drawn(inside), torch.initial_seed()]
    found.append(drawn(after))

    assert found == expected and found_inside == expected_inside


@given(draws, draws)
def test_a_snapshot_survives_a_checkpoint(way, before, after):
    """Through JSON, and whichever way it was taken."""
    seeded(3)
    drawn(before)
    snapshot = capture()
    expected = drawn(after)

    restore(unpacked(json.loads(json.dumps(packed(snapshot)))))

    assert same(capture(), snapshot) and drawn(after) == expected


def test_the_numbers_of_a_key_are_frozen(way):
    """A resumed run draws what the run before would have drawn, on every machine."""
    with isolated_rng(0x0123456789ABCDEF):
        drawn_by_all = random.random(), float(np.random.random_sample()), float(torch.rand(()))  # noqa: NPY002
        seed = torch.initial_seed()

    assert drawn_by_all == (0.5913333211628423, 0.6617815226650714, 0.7069348096847534) and seed == 0x0123456789ABCDEF


def test_no_generator_gives_the_numbers_of_another():
    """Python's and NumPy's did, once: both filled their words alike from the same seed."""
    with isolated_rng(11):
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


@pytest.mark.parametrize("known", ["numpy_gauss", "python_is_known", "torch_words"])
def test_a_generator_that_is_not_known_is_exchanged_as_documented(known, monkeypatch):
    """A later version may keep its state elsewhere: nothing is written to memory then, the numbers are the same."""
    with isolated_rng(8):
        expected = drawn(DRAWS)
    monkeypatch.setattr(random_state, "_known", random_state._Known(None, None, None))
    monkeypatch.setattr(twisters, known, lambda *_: None)

    with isolated_rng(8):
        found = drawn(DRAWS)

    assert found == expected and random_state._exchange_of_now() is None


def test_an_error_puts_the_numbers_back():
    """A bad sample is no reason to change training's numbers."""
    seeded(1)
    expected = drawn(DRAWS)
    seeded(1)

    with pytest.raises(ZeroDivisionError), isolated_rng(9):
        drawn(DRAWS)[1 // 0]

    assert drawn(DRAWS) == expected


def test_another_generator_in_numpys_place_is_kept_too():
    """NumPy lets users replace the generator behind np.random."""
    own = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(4))
        snapshot = capture()
        expected = drawn(["numpy", "bytes"])
        restore(unpacked(packed(snapshot)))
        with isolated_rng(5):
            inside = drawn(["numpy"])
        with isolated_rng(5):
            assert drawn(["numpy"]) == inside

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


def test_a_pass_drawn_again_leaves_the_training_loop_its_numbers():
    """Private generators continue from the snapshot, global ones are put back."""
    sampler = RandomSampler(range(8), generator=torch.Generator().manual_seed(1))
    loader = DataLoader(range(8), sampler=sampler, batch_size=4)
    snapshot = capture(loader)
    first = list(sampler)
    seeded(11)
    expected = drawn(DRAWS)
    seeded(11)

    with as_captured(snapshot, loader):
        again = list(sampler)

    assert again == first and drawn(DRAWS) == expected
