"""The documentation: every block runs, every test it names exists, every link leads somewhere."""

from __future__ import annotations

import ast
import difflib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.documentation import ROOT, CodeBlock, blocks, commands, pages, run_page

import lading
from lading.kits.chunked.config import described_schema

pytestmark = pytest.mark.needs("torch")

# Frameworks that keep state of their own in a process: their pages run in one of their own.
ALONE = {"first-change", "lightning", "loggers", "deepspeed", "accelerate", "adaptive", "jax"}
TESTS = {
    f"{path.relative_to(ROOT)}::{node.name}"
    for pattern in ("test_*.py", "*_cases.py")
    for path in (ROOT / "tests").rglob(pattern)
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
}
RUN_ALONE = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.documentation import run_page
run_page(Path({page!r}), Path({folder!r}))
"""


def launches(page: Path) -> bool:
    """Say whether a page starts several processes."""
    shown = [
        line for block in blocks(page) if block.is_run and block.language == "console" for line in commands(block.text)
    ]
    return any("torchrun" in command or "DS_ACCELERATOR" in command for command, _ in shown)


def parameters() -> list:
    """Return the pages that show code, those that start processes marked."""
    shown = [page for page in pages() if any(block.is_run for block in blocks(page))]
    return [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=[pytest.mark.launch] if launches(page) else [])
        for page in shown
    ]


@pytest.mark.parametrize("page", parameters())
def test_every_block_of_the_page_runs(page, tmp_path):
    """What a reader copies works, in the order it is shown."""
    if page.stem not in ALONE:
        run_page(page, tmp_path)
        return

    script = RUN_ALONE.format(root=str(ROOT), page=str(page), folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=3000)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]


def test_few_blocks_are_not_run():
    """A block that is not run is rare, and its title says why."""
    shown = [block for page in pages() for block in blocks(page) if block.language == "python"]
    skipped = [f"{block.page}:{block.line} {block.title}" for block in shown if not block.is_run]

    assert len(skipped) <= 3, skipped
    assert all(re.search(r"not run: \w+ \w+", line) for line in skipped), skipped


def test_a_wrong_block_is_caught(tmp_path):
    """The test above can fail: on a wrong call, a wrong exit code and a wrong output."""
    folder = tmp_path / "work"
    folder.mkdir()
    for text in (
        "```python\nassert 1 == 2\n```\n",
        "```console\n$ lading show nowhere\n```\n",
        "```console\n$ lading --version\nlading of yesterday\n```\n",
        "```console\n$ sudo make me a sandwich\n```\n",
    ):
        page = ROOT / "docs" / "index.md"
        wrong = [CodeBlock("page", 1, b.language, b.title, b.text) for b in blocks_of(text, tmp_path)]
        assert wrong, text
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tests.documentation.blocks", lambda _, wrong=wrong: wrong)
            with pytest.raises(AssertionError):
                run_page(page, folder)


def blocks_of(text: str, folder: Path) -> list[CodeBlock]:
    """Return the blocks of a text."""
    path = folder / "page.md"
    path.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.documentation.ROOT", folder)
        return blocks(path)


def test_every_guarantee_names_a_test():
    """Each line of the table of guarantees has a test, and the test is there."""
    text = (ROOT / "docs" / "guarantees.md").read_text()
    rows = [
        line for line in text.splitlines() if line.startswith("| ") and "---" not in line and "tested by" not in line
    ]
    named = [re.findall(r"`(tests/[\w/]+\.py::\w+)`", row) for row in rows]
    missing = [test for tests in named for test in tests if test not in TESTS]

    assert len(rows) >= 20
    assert all(named), [row for row, tests in zip(rows, named, strict=True) if not tests]
    assert not missing, missing


def test_tests_named_anywhere_exist():
    """Pages and decisions name no test that was renamed."""
    everywhere = [*pages(), *(ROOT / "docs" / "decisions").glob("*.md")]
    named = {test for page in everywhere for test in re.findall(r"`(tests/[\w/]+\.py::\w+)`", page.read_text())}

    assert not named - TESTS


def test_migration_changes_three_lines(tmp_path):
    """The diff of the page turns the page's own script before into its script after, in at most 3 changed lines."""
    shown = {block.title: block.text for block in blocks(ROOT / "docs" / "migration.md")}
    before, after = shown["before.py"].splitlines(), shown["after.py"].splitlines()
    diff = [
        line for line in difflib.unified_diff(before, after, lineterm="", n=0) if not line.startswith(("---", "+++"))
    ]
    added = [line[1:] for line in diff if line.startswith("+")]
    removed = [line[1:] for line in diff if line.startswith("-")]
    printed = next(block.text for block in blocks(ROOT / "docs" / "migration.md") if block.language == "diff")

    assert len(added) <= 3 and len(removed) <= 3
    assert [line[1:] for line in printed.splitlines() if line.startswith("+")] == added
    assert [line[1:] for line in printed.splitlines() if line.startswith("-")] == removed


