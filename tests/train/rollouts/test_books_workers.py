"""A loop with four workers that report out of order: conservation, and whether dropping was fair."""

from __future__ import annotations

import json
import queue
import random
import threading
from collections import Counter

import pytest

from lading import Plan, Rollout, RolloutBooks, RolloutGroup, open_run
from lading.cli import main
from lading.errors import LedgerError

UPDATES, SIZE = 90, 4


def loop(run, *, fair: bool):
    """Train with four workers; rollouts are too late if they are slow or (fair) by chance. Return what was refused."""
    books = RolloutBooks(run, Plan.make({"math": 300, "code": 100}, batch_size=8), group_size=SIZE)
    tasks, ready, refused, chance = queue.Queue(), queue.Queue(), [], random.Random(5)

    def work(number):
        own = random.Random(number)
        while (task := tasks.get()) is not None:
            prompt, policy = task
            if number == 3 and prompt.group > 100:
                return  # it dies, and what it was to make never comes
            made = [
                Rollout([prompt.index] * own.randint(1, 9), own.random(), seconds=own.expovariate(1))
                for _ in range(SIZE)
            ]
            group = RolloutGroup(prompt.group, made, policy)
            numbers = books.made([group])
            if own.random() < 0.1:
                try:
                    books.made([group])  # a message that was sent again
                except LedgerError as error:
                    refused.append(str(error))
            ready.put((policy, list(zip(numbers, [r.seconds for r in made], strict=True))))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for prompt in books.draw(8):
        tasks.put((prompt, 0))
    for update in range(UPDATES):
        _, rollouts = ready.get()
        tasks.put((books.draw()[0], update))
        late = [n for n, seconds in rollouts if (chance.random() < 0.2 if fair else seconds > 1.6)]
        books.drop(late, "stale")
        books.used([n for n, _ in rollouts if n not in late], update)
    for _ in workers:
        tasks.put(None)
    for worker in workers:
        worker.join()
    books.close()
    return refused


@pytest.mark.parametrize("fair", [True, False])
def test_workers_that_report_late_twice_or_never_are_accounted_for(tmp_path, capsys, fair):
    """Conservation holds; bias finds that slow rollouts were dropped, and nothing in a fair run."""
    refused = loop(tmp_path / "run", fair=fair)

    opened = open_run(tmp_path / "run")
    assert opened.verify().holds
    counts = Counter(opened.rollouts()["fate"])
    assert counts["applied"] + counts["stale"] == UPDATES * SIZE
    assert set(counts) <= {"applied", "stale", "open"}
    assert refused and all("was reported before" in text for text in refused)
    assert min(age for age in opened.rollouts()["age"] if age is not None) >= 0
    found = opened.bias()
    assert found.p_value is not None
    assert (found.p_value > 0.01) if fair else (found.p_value < 1e-6)
    assert ("no sign" in found.sentence) == fair
    with pytest.raises(SystemExit) as ended:
        main(["bias", str(tmp_path / "run"), "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["decided"] == UPDATES * SIZE


def test_the_verbs_know_prompts_policies_and_ages(tmp_path, capsys):
    """rollouts, step, where and export, of a prompt that was used twice and dropped once."""
    books = RolloutBooks(tmp_path / "run", Plan.make({"math": 8}, batch_size=2), group_size=2)
    prompt = books.draw()[0]
    first, second = books.made([RolloutGroup(prompt.group, [Rollout(3, 1.0), Rollout(4, 0.0)], 1)])
    books.used([first], 1)
    books.used([first], 2)
    books.drop([second], "length")
    books.close()

    def say(*words):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        return ended.value.code, capsys.readouterr().out

    code, out = say("rollouts", tmp_path / "run", "--prompt", "math", prompt.index, "--json")
    rows = json.loads(out)
    assert code == 0
    assert [(row["fate"], row["reason"], row["uses"]) for row in rows] == [
        ("applied", None, 2),
        ("filtered", "length", 0),
    ]
    assert say("rollouts", tmp_path / "run", "--fate", "stale", "--json")[0] == 1
    assert say("rollouts", tmp_path / "run", "--fate", "gone")[0] == 2
    assert "1 applied, 1 filtered" in say("rollouts", tmp_path / "run")[1]
    assert "nothing to compare" in say("bias", tmp_path / "run")[1]
    assert "rollout 0, policy 1, age 1" in say("step", tmp_path / "run", 1, "--json")[1]
    assert "rollout 0, policy 1, age 0" in say("where", tmp_path / "run", "math", prompt.index, "--json")[1]
    assert say("export", tmp_path / "run", "--table", "rollouts", "--to", tmp_path / "r.jsonl")[0] == 0
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 2
