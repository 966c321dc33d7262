"""The pages of the site and their twins: every address answers, nothing in a run acts, no address leaves the runs."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from tests.kits.web.render.test_page import Outline
from tests.report.checkpoint.models import plan_of, trained
from tests.report.runs import leave, record

from lading.kits.web.ui.site import Site
from lading.ledger import Ledger
from lading.order import Plan
from lading.order.packing.file import save_index
from lading.order.packing.index import PackingIndex
from lading.report.folder import named_runs
from lading.runtime.processes import command_line, process_identity
from lading.source.looks import SourceLooks

ATTACK = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><svg onload=alert(1)>{{7*7}}%{x}"
    "\x1b[2J\u202e\u200b</title></style>javascript:alert(1)"
)
HTML = "<img src=x onerror=alert(1)>"
PLAN = Plan.make({ATTACK: 60, "prose" + ATTACK: 30}, batch_size=8, seed=4)


class Evil:
    """A source whose texts are attacks."""

    def __getitem__(self, index: int) -> dict[str, str]:
        return {"text": f"{ATTACK} {index}", "label": ATTACK}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Site:
    """Two runs whose names, datasets, reasons, metrics and samples are attacks."""
    home = tmp_path_factory.mktemp("hostile")
    folder = home / "runs<img src=x onerror=alert(1)>" / "7'\"><b>"
    ledger = Ledger(folder, PLAN)
    for step in range(40):
        bill = PLAN.bill(step)
        ledger.deliver(bill)
        if step == 3:
            ledger.skip(bill, ATTACK)
        else:
            loss = 9.0 if step == 30 else 1.0 + 0.01 * (step % 3)
            ledger.commit(bill, update=step, loss=loss, **{f"m{ATTACK}": 1.0, f"loss/{ATTACK}": 2.0})
    ledger.flush()
    leave(ledger)
    record(home / "other", range(40), plan=Plan.make({"code": 60, "prose": 30}, batch_size=8, seed=2))
    return Site(named_runs([home]), SourceLooks(Evil()))


def addresses(site: Site) -> list[str]:
    """Return an address of every kind of page."""
    evil = next(name for name in site._runs if name != "other")
    return [
        "/?all=1",
        f"/r/{evil}",
        f"/r/{evil}/steps/20-39",
        f"/r/{evil}/step/3",
        f"/r/{evil}/step/30",
        f"/r/{evil}/step/99",
        f"/r/{evil}/sample/0/5",
        f"/r/{evil}/sample/1/5",
        f"/compare?left={evil}&right=other",
        "/compare",
        f"/search?q={ATTACK}",
        "/nowhere" + ATTACK,
        f"/r/{evil}/sample/7/5",
    ]


def ask(site: Site, address: str):
    """Return the answer to an address that is not encoded."""
    path, _, query = address.partition("?")
    pairs = [part.partition("=") for part in query.split("&")] if query else []
    return site.answer(path, {key: value for key, _, value in pairs})


@pytest.mark.parametrize("number", range(13))
def test_nothing_that_comes_from_a_run_acts_on_any_page(hostile, number: int):
    """Names of runs, datasets, metrics, reasons, texts and queries: no element, no handler, no script of theirs."""
    address = addresses(hostile)[number]

    answer = ask(hostile, address)

    outline = Outline(answer.body)
    scripts = [attributes.get("src") for tag, attributes in outline.elements if tag == "script"]
    assert answer.status == (404 if number >= 11 else 200)
    assert set(scripts) <= {"/static/page.js", "/static/chart.js", "/static/runs.js"}
    assert not {"svg", "img", "iframe", "b"} & {
        tag for tag, attributes in outline.elements if not attributes.get("viewbox")
    }
    assert not [n for _, attributes in outline.elements for n in attributes if n.startswith("on")]
    links = [v or "" for _, a in outline.elements for n, v in a.items() if n in ("href", "src", "action")]
    assert all(link.startswith(("/", "data:", "#live-")) and not link.startswith("//") for link in links)
    assert not set("\x1b\u202e\u200b") & set(answer.body)


@pytest.mark.parametrize("number", range(9))
def test_every_page_has_a_twin(hostile, number: int):
    """The same address with .json: one document."""
    address = addresses(hostile)[number].replace("/?all=1", "/index")
    path, mark, query = address.partition("?")

    answer = ask(hostile, f"{path}.json{mark}{query}")

    assert (answer.status, answer.kind) == (200, "json")
    assert json.loads(answer.body)


def test_samples_lead_to_steps_and_steps_to_samples(hostile):
    """Links on the pages are addresses of pages."""
    from urllib.parse import unquote

    evil = next(name for name in hostile._runs if name != "other")
    seen = set()
    for start in (f"/r/{evil}", f"/r/{evil}/step/30", f"/r/{evil}/sample/0/5"):
        for _, attributes in Outline(ask(hostile, start).body).elements:
            href = attributes.get("href") or ""
            if href.startswith("/r/"):
                path = unquote(href.partition("#")[0].partition("?")[0])
                kind = "step" if "/step/" in path else "sample" if "/sample/" in path else "run"
                if (start, kind, path.endswith(".json")) not in seen:
                    seen.add((start, kind, path.endswith(".json")))
                    assert hostile.answer(path, {}).status == 200, path
    assert {kind for _, kind, _ in seen} == {"run", "step", "sample"}


@pytest.mark.parametrize(
    "path",
    [
        *("/r/../../etc/passwd", "/r/other/../../secret", "/r/", "/r", "/etc/passwd", "//evil.example/", "/r/none"),
        *("/r/other/step/-1", "/r/other/step/1.5", "/r/other/step/x", "/r/other/step/99999999999999999999"),
        *("/r/other/step/٣", "/r/other/sample/0", "/r/other/sample/0/1/2", "/r/other/secret", "/r/other/sample/9/1"),
        *("/compare/x", "/r/other.json.json", "/r/other/document/0/1", "/index.html", "/.json"),
    ],
)
def test_what_is_no_page_is_not_found(hostile, path: str):
    """Traversal, numbers that are none, datasets that are not there: 404, as a page or as JSON."""
    assert hostile.answer(path, {}).status == 404


@pytest.mark.parametrize("kind", ["html", "json"])
def test_a_sample_is_found_by_the_name_of_its_dataset(tmp_path, kind: str):
    """The guide promises it; a name may hold slashes, and digits are a number, as in our own links."""
    plan = Plan.make({"code": 60, "web/en": 30, "0": 10}, batch_size=8)
    record(tmp_path / "run", range(9), plan=plan)
    site, end = Site({"run": tmp_path / "run"}), ".json" if kind == "json" else ""

    found = {name: site.answer(f"/r/run/sample/{name}/5{end}", {}) for name in ("code", "web/en", "0", "1")}

    assert {name: answer.status for name, answer in found.items()} == dict.fromkeys(found, 200)
    assert found["code"].body == found["0"].body and found["web/en"].body == found["1"].body
    assert site.answer(f"/r/run/sample/prose/5{end}", {}).status == 404


def test_search_goes_where_a_query_points(hostile):
    """A step, the last one, a sample by name or number; part of a run's name."""
    found = {
        q: hostile.answer("/search", {"q": q, "run": "other"}).location
        for q in ("17", "step 17", "last", "code:5", "1:5", "oth")
    }

    assert found == {
        "17": "/r/other/step/17",
        "step 17": "/r/other/step/17",
        "last": "/r/other/step/39",
        "code:5": "/r/other/sample/0/5",
        "1:5": "/r/other/sample/1/5",
        "oth": "/r/other",
    }
    assert "Nothing was found." in hostile.answer("/search", {"q": "zzz"}).body


