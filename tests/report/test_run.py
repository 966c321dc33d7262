"""Questions to a run, against what the plan says."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from rich.console import Console
from tests.report.runs import PLAN, record

from lading.errors import ConfigError, LedgerError
from lading.ledger import Ledger
from lading.order import Mixture, Plan
from lading.report import open_run
from lading.report.text import comparison


@given(dataset=st.integers(0, 1), index=st.integers(0, 300))
def test_where_is_the_inverse_of_step(rolled_back: Path, dataset: int, index: int):
    """Every place that `where` names holds the sample, and the plan knows no other."""
    run = open_run(rolled_back)

    found = [row for row in run.where(dataset, index) if row["fate"] == "applied"]

    assert [row["step"] for row in found] == [p.step for p in PLAN.where(dataset, index, 0, 130)]
    for row in found[:1]:
        held = run.step(row["step"]).samples.dicts()[row["slot"]]
        assert (held["dataset"], held["index"], held["rank"]) == (dataset, index, row["rank"])


def test_rolled_back_uses_are_listed_and_marked(rolled_back: Path):
    """Steps 60..99 happened twice; only the second counts."""
    sample = PLAN.bill(75).samples[0]

    rows = open_run(rolled_back).where(sample.dataset, sample.index).dicts()

    assert [(r["attempt"], r["fate"]) for r in rows if r["step"] == 75] == [(0, "rolled back"), (1, "applied")]


def test_the_future_is_listed_on_request(rolled_back: Path):
    """The plan knows where a sample will be used."""
    sample = PLAN.bill(500).samples[3]

    rows = open_run(rolled_back).where("code" if sample.dataset == 0 else "prose", sample.index, until=501).dicts()

    assert rows[-1]["step"] == 500
    assert rows[-1]["fate"] == "planned"


def test_a_step_tells_everything(rolled_back: Path):
    """Names, fate, loss, metrics, digest, and what happened to it before."""
    record_ = open_run(rolled_back).step(70)

    assert record_.batch_id == PLAN.bill(70).batch_id
    assert (record_.fate, record_.attempt, record_.update) == ("applied", 1, 70)
    assert record_.loss == pytest.approx(6.3)
    assert record_.metrics == {"lr": 0.1}
    assert record_.matches is True
    assert [e["fate"] for e in record_.earlier] == ["rolled back"]
    assert [(r["dataset"], r["index"]) for r in record_.samples] == [tuple(s) for s in PLAN.bill(70).samples]


def test_a_step_that_is_not_reached_is_planned(rolled_back: Path):
    """What will be in it is known all the same."""
    assert open_run(rolled_back).step(400).fate == "planned"
    assert len(open_run(rolled_back).step(400).samples) == 16


def test_history_digests_are_the_plans(rolled_back: Path):
    """Each step once, whatever the attempts and ranks."""
    history = open_run(rolled_back).history

    assert history["step"] == list(range(130))
    assert history["digest"] == [PLAN.bill(s).digest for s in range(130)]
    assert history["ranks"] == [1] * 60 + [3] * 70


@pytest.mark.parametrize("by", ["run", "epoch", "attempt", 25])
def test_mix_counts_what_the_bills_say(rolled_back: Path, by):
    """Samples of each dataset in each group add up to the bills' counts."""
    for row in open_run(rolled_back).mix(by):
        number = PLAN.number_of(row["dataset"])
        steps = range(row["first_step"], row["last_step"] + 1)
        assert row["samples"] == sum(PLAN.bill(s).counts().get(number, 0) for s in steps)


def test_mix_of_an_observed_run_is_the_same(rolled_back: Path, tmp_path: Path):
    """Counted from names instead of the plan."""
    with Ledger(tmp_path, names=PLAN.names) as ledger:
        for step in range(130):
            ledger.commit(PLAN.bill(step))

    for by in ("run", "epoch", 25):
        planned, observed = (open_run(p).mix(by).dicts() for p in (rolled_back, tmp_path))
        assert [(r["group"], r["dataset"], r["samples"]) for r in planned] == [
            (r["group"], r["dataset"], r["samples"]) for r in observed
        ]


def test_passes_and_coverage(rolled_back: Path, tmp_path: Path):
    """Two epochs and a bit: everything was seen, and some of it twice or three times."""
    rows = open_run(rolled_back).passes().dicts()
    assert [row["distinct"] for row in rows] == [700, 301]
    assert sum(row["samples"] for row in rows) == sum(PLAN.bill(s).num_samples for s in range(130))

    record(tmp_path, range(20))
    seen = {s for k in range(20) for s in PLAN.bill(k).samples}
    rows = open_run(tmp_path).coverage().dicts()
    assert [row["distinct"] for row in rows] == [sum(s.dataset == d for s in seen) for d in (0, 1)]


