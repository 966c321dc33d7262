"""A kill before every disk call of block, report, conversions and checkpoints: nothing is half there.

Training itself: ``tests/ledger/test_ledger_crash_points.py``; token stores, packing and JASPER builds:
``tests/runtime/test_files_crash_points.py``.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from tests.crash_points import survives
from tests.kits.jasper.jasper_directory import make_directory
from tests.report.runs import record

from lading.errors import ResumeError
from lading.kits.deepspeed.checkpoint import Checkpoint, checkpoint_folder, complete_checkpoints
from lading.kits.jasper.build.write import rewrite_directory
from lading.kits.jasper.dataset import JASPERSteeringDataset
from lading.kits.jasper.hdf5 import convert
from lading.kits.web.render.page import write_page
from lading.loader import Loader
from lading.report import open_run
from lading.runtime import files
from lading.train.torch import load_checkpoint, save_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
EXCHANGE = (files, "_renameat2")


@pytest.mark.parametrize("torn", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_block_is_in_the_log_or_not(tmp_path: Path, torn: bool):
    """The run holds after every kill, and blocking again blocks the sample once."""
    original, run = tmp_path / "original", tmp_path / "here" / "run"
    record(original, range(6))

    def look() -> None:
        opened = open_run(run)
        assert opened.verify().holds
        assert [b.reason for b in opened.evidence.log.blocks] in ([], ["spam"])

    kills = survives(
        lambda: _fresh(original, run), lambda: open_run(run).block("code:3", reason="spam"), look, run, torn=torn
    )

    assert kills >= 8


def test_a_report_is_the_old_page_or_the_new(tmp_path: Path):
    """A browser never gets half a page."""
    record(tmp_path / "run", range(6))
    page = tmp_path / "pages" / "page.html"
    page.parent.mkdir()
    run = open_run(tmp_path / "run")
    write_page(run, page)  # templates are read once
    new = page.read_text()

    def look() -> None:
        assert page.read_text() in ("old", new)

    kills = survives(lambda: page.write_text("old"), lambda: write_page(run, page), look, page.parent, torn=True)

    assert kills >= 4 and [p.name for p in page.parent.iterdir()] == ["page.html"]


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_converted_and_rewritten_directories_are_old_or_new(tmp_path: Path, every: int):
    """HDF5 twins and replaced tables: a dataset opens after every kill, with one of the two contents."""
    original, out = make_directory(tmp_path / "original"), tmp_path / "here" / "jasper"
    convert(original)
    table = torch.load(original / "question_embs.pt", weights_only=True)
    twins = [original / "question_embs.pt", original / "dataset.h5"]
    assert all(path.is_file() for path in twins)

    def look() -> None:
        found = torch.load(out / "question_embs.pt", weights_only=True)
        assert torch.equal(found, table) or torch.equal(found, -table)
        dataset = JASPERSteeringDataset(str(out), "train", storage_format="hdf5")
        assert len(dataset) and dataset[0]

    converted = survives(lambda: _fresh(original, out), lambda: convert(out), look, out, (h5py, "File"), every=every)
    config = (original / "config.json").read_text()
    rewritten = survives(
        lambda: _fresh(original, out),
        lambda: rewrite_directory(out, json.loads(config), {"question_embs": -table}),
        look,
        out.parent,
        EXCHANGE,
        (torch, "save"),
        (h5py, "File"),
        every=every,
    )

    assert converted >= 4 / every and rewritten >= 15 / every


def test_a_checkpoint_of_the_plain_loop_is_old_or_new(tmp_path: Path):
    """What is loaded after a kill is one of the two, whole."""
    path = tmp_path / "checkpoint.pt"
    loader = Loader(torch.arange(64.0), batch_size=4)

    def save(value: float) -> None:
        model = torch.nn.Linear(1, 1)
        torch.nn.init.constant_(model.weight, value)
        save_checkpoint(path, model, torch.optim.SGD(model.parameters(), 0.1), loader, int(value))

    def look() -> None:
        model = torch.nn.Linear(1, 1)
        update = load_checkpoint(path, model, torch.optim.SGD(model.parameters(), 0.1), Loader(torch.arange(64.0), 4))
        assert model.weight.item() == update and update in (1, 2)

    kills = survives(lambda: save(1), lambda: save(2), look, tmp_path, (torch, "save"), torn=True)

    assert kills >= 4


def test_a_deepspeed_checkpoint_counts_when_it_is_complete(tmp_path: Path):
    """Its mark is written last; a folder without one is no checkpoint, and the one before stays the newest."""
    before, folder = checkpoint_folder(tmp_path, 1), checkpoint_folder(tmp_path, 2)

    def write(where: Path, update: int) -> None:
        where.mkdir(exist_ok=True)
        np.save(where / "weights.npy", np.full(9, update))
        Checkpoint(update, 0, 8 * update, {}, 1, 0, (), 0.0).write(where)

    def prepare() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        write(before, 1)

    def look() -> None:
        complete = complete_checkpoints(tmp_path)
        assert complete in ([before], [before, folder])
        assert [Checkpoint.read(path).update for path in complete] == [1, 2][: len(complete)]
        assert all((np.load(path / "weights.npy") == place + 1).all() for place, path in enumerate(complete))
        if folder.exists() and folder not in complete:
            with pytest.raises(ResumeError):
                Checkpoint.read(folder)

    assert survives(prepare, lambda: write(folder, 2), look, tmp_path) >= 5


def _fresh(original: Path, copy: Path) -> None:
    shutil.rmtree(copy.parent, ignore_errors=True)
    shutil.copytree(original, copy)