def test_a_run_that_grows_is_seen(tmp_path):
    """Its version changes with its files; unchanged it costs a few bytes."""
    plan = Plan.make({"a": 500}, batch_size=4)
    ledger = Ledger(tmp_path / "run", plan)
    ledger.begin(0)
    ledger.commit(plan.bill(0), update=0, loss=1.0)
    ledger.flush()
    site = Site({"run": tmp_path / "run"})
    first = json.loads(site.answer("/r/run.json", {}).body)

    same = json.loads(site.answer("/r/run.json", {"since": first["version"]}).body)
    ledger.commit(plan.bill(1), update=1, loss=0.5)
    ledger.flush()
    more = json.loads(site.answer("/r/run.json", {"since": first["version"]}).body)
    ledger.close()
    ended = json.loads(site.answer("/r/run.json", {"since": more["version"]}).body)

    assert same == {"version": first["version"], "unchanged": True}
    assert (first["steps"], more["steps"], first["state"], ended["state"]) == (1, 2, "running", "ended")


def test_documents_have_pages(tmp_path):
    """Of a packed dataset: its rows and their steps."""
    index = save_index(PackingIndex.build([5, 20, 3, 9, 4], row_length=8, overflow="split"), tmp_path)
    plan = Plan.make({"corpus": len(index)}, batch_size=2, seed=1)
    from dataclasses import replace

    plan = replace(plan, datasets=(replace(plan.datasets[0], location=str(index.path)),))
    record(tmp_path / "run", range(plan.epoch_steps(0)), plan=plan)
    site = Site({"run": tmp_path / "run"})

    page = json.loads(site.answer("/r/run/document/0/1.json", {}).body)

    assert {row["index"] for row in page["uses"]} == {piece.row for piece in index.rows_of_document(1)}
    assert site.answer("/r/run/document/0/1", {}).status == 200
    assert site.answer("/search", {"q": "document 1 of corpus"}).location == "/r/run/document/0/1"