def test_coverage_with_a_skipped_step_is_counted_out(tmp_path: Path):
    """What no one used is not covered."""
    with Ledger(tmp_path, PLAN) as ledger:
        for step in range(10):
            if step == 4:
                ledger.skip(PLAN.bill(step), "overflow")
            else:
                ledger.commit(PLAN.bill(step))

    assert sum(r["distinct"] for r in open_run(tmp_path).passes()) == 144


def test_spikes_find_the_step(rolled_back: Path):
    """Step 70 costs 3 more than those around it."""
    assert [row["step"] for row in open_run(rolled_back).spikes()] == [70]


def test_a_loss_that_is_not_a_number_is_a_spike(tmp_path: Path):
    """NaN stands out."""
    with Ledger(tmp_path, PLAN) as ledger:
        for step in range(40):
            ledger.commit(PLAN.bill(step), loss=float("nan") if step == 30 else 1.0 + 0.01 * (step % 5))

    assert open_run(tmp_path).spikes()["step"] == [30]


def test_losses_by_dataset_prefer_what_training_measured(tmp_path: Path):
    """A metric loss/<dataset> wins over the batches' loss."""
    with Ledger(tmp_path, PLAN) as ledger:
        for step in range(20):
            ledger.commit(PLAN.bill(step), loss=1.0, **{"loss/code": 5.0})

    rows = open_run(tmp_path).losses(by="dataset", bins=1).dicts()

    assert {row["dataset"]: row["loss"] for row in rows} == {"code": 5.0, "prose": 1.0}


def test_explain_gathers_what_is_known(rolled_back: Path):
    """Shares against the plan, earlier exposures, losses around."""
    found = open_run(rolled_back).explain(70, around=3)

    assert sum(found.shares["samples"]) == 16
    assert [row["step"] for row in found.around] == [67, 68, 69, 70, 71, 72, 73]
    assert found.score > 6
    bill = PLAN.bill(70)
    expected = [len(PLAN.where(s.dataset, s.index, 0, 70)) for s in bill.samples]
    assert found.exposures["earlier"] == expected


def test_compare_names_the_first_step_and_its_samples(tmp_path: Path):
    """Another seed differs at once; a run that stops early differs in length."""
    record(tmp_path / "a", range(20))
    record(tmp_path / "b", range(20), world_size=4)
    record(tmp_path / "short", range(12))
    record(tmp_path / "seed", range(20), plan=Plan.make({"code": 700, "prose": 301}, batch_size=16, seed=4))
    run = open_run(tmp_path / "a")

    assert run.compare(tmp_path / "b").equal
    shorter = run.compare(tmp_path / "short")
    assert (shorter.kind, shorter.first_difference) == ("length", 12)
    other = run.compare(tmp_path / "seed")
    assert (other.kind, other.first_difference) == ("names", 0)
    assert other.plan_differences == ["seed 3 -> 4"]
    assert len(other.samples) >= 10


def test_compare_says_that_fates_differ_where_the_samples_are_the_same(tmp_path: Path):
    """A step that one run skipped holds the same samples in both."""
    for name, skipped in (("a", None), ("b", 7)):
        with Ledger(tmp_path / name, PLAN) as ledger:
            for step in range(10):
                if step == skipped:
                    ledger.skip(PLAN.bill(step), "overflow")
                else:
                    ledger.commit(PLAN.bill(step))

    found = open_run(tmp_path / "a").compare(tmp_path / "b")

    assert (found.kind, found.first_difference, found.differing_steps, found.samples) == ("fates", 7, 1, [])
    console = Console(width=200)
    with console.capture() as said:
        console.print(comparison(found))
    assert "steps hold the same samples, and their fates differ" in said.get()


@pytest.mark.parametrize("stopping", ["restart", "first_exhausted", "all_exhausted"])
def test_compare_says_that_a_length_differs_and_no_more(tmp_path: Path, stopping: str):
    """The same weights over a dataset that grew: the samples of an epoch follow from the lengths."""
    for name, length in (("a", 700), ("b", 720)):
        mixture = Mixture({"code": 1, "prose": 1}, stopping=stopping)
        record(
            tmp_path / name, range(5), plan=Plan.make({"code": length, "prose": 301}, batch_size=16, mixture=mixture)
        )

    found = open_run(tmp_path / "a").compare(tmp_path / "b")

    assert found.plan_differences == ["dataset 'code' 700 -> 720 samples"]


