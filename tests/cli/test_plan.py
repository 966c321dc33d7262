"""``lading plan``: a forecast from a configuration, as a table, as JSON and as a picture."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from tests.cli.calling import lading

from lading.cli.plan import KEYS, read_plan
from lading.errors import ConfigError
from lading.order import Plan

CONFIG = """
plan:
  datasets:
    code: 100_000
    prose: {length: 2000, mean_tokens: 850}
  batch_size: 256
  schedule:
    - [0, {code: .7, prose: .3}]
    - [100ba, {code: 1, prose: 0}]
  epoch_samples: 51200
  until: 2ep
"""


@pytest.fixture
def config(tmp_path):
    """A configuration on disk."""
    path = tmp_path / "mixture.yaml"
    path.write_text(CONFIG)
    return path


def test_plan_tells_passes_and_exhaustion(config, capsys):
    """A table for people."""
    assert lading("plan", config) == 0

    out = capsys.readouterr().out
    assert "code" in out and "used up at step" in out and "400 steps, 102400 samples" in out
    assert "weights change at step 100" in out


def test_plan_answers_in_json(config, capsys):
    """The same for programs, with shares over time."""
    assert lading("plan", config, "--json") == 0

    said = json.loads(capsys.readouterr().out)
    prose = said["datasets"][1]
    assert prose["samples"] == pytest.approx(0.3 * 25600, abs=2) and prose["passes"] == pytest.approx(3.84, abs=0.01)
    assert prose["tokens"] == prose["samples"] * 850
    assert said["shares"]["code"][0] == pytest.approx(0.7, abs=0.03) and said["shares"]["code"][-1] == 1.0


def test_too_many_passes_are_an_exit_code(config, capsys):
    """0 holds, 1 does not."""
    assert lading("plan", config, "--max-passes", "4") == 0
    assert lading("plan", config, "--max-passes", "3") == 1
    assert "more than 3 passes: prose" in capsys.readouterr().out


def test_until_takes_every_unit(config, capsys):
    """Steps, samples and epochs; a bare number counts steps."""
    for until, steps in (("10", 10), ("10ba", 10), ("2560sp", 10), ("2561sp", 11), ("0.5ep", 100), ("3ep", 600)):
        assert lading("plan", config, "--until", until, "--json") == 0
        assert json.loads(capsys.readouterr().out)["steps"] == steps


def test_a_saved_plan_is_read_too(tmp_path, capsys):
    """What ``plan.to_json()`` wrote."""
    path = tmp_path / "plan.json"
    path.write_text(Plan.make({"a": 100, "b": 50}, 10).to_json())

    assert lading("plan", path, "--json") == 0
    assert [d["samples"] for d in json.loads(capsys.readouterr().out)["datasets"]] == [100, 50]


WRONG = [
    ("datasets: {a: 5}", "expected the keys datasets and batch_size"),
    ("[1, 2]", "expected the keys datasets and batch_size"),
    ("{datasets: {a: 5}, batch_size: 2, wieghts: [1]}", "unknown key wieghts; expected datasets"),
    ("{datasets: {a: many}, batch_size: 2}", r"datasets\.a: expected a number of samples"),
    ("{datasets: [a], batch_size: 2}", "datasets: expected names and lengths"),
    ("{datasets: {a: 5}, batch_size: 0}", "batch_size: expected an integer"),
    ("{datasets: {a: 5, b: 5}, batch_size: 2, weights: {a: -1, b: 1}}", r"weights\.a: expected a finite number from 0"),
    ("{datasets: {a: 5}, batch_size: 2, weights: {z: 1}}", "weights name 'z'"),
    ("{a: [", "not YAML"),
    ("{datasets: {a: 5}, batch_size: 2, until: 5tok}", "expected steps, samples or epochs"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_wrong_configurations_are_named(tmp_path, capsys, text, message):
    """One readable line, exit code 2."""
    path = tmp_path / "wrong.yaml"
    path.write_text(text)

    assert lading("plan", path) == 2

    said = capsys.readouterr().err
    assert said.startswith("lading: ")
    with pytest.raises(ConfigError, match=message):
        raise ConfigError(said)


def test_a_missing_file_and_an_odd_picture_are_named(tmp_path, config, capsys):
    """The path and what was expected."""
    assert lading("plan", tmp_path / "none.yaml") == 2
    assert "expected a file that can be read" in capsys.readouterr().err
    assert lading("plan", config, "--picture", tmp_path / "mix.gif") == 2
    assert "ends in .html, .png or .svg" in capsys.readouterr().err


def test_the_page_holds_the_picture(tmp_path, config, capsys):
    """A self-contained page: no network is needed to look at it."""
    assert lading("plan", config, "--picture", tmp_path / "mix.html") == 0

    page = (tmp_path / "mix.html").read_text()
    assert "What the plan draws" in page and "new weights" in page and "prose used up" in page
    assert len(page) > 1_000_000


@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None and shutil.which("google-chrome") is None, reason="no Chromium")
@pytest.mark.filterwarnings("ignore")
def test_the_image_is_an_image(tmp_path, config, capsys):
    """A PNG of the size asked for."""
    pytest.importorskip("kaleido")
    assert lading("plan", config, "--picture", tmp_path / "mix.png") == 0

    data = (tmp_path / "mix.png").read_bytes()
    assert data.startswith(b"\x89PNG") and len(data) > 10_000


def test_mean_tokens_may_be_given_in_one_place(tmp_path, capsys):
    """Beside the lengths or by themselves, the plan is the same; shares of tokens are shown where weights are."""
    weights = "batch_size: 16\nunit: tokens\nweights: {code: .5, web: .5}\n"
    (tmp_path / "apart.yaml").write_text(
        f"datasets: {{code: 300, web: 500}}\nmean_tokens: {{code: 90, web: 30}}\n{weights}"
    )
    both = "{code: {length: 300, mean_tokens: 90}, web: {length: 500, mean_tokens: 30}}"
    (tmp_path / "beside.yaml").write_text(f"datasets: {both}\n{weights}")

    plans = [read_plan(str(tmp_path / name))[0] for name in ("apart.yaml", "beside.yaml")]

    assert plans[0].fingerprint == plans[1].fingerprint and plans[0].datasets == plans[1].datasets
    assert lading("plan", tmp_path / "apart.yaml") == 0
    assert "of tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mean_tokens: {cod: 90}", "mean_tokens names cod: expected datasets, which are code"),
        ("mean_tokens: {code: many}", "mean_tokens.code"),
        ("policy: 3\nmixtur: 4", "unknown key policy, mixtur; expected datasets, batch_size"),
    ],
)
def test_what_a_plan_does_not_use_is_refused(tmp_path, capsys, line, message):
    """By name, with the keys that there are, each once."""
    (tmp_path / "mix.yaml").write_text(f"datasets: {{code: 300}}\nbatch_size: 8\nweights: {{code: 1}}\n{line}\n")

    assert lading("plan", tmp_path / "mix.yaml") == 2

    said = capsys.readouterr().err
    assert message in said and said.count("lookahead_steps") <= 1


def test_the_reference_has_every_key():
    """And no other."""
    text = (Path(__file__).parents[2] / "docs" / "reference" / "plan.md").read_text()

    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(KEYS)