def test_a_mean_of_a_dataset_is_no_sample_s_loss(tmp_path):
    """A metric loss/<dataset> is one number for many rows: the page prints it as the metric that it is, no more."""
    plan = Plan.make({"a": 50}, batch_size=2)
    with Ledger(tmp_path / "run", plan) as ledger:
        ledger.commit(plan.bill(0), update=0, loss=2.0, **{"loss/a": 2.0})
    site = Site({"run": tmp_path / "run"})

    page = json.loads(site.answer("/r/run/step/0.json", {}).body)

    assert [(row["loss"], row["loss_share"]) for row in page["samples"]] == [(None, None)] * 2
    assert page["has_losses"] is False and page["metrics"] == {"loss/a": 2.0}


def test_a_folder_of_many_runs_is_listed_quickly(tmp_path):
    """A glance at each, not a database for each. 200 runs take under two seconds on a quiet machine; here 40."""
    record(tmp_path / "run-00", range(40))
    for number in range(1, 40):
        shutil.copytree(tmp_path / "run-00", tmp_path / f"run-{number:02d}")
    site = Site(named_runs([tmp_path]))

    began = time.process_time()
    rows = json.loads(site.answer("/index.json", {}).body)

    assert len(rows) == 40 and {row["steps"] for row in rows} == {40}
    assert time.process_time() - began < 3.0
    assert Path(tmp_path / "run-00" / "run.json").exists()


def test_a_long_run_is_shown_before_all_of_it_is_worked_out(tmp_path, monkeypatch):
    """At once: its length, its loss, its tables. When that is shown: spikes and shares. The next reader waits for none.

    Before, a run of 10^6 steps was shown when its spikes had been looked for.
    """
    monkeypatch.setattr("lading.kits.web.ui.site._STEPS_AT_ONCE", 50)
    record(tmp_path / "run", range(90), plan=Plan.make({"code": 700, "prose": 301}, batch_size=8, seed=3))
    site = Site({"run": tmp_path / "run"})

    first = site.answer("/r/run", {}).body
    assert "data-later" in first and "looking for spikes" in first and 'id="loss"' in first and 'id="mix"' not in first
    assert site.answer("/r/run", {}).body is first, "it is not made twice"
    whole = site.answer("/r/run", {"whole": ""}).body
    assert "data-later" not in whole and "looking for" not in whole and 'id="mix"' in whole
    assert site.answer("/r/run", {}).body is whole
    fresh = Site({"run": tmp_path / "run"})
    fresh.answer("/r/run.json", {})
    assert fresh.answer("/r/run", {}).body == whole


def test_a_long_list_is_shown_before_every_run_is_read(tmp_path, monkeypatch):
    """Names of all, and what the first of them are; the page asks for the rest."""
    monkeypatch.setattr("lading.kits.web.ui.site._RUNS_AT_ONCE", 1)
    for name in ("a", "b", "c"):
        record(tmp_path / name, range(5), config={"lr": len(name)})
    site = Site(named_runs([tmp_path]))

    first, whole = site.answer("/", {}).body, site.answer("/", {"whole": ""}).body

    assert first.count("reading …") == 2 and "data-later" in first and first.count("data-run=") == 3
    assert "reading …" not in whole and "data-later" not in whole
    assert site.answer("/", {}).body == whole


