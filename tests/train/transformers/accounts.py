"""What the tests of an accounted Trainer share: the script that trains, and what its run says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from lading import open_run

SCRIPT = Path(__file__).parent / "scripts" / "trainer.py"


def trainer_script() -> ModuleType:
    """Return the script as a module; it imports transformers."""
    spec = importlib.util.spec_from_file_location("trainer_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def holds(run: Path):
    """Return the opened run, which must verify."""
    opened = open_run(run)
    verdict = opened.verify()
    assert verdict.holds, verdict
    return opened


def names(opened, step):
    """Return what a step held, as (dataset, index)."""
    return sorted((row["name"], row["index"]) for row in opened.step(step).samples.dicts())
