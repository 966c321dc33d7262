"""A run, a token store, a data directory and a configuration that attack whoever reads them: nothing happens."""

from __future__ import annotations

import contextlib
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.campaigns.readers import TARGETS
from tests.report.runs import record
from tests.source.jasper.jasper_directory import make_directory

from lading import TokenStore
from lading.cli import main
from lading.errors import LadingError
from lading.ledger import Ledger
from lading.order import Plan
from lading.order.packing.file import open_index, save_index
from lading.order.packing.index import PackingIndex
from lading.report import open_run
from lading.source.jasper.dataset import JASPERSteeringDataset


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
