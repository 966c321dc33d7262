"""The witness over every framework: ended in order, by an exception, by ``kill -9``; resumed; 0 differences."""

from __future__ import annotations

import pytest
from tests.campaigns.witness import ENDS, SETUPS, run_case, start_server

_NEEDS = {
    "jax": "jax",
    "track_stateful": "torchdata",
    "trainer": "transformers",
    "trainer_accumulated": "transformers",
    "trainer_skips": "transformers",
    "trl_sft": "trl",
    "accelerate": "accelerate",
    "lightning": "lightning",
    "lightning_skips": "lightning",
    "deepspeed": "deepspeed",
    "ray": "ray",
    "ray_workers": "ray",
}
_STATES = {"finished": "ended", "exception": "failed", "kill": "crashed"}


@pytest.mark.launch
@pytest.mark.parametrize(("setup", "end"), [("numpy", "kill"), ("loader", "kill"), ("track_stateful", "exception")])
def test_killed_and_resumed_the_books_are_what_the_model_was_given(tmp_path, setup, end):
    """The small twin of the campaign below."""
    pytest.importorskip(_NEEDS.get(setup, "numpy"))
    start_server(frameworks=False)

    found = run_case(setup, end, tmp_path)

    assert found.get("failed") is None and found["differences"] == [], found
    assert found["state"] == _STATES[end]


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("setup", SETUPS)
def test_every_framework_however_it_ends(tmp_path, setup):
    """Three ways to end, each resumed in another process; the books say what the model was trained on."""
    pytest.importorskip(_NEEDS.get(setup, "numpy"))
    start_server()

    found = [run_case(setup, end, tmp_path / end) for end in ENDS]

    assert [case for case in found if case.get("failed") or case["differences"]] == []
    assert [case["state"] for case in found] == [_STATES[end] for end in ENDS]
