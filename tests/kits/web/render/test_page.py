"""The page: one file, no script, drawn in any width, and nothing in a run can break out of its text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.report.runs import record

from lading.cli import main
from lading.identity import World
from lading.kits.web.render.page import page, write_page
from lading.ledger import Ledger
from lading.order import Plan
from lading.report import open_run

EVIL = "<script>alert(1)</script>"
LONG = [f"common-crawl-2023-50-filtered-deduplicated-language-{i:02d}-with-a-very-long-name" for i in range(12)]


def many_attempts(path: Path) -> None:
    """Three attempts on 1, 2 and 3 ranks, with an evil name, a skipped step and a spike."""
    plan = Plan.make({"code": 300, EVIL: 200}, batch_size=16, seed=1)
    mark = None
    for attempt, (start, stop) in enumerate([(0, 60), (40, 90), (70, 120)]):
        ledgers = [Ledger(path, plan, rank=rank, world_size=attempt + 1) for rank in range(attempt + 1)]
        for ledger in ledgers:
            ledger.begin(start, loaded=None if mark is None else {**mark, "step": start})
        for step in range(start, stop):
            for rank, ledger in enumerate(ledgers):
                bill = plan.bill(step, world=World(rank, attempt + 1))
                if step == 20:
                    ledger.skip(bill, EVIL)
                else:
                    loss = 2.0 + 0.01 * (step % 7) + (step == 100) * 5
                    ledger.commit(bill, update=step, loss=loss, **{f"loss/{EVIL}": loss})
        mark = ledgers[0].mark()
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


class Outline(HTMLParser):
    """What elements a page has, with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_an_evil_name_is_text_in_every_place(pages):
    """Names, reasons and metric names: no element, no handler, no script; the policy of the page allows none."""
    text = pages["three"].read_text()
    outline = Outline(text)

    assert EVIL not in text
    assert outline.text.count(EVIL) >= 4
    assert not {"script", "img", "iframe", "object", "form"} & {tag for tag, _ in outline.elements}
    assert not [name for _, attributes in outline.elements for name in attributes if name.startswith("on")]
    assert "default-src 'none'" in text


def test_the_page_refers_to_nothing_outside(pages):
    """No link, script, style or image from anywhere."""
    for path in pages.values():
        text = path.read_text()
        references = [v for _, a in Outline(text).elements for n, v in a.items() if n in ("src", "href")]

        assert {found for found in references if not (found or "").startswith("#live-")} == {"data:,"}
        assert "http" not in text.replace("http-equiv", "") and "url(" not in text


def test_attempts_undone_stretches_spikes_and_skips_are_on_the_page(pages):
    """What a reader looks for is drawn, and in words beside it."""
    text = pages["three"].read_text()

    assert len(re.findall(r'<path class="undone"', text)) == 2
    assert len(re.findall(r'class="undone-band"', text)) == 3 and "undone by a resume" in text
    assert "spike at step 100: 7.02" in text
    assert "skipped step" in text


def test_a_chart_of_many_datasets_draws_the_largest_and_the_rest(pages):
    """Twelve datasets: nine and one for the others, while the table has all."""
    text = pages["twelve"].read_text()

    assert "3 others" in text
    assert len(re.findall(r'class="area c\d+"', text)) == 10
    assert all(text.count(name) >= 1 for name in LONG)


def test_the_command_writes_the_page(tmp_path: Path, pages, capsys):
    """lading report RUN --out FILE."""
    target = tmp_path / "report.html"
    main_exit(["report", str(pages["one"].with_suffix("")), "--out", str(target), "--json"])

    assert 10_000 < target.stat().st_size < 100_000
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

    assert "No loss was committed" in text
    assert "3 steps compared" in text


def test_a_run_without_a_step_has_a_page(tmp_path: Path):
    """It began and recorded nothing."""
    ledger = Ledger(tmp_path, Plan.make(30, batch_size=4))
    ledger.begin(0)
    ledger.close()

    assert "None recorded a step" in page(open_run(tmp_path))


def test_the_report_carries_what_stands_for_the_record(pages):
    """Verdict, digest, head of the log, plan, blocks: what somebody who gets the page by mail can hold on to."""
    run = open_run(pages["three"].with_suffix(""))
    run.block("code:3", "code:5", reason="broken markup")
    run = open_run(run.path)
    text, verdict = page(run), run.verify()

    assert verdict.holds and "The record holds." in text and f"{verdict.steps} steps compared with the plan" in text
    assert f"{verdict.digest:016x}" in text and run.plan.fingerprint in text
    assert f"{verdict.head[0]} · {verdict.head[1][:16]}" in text
    assert text.count("broken markup") == 1 and "code:3, code:5" in text


def test_a_report_of_a_damaged_run_says_so(tmp_path: Path):
    """With the file that is at fault."""
    record(tmp_path, range(40), part_rows={"batches": 10})
    part = sorted(tmp_path.rglob("part-*.parquet"))[1]
    part.write_bytes(part.read_bytes()[:-1] + b"?")

    text = page(open_run(tmp_path))

    assert "The record does not hold." in text and part.name in text


def test_every_metric_is_drawn_in_the_report(pages):
    """Without a script, each by its name."""
    outline = Outline(pages["one"].read_text())

    assert "lr" in {a.get("aria-label") for tag, a in outline.elements if tag == "figure"}
