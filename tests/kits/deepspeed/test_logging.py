"""Records and checkpoints on disk: what a restart undid is gone, what is incomplete is never taken."""

from __future__ import annotations

import json

import pytest
import torch

from lading.errors import ResumeError
from lading.identity import World
from lading.kits.deepspeed import checkpoint as checkpoints
from lading.kits.deepspeed.callback import Update
from lading.kits.deepspeed.checkpoint import Checkpoint
from lading.kits.deepspeed.logging import LOG, Records, TrainingLog, record_path, roll_back_logs
from lading.ledger import BatchTracker
from lading.order import Plan


def records_of(path):
    """Return the records of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def saved(run_dir, update, **changes):
    """Write a complete checkpoint after so many updates."""
    folder = checkpoints.checkpoint_folder(run_dir, update)
    folder.mkdir()
    values = {"update": update, "epoch": 0, "consumed_samples": 0, "loader": {}, "world_size": 2, "zero_stage": 1}
    Checkpoint(**{**values, "lineage": (), "time": 0.0, **changes}).write(folder)
    return folder


def test_records_wait_and_are_appended_together(tmp_path):
    """Tensors become numbers when they are written; what is not finite becomes null."""
    records = Records(tmp_path / "records.jsonl")
    records.add({"train/step": 0, "train/loss": torch.tensor(0.5)})
    records.add({"train/step": 1, "train/loss": float("inf"), "counts": {0: 3}})
    assert not records.path.exists()

    records.flush()
    records.flush()

    assert records_of(records.path) == [
        {"train/step": 0, "train/loss": 0.5},
        {"train/step": 1, "train/loss": None, "counts": {"0": 3}},
    ]


def test_a_restart_removes_what_it_undid_and_what_was_torn(tmp_path):
    """From the records of all processes and from the log."""
    for path in (record_path(tmp_path, 0), record_path(tmp_path, 1), tmp_path / LOG):
        path.write_text('{"train/step": 4}\n{"train/step": 5}\n{"train/step": 6}\n{"train/st')

    roll_back_logs(tmp_path, update=5)

    assert records_of(tmp_path / LOG) == [{"train/step": 4}]
    for path in (record_path(tmp_path, 0), record_path(tmp_path, 1)):
        assert records_of(path) == [{"train/step": 4}, {"train/step": 5}]  # counted from 1: update 5 is step 6


def test_every_update_is_recorded_and_the_tracker_starts_anew(tmp_path):
    """Other ranks write records, but only rank 0 writes the log."""
    log, tracker = TrainingLog(tmp_path, World(1, 2), total=2, progress=None), BatchTracker()
    tracker.update({"idx": [1, 2], "dataset_idx": [0, 1]})
    bills = (Plan.make({"code": 4, "prose": 4}, 2).bill(0),)

    with log.running(first=0, samples=0):
        log.update(Update(0, bills, 0.5, True, 0.1, 1e-3), tracker)
        log.note({"train/step": 0})

    assert records_of(record_path(tmp_path, 1)) == [
        {
            "train/global_rank": 1,
            "train/step": 1,
            "train/step_runtime": 0.1,
            "train/loss": 0.5,
            "train/n_samples_per_dataset": {"0": 1, "1": 1},
            "train/dataset_names": {"0": "code", "1": "prose"},
        }
    ]
    assert len(tracker) == 0 and not (tmp_path / LOG).exists()


def test_the_progress_bar_says_where_the_run_is(tmp_path, capsys):
    """Drawn on stderr, from where a resumed run begins."""
    log = TrainingLog(tmp_path, World(), total=8, progress=True)

    with log.running(first=4, samples=0):
        log.update(Update(4, (), 0.5, True, 0.1, 1e-3), None)

    assert "5/8" in capsys.readouterr().err


def test_only_complete_checkpoints_are_taken(tmp_path):
    """A folder without its last file is one that a crash left; numbers are ordered as numbers."""
    for update in (9, 10, 100):
        saved(tmp_path, update)
    (tmp_path / "checkpoint-200").mkdir()

    assert checkpoints.chosen_checkpoint(True, tmp_path).name == "checkpoint-100"
    assert checkpoints.chosen_checkpoint("auto", tmp_path / "new") is None
    assert checkpoints.chosen_checkpoint(None, tmp_path) is None
    with pytest.raises(ResumeError, match=r"has no lading.json: it is incomplete, or not Lading's. Take an older"):
        Checkpoint.read(tmp_path / "checkpoint-200")
    with pytest.raises(ResumeError, match=r"there is no checkpoint .*checkpoint-7\. Pass resume_from_checkpoint=True"):
        Checkpoint.read(tmp_path / "checkpoint-7")


def test_checkpoints_of_a_way_not_taken_are_rolled_back(tmp_path):
    """They stay on disk and say so when someone asks for them."""
    for update in (5, 10, 15):
        saved(tmp_path, update)

    checkpoints.roll_back_checkpoints(tmp_path, 5)

    assert checkpoints.chosen_checkpoint(True, tmp_path).name == "checkpoint-5"
    with pytest.raises(ResumeError, match=r"checkpoint-15 was rolled back: the run resumed from an earlier checkpoint"):
        Checkpoint.read(tmp_path / "checkpoint-15")


def test_a_damaged_checkpoint_is_named(tmp_path):
    """And an older one recommended."""
    folder = saved(tmp_path, 5)
    (folder / "lading.json").write_text('{"update": 5')

    with pytest.raises(ResumeError, match=r"lading.json is damaged: .* Take an older checkpoint"):
        Checkpoint.read(folder)


@pytest.mark.parametrize(
    ("written", "now", "is_fine"),
    [
        ((2, 1), (2, 1), True),
        ((2, 1), (2, 2), True),
        ((2, 0), (1, 0), True),
        ((2, 1), (1, 1), False),
        ((2, 0), (2, 1), False),
    ],
)
def test_what_deepspeed_cannot_load_is_refused_before_it_tries(tmp_path, written, now, is_fine):
    """Other world sizes at ZeRO 0 only; the stages that divide the optimizer's state among themselves."""
    folder = saved(tmp_path, 5, world_size=written[0], zero_stage=written[1])
    checkpoint = Checkpoint.read(folder)

    if is_fine:
        checkpoint.check(folder, *now)
    else:
        with pytest.raises(ResumeError, match="Resume with"):
            checkpoint.check(folder, *now)
