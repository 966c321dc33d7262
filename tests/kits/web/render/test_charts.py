"""Charts drawn here: the right places, round numbers, lines that stop where nothing is known."""

from __future__ import annotations

import pytest

from lading.kits.web.render.charts import Axis, axis_of, groups_chart, line_path, loss_chart


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0, 1_000_000, ["0", "200k", "400k", "600k", "800k", "1000k"]),
        (0, 7, ["0", "2", "4", "6"]),
        (0, 1199, ["0", "250", "500", "750", "1000"]),
        (1.93, 4.31, ["2.0", "2.5", "3.0", "3.5", "4.0"]),
        (0.0012, 0.0031, ["0.0015", "0.0020", "0.0025", "0.0030"]),
        (0, 0, ["0"]),
    ],
)
def test_ticks_are_round_numbers(low, high, texts):
    """As many as there is room for, all written alike."""
    assert [tick.text for tick in Axis(low, high).ticks(5)] == texts


def test_a_line_stops_where_a_value_is_missing():
    """A NaN is no zero and no bridge."""
    x, y = Axis(0, 4), Axis(0, 1)

    assert line_path(x, y, [0, 1, 2, 3, 4], [0.0, 1.0, None, float("nan"), 0.5]) == "M0 1000L250 0M1000 500"


def test_a_line_that_does_not_move_has_ticks_that_fit_beside_it():
    """Before, 0.001 had the ticks 0.00095, 0.000975 ...: cut off on a phone."""
    assert [tick.text for tick in axis_of([0.001, 0.001]).ticks(4)] == [
        "0.0000",
        "0.0005",
        "0.0010",
        "0.0015",
        "0.0020",
    ]


def test_an_axis_of_nothing_or_of_one_value_can_be_drawn():
    """No division by zero."""
    for values in ([], [None], [3.0], [0.0, 0.0], [float("inf"), 1.0]):
        axis = axis_of(values)
        assert axis.high > axis.low


def test_a_spike_leads_to_its_step_and_a_nan_to_nowhere():
    """Marks have a place; what has none is not drawn."""
    page = {
        "steps": 11,
        "loss": {"step": [0, 10], "value": [1.0, 2.0]},
        "undone": [],
        "changes": [{"step": 5, "what": "planned"}],
        "checkpoints": [],
        "spike_marks": [{"step": 10, "loss": 2.0}, {"step": 3, "loss": float("nan")}],
    }

    change, spike = loss_chart(page).marks

    assert (change.x, change.y) == (50.0, None)
    assert (spike.step, spike.x) == (10, 100.0)


def test_rollouts_of_one_policy_stand_between_its_neighbours():
    """Their axis counts updates: it does not begin at 0 because there is one value only."""
    row = {"reward": 1.0, "policy": 115, "rollout": 7, "fate": "applied"}

    found = groups_chart({"groups": [{"rollouts": [row, row]}], "dataset": 0, "index": 3})

    assert [tick.text for tick in found.x] == ["114", "115", "116"] and {mark.x for mark in found.marks} == {50.0}
