"""Checkpoints: DeepSpeed's files, and beside them where the data stands.

    runs/7/checkpoint-600/
    ├── mp_rank_00_model_states.pt, ...   DeepSpeed's: weights, optimizer, learning rate
    ├── random_rank_00.pt, ...            random numbers of each process
    └── lading.json                       loader state, lineage; written last: with it, the checkpoint is complete

Before ``lading.json`` appears, every process has its ledger on disk, so no
checkpoint is ahead of the ledger. A resume from an earlier checkpoint makes
the later ones part of what was rolled back: their ``lading.json`` is renamed.

The random numbers of a process are seeded at the start, kept in checkpoints and restored on resume:
dropout and the like continue as if nothing had happened, as long as the number
of processes stays the same. Order needs none of this: it is the plan's.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from deepspeed.accelerator import get_accelerator

from lading.errors import ResumeError
from lading.identity.hashing import key64
from lading.ledger.waybill.waybill import WAYBILL
from lading.runtime.files import clean_up, json_bytes, sync_folder, write_aside
from lading.runtime.paths import local_path
from lading.runtime.random_state import capture, packed, restore, unpacked

CHECKPOINT_VERSION = 1
_MARK, _UNDONE = "lading.json", "lading.rolled-back.json"
_FOLDER = re.compile(r"checkpoint-(\d+)")


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint says beside the weights.

    Attributes:
        update: Updates done; the number of the next one.
        epoch: Epoch of the next step.
        consumed_samples: Samples yielded so far, all processes together.
        world_size: Processes that wrote it.
        zero_stage: ZeRO stage it was written at.
        lineage: The attempts that led here, with the update each began at.
    """

    update: int
    epoch: int
    consumed_samples: int
    loader: dict[str, Any]
    world_size: int
    zero_stage: int
    lineage: tuple[dict[str, Any], ...]
    time: float
    version: int = CHECKPOINT_VERSION

    @classmethod
    def read(cls, folder: Path) -> Checkpoint:
        """Read a complete checkpoint."""
        try:
            values = json.loads((folder / _MARK).read_bytes())
            return cls(**{**values, "lineage": tuple(values["lineage"])})
        except FileNotFoundError as error:
            raise ResumeError(_why_unusable(folder)) from error
        except (ValueError, KeyError, TypeError) as error:
            raise ResumeError(f"{folder / _MARK} is damaged: {error}. Take an older checkpoint.") from error

    def write(self, folder: Path) -> None:
        """Complete a checkpoint."""
        clean_up(folder)
        write_aside(folder / _MARK, json_bytes(asdict(self)))

    def check(self, folder: Path, world_size: int, zero_stage: int) -> None:
        """Refuse what DeepSpeed cannot load, and say what can be done."""
        if self.world_size != world_size and max(self.zero_stage, zero_stage) > 0:
            raise ResumeError(
                f"{folder} was written by {self.world_size} processes at ZeRO stage {self.zero_stage}, this run has "
                f"{world_size}: DeepSpeed cannot divide the optimizer's state anew. Resume with {self.world_size} "
                "processes, or train with zero_stage=0, which resumes on any number."
            )
        if (self.zero_stage > 0) != (zero_stage > 0):
            raise ResumeError(
                f"{folder} was written at ZeRO stage {self.zero_stage}, this run has stage {zero_stage}: DeepSpeed "
                f"keeps the optimizer's state differently. Resume with zero_stage={self.zero_stage}."
            )


def checkpoint_folder(run_dir: Path, update: int) -> Path:
    """Return the folder of the checkpoint after so many updates."""
    return run_dir / f"checkpoint-{update}"


def complete_checkpoints(run_dir: Path) -> list[Path]:
    """Return the complete checkpoints of a run, oldest first."""
    found = [(int(m.group(1)), p) for p in run_dir.glob("checkpoint-*") if (m := _FOLDER.fullmatch(p.name))]
    return [path for _, path in sorted(found) if (path / _MARK).exists()]


def chosen_checkpoint(asked: bool | str | os.PathLike[str] | None, run_dir: Path) -> Path | None:
    """Return the checkpoint that a user means.

    Args:
        asked: None or False: none. True: the last one. ``"auto"``: the last one, or none if there is none yet.
            Otherwise the folder itself.
    """
    if asked is None or asked is False:
        return None
    if asked is not True and asked != "auto":
        return local_path(asked)
    complete = complete_checkpoints(run_dir)
    if not complete and asked is True:
        raise ResumeError(
            f"{run_dir} has no complete checkpoint. Pass resume_from_checkpoint='auto' to begin from the start then."
        )
    return complete[-1] if complete else None


def check_untouched(run_dir: Path) -> None:
    """Refuse to begin anew where a resume may have been meant."""
    complete = complete_checkpoints(run_dir)
    if complete:
        raise ResumeError(
            f"{run_dir} holds a run with {complete[-1].name}. Pass resume_from_checkpoint=True to resume there, "
            "another output_dir for another run, or overwrite_output_dir=True to begin anew and roll this one back."
        )


def reopen(folder: Path) -> None:
    """Make a checkpoint folder incomplete before it is written (again)."""
    for name in (WAYBILL, _MARK, _UNDONE):
        (folder / name).unlink(missing_ok=True)


def roll_back_checkpoints(run_dir: Path, update: int) -> None:
    """Mark the checkpoints after an update as undone: training continues from there on another way."""
    for path in complete_checkpoints(run_dir):
        if int(path.name.rpartition("-")[2]) > update:
            (path / _MARK).rename(path / _UNDONE)
            sync_folder(path)


def remove_oldest(run_dir: Path, limit: int | None) -> None:
    """Keep only the newest complete checkpoints."""
    for path in complete_checkpoints(run_dir)[: -limit if limit else 0]:
        reopen(path)  # first of all it must not look complete
        shutil.rmtree(path, ignore_errors=True)


def _why_unusable(folder: Path) -> str:
    if not folder.is_dir():
        return f"there is no checkpoint {folder}. Pass resume_from_checkpoint=True for the last one."
    if (folder / _UNDONE).exists():
        return (
            f"{folder} was rolled back: the run resumed from an earlier checkpoint. Take a newer one, or rename its "
            f"{_UNDONE} to {_MARK} to undo that in turn."
        )
    return f"{folder} has no {_MARK}: it is incomplete, or not Lading's. Take an older checkpoint."


def seed_random(seed: int, rank: int) -> None:
    """Seed every generator of this process, differently on each rank."""
    own = key64(seed, "random", rank)
    torch.manual_seed(own >> 1)
    random.seed(own)
    np.random.seed(own % 2**32)  # noqa: NPY002 - users' code may still draw from the global generator


def save_random(folder: Path, rank: int) -> None:
    """Write the state of every generator of this process into a checkpoint."""
    state = {**packed(capture()), "device": get_accelerator().get_rng_state()}
    torch.save(state, _path(folder, rank))


def restore_random(folder: Path, rank: int) -> bool:
    """Restore the generators of this process; False where a checkpoint was written by fewer processes."""
    path = _path(folder, rank)
    if not path.exists():
        return False
    state = torch.load(path, weights_only=True)
    get_accelerator().set_rng_state(state.pop("device"))
    restore(unpacked(state))
    return True


def _path(folder: Path, rank: int) -> Path:
    return folder / f"random_rank_{rank:02d}.pt"
