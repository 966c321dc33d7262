"""Means per dataset: padding left out, ranks added up, every framework the same."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.launching import torchrun

from lading.errors import SourceError
from lading.order import Plan
from lading.train.metrics import dataset_means, per_dataset_mean, per_dataset_token_mean, token_owners

pytestmark = pytest.mark.jax

torch = pytest.importorskip("torch")

PLAN = Plan.make({"code": 50, "prose": 30, "web": 7}, batch_size=16, seed=3)


def expected_means(plan: Plan, step: int) -> dict[str, float]:
    """Return the mean index of each dataset in a step, by hand."""
    bill = plan.bill(step)
    return {
        name: float(np.mean(bill.idx[bill.dataset_idx == d]))
        for d, name in enumerate(plan.names)
        if (bill.dataset_idx == d).any()
    }


@given(st.integers(0, 20))
def test_means_are_those_of_each_datasets_rows(step):
    """A value per sample, averaged by dataset; datasets that were not seen are absent."""
    bill = PLAN.bill(step)

    assert per_dataset_mean(bill.idx.astype(float), bill) == pytest.approx(expected_means(PLAN, step))


def test_padding_rows_do_not_count():
    """A short last batch that is filled up gives the means of its real rows."""
    last = PLAN.epoch_steps(0) - 1
    bill = PLAN.bill(last, pad=True)
    values = np.where(bill.is_padding, 1e9, bill.idx)

    assert bill.is_padding.any()
    assert per_dataset_mean(values, bill) == pytest.approx(expected_means(PLAN, last))


def test_frameworks_agree():
    """NumPy, torch (bfloat16 and with gradients, too) and JAX give the same numbers."""
    jnp = pytest.importorskip("jax.numpy")
    bill = PLAN.bill(2)
    values = bill.idx.astype(np.float32)

    expected = expected_means(PLAN, 2)

    for array in (
        values,
        torch.tensor(values, requires_grad=True),
        torch.tensor(values).bfloat16(),
        jnp.asarray(values),
    ):
        assert per_dataset_mean(array, bill) == pytest.approx(expected)


def test_tokens_of_packed_rows_belong_to_their_documents_dataset():
    """Owners come from document numbers; padding tokens and masked ones are left out."""
    document_idx = np.array([[1, 1, 3, 3, 0], [2, 4, 4, 4, 4]])
    loss = np.array([[1.0, 3.0, 10.0, 20.0, 99.0], [5.0, 30.0, 40.0, 50.0, 99.0]])
    mask = loss < 90

    owners = token_owners(document_idx, [2, 2])

    assert owners.tolist() == [[0, 0, 1, 1, -1], [0, 1, 1, 1, 1]]
    assert per_dataset_token_mean(torch.tensor(loss), torch.tensor(owners), names=("a", "b"), mask=mask) == {
        "a": 3.0,
        "b": 30.0,
    }


def test_tokens_of_whole_rows_belong_to_the_bills_dataset():
    """Where a row is of one dataset the bill is enough."""
    bill = PLAN.bill(0)
    loss = np.repeat(bill.idx[:, None].astype(float), 5, axis=1)

    assert per_dataset_token_mean(loss, bill) == pytest.approx(expected_means(PLAN, 0))


def test_wrong_shapes_are_refused():
    """A loss that was reduced too early, owners of another shape, documents no one has, names missing."""
    bill = PLAN.bill(0)
    with pytest.raises(SourceError, match=r"the shape \(\), the batch 16 rows.*reduction='none'"):
        per_dataset_mean(torch.tensor(1.0), bill)
    with pytest.raises(SourceError, match=r"loss_per_token has the shape \(2, 3\), the owners \(2, 2\)"):
        per_dataset_token_mean(np.zeros((2, 3)), np.zeros((2, 2)), names=("a",))
    with pytest.raises(SourceError, match="document numbers go from 1 to 9: expected 0"):
        token_owners([[1, 9]], [2, 2])
    with pytest.raises(SourceError, match=r"Pass names=plan\.names"):
        dataset_means(np.zeros(2), np.zeros(2), (), reduce=False)


@pytest.mark.launch
def test_two_ranks_add_up_and_agree(tmp_path):
    """Real ranks: torch's and JAX's means are those of one process, trackers add up, quarrels are named."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torchrun(Path(__file__).parent / "scripts" / "agree.py", 2, tmp_path, port)

    found = [json.loads((tmp_path / f"found-{rank}.json").read_text()) for rank in range(2)]
    for rank in found:
        for framework in ("torch", "jax"):
            assert rank["means"][framework][0] == pytest.approx(expected_means(PLAN, 0))
            assert rank["means"][framework][1] == pytest.approx(expected_means(PLAN, PLAN.epoch_steps(0) - 1))
        assert sum(rank["counts"]) == 48
        assert rank["jax"] == [
            "ranks disagree on the seed: rank 1 differs from rank 0 (seed 0 -> 1).",
            "2",
            "3",
            "4",
        ]
    chunks = [rank["chunks"] for rank in found]
    assert chunks[0] == chunks[1] and len(chunks[0]) == 4
    for said, what in zip(chunks[0], ("a chunk size", "the next chunk", "a reweighting", "a rescoring"), strict=True):
        assert (
            said.startswith(f"ranks disagree on {what}: rank 1 differs from rank 0") and "Nothing was changed" in said
        )
    quarrels = [rank["errors"] for rank in found]
    assert quarrels[0][0] == quarrels[1][0]
    assert quarrels[0][0].startswith("WorldError: ranks disagree on a reweighting: rank 1 differs from rank 0 (integer")
    assert quarrels[0][1].startswith("MixtureError: a weight is -1")
    assert quarrels[1][1].startswith("WorldError: ranks disagree on a reweighting: rank 1 differs")
