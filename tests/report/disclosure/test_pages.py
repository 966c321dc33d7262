"""Pages about training data: every number is what its query gives, every text what was declared, nothing is made up."""

from __future__ import annotations

import re

import pytest
from tests.report.checkpoint.models import plan_of, trained

from lading.errors import ConfigError
from lading.report import open_checkpoint
from lading.report.checkpoint.stamp import stamp
from lading.report.disclosure.declared import Declared, read_declared
from lading.report.disclosure.pages import PAGES, page_of

SOURCES = """
model: {name: "Pi*co", provider: Example Ltd, version: 0.1, released: 2026-11-18, languages: [en, de]}
datasets:
  corpus: {kind: crawled, licence: "CC|BY <script>", url: "https://example.org"}
  novels: {kind: licensed}
processing: {copyright: robots.txt was obeyed}
"""


@pytest.fixture
def family(tmp_path):
    """A merge of a tuned model and of an imported one."""
    trained(tmp_path / "runs" / "a", tmp_path / "base", range(5), plan=plan_of(0))
    trained(tmp_path / "runs" / "b", tmp_path / "tuned", range(3), plan=plan_of(1, talk=40), base=[tmp_path / "base"])
    for name in ("other", "merged"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_bytes(b"from somewhere")
    stamp(tmp_path / "other", made="import")
    stamp(tmp_path / "merged", made="merge", parents=[tmp_path / "tuned", tmp_path / "other"])
    (tmp_path / "sources.yaml").write_text(SOURCES)
    return tmp_path


@pytest.mark.parametrize("purpose", PAGES)
def test_every_number_is_what_its_query_gives(family, purpose):
    """The expressions of the footnotes, as anybody would run them; no number stands without one."""
    page = page_of(open_checkpoint(family / "merged"), read_declared(family / "sources.yaml"), purpose)

    text, _, notes = page.partition("## Where the numbers come from")
    queries = dict(re.findall(r"^\[\^(\d+)\]: `(.*)`$", notes, re.MULTILINE))
    cited = re.findall(r"(`[0-9a-f:]{64,}`|run [^|\n]*?|merge|import|[\d .]*\d)\[\^(\d+)\]", text)
    assert {number for _, number in cited} == {*queries}
    for value, number in cited:
        found = eval(queries[number], {"open_checkpoint": open_checkpoint, "CKPT": family / "merged"})
        if isinstance(found, str):
            assert value.strip("`") == found
        else:
            assert float(value.replace(" ", "")) == found
    assert str(family) not in page


def test_a_name_does_not_break_out_of_its_query(tmp_path):
    """Backticks end a code span of Markdown; what is declared comes before what is not."""
    names = {"a`b": 8, "c": 8}
    trained(tmp_path / "run", tmp_path / "model", range(4), plan=plan_of(0, **names))
    declared = Declared(datasets={"a`b": {"modality": "text"}})

    page = page_of(open_checkpoint(tmp_path / "model"), declared, "ai-act")

    queries = re.findall(r"^\[\^\d+\]: `([^`]*)`$", page, re.MULTILINE)
    assert len(queries) == page.count("\n[^") and any(r"a\x60b" in query for query in queries)
    assert eval(queries[-1], {"open_checkpoint": open_checkpoint, "CKPT": tmp_path / "model"}) == 1.0
    assert "- Modalities: text, not declared\n" in page


def test_what_nobody_said_is_not_declared(family):
    """Declared texts are there as they are; the rest says so; what is not known of the family is listed."""
    opened, declared = open_checkpoint(family / "merged"), read_declared(family / "sources.yaml")

    page = page_of(opened, declared, "ai-act")

    assert "- Model: Pi\\*co\n- Version: 0.1\n- Placed on the market: 2026-11-18\n- Licence: not declared" in page
    assert "licence: CC\\|BY \\<script\\>" in page and "<script>" not in page
    crawled = page.partition("### 2.4")[2].partition("###")[0]
    assert "**corpus**" in crawled and "**talk**" in page.partition("### 2.8 Sources whose kind is not declared")[2]
    assert "dataset 'talk' is not declared at all" in page and "'novels' is declared, and was not used" in page
    assert "learned from is not recorded" in page
    bare = page_of(opened, Declared(), "model-card")
    assert "# Model card" in bare and not bare.startswith("---")
    assert page_of(opened, declared, "model-card").startswith('---\nlanguage: ["en", "de"]\nmodel_name: "Pi*co"\n---\n')


def test_sources_that_nobody_would_read_are_refused(family):
    """A slip of the pen, a kind that there is not, a table where a text belongs; another page."""
    wrong = {
        "datasets: {corpus: {license: MIT}}": "datasets.corpus.license: expected only the fields kind, description",
        "datasets: {corpus: {kind: stolen}}": r"datasets.corpus.kind: expected one of public, licensed.*found 'stolen'",
        "datasets: [corpus]": "datasets: expected an object with named fields",
        "model: {name: {a: b}}": "model.name: expected a text of at most",
        "modell: {}": "expected only the fields model, datasets, processing",
        "- a": "expected a mapping of sections",
    }
    for text, message in wrong.items():
        (family / "wrong.yaml").write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_declared(family / "wrong.yaml")
    with pytest.raises(ConfigError, match=r"--for 'gdpr': expected one of ai-act, model-card"):
        page_of(open_checkpoint(family / "base"), Declared(), "gdpr")
