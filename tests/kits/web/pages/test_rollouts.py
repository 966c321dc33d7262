"""Rollouts on the pages: fates, ages and rewards along a run, and the groups of a prompt."""

from __future__ import annotations

import json

import pytest
from tests.kits.web.render.test_page import Outline
from tests.kits.web.ui.test_site import ATTACK, ask
from tests.report.runs import record

from lading import Plan, Rollout, RolloutBooks, RolloutGroup, open_run
from lading.kits.web.pages.rollouts import groups_of, rollouts_along
from lading.kits.web.render.page import page
from lading.kits.web.ui.site import Site


@pytest.fixture
def run(tmp_path):
    """Four updates of two prompts each: each time one rollout is stale and one filtered; at last two are open."""
    books = RolloutBooks(tmp_path / "run", Plan.make({ATTACK: 4}, batch_size=2, shuffle="none"), group_size=3)
    for update in range(4):
        made = []
        for prompt in books.draw(2):
            rewards = [float(update), float("nan"), 2.0 + update]
            rollouts = [Rollout(5, reward, seconds=1.0 + place) for place, reward in enumerate(rewards)]
            made += books.made([RolloutGroup(prompt.group, rollouts, max(update - 1, 0))])
        books.drop(made[:1], "stale")
        books.drop(made[1:2], ATTACK)
        books.used(made[2:], update, loss=1.0)
    books.made([RolloutGroup(books.draw()[0].group, [Rollout(1), Rollout(2)], 4)])
    books.close()
    return tmp_path / "run"


def test_fates_ages_and_rewards_are_counted_along_the_run(run):
    """Every rollout is in a stretch; what was made after the last step is shown with it."""
    found = rollouts_along(open_run(run))

    assert (found["made"], found["groups"]) == (26, 9)
    assert [(t["fate"], t["reason"], t["rollouts"]) for t in found["totals"]] == [
        ("applied", None, 16),
        ("stale", None, 4),
        ("filtered", ATTACK, 4),
        ("open", None, 2),
    ]
    assert found["fates"]["step"] == [0, 1, 2, 3]
    shares = {line["fate"]: line["share"] for line in found["fates"]["lines"]}
    assert shares["open"] == [0, 0, 0, 2 / 8] and shares["applied"] == [4 / 6, 4 / 6, 4 / 6, 4 / 8]
    assert [sum(parts) for parts in zip(*shares.values(), strict=True)] == pytest.approx([1] * 4)
    assert found["ages"] == {"step": [0, 1, 2, 3], "mean": [0, 1, 1, 1], "highest": [0, 1, 1, 1]}
    assert found["rewards"] == {"step": [0, 1, 2, 3], "mean": [1, 2, 3, 4]}


def test_a_prompt_has_its_groups_the_newest_first(run):
    """The prompt that came first comes again in the third step; rewards that nobody gave are left out of the mean."""
    third, first = groups_of(open_run(run), 0, 0)[-2:]

    assert [(g["group"], g["policy"], g["reward"]) for g in (third, first)] == [(4, 1, 3.0), (0, 0, 1.0)]
    assert first["fates"] == {"stale": 1, "filtered": 1, "applied": 1}
    assert [row["age"] for row in third["rollouts"]] == [None, None, 1]


def test_the_pages_show_them_and_nothing_acts(run):
    """Run, sample and report; a ring leads to the row of its rollout; names and reasons stay text."""
    site = Site({"a": run})
    shown, prompt = ask(site, "/r/a"), ask(site, "/r/a/sample/0/0")
    outlines = [Outline(text) for text in (shown.body, prompt.body, page(open_run(run)))]

    assert shown.status == prompt.status == 200 and "Fates of what was made" in outlines[2].text
    assert all(chart in shown.body for chart in ('id="fates"', 'id="ages"', 'id="rewards"'))
    ids = {attributes.get("id") for _, attributes in outlines[1].elements}
    links = [attributes.get("href") or "" for _, attributes in outlines[1].elements]
    rings = [link.partition("#")[2] for link in links if "#rollout-" in link]
    assert len(rings) == 4 and set(rings) <= ids
    for outline in outlines:
        assert not [n for _, attributes in outline.elements for n in attributes if n.startswith("on")]
        assert not {"img", "iframe"} & {tag for tag, _ in outline.elements}
    for twin, key in (("/r/a.json", "rollouts"), ("/r/a/sample/0/0.json", "groups")):
        assert json.loads(ask(site, twin).body)[key]


def test_a_run_without_rollouts_says_nothing_of_them(tmp_path):
    """Neither a section nor an empty chart."""
    record(tmp_path / "run", range(4), plan=Plan.make({"code": 60}, batch_size=8))
    site = Site({"a": tmp_path / "run"})

    assert rollouts_along(open_run(tmp_path / "run")) is None
    assert "ollouts" not in ask(site, "/r/a").body and 'id="groups"' not in ask(site, "/r/a/sample/0/5").body
