"""A run, a token store, a data directory and a configuration that attack whoever reads them: nothing happens."""

from __future__ import annotations

import contextlib
import functools
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.campaigns.fuzz import MOST_BYTES, MOST_SECONDS, measured
from tests.campaigns.readers import TARGETS
from tests.campaigns.rehash import rehash
from tests.kits.jasper.jasper_directory import make_directory
from tests.report.runs import record

from lading import TokenStore
from lading.cli import main
from lading.errors import LadingError
from lading.kits.jasper.dataset import JASPERSteeringDataset
from lading.kits.web.render.page import page
from lading.ledger import Ledger
from lading.order import Plan
from lading.order.packing.file import open_index, save_index
from lading.order.packing.index import PackingIndex
from lading.report import Run, open_run


class Payload:
    """What a pickle would run."""

    def __init__(self, canary: Path) -> None:
        self.canary = str(canary)

    def __reduce__(self):
        return open, (self.canary, "w")


@pytest.fixture
def canary(tmp_path):
    """A file that must not be there in the end."""
    path = tmp_path / "canary"
    yield path
    assert not path.exists()


def attacks(canary: Path) -> list[object]:
    """Return values that once reached SQL, paths or memory."""
    copy = f"COPY (SELECT 1) TO '{canary}'"
    return [f"0); {copy}; --", f"'; {copy}; --", f"../../../{canary.name}", str(canary), "\x1b]0;x\x07", 2147483648, -1]


