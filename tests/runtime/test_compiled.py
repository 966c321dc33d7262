"""The compiled kernels are used where they are, and refuse what does not fit together."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from lading.runtime import compiled

pytestmark = pytest.mark.skipif(not compiled.enabled(), reason="nothing is compiled here")


@pytest.mark.parametrize(("asked", "answer"), [("0", "plain: no compiled kernels"), ("", "compiled")])
def test_the_version_says_whether_anything_is_compiled(asked, answer):
    """``LADING_COMPILED=0`` takes the plain versions."""
    command = [sys.executable, "-m", "lading", "--version"]
    done = subprocess.run(command, env={**os.environ, "LADING_COMPILED": asked}, capture_output=True, text=True)

    assert done.stdout.strip().endswith(answer)


def numbers(*values, of=np.int64):
    """Return a column."""
    return np.array(values, dtype=of)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("permute", (numbers(8), numbers(3), numbers(1), numbers(0, 1), numbers(0))),
        ("permute", (numbers(8, 8, 8), numbers(3), numbers(1), numbers(0, 1), numbers(0, 0))),
        ("digest", (numbers(0), numbers(0, 1), numbers(0))),
        ("digests", (0, numbers(0, of=np.int32), numbers(0), numbers(0, 2), numbers(0, 0))),
        ("digests", (0, numbers(0, of=np.int32), numbers(0), numbers(-1), numbers(0))),
        ("owners", (numbers(), numbers(0), numbers(0, of=np.int32))),
        ("owners", (numbers(0), numbers(0, 1), numbers(0, of=np.int32))),
        ("owner_counts", (100, 10, 1, numbers(), 0, 9, numbers())),
        ("owner_counts", (100, 10, 1, numbers(0), 0, 9, numbers(0, 0))),
        ("owner_counts", (100, 10, 1, numbers(0), 0, 101, numbers(0))),
        ("owner_counts", (100, 10, 1, numbers(0), 9, 8, numbers(0))),
        ("owner_counts", (100, 11, 1, numbers(0), 0, 9, numbers(0))),
        ("owner_counts", (1 << 50, 1 << 25, 1, numbers(0), 0, 1 << 40, numbers(0))),
        ("hash_rows", (numbers(1, 2, 3, of=np.uint8), 1, 1, numbers(0, 0))),
        ("fold_rows", (numbers(0), None, numbers(0, 0))),
        ("counts", (numbers(0, 5), 0, numbers(0, 0))),
        ("group", (numbers(0, 9), numbers(1, 2), 0, numbers(0), numbers(0, 0))),
        ("first_fit", (numbers(3, 2), None, 8, 0, 0, 0, 9, numbers(0, 0))),
        ("group_pieces", (numbers(3), None, 8, 0, 0, numbers(7), numbers(0, 0), numbers(0), numbers(0), numbers(0))),
        ("num_pieces", (numbers(3, -1), None, 8, 0, 0)),
        ("num_pieces", (numbers(3, 1), numbers(0, 2), 8, 0, 0)),
        ("extent", (numbers(),)),
        ("integers", ([1, 2], numbers(0))),
        ("integers", ((1, 2), numbers(0, 0))),
        ("gather", (numbers(0), numbers(1), numbers(1), numbers(0), numbers(0, 0), numbers(0))),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(name, arguments):
    """Memory that is not theirs is neither read nor written."""
    with pytest.raises(ValueError):
        getattr(compiled.kernels, name)(*arguments)


def test_a_position_that_is_not_there_is_told():
    """Of a permutation of 8: the walk of a ninth would never end."""
    out = numbers(0, 0)

    assert compiled.kernels.permute(numbers(8), numbers(3), numbers(1), numbers(0, 9), out) == 1


@pytest.mark.parametrize(
    ("weights", "by_weight"),
    [((1, -1), (0,)), ((1 << 31, 1), (1, 0)), ((2, 1), (0, 1)), ((2, 1), (1, 2)), ((0, 0), ())],
)
def test_a_tree_of_impossible_weights_is_refused(weights, by_weight):
    """They sum to at most 2**31, and are listed from the lightest."""
    with pytest.raises(ValueError, match="weights"):
        compiled.kernels.Tree(numbers(*weights), numbers(0, 0), numbers(*by_weight))


def test_a_tree_refuses_what_is_not_in_it():
    """Datasets without a weight, rounds of other sizes, places and passes of others, draws outside their round."""
    tree = compiled.kernels.Tree(numbers(1 << 30, 0, 1 << 30), numbers(0, 0, 0), numbers(0, 2))
    datasets, draws = numbers(0, 0, of=np.int32), numbers(0, 0)
    calls = [
        (tree.positions, (1, numbers(0), numbers(0))),
        (tree.positions, (3, numbers(0), numbers(0))),
        (tree.rounds, (0, numbers(0), numbers(5000), 1, None, datasets, draws)),
        (tree.rounds, (0, numbers(0), numbers(3), 1, None, datasets, draws)),
        (tree.rounds, (5, numbers(0), numbers(2), 1, None, datasets, draws)),
        (tree.step, (0, 1, np.zeros((2, 4), np.uint64), 0, 2, 0, datasets, draws)),
        (tree.step, (0, 1, np.zeros((3, 4), np.uint64), 0, 2, 0, datasets, draws)),
        (tree.step, (0, 1, np.ones((3, 4), np.uint64), 0, 2, 1, datasets, draws)),
        (tree.step, (0, 1, np.ones((3, 4), np.uint64), 0, 2, -1, datasets, draws)),
        (tree.step, (0, 1, np.ones((3, 4), np.uint64), 0, 5000, 0, datasets, draws)),
        (tree.places, (0, numbers(77), 0, numbers(0), numbers(2), 1, numbers(0))),
        (tree.counts, (-1, numbers(0, 0, 0))),
        (tree.counts, (1, numbers(0, 0))),
    ]
    for call, arguments in calls:
        with pytest.raises(ValueError):
            call(*arguments)