def test_readme_is_short_and_shows_the_two_commands():
    """A new user decides in five minutes."""
    text = (ROOT / "README.md").read_text()
    code = [block for block in blocks(ROOT / "README.md") if block.language == "python"]

    assert len(text.splitlines()) <= 120
    assert "make demo" in text and "make test" in text
    assert len(code[0].text.splitlines()) <= 15
    assert (ROOT / "docs" / "images" / "run-page.png").stat().st_size < 200_000


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "guides").glob("*.md")), ids=lambda page: page.stem)
def test_guides_are_short(page):
    """At most 900 words to read, code left out; what derives a result is told in "how it works"."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)

    assert len(prose.split()) <= 900


def test_the_schema_of_the_file_is_documented():
    """Every key of `lading train`, as `--schema` prints it."""
    page = (ROOT / "docs" / "reference" / "yaml.md").read_text()

    for section, keys in described_schema().items():
        assert f"\n{section}:" in page
        assert not [key for key, takes in keys.items() if f"{key.strip('.') or '...'}" not in page or takes not in page]


def test_a_figure_is_the_same_on_every_page():
    """Of what a row of the ledger and a state take there is one measurement, and one sentence."""
    pages = [ROOT / "README.md", *(p for p in (ROOT / "docs").rglob("*.md") if "decisions" not in p.parts)]
    texts = {p: " ".join(p.read_text().split()) for p in [*pages, *(ROOT / "src" / "lading" / "ledger").glob("*.py")]}

    rows = {p.name: re.findall(r"([\d.]+) bytes a (?:rank and )?batch", text) for p, text in texts.items()}
    states = {p.name: re.findall(r"\b2 kB(.{45})", text) for p, text in texts.items()}

    said = "+ 48 bytes a dataset + 8 bytes a blocked sample"
    assert {name: found for name, found in rows.items() if {*found} - {"12"}} == {}
    assert {
        name: found for name, found in states.items() if any(not said.startswith(f.strip()[:40]) for f in found)
    } == {}


def test_links_lead_to_files():
    """Relative links and pictures of every page are there."""
    broken = []
    for page in [*pages(), ROOT / "CHANGELOG.md", *(ROOT / "docs" / "decisions").glob("*.md")]:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
        for target in re.findall(r"\]\(([^)#\s]+)", text):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")

    assert not broken, broken


def test_every_page_is_in_the_navigation():
    """No page is lost, no entry leads nowhere; decisions are listed on their own page."""
    # MkDocs has tags of its own (!!python/name) that are no business of a test.
    config = yaml.safe_load(re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text()))
    listed = set(re.findall(r"[\w/-]+\.md", yaml.safe_dump(config["nav"])))
    there = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    decisions = {name for name in there if re.match(r"decisions/\d{4}-", name)}
    index = (ROOT / "docs" / "decisions" / "index.md").read_text()

    assert listed == there - decisions
    assert not [name for name in decisions if f"({Path(name).name})" not in index], "list it in docs/decisions/index.md"


def test_the_reference_documents_every_public_name():
    """The reference speaks of names a user imports, and leaves none out."""
    pages = "".join(path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md"))
    documented = set(re.findall(r"^::: lading\.(\w+)$", pages, re.MULTILINE))

    assert set(lading.__all__) - documented == {"__version__"}
    assert documented <= set(lading.__all__)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    """What ``make docs`` does; a warning is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3000)

    assert done.returncode == 0, done.stderr[-4000:]
    assert (tmp_path / "site" / "guarantees" / "index.html").exists()


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("recipes/jax.md", "ocp.CheckpointManager"),
        ("guides/packing.md", "scaled_dot_product_attention"),
        ("guides/packing.md", "token_owners("),
    ],
)
def test_what_users_of_the_originals_look_for_is_shown_and_run(page, words):
    """Orbax, torch's attention mask and the owners of tokens are in blocks that the test above runs."""
    assert [block for block in blocks(ROOT / "docs" / page) if block.is_run and words in block.text]


def test_the_readme_says_what_law_6_says():
    """The bounds that the tests of mixtures hold: tests/order/test_laws_mixture.py."""
    text = (ROOT / "README.md").read_text()

    assert "less than 2 samples from its share with constant weights, less than 5 with weights that change" in text
    assert "its samples come pass by pass" in text
