"""The page: self-contained, drawn without an error, and nothing in a run can break out of its text."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.report.runs import record

from lading.cli import main
from lading.identity import World
from lading.ledger import Ledger
from lading.order import Plan
from lading.report import open_run
from lading.report.render.charts import label, thinned
from lading.report.render.page import page, write_page

EVIL = "<script>alert(1)</script>"
LONG = [f"common-crawl-2023-50-filtered-deduplicated-language-{i:02d}-with-a-very-long-name" for i in range(12)]


def many_attempts(path: Path) -> None:
    """Three attempts on 1, 2 and 3 ranks, with an evil name, a skipped step and a spike."""
    plan = Plan.make({"code": 300, EVIL: 200}, batch_size=16, seed=1)
    for attempt, (start, stop) in enumerate([(0, 60), (40, 90), (70, 120)]):
        ledgers = [Ledger(path, plan, rank=rank, world_size=attempt + 1) for rank in range(attempt + 1)]
        for step in range(start, stop):
            for rank, ledger in enumerate(ledgers):
                bill = plan.bill(step, world=World(rank, attempt + 1))
                if step == 20:
                    ledger.skip(bill, EVIL)
                else:
                    ledger.commit(bill, update=step, loss=2.0 + 0.01 * (step % 7) + (step == 100) * 5)
        for ledger in ledgers:
            ledger.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages of three runs."""
    home = tmp_path_factory.mktemp("pages")
    record(home / "one", range(80), plan=Plan.make({"tinystories": 5000}, batch_size=16))
    record(home / "twelve", range(80), plan=Plan.make(dict.fromkeys(LONG, 300), batch_size=48))
    many_attempts(home / "three")
    for name in ("one", "twelve", "three"):
        write_page(open_run(home / name), home / f"{name}.html")
    return {name: home / f"{name}.html" for name in ("one", "twelve", "three")}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium on this machine")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.browser
@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("name", ["one", "twelve", "three"])
def test_the_page_draws_without_an_error_and_without_a_request(browser, pages, name: str, width: int):
    """No console error, no dialog, no request but the file itself, charts drawn, nothing wider than the screen."""
    view = browser.new_page(viewport={"width": width, "height": 800})
    trouble: list[str] = []
    requests: list[str] = []
    view.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    view.on("pageerror", lambda error: trouble.append(str(error)))
    view.on("dialog", lambda dialog: (trouble.append("a dialog opened"), dialog.dismiss()))
    view.on("request", lambda request: requests.append(request.url))

    view.goto(pages[name].as_uri())
    view.wait_for_selector("body[data-ready=yes]", timeout=60_000)

    assert trouble == []
    assert requests == [pages[name].as_uri()]
    charts = view.locator(".chart")
    assert charts.count() == (4 if name == "one" else 5)
    for i in range(charts.count()):
        assert charts.nth(i).locator(".main-svg").count() >= 1
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    assert view.locator("#steps tbody tr").count() == 50
    view.close()


@pytest.mark.browser
def test_steps_can_be_paged_through(browser, pages):
    """Next, back, and straight to a step."""
    view = browser.new_page()
    view.goto(pages["three"].as_uri())
    view.wait_for_selector("body[data-ready=yes]", timeout=60_000)

    view.click("#next")
    assert view.inner_text("#place") == "51–100 of 120"
    view.fill("#goto", "20")
    view.press("#goto", "Enter")
    assert view.inner_text("#place") == "1–50 of 120"
    assert view.inner_text("#steps tbody tr:nth-child(21) td:nth-child(4)") == "skipped"
    view.close()


@pytest.mark.browser
def test_an_evil_name_is_shown_as_text(browser, pages):
    """It is read on the page, in tables and charts, and never run."""
    view = browser.new_page()
    view.goto(pages["three"].as_uri())
    view.wait_for_selector("body[data-ready=yes]", timeout=60_000)

    assert EVIL in view.inner_text("ul.legend >> nth=0")
    assert EVIL in view.inner_text("#passes")
    view.close()


def test_an_evil_name_never_stands_in_the_source(pages):
    """Not even inside the JSON of a script element."""
    text = pages["three"].read_text()

    assert EVIL not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_the_page_refers_to_nothing_outside(pages):
    """No link, script, style or image from anywhere, outside of the chart library's own text."""
    text = pages["twelve"].read_text()
    own = text[: text.index("<script>")] + text[text.rindex("<script>") :]

    assert "src=" not in own
    assert "http" not in own.replace('href="data:,"', "")


def test_the_command_writes_the_page(tmp_path: Path, pages, capsys):
    """lading report RUN --out FILE."""
    target = tmp_path / "report.html"
    main_exit(["report", str(pages["one"].with_suffix("")), "--out", str(target), "--json"])

    assert target.stat().st_size > 1_000_000
    assert '"bytes"' in capsys.readouterr().out


def main_exit(words: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert not end.value.code


def test_an_observed_run_without_losses_has_a_page_too(tmp_path: Path):
    """Nothing planned, no loss: the sections say so."""
    with Ledger(tmp_path, names=["a"]) as ledger:
        for step in range(3):
            ledger.commit(Plan.make(30, batch_size=4).bill(step))

    text = page(open_run(tmp_path))

    assert "No loss stands far above" in text


def test_long_names_keep_what_tells_them_apart():
    """The middle is left out, not the end."""
    assert len({label(name) for name in LONG}) == 1 or all("…" in label(name) for name in LONG)
    assert label("code") == "code"
    assert label("<b>") == "&lt;b&gt;"


def test_thinning_keeps_every_peak():
    """A spike of one step in a million survives."""
    import numpy as np

    values = np.ones(1_000_000)
    values[654_321] = 9.0

    steps, points = thinned(np.arange(1_000_000), values)

    assert len(steps) <= 3000
    assert points[steps.index(654_321)] == 9.0