def test_pages_without_an_answer_say_what_to_do(tmp_path):
    """Nothing to compare yet, a step that is still to come, a search for nothing: a sentence, and no empty table."""
    record(tmp_path / "a", range(5))
    record(tmp_path / "b", range(5))
    site = Site(named_runs([tmp_path]))

    compare, later, search = (site.answer(p, {}).body for p in ("/compare", "/r/a/step/40", "/search"))

    assert "Choose two runs." in compare and '<option value="b" selected>' in compare
    assert "The last recorded step is" in later and "Losses around it" not in later
    assert (
        "Losses around it" in site.answer("/r/a/step/4", {}).body
        and "last recorded" not in site.answer("/r/a/step/4", {}).body
    )
    assert "Type a step" in search and "Nothing was found" not in search


def test_checkpoints_are_marked_and_have_a_page_with_their_family(tmp_path):
    """On the curve and in a table; by the SHA-256 of the waybill, and by nothing else; one that is gone says so."""
    trained(tmp_path / "runs" / "a", tmp_path / f"base{HTML}", range(5), plan=plan_of(0))
    trained(tmp_path / "runs" / "b", tmp_path / "tuned", range(3), plan=plan_of(1), base=[tmp_path / f"base{HTML}"])
    site = Site(named_runs([tmp_path / "runs"]))
    saved = json.loads(site.answer("/r/b.json", {}).body)["checkpoints"]
    address = f"/r/b/checkpoint/{saved[0]['waybill']}"

    assert f'href="{address}"' in site.answer("/r/b", {}).body
    page = site.answer(address, {})
    assert page.status == 200 and "<strong>tuned</strong>" in page.body
    assert HTML not in page.body and "base&lt;img" in page.body
    values = json.loads(site.answer(f"{address}.json", {}).body)
    assert [row["depth"] for row in values["tree"]] == [0, 1]
    parent = f"/r/a/checkpoint/{values['tree'][1]['waybill']}"
    assert f'href="{parent}"' in page.body and site.answer(parent, {}).status == 200
    assert '<td class="word"><a href="/r/a">a</a></td>' in page.body, "the run that taught it, by name"
    assert sum(row["samples"] for row in values["totals"]) == 32
    assert site.answer("/r/b/checkpoint/..%2f..", {}).status == 404
    shutil.rmtree(tmp_path / "tuned")
    assert "there is no checkpoint" in site.answer(address, {}).body


def test_every_committed_metric_is_a_curve_and_a_stretch_of_it_is_drawn_finer(tmp_path):
    """Metrics of a family share a chart; of a long run no peak is lost, and a stretch has every step."""
    plan = Plan.make({"a": 50_000}, batch_size=2)
    with Ledger(tmp_path / "run", plan) as ledger:
        for step in range(5000):
            more = {"lr": 0.1, "loss/a": 1.0, "loss/b": 2.0, "grad": 9.0 if step == 4321 else 1.0}
            ledger.commit(plan.bill(step), update=step, loss=1.0, **more)
    site = Site({"run": tmp_path / "run"})

    whole = json.loads(site.answer("/r/run/curves.json", {}).body)
    part = json.loads(site.answer("/r/run/curves.json", {"first": "4300", "last": "4399"}).body)

    assert [chart["name"] for chart in whole["charts"]] == ["loss", "grad", "loss/*", "lr"]
    grad = whole["charts"][1]["lines"][0]
    assert len(grad["step"]) <= 2002 and max(grad["value"]) == 9.0 and 4321 in grad["step"]
    assert len(grad["mean"]) == len(grad["mean_step"]) <= 1001
    assert part["charts"][1]["lines"][0]["step"] == list(range(4300, 4400))
    assert whole["clock"]["samples"][-1] == 10_000 and whole["clock"]["tokens"] is None
    assert site.answer("/r/run/curves", {}).status == 404
    assert site.answer("/r/run/curves.json", {"first": "x"}).status == 404


def test_a_stretch_has_its_shares_and_its_samples(tmp_path):
    """Page after page, every sample of every step once."""
    plan = Plan.make({"a": 5000, "b": 3000}, batch_size=50, seed=1)
    record(tmp_path / "run", range(80), plan=plan)
    site = Site({"run": tmp_path / "run"})

    found, since = [], "30"
    while since is not None:
        page = json.loads(site.answer("/r/run/steps/30-75.json", {"since": since}).body)
        found += [(s["step"], r["name"], r["index"]) for s in page["listed"] for r in s["samples"]]
        since = None if page["next"] is None else str(page["next"])

    wanted = [(step, name, index) for step in range(30, 76) for name, index in named(plan, step)]
    assert found == wanted
    assert {row["dataset"]: row["samples"] for row in page["shares"]} == {
        name: sum(row[1] == name for row in wanted) for name in ("a", "b")
    }
    assert [spike["step"] for spike in page["spikes"]] == [70] and page["loss"]["highest"]["step"] == 70
    assert [cell["last"] for cell in page["strip"] if cell["kind"] == "spike"] == [70]
    assert site.answer("/search", {"q": "30-75"}).location == "/r/run/steps/30-75"
    for wrong in ("/r/run/steps/80-90", "/r/run/steps/9-3", "/r/run/steps/a-b", "/r/run/steps/-"):
        assert site.answer(wrong, {}).status == 404