def _scalars(value):
    """Yield (container, key) of every scalar of a JSON value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        if isinstance(value[key], dict | list):
            yield from _scalars(value[key])
        else:
            yield value, key


def test_a_run_whose_every_value_is_an_attack_does_nothing(tmp_path, canary):
    """Each value of each JSON file in turn is SQL, a way out of the folder, or a size that fills the memory."""
    run = tmp_path / "run"
    record(run, range(4))
    files = sorted(run.rglob("*.json"))
    asks = (lambda r: r.history, lambda r: r.mix(), lambda r: r.verify())
    assert len(files) >= 3
    for path in files:
        text = path.read_text()
        places = len(list(_scalars(json.loads(text))))
        for place in range(places):
            value = json.loads(text)
            container, key = list(_scalars(value))[place]
            container[key] = attacks(canary)[place % len(attacks(canary))]
            path.write_text(json.dumps(value))
            with contextlib.suppress(LadingError):
                asks[place % 3](open_run(run))
            path.write_text(text)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]
    assert open_run(run).verify().holds


HOSTILE_NAME = "\x1b]0;x\x07<script>alert(1)</script>'); COPY (SELECT 1) TO '{canary}'; --/../../{name}"


@pytest.mark.parametrize("record_kind", ["digest", "names"])
def test_a_run_that_is_hostile_and_whole_is_shown_and_does_nothing(tmp_path, canary, capsys, record_kind):
    """Every checksum is right, every text an attack: all verbs answer, and what they print and write is harmless."""
    text = HOSTILE_NAME.format(canary=canary, name=canary.name)
    plan = Plan.make({text: 70, "prose": 31}, batch_size=8, seed=3)
    with Ledger(tmp_path / "run", plan, record=record_kind) as ledger:
        for step in range(9):
            bill = plan.bill(step)
            ledger.deliver(bill)
            ledger.skip(bill, text) if step == 4 else ledger.commit(bill, loss=1.0, **{text: 2.0})
    open_run(tmp_path / "run").block("prose:3", reason=text)
    for path in sorted((tmp_path / "run").rglob("*.json")):  # texts that the library itself would not write
        value = json.loads(path.read_text())
        value |= {key: text for key in ("host", "token", "lading") if key in value}
        path.write_text(json.dumps(value))
    rehash(tmp_path / "run")

    run = str(tmp_path / "run")
    questions = [["show", run], ["step", run, "4"], ["where", run, "prose", "3"], ["mix", run], ["verify", run]]
    questions += [["explain", run, "4"], ["sql", run, "FROM history"], ["sql", run, "FROM samples LIMIT 9"]]
    questions += [["diff", run, run], ["report", run, "-o", str(tmp_path / "page.html")]]
    for question in questions:
        with pytest.raises(SystemExit) as end:
            main(question)
        said = capsys.readouterr()
        assert end.value.code == (question[0] == "verify"), (question, said)  # the seal knows the host's name
        assert not set(said.out + said.err) & {"\x1b", "\x07"}, question
    page = (tmp_path / "page.html").read_text()
    assert "alert(1)" in page and "<script>alert" not in page
    assert {p.name for p in tmp_path.iterdir()} == {"run", "page.html"}


def legal_and_absurd(value, key):
    """Return edits of a plan or a launch that are legal numbers and would fill memory or take for ever."""
    if "global_batch_size" in value:
        long = [{**d, "length": 1 << 60} for d in value["datasets"]]
        yield value | {"global_batch_size": 1 << 40}
        yield value | {"global_batch_size": 1 << 40, "datasets": long}
        yield value | {"global_batch_size": 1 << 22}
        yield value | {"datasets": long}
        yield value | {"chunk_batches": 1 << 62}
        yield value | {"datasets": value["datasets"] + [{"name": f"d{i}", "length": 5} for i in range(1000)]}
    elif value.get("type") == "launch":
        yield value | {"world_size": 1 << 20}
        yield value | {"start_step": 1 << 61}
        yield value | {"pending": [[0, 1 << 61]]}
        yield value | {"pending": [[i, i + 1] for i in range(0, 100_000, 2)]}
        yield value | {"events": [{"kind": "rebatch", "step": 3, "position": 24, "global_batch_size": 1 << 40}]}
    elif "datasets" in value:
        yield value | {"datasets": [*value["datasets"], *(f"d{i}" for i in range(1000))]}


def _asked(path, ask):
    return ask(open_run(path))


@pytest.mark.parametrize("name", ["run", "run with names"])
def test_legal_numbers_that_are_absurd_take_little_time_and_memory(tmp_path, name):
    """A step of 2^40 samples, datasets of 2^60, 2^20 ranks: answered or refused, as the fuzz campaign demands."""
    TARGETS[name].make(tmp_path)
    for path in [*tmp_path.glob("run/*.json"), *tmp_path.glob("run/plans/*.json"), *tmp_path.glob("run/log/0*.json")]:
        for number, value in enumerate(legal_and_absurd(json.loads(path.read_text()), path.name)):
            work = tmp_path / "work"
            shutil.copytree(tmp_path / "run", work / "run")
            (work / path.relative_to(tmp_path)).write_text(json.dumps(value))
            rehash(work / "run")
            for ask in (Run.verify, page, lambda run: run.step(9), lambda run: run.sql("FROM samples LIMIT 5")):
                problem, _, seconds, grown = measured(functools.partial(_asked, work / "run", ask))
                assert not problem and seconds < MOST_SECONDS and grown < MOST_BYTES, (path, number, problem, seconds)
            shutil.rmtree(work)


def test_links_that_lead_out_of_a_run_are_not_followed(tmp_path, canary):
    """Neither read nor written: wherever the link is, and whether its target is there or not."""
    run, secret = tmp_path / "run", tmp_path / "secret"
    record(run, range(4))
    secret.write_text('{"number": 0}')
    places = ["log/000000.json", "log/000001.json", "plans/x.json", "ledger/attempt=0001", "ledger/attempt=0000/more"]
    for place in places:
        path = run / place
        kept = path.read_bytes() if path.is_file() else None
        path.unlink(missing_ok=True)
        for target in (secret, canary, tmp_path):
            path.symlink_to(target)
            with pytest.raises(LadingError, match=f"{path.name} is a symbolic link that leads out of the run"):
                open_run(run)
            with pytest.raises(LadingError, match="symbolic link"):
                record(run, range(4, 6))
            path.unlink()
        if kept is not None:
            path.write_bytes(kept)
    (tmp_path / "link").symlink_to(run)
    assert open_run(tmp_path / "link").verify().holds and secret.read_text() == '{"number": 0}'
    (tmp_path / "link").unlink()


def test_names_with_dots_and_slashes_stay_names(tmp_path, canary):
    """A dataset may be called like a path; no file comes of it."""
    plan = Plan.make({f"../{canary.name}": 20, "/etc/passwd": 10, "..": 5}, batch_size=5)
    with contextlib.closing(Ledger(tmp_path / "run", plan)) as ledger:
        ledger.deliver(plan.bill(0))
        ledger.commit(plan.bill(0))

    assert open_run(tmp_path / "run").verify().holds
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_pickles_in_stores_and_directories_are_not_opened(tmp_path, canary):
    """Neither an object array in an index, nor a .pt file, nor an odd dtype runs what it holds."""
    index = save_index(PackingIndex.build([5, 9, 3], 16), tmp_path)
    np.save(Path(index.path) / "size.npy", np.array([Payload(canary)] * 3, dtype=object), allow_pickle=True)
    with pytest.raises(LadingError, match=r"size\.npy"):
        open_index(index.path)

    TARGETS["token store"].make(tmp_path)
    header = tmp_path / "store" / "tokens.json"
    for dtype in ("O", "|O8", "object", "V8", "<U9"):
        header.write_text(json.dumps(json.loads(header.read_text()) | {"dtype": dtype}))
        with pytest.raises(LadingError, match="dtype"):
            TokenStore(tmp_path / "store")

    jasper = make_directory(tmp_path / "jasper")
    for write in (lambda p: torch.save(Payload(canary), p), lambda p: p.write_bytes(pickle.dumps(Payload(canary)))):
        write(jasper / "question_embs.pt")
        with pytest.raises(LadingError, match=r"question_embs\.pt"):
            JASPERSteeringDataset(str(jasper), "train")


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.PosixPath ['{canary}']]",
        "run: !!python/object/new:os.system ['touch {canary}']",
        "model: !!python/name:os.system",
    ],
)
def test_a_configuration_runs_nothing_while_it_is_read(tmp_path, canary, capsys, text):
    """Tags that make objects are refused; class paths are imported by training, not by reading."""
    config = tmp_path / "run.yaml"
    config.write_text(text.format(canary=canary))
    with pytest.raises(SystemExit) as end:
        main(["train", str(config), "--print-config"])
    assert end.value.code == 2 and "not YAML" in capsys.readouterr().err

    (tmp_path / "evil.py").write_text(f"open({str(canary)!r}, 'w')")
    config.write_text("model: {class_path: evil.Model}")
    with contextlib.suppress(SystemExit):
        main(["train", str(config), "--print-config"])
    assert "evil.Model" in capsys.readouterr().out
