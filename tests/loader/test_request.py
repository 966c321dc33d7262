"""The front door of a loader: what is wrong is refused when it is made, and it says what it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lading import Bill, Columns, Loader, Mixture, NumpyLoader, Plan
from lading.errors import LoaderError, MixtureError, PlanError, SourceError

DATA = Columns(x=np.arange(20))
BOTH = pytest.mark.parametrize("kind", [Loader, NumpyLoader])


@BOTH
@pytest.mark.parametrize(
    ("sources", "options", "error", "message"),
    [
        ([DATA, DATA], {"batch_size": 4}, SourceError, "sources is a list of 2 datasets: expected one dataset, or"),
        (DATA, {"batch_size": 0}, PlanError, "batch_size is 0: expected an integer of at least 1"),
        (DATA, {"batch_size": True}, PlanError, "batch_size is True"),
        (DATA, {"global_batch_size": -4}, PlanError, "global_batch_size is -4"),
        (DATA, {"batch_size": 4, "chunk_batches": 0}, PlanError, "chunk_batches is 0"),
        ({"a": DATA}, {"batch_size": 4, "weights": {"b": 1}}, MixtureError, "weights name 'b'"),
        ({"a": DATA}, {"batch_size": 4, "mixture": Mixture([1, 2])}, MixtureError, "2 weights were given for 1"),
        (DATA, {"batch_size": 4, "shuffle": "block"}, PlanError, "expected True, False or 'window'"),
        (DATA, {"batch_size": 4, "on_bad_sample": "drop"}, LoaderError, "on_bad_sample has 'drop'"),
        (DATA, {"batch_size": 4, "weights": [1], "mixture": [1]}, MixtureError, "expected one"),
    ],
)
def test_what_is_wrong_is_refused_by_the_constructor(kind, sources, options, error, message):
    """Not when the first batch is asked for."""
    with pytest.raises(error, match=message):
        kind(sources, **options)


@pytest.mark.parametrize(
    "samples",
    [
        [{"x": 1}, {"x": 2}],
        [(1, 2), (3, 4)],
        [np.zeros(2), np.ones(2)],
        [torch.zeros(2), torch.ones(2)],
        ["a", "b"],
        [1.0, 2.0],
    ],
)
def test_a_list_of_samples_is_a_dataset(samples):
    """Arrays, containers and texts have a length, too; they are no datasets."""
    assert len(Loader(samples, 1)) == 2


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"generator": torch.Generator()}, r"come from seed=. Pass seed=generator.initial_seed\(\)"),
        ({"in_order": False}, "batches come in the order of the plan"),
        ({"pin_memory_device": "cuda"}, "batches are pinned for the current accelerator"),
    ],
)
def test_arguments_of_torch_that_would_change_nothing_are_refused(option, message):
    """By name; at their defaults they are accepted."""
    with pytest.raises(LoaderError, match=message):
        Loader(DATA, 4, **option)
    Loader(DATA, 4, generator=None, in_order=True, pin_memory_device="")


@BOTH
def test_a_loader_says_what_it_is_and_how_far(kind):
    """Before its plan is made, and in the middle."""
    loader = kind({"code": DATA}, 4, seed=7)
    assert repr(loader) == f"{kind.__name__}({{'code': 20}}, batch_size=4, seed=7, shuffle=True, at step 0)"

    next(iter(loader))

    assert repr(loader).endswith("at step 1, 1 of 5 in epoch 0)")


def test_a_plan_and_a_bill_say_what_they_are():
    """A line for people; a table for notebooks."""
    plan = Plan.make({"<b>": 10}, 4, seed=1, chunk_batches=2)
    bill = plan.bill(0)

    assert repr(plan).startswith("Plan({'<b>': 10}, global_batch_size=4, seed=1, shuffle='full', chunks of 2, ")
    assert isinstance(bill, Bill) and "&lt;b&gt;" in bill._repr_html_() and "<b>" not in bill._repr_html_()


@BOTH
def test_batch_sizes_change_as_planned(kind):
    """A ramp-up, written down before the run; the state resumes inside it."""
    schedule = [(0, 2), ("3ba", 4)]
    loader = kind(DATA, batch_schedule=schedule)
    sizes = [len(bill) for _, bill in loader.with_bills()]
    other, again = kind(DATA, batch_schedule=schedule), kind(DATA, batch_schedule=schedule)
    batches = other.with_bills()
    for _ in range(4):
        next(batches)

    again.load_state_dict(other.state_dict())

    assert sizes == [2, 2, 2, 4, 4, 4, 2]
    assert [bill.samples for _, bill in again.with_bills()] == [loader.plan.bill(s).samples for s in range(4, 7)]
