"""A real Chromium on a run that is being trained at that moment, and on the report that comes of it.

One browser, one training process and one server for all cases; the cases go through one visit, in order.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.report.runs import record

from lading.kits.web.render.page import write_page
from lading.order import Plan
from lading.report import open_run
from lading.report.folder import glance_at

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=alert(1)>web"
TRAIN = """
import sys, time
from lading.ledger import Ledger
from lading.order import Mixture, Plan
plan = Plan.make({"code": 4000, sys.argv[2]: 2000}, batch_size=16, seed=3, mixture=Mixture({"code": 2, sys.argv[2]: 1}))
ledger = Ledger(sys.argv[1], plan, flush_every=1)
ledger.begin(0)
for step in range(100_000):
    bill = plan.bill(step)
    ledger.deliver(bill)
    loss = 2.0 + 2.0 / (1 + step / 40) + 0.01 * (step % 7) + (3.0 if step == 90 else 0.0)
    ledger.commit(bill, update=step, loss=loss, lr=1e-3 / (1 + step), grad=loss / 2)
    if step >= 120:
        ledger.flush()
        time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium on this machine")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-background-networking"]
        opened = playwright.chromium.launch(executable_path=found, args=arguments)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run that is being trained, and one that has ended."""
    home = tmp_path_factory.mktemp("live")
    record(home / "ended", range(60), plan=Plan.make({"code": 4000, EVIL: 2000}, batch_size=16, seed=4))
    command = [sys.executable, "-c", TRAIN, str(home / "live"), EVIL]
    with subprocess.Popen(command) as training:
        end = time.monotonic() + 600
        while time.monotonic() < end and not (glance_at(home / "live")["steps"] or 0) > 120:
            time.sleep(0.2)
        yield home
        training.kill()


@pytest.fixture(scope="module")
def served(runs: Path) -> Iterator[tuple[str, str]]:
    """``lading ui`` on both runs: its address, and the same with the token."""
    command = [sys.executable, "-m", "lading", "ui", str(runs), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        said = json.loads(server.stdout.readline())
        yield said["address"].partition("/?")[0], said["address"]
        server.send_signal(signal.SIGINT)
        assert server.wait(300) in (0, -signal.SIGINT, 130)


@pytest.fixture(scope="module")
def address(served: tuple[str, str]) -> str:
    """The address of the site, without the token."""
    return served[0]


class Visit:
    """A page of the browser, and everything that went wrong or left the machine on it."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.page = browser.new_page(**options)
        self.page.set_default_timeout(300_000)  # machines that run tests are busy
        self.trouble: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.trouble.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.trouble.append("a dialog opened"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def strangers(self, address: str) -> list[str]:
        """Return the requests that went elsewhere."""
        return [url for url in self.requests if not url.startswith((address, "data:"))]


@pytest.fixture(scope="module")
def visit(browser, served) -> Iterator[Visit]:
    """One visit, signed in."""
    visit = Visit(browser, viewport={"width": 1200, "height": 800})
    visit.page.goto(served[1])
    yield visit
    assert visit.trouble == []
    assert visit.strangers(served[0]) == []
    visit.page.close()


def until(page: Any, holds: Callable[[], bool], seconds: float = 300) -> None:
    """Wait until something holds; the page's policy forbids to evaluate texts in it."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        page.wait_for_timeout(100)


def test_without_the_token_a_browser_sees_nothing(browser, address):
    """403, in words."""
    stranger = Visit(browser)

    answer = stranger.page.goto(f"{address}/r/live")

    assert answer.status == 403 and "token" in stranger.page.inner_text("body")
    stranger.page.close()


def test_the_runs_are_listed(visit, address):
    """Two runs, one of them running; the token is gone from the address."""
    page = visit.page

    assert page.url == f"{address}/"
    assert page.locator("#live-runs tbody tr").count() == 2
    assert "running" in page.inner_text("#live-runs")
    assert page.locator("#live-runs td.spark path").count() == 2


def shown_runs(page: Any) -> list[str]:
    """Return the runs that the list shows, in its order."""
    return page.locator("#runs tbody tr:visible td.name a").all_inner_texts()


def test_the_list_is_sorted_and_filtered(visit, address):
    """By a click on a column, again to turn it; by words, all of which a run has. A refresh keeps both."""
    page = visit.page
    assert shown_runs(page) == ["live", "ended"]  # the newest first

    page.click("#runs th[data-key=run] button")
    assert shown_runs(page) == ["ended", "live"]
    page.click("#runs th[data-key=run] button")
    assert shown_runs(page) == ["live", "ended"]
    assert page.get_attribute("#runs th[data-key=run]", "aria-sort") == "descending"
    page.click("#runs th[data-key=steps] button")
    assert shown_runs(page) == ["live", "ended"]
    page.fill("#filter", "END ended")
    assert shown_runs(page) == ["ended"]
    page.fill("#filter", "nothing like that")
    assert shown_runs(page) == [] and page.is_visible("#no-run")
    page.fill("#filter", "")
    assert len(shown_runs(page)) == 2


def test_any_number_of_runs_is_drawn_above_each_other(visit, address):
    """Each selected run a line of its colour, for each of their metrics; the address keeps what is selected."""
    page = visit.page

    page.check("#every")
    page.wait_for_selector("body[data-overlaid='2']")

    assert page.locator("#overlay-chart svg path").count() == 2
    assert set(page.locator("#overlay-legend li").all_inner_texts()) == {"live", "ended"}
    page.select_option("#metric", "grad")  # which one of them has
    until(page, lambda: page.locator("#overlay-chart svg path").count() == 1)
    assert "run=live" in page.url and "run=ended" in page.url
    page.reload()
    page.wait_for_selector("body[data-overlaid='2']")
    assert page.locator("#pair").get_attribute("href").startswith("/compare?left=")
    page.uncheck("#runs tbody tr[data-run=live] input")
    page.wait_for_selector("body[data-overlaid='1']")
    assert page.locator("#pair").is_hidden()
    page.click("#clear")
    until(page, lambda: page.locator("#overlay").is_hidden())
    page.click("#runs >> text=live")
    page.wait_for_url(f"{address}/r/live")


def test_the_loss_grows_without_a_reload(visit, address):
    """More steps are drawn, and stand in the facts, while the page stays the one that was loaded."""
    page = visit.page
    page.wait_for_selector("body[data-drawn]")
    page.evaluate("window.same = true")
    before, said = int(page.get_attribute("body", "data-drawn")), page.inner_text("#live-head dl")

    until(page, lambda: int(page.get_attribute("body", "data-drawn")) > before)
    until(page, lambda: page.inner_text("#live-head dl") != said)

    assert page.evaluate("window.same") is True


def test_a_run_begins_with_what_matters(visit, address):
    """How long, how fast, what is left, with what it was started, and what verify says of it."""
    page = visit.page
    until(page, lambda: "verifying" not in page.inner_text("#verdict"))

    tiles = page.inner_text("#live-head dl")
    assert all(word in tiles for word in ("steps", "epochs", "samples", "last loss", "speed", "time left"))
    assert "The record holds." in page.inner_text("#verdict")
    details = page.inner_text("#live-details")
    assert "host" in details and "command" in details and "digest" in details and sys.executable in details


def lines_of(page: Any, chart: str) -> list[str]:
    """Return the paths of a chart."""
    return [path.get_attribute("d") for path in page.locator(f"{chart} svg path").all()]


def test_every_metric_is_a_chart_and_all_are_drawn_as_asked(visit, address):
    """Smoothed beside what it is made of, on a log axis, by step, samples or time; tokens only where they are known."""
    page = visit.page
    page.wait_for_selector("#metrics .one-chart >> nth=1")
    assert page.locator("#metrics h3").all_inner_texts() == ["grad", "lr"]
    form, chart = "#section-loss .controls", "#metrics .one-chart:nth-child(2)"
    plain = page.locator(f"{chart} .tick.y").all_inner_texts()

    page.fill(f"{form} [name=smooth]", "60")
    assert len(lines_of(page, chart)) == 2
    page.fill(f"{form} [name=smooth]", "0")
    page.check(f"{form} [name=log]")
    assert page.locator(f"{chart} .tick.y").all_inner_texts() != plain
    page.uncheck(f"{form} [name=log]")
    page.select_option(f"{form} [name=by]", "seconds")
    assert any("s" in text or "min" in text for text in page.locator(f"{chart} .tick.x").all_inner_texts())
    hidden = page.locator(f"{form} [name=by] option").evaluate_all("all => all.filter(o => o.hidden).map(o => o.value)")
    assert hidden == ["tokens"]
    page.select_option(f"{form} [name=by]", "step")


def test_a_pointer_reads_a_curve(visit, address):
    """The step under it and the value there."""
    page = visit.page
    box = page.locator("[data-chart=loss] .plot").bounding_box()

    page.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)

    assert page.inner_text("[data-chart=loss] .tip").startswith("step ")
    page.mouse.move(5, 5)


def test_a_stretch_of_a_curve_opens_its_samples(visit, address):
    """Drawn over with the pointer; or drawn larger, and the whole run again."""
    page = visit.page
    page.locator("[data-chart=loss] .plot").scroll_into_view_if_needed()

    def drag() -> None:
        box = page.locator("[data-chart=loss] .plot").bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] / 2, steps=5)
        page.mouse.up()

    drag()
    page.click("[data-chart=loss] .menu >> text=zoom")
    page.wait_for_selector("#section-loss [name=reset]:visible")
    page.click("#section-loss [name=reset]")
    page.wait_for_selector("#section-loss [name=reset]", state="hidden")
    drag()
    page.click("[data-chart=loss] .menu >> text=open its samples")
    page.wait_for_url(f"{address}/r/live/steps/*")

    first, last = (int(number) for number in page.url.rpartition("/")[2].split("-"))
    assert 0 < first < last and page.locator("#samples tbody a").count() > 16
    page.click("#samples tbody tr >> nth=0 >> a >> nth=0")
    page.wait_for_url(f"{address}/r/live/step/{first}")
    page.goto(f"{address}/r/live")


def test_a_click_on_a_spike_opens_its_step(visit, address):
    """The ring in the chart, as a person clicks it; the strip below it shows where it is, too."""
    page = visit.page
    page.wait_for_selector("body[data-drawn]")
    assert page.locator(".strip a.spike").count() == 1

    page.click("[data-chart=loss] a.spike:not(.saved)")

    page.wait_for_url(f"{address}/r/live/step/90")
    assert page.inner_text("h1") == "Step 90"
    assert page.locator("#samples tbody tr").count() == 16
    assert "as planned" in page.inner_text("dl.tiles")


def test_a_click_on_a_sample_shows_its_steps(visit, address):
    """Past ones, and those the plan has for it."""
    page = visit.page

    page.click("#samples tbody tr >> nth=0 >> a >> nth=0")
    page.wait_for_selector("#uses")

    steps = page.locator("#uses tbody tr td:first-child").all_inner_texts()
    assert "90" in steps
    page.click("#uses tbody >> text=90")
    page.wait_for_url(f"{address}/r/live/step/90")


def test_the_keyboard_goes_from_step_to_step(visit, address):
    """Right, left, up, and / for the search."""
    page = visit.page

    page.keyboard.press("ArrowRight")
    page.wait_for_url(f"{address}/r/live/step/91")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(f"{address}/r/live/step/90")
    page.keyboard.press("/")
    page.keyboard.type("code:17")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{address}/r/live/sample/0/17")
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    page.wait_for_url(f"{address}/r/live")


def test_two_runs_are_compared(visit, address):
    """The first differing step, with a link to it."""
    page = visit.page
    page.goto(f"{address}/compare?left=ended&right=live")

    assert "differ from step 0 on" in page.inner_text("main")
    assert page.locator("#compare svg path").count() == 2


def test_search_that_finds_several_things_lists_them(visit, address):
    """And names are text there, too."""
    page = visit.page
    page.goto(f"{address}/search?q=e&run=live")
    page.goto(f"{address}/search?q=img src&run=live")
    page.wait_for_url("**/r/live#live-datasets")

    assert EVIL in page.inner_text("#live-datasets")


@pytest.mark.parametrize("width", [390, 800])
def test_a_small_screen_shows_every_page_without_scrolling_sideways(browser, served, address, width):
    """In light and dark, with the colours of the system, which may change while a page is open; no number is cut."""
    phone = Visit(browser, viewport={"width": width, "height": 800}, color_scheme="light")
    phone.page.goto(served[1])
    pages = (
        "/",
        "/compare",
        "/compare?left=ended&right=live",
        "/search?q=e",
        "/search?q=nothing-like-that",
        "/r/live/step/90",
        "/r/live/step/999999",
        "/r/live/steps/80-99",
        "/r/live/sample/1/3",
        "/r/live",
    )
    for path in pages:
        phone.page.goto(address + path)
        if path == "/r/live":
            phone.page.wait_for_selector("body[data-drawn]")
        for scheme, paper in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(19, 22, 25)")):
            phone.page.emulate_media(color_scheme=scheme)
            assert phone.page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert phone.page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
    ticks = phone.page.locator(".chart .tick.y").evaluate_all("all => all.map((t) => t.getBoundingClientRect().left)")
    assert ticks and min(ticks) >= 0
    phone.page.set_viewport_size({"width": 390, "height": 800})
    table = phone.page.locator("#live-datasets .scroll")
    until(phone.page, lambda: "more-right" in (table.get_attribute("class") or ""))
    assert "more-right" in table.get_attribute("class")  # its edge fades: there is more
    table.evaluate("room => { room.scrollLeft = 10000; }")
    until(phone.page, lambda: "more-right" not in (table.get_attribute("class") or ""))
    phone.page.wait_for_timeout(200)
    assert phone.trouble == [] and phone.strangers(address) == []
    phone.page.close()


def test_what_was_left_out_at_first_comes_by_itself(browser, tmp_path):
    """60 runs, and one of 50 001 steps: shown at once, and whole a moment later; the page stays the one it is."""
    record(tmp_path / "run-00", range(4))
    for number in range(1, 60):
        shutil.copytree(tmp_path / "run-00", tmp_path / f"run-{number:02d}")
    record(tmp_path / "long", range(50_001), plan=Plan.make({"code": 4000, "web": 2000}, batch_size=2, seed=4))
    command = [sys.executable, "-m", "lading", "ui", str(tmp_path), "--port", "0", "--json", "--no-token"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["address"].rstrip("/")
        visit = Visit(browser)
        assert "data-later" in visit.page.goto(f"{address}/").text()
        until(visit.page, lambda: visit.page.locator("#runs td.spark path").count() == 61)
        assert "reading" not in visit.page.inner_text("#runs") and "ended" in visit.page.inner_text("#runs")
        assert visit.page.get_attribute("body", "data-later") is None
        assert "data-later" in visit.page.goto(f"{address}/r/long").text()
        visit.page.wait_for_selector("#live-mix figure")
        visit.page.wait_for_selector("#live-spikes td >> text=70")
        visit.page.wait_for_selector("#verdict.holds")
        assert visit.trouble == [] and visit.strangers(address) == []
        visit.page.close()
        server.send_signal(signal.SIGINT)
        server.wait(300)


@pytest.mark.parametrize("width", [1200, 390])
def test_the_report_is_drawn_without_a_script(browser, runs, tmp_path, width):
    """One file: no request but itself, charts there with JavaScript switched off, nothing wider than the screen."""
    write_page(open_run(runs / "ended"), tmp_path / "report.html")
    context = browser.new_context(java_script_enabled=False, viewport={"width": width, "height": 800})
    view = context.new_page()
    requests: list[str] = []
    view.on("request", lambda request: requests.append(request.url))

    view.goto((tmp_path / "report.html").as_uri())

    assert requests == [(tmp_path / "report.html").as_uri()]
    for chart in ("#loss", "#mix", "#attempts", "[aria-label=lr]"):
        box = view.locator(f"{chart} svg").bounding_box()
        assert box["width"] > (0.6 * width - 60 if chart.startswith("#") else 150)
        assert box["height"] > 15
    assert EVIL in view.inner_text("#live-datasets")
    box = view.locator("table").last.bounding_box()
    assert view.locator("main").bounding_box()["width"] <= width and box is not None
    context.close()
