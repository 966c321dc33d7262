"""What notebooks show: tables of what is known, and nothing that acts."""

from __future__ import annotations

from tests.report.runs import record

from lading.order import Mixture, Plan
from lading.report import open_run

EVIL = "<script>alert(1)</script>"


def test_runs_steps_plans_and_tables_show_themselves(tmp_path):
    """As HTML, escaped, short."""
    plan = Plan.make({EVIL: 700, "b": 300}, batch_size=8, mixture=Mixture({EVIL: 3, "b": 1}))
    record(tmp_path, range(80), plan=plan)
    run = open_run(tmp_path)

    shown = {
        "run": run._repr_html_(),
        "step": run.step(70)._repr_html_(),
        "plan": plan._repr_html_(),
        "table": run.history._repr_html_(),
    }

    assert all("<table>" in html for html in shown.values())
    assert not [name for name, html in shown.items() if "<script" in html]
    assert "75.00%" in shown["plan"] and "&lt;script&gt;" in shown["plan"]
    assert "80 steps, 1 attempt" in shown["run"] and "spikes" in shown["run"]
    assert "as planned" in shown["step"]
    assert "and 50 more rows" in shown["table"]
