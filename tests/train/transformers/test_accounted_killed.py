"""Hugging Face's Trainer on two processes, killed; alone, so that launches need not import transformers."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from tests.launching import torchrun
from tests.train.transformers.accounts import SCRIPT, holds, names, trainer_script

pytestmark = pytest.mark.needs("transformers")


def check_evaluation_and_stream(script: ModuleType, out: Path) -> None:
    """On two processes: 13 samples evaluated once each, and a stream whose rows are booked once."""
    ranks = [json.loads((out / f"others-{rank}.json").read_text()) for rank in range(2)]
    alone = script.evaluated(out / "alone", 13)
    for found in ranks:
        assert sorted(index for _, index in found["counted"]) == list(range(13))
        assert found["loss"] == pytest.approx(alone["loss"], rel=1e-5)
    opened = holds(out / "streamed-run")
    pass_0 = [step for step, epoch in zip(opened.history["step"], opened.history["epoch"], strict=True) if epoch == 0]
    booked = [index for step in pass_0 for _, index in names(opened, step)]
    assert sorted(booked) == list(range(50))  # rows that Accelerate repeats are padding
    for rank in range(2):
        for step, batch in zip(pass_0, ranks[rank]["streamed"], strict=False):
            real = {index for _, index in names(opened, step)}
            assert {index for _, index in batch} & real


@pytest.mark.launch
def test_two_processes_killed_come_back_as_one(tmp_path):
    """kill -9 in epoch 1 with accumulation 2 on two processes; resumed on one with twice the batch per device."""
    script = trainer_script()
    torchrun(SCRIPT, 2, tmp_path, 4, "--die-at", 8, "--others", check=False, timeout=600)
    check_evaluation_and_stream(script, tmp_path)
    checkpoint = max((tmp_path / "trainer").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    whole = script.make(tmp_path / "whole", 8)
    script.account(whole, tmp_path / "whole-run").train()

    again = script.make(tmp_path / "trainer", 8)
    script.account(again, tmp_path / "run").train(resume_from_checkpoint=str(checkpoint))

    opened, uninterrupted = holds(tmp_path / "run"), holds(tmp_path / "whole-run")
    assert opened.history["digest"] == uninterrupted.history["digest"]
    for step in range(len(uninterrupted.history["step"])):
        assert names(opened, step) == names(uninterrupted, step)