def named(plan: Plan, step: int) -> list[tuple[str, int]]:
    """Return the samples of a step by name."""
    bill = plan.bill(step)
    return [(plan.names[d], i) for d, i in zip(bill.dataset_idx.tolist(), bill.idx.tolist(), strict=True)]


def test_the_verdict_is_that_of_verify(tmp_path):
    """Asked for beside the page, and worked out once for what the run is."""
    record(tmp_path / "run", range(40), part_rows={"batches": 10})
    site = Site({"run": tmp_path / "run"})

    first = json.loads(site.answer("/r/run/verdict.json", {}).body)
    part = sorted((tmp_path / "run").rglob("part-*.parquet"))[1]
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    fresh = json.loads(Site({"run": tmp_path / "run"}).answer("/r/run/verdict.json", {}).body)

    assert (first["holds"], first["steps"], fresh["holds"]) == (True, 40, False)
    assert json.loads(site.answer("/r/run/verdict.json", {}).body) == first


def test_the_newest_run_is_the_first_and_each_has_its_curve(tmp_path):
    """A sparkline of at most 48 values, and the settings that differ; one that cannot be read says why."""
    record(tmp_path / "a", range(300), config={HTML: 0.1, "width": 96})
    time.sleep(1.1)  # times in the list are whole seconds
    record(tmp_path / "b", range(5), config={HTML: 0.3, "width": 96})
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "run.json").write_text("{")
    site = Site(named_runs([tmp_path]))

    rows = {row["run"]: row for row in json.loads(site.answer("/index.json", {}).body)}
    outline = Outline(site.answer("/", {}).body)
    shown = [a["data-run"] for tag, a in outline.elements if tag == "tr" and "data-run" in a]

    assert shown == ["b", "a", "c"]
    assert {name: len(row["curve"]) for name, row in rows.items()} == {"a": 48, "b": 5, "c": 0}
    assert rows["c"]["state"] == "damaged" and rows["c"]["problem"]
    columns = [a["data-key"] for tag, a in outline.elements if tag == "th" and "data-key" in a]
    assert f"config/{HTML}" in columns and "img" not in {tag for tag, _ in outline.elements}
    assert "settings" in Outline(site.answer("/r/a", {}).body).text


def test_a_run_that_goes_on_says_with_what_it_was_started(tmp_path):
    """The process of the run on this machine is asked; the ledger keeps no command, and a run that ended has none."""
    plan = Plan.make({"a": 500}, batch_size=4)
    ledger = Ledger(tmp_path / "run", plan)
    ledger.commit(plan.bill(0), loss=1.0)
    ledger.flush()
    site = Site({"run": tmp_path / "run"})
    started_with = command_line(*process_identity(os.getpid()))  # where setproctitle is installed, xdist's own words

    before = Outline(site.answer("/r/run", {}).body).text
    ledger.close()
    after = Outline(site.answer("/r/run", {}).body).text

    assert started_with and started_with.split()[0] in before and "command" in before and "command" not in after
    assert "command" not in json.loads(site.answer("/r/run.json", {}).body)


def test_runs_whose_fates_differ_are_compared(tmp_path):
    """Each kind of difference has its words on the page: fates, nothing to compare."""
    plan = Plan.make({"code": 60}, batch_size=4, seed=2)
    for name, steps in {"used": 3, "skipped": 3, "empty": 0, "none": 0}.items():
        with Ledger(tmp_path / name, plan) as ledger:
            ledger.begin(0)
            for bill in map(plan.bill, range(steps)):
                ledger.skip(bill, "nan") if name == "skipped" else ledger.commit(bill, loss=1.0)
    site = Site(named_runs([tmp_path]))

    fates, nothing = (
        site.answer("/compare", {"left": left, "right": right})
        for left, right in (("used", "skipped"), ("empty", "none"))
    )

    assert (fates.status, nothing.status) == (200, 200)
    assert "the same samples, and their fates differ" in fates.body
    assert "Nothing to compare" in nothing.body
