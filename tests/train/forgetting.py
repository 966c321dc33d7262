"""What the tests of forgetting share: the script that trains, and the document it is asked to forget."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from lading import open_run
from lading.report.forget.forget import Forgetting

torch = pytest.importorskip("torch")
SCRIPT = Path(__file__).parent / "scripts" / "forget.py"
spec = importlib.util.spec_from_file_location("forget_script", SCRIPT)
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)

STEPS = 28


def asked(out: Path, by: str = "document") -> tuple[Forgetting, dict[str, Any]]:
    """Forget the document of the scripts; return what that takes, and how a control run is made."""
    run = open_run(out / "run")
    for document in range(70):  # one whose first use has a checkpoint before it
        uses = [use["step"] for row in run.documents.rows_of(0, document) for use in run.where(0, row["index"])]
        if 4 <= min(uses, default=0) < STEPS - 6:
            break
    found = run.forget(documents=[f"web:{document}"], by=by, reason="a request")
    assert (found.first_step, found.clean["step"]) == (min(uses), min(uses) // 4 * 4)
    rows = [sample["index"] for sample in found.samples]
    return found, {"masked": {"web": [document]}} if by == "document" else {"blocked": {"web": rows}}


def clean_of(found: Forgetting) -> Path:
    """Where the replay begins."""
    return Path(found.clean["where"])