def test_compare_names_the_samples_of_an_epoch(tmp_path: Path):
    """Where they differ and nothing else does."""
    for name, samples in (("a", 500), ("b", 600)):
        mixture = Mixture({"code": 1, "prose": 1}, epoch_samples=samples)
        record(tmp_path / name, range(5), plan=Plan.make({"code": 700, "prose": 301}, batch_size=16, mixture=mixture))

    assert open_run(tmp_path / "a").compare(tmp_path / "b").plan_differences == ["samples of an epoch 500 -> 600"]


def test_compare_finds_one_sample_elsewhere(tmp_path: Path):
    """Two samples of one step exchanged between two runs of equal membership."""
    bill = PLAN.bill(5)
    idx, datasets = bill.idx.copy(), bill.dataset_idx.copy()
    idx[[2, 9]], datasets[[2, 9]] = idx[[9, 2]], datasets[[9, 2]]
    for name, used in (("a", bill), ("b", bill.replace(idx=idx, dataset_idx=datasets))):
        with Ledger(tmp_path / name, names=PLAN.names) as ledger:
            for step in range(8):
                ledger.commit(used if step == 5 else PLAN.bill(step))

    found = open_run(tmp_path / "a").compare(tmp_path / "b")

    assert (found.first_difference, found.differing_steps) == (5, 1)
    assert [row["slot"] for row in found.samples] == [2, 9]


def test_compare_finds_one_changed_byte(tmp_path: Path):
    """With record='content', equal names and other bytes are distinguished, down to the sample."""
    for name in ("a", "b"):
        with Ledger(tmp_path / name, PLAN, record="content") as ledger:
            for step in range(8):
                bill = PLAN.bill(step)
                batch = {"x": bill.idx.astype("uint8").reshape(-1, 1)}
                if name == "b" and step == 6:
                    batch["x"][3] ^= 1
                ledger.deliver(bill, batch)
                ledger.commit(bill)

    found = open_run(tmp_path / "a").compare(tmp_path / "b")

    assert (found.kind, found.first_difference) == ("content", 6)
    assert [row["slot"] for row in found.samples] == [3]
    assert open_run(tmp_path / "b").verify().holds


def test_sql_has_the_three_views(rolled_back: Path):
    """batches, history, samples: of every row, of each step, of every sample used."""
    run = open_run(rolled_back)

    assert run.sql("SELECT count(*) AS n FROM batches")["n"] == [100 + 3 * 70]
    assert run.sql("SELECT count(*) AS n FROM history")["n"] == [130]
    counted = run.sql("SELECT name, count(*) AS n FROM samples JOIN history USING (step) GROUP BY name ORDER BY name")
    assert counted["n"] == [r["samples"] for r in run.mix()]
    few = run.sql("SELECT count(*) AS n FROM samples", steps=(10, 12))
    assert few["n"] == [32]
    assert run.sql("SELECT sum(samples) AS n FROM history")["n"] == [sum(r["samples"] for r in run.mix())]


def test_sql_that_is_wrong_says_why(rolled_back: Path):
    """DuckDB's own words, and the names of the views."""
    with pytest.raises(ConfigError, match=r"nowhere does not exist.*The views are batches, history and samples"):
        open_run(rolled_back).sql("SELECT * FROM nowhere")


def test_results_come_in_every_form(rolled_back: Path):
    """Arrow, pandas, Polars, dicts."""
    table = open_run(rolled_back).history

    assert isinstance(table.arrow, pa.Table)
    assert isinstance(table.pandas(), pd.DataFrame)
    assert isinstance(table.polars(), pl.DataFrame)
    assert table.dicts()[3]["step"] == 3
    assert pl.DataFrame(table).height == 130


def test_wrong_questions_are_answered_with_what_there_is(rolled_back: Path, tmp_path: Path):
    """Unknown datasets, groups, runs."""
    run = open_run(rolled_back)

    with pytest.raises(ConfigError, match="no dataset 'poems' in this run: it has 'code', 'prose'"):
        run.where("poems", 1)
    with pytest.raises(ConfigError, match="by is 'week': expected run, epoch, chunk, attempt or a number of steps"):
        run.mix("week")
    with pytest.raises(ConfigError, match="step -1 is negative"):
        run.step(-1)
    with pytest.raises(LedgerError, match=r"holds no run: expected .*run\.json in it"):
        open_run(tmp_path)


def test_an_empty_run_can_be_asked(tmp_path: Path):
    """Described, begun, nothing delivered."""
    ledger = Ledger(tmp_path, PLAN)
    ledger.begin(0)
    ledger.close()

    run = open_run(tmp_path)

    assert len(run.history) == 0
    assert run.verify(allow_empty=True).holds
    assert run.where("code", 3).dicts() == []
    assert run.mix().dicts() == []
    assert run.passes().dicts()[0]["samples"] == 0
