"""From batches to arguments of ``forward``, and from its output to a loss."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lading.errors import SourceError
from lading.identity import World
from lading.kits.deepspeed.update import ALL, Arguments, Losses, loss_of
from lading.order import Plan

CPU = torch.device("cpu")


def model(forward):
    """Return a module with this ``forward``."""
    return type("Model", (torch.nn.Module,), {"forward": forward})()


def bill_with_padding(real: int = 2, rows: int = 4):
    """Return a bill of a last, short batch: some rows count, the others fill up."""
    return Plan.make({"code": real}, batch_size=rows, shuffle="none").bill(0, world=World(0, 1), pad=True)


def test_only_the_names_that_forward_accepts_are_passed():
    """All other columns are the user's: they are passed, and Python says if they are too many."""
    batch = {"x": torch.ones(2), "idx": torch.arange(2), "dataset_idx": torch.zeros(2), "extra": torch.ones(2)}
    bill = bill_with_padding(2, 2)

    def given(forward, **settings):
        return set(Arguments(model(forward), CPU, None, **settings)(batch, bill)[1])

    assert given(lambda self, x, extra: x) == {"x", "extra"}
    assert given(lambda self, x, dataset_idx: x) == {"x", "extra", "dataset_idx"}
    assert given(lambda self, **batch: batch) == set(batch)
    assert given(lambda self, **batch: batch, pass_names=False) == {"x", "extra"}
    assert given(lambda self, x: x, pass_names=True) == set(batch)


def test_a_compiled_model_is_asked_for_what_it_was_compiled_from():
    """Its own forward takes anything and passes it on."""
    compiled = torch.compile(model(lambda self, x: x), backend="eager")
    batch = {"x": torch.ones(2), "idx": torch.arange(2)}

    assert set(Arguments(compiled, CPU, None)(batch, bill_with_padding(2, 2))[1]) == {"x"}


def test_padding_rows_do_not_reach_the_model():
    """In any column of the batch's length, nested ones too; a rank that has only padding keeps its row."""
    bill = bill_with_padding(2, 4)
    batch = {"x": torch.arange(4.0), "scale": torch.tensor(3.0), "text": list("abcd"), "inner": {"y": torch.arange(4)}}

    _, kwargs = Arguments(model(lambda self, **b: b), CPU, torch.bfloat16)(batch, bill)
    (all_rows,), _ = Arguments(model(lambda self, x: x), CPU, None)(
        torch.arange(4.0), bill.replace(is_padding=np.ones(4, bool))
    )

    assert kwargs["x"].tolist() == [0, 1] and kwargs["x"].dtype == torch.bfloat16
    assert kwargs["text"] == ["a", "b"] and kwargs["inner"]["y"].tolist() == [0, 1]
    assert kwargs["inner"]["y"].dtype == torch.int64 and kwargs["scale"].item() == 3
    assert len(all_rows) == 4


@pytest.mark.parametrize(
    "output",
    [
        torch.tensor(2.0),
        {"loss": torch.tensor([2.0])},
        SimpleNamespace(loss=torch.tensor(2.0), logits=None),
        (torch.tensor(2.0), "logits"),
    ],
)
def test_a_loss_is_found_wherever_models_put_it(output):
    """A tensor, a dict, an attribute, the first of a tuple."""
    assert loss_of(output, rows=3).item() == 2.0 and loss_of(output, rows=3).ndim == 0


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ({"logits": torch.ones(3)}, "forward returned no loss; it has logits. Return the loss, or a dict with 'loss'"),
        (None, "forward returned no loss; a NoneType"),
        (torch.ones(3, 5), r"a loss of shape \(3, 5\) for 3 samples: expected one number, or one for each sample"),
        (torch.ones(4), r"a loss of shape \(4,\) for 3 samples"),
    ],
)
def test_outputs_without_a_usable_loss_are_refused(output, words):
    """With what was found and what to return."""
    with pytest.raises(SourceError, match=words):
        loss_of(output, rows=3)


def test_losses_add_up_by_dataset_and_altogether():
    """Padding counts nowhere; a loss of one number counts once a sample."""
    plan = Plan.make({"code": 2, "prose": 2}, batch_size=6, shuffle="none")
    bill = plan.bill(0, world=World(0, 1), pad=True)
    losses = Losses(plan.names, CPU)

    losses.add(torch.tensor([1.0, 3.0, 5.0, 7.0]), bill)
    first = losses.recent()
    losses.add(torch.tensor(8.0), bill)

    assert first == {"code": 2.0, "prose": 6.0, ALL: 4.0}
    assert losses.take() == {"code": 2.0, "prose": 6.0, ALL: 6.0}
    assert losses.num_samples == 8 and losses.take() == {}
