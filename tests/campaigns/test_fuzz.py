"""Whatever a file holds, a reader returns or raises a LadingError, soon and in little memory."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.campaigns import fuzz
from tests.campaigns.fuzz import Campaign, hundred_inputs
from tests.campaigns.readers import TARGETS, Target
from tests.campaigns.running import FIRST, SECONDS, SEED, run_units, told


@pytest.mark.parametrize("name", TARGETS)
def test_a_few_damaged_inputs_are_read_or_refused(tmp_path, name):
    """The small twin: the first inputs of every reader."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        campaign = Campaign(name, TARGETS[name], tmp_path / "x")
        found = campaign.run(f"0/{name}", max(8, TARGETS[name].share // 250), 2.0)

    assert not found.failures, "\n\n".join(found.failures[:3])


def test_what_takes_too_long_or_too_much_is_a_failure(tmp_path, monkeypatch):
    """The campaign can fail: time, memory, a hanging reader, an error that is not ours."""
    monkeypatch.setattr(fuzz, "MOST_SECONDS", 0.2)

    def read(folder: Path) -> None:
        text = (folder / "file").read_text()
        if text == "slow":
            began = time.process_time()
            while time.process_time() < began + 0.3:
                pass
        elif text == "large":
            np.ones(70 << 20).sum()
        elif text == "hangs":
            time.sleep(5)
        elif text == "fails":
            raise KeyError("file")

    def outcomes(text: str) -> list[str]:
        target = Target(lambda folder: (folder / "file").write_text("x") and None, read, 1, lambda *_: text.encode())
        return Campaign("it", target, tmp_path / text).run("0", 2).failures

    assert not outcomes("nothing")
    assert all(" s, " in failure for failure in outcomes("slow"))
    assert all(int(failure.split()[-2]) > 500 for failure in outcomes("large"))
    monkeypatch.setattr(fuzz, "HANGS_SECONDS", 0.5)
    assert all("still reading" in failure for failure in outcomes("hangs"))
    assert all("KeyError" in failure for failure in outcomes("fails"))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_damaged_inputs_are_read_or_refused(tmp_path):
    """As many as ``LADING_CAMPAIGN_SECONDS`` allow, at most 100 000: only LadingErrors, none over 2 s or 500 MB."""
    found, following = run_units(hundred_inputs, tmp_path, SEED, SECONDS, FIRST, FIRST + 1000)

    print(told(found, SEED, FIRST, following))
    assert not found.failures, "\n\n".join(found.failures[:10])
