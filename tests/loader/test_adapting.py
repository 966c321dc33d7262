"""What adapts an order, as configurations give it, and what a loader does where nothing of it is there."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from lading import Curriculum, NumpyLoader
from lading.errors import ConfigError, LoaderError
from lading.loader.adapting import curriculum


def test_a_curriculum_is_given_by_its_arguments_by_its_scores_or_whole():
    """Whatever reads a configuration reads it alike."""
    whole = Curriculum("x", until=10)

    assert curriculum(whole) is whole
    assert curriculum({"scores": "x", "until": 10}) == whole
    assert curriculum("scores.npy") == Curriculum("scores.npy")


def test_an_argument_that_a_curriculum_has_not_is_refused_by_name():
    """With those that it has."""
    with pytest.raises(ConfigError, match="curriculum has scores, untill: expected scores, start, until"):
        curriculum({"scores": "x", "untill": 10})


def test_a_loader_without_a_curriculum_has_nothing_to_rescore():
    """And says what to pass."""
    with pytest.raises(LoaderError, match="no curriculum to rescore"):
        NumpyLoader(np.arange(8), 2).rescore([1.0])


WITHOUT_KITS = """
import sys
import numpy as np
sys.modules["lading.kits"] = None  # an import of a kit fails
from lading import Ledger, Mixture, NumpyLoader, open_run

sources = {"code": np.arange(40.0), "prose": np.arange(20.0)}
def make(**options):
    return NumpyLoader(sources, 4, seed=1, chunk_batches=[[0, 3], [2, 2]], **options)

loader = make(mixture=Mixture({"code": 2, "prose": 1}))
with Ledger(sys.argv[1], loader.plan) as ledger:
    loader.tracker = ledger
    for _ in range(3):
        for _, bill in loader.with_bills():
            ledger.commit(bill, loss=1.0)
        loader.validated(0.5)
    loader.reweight({"code": 1, "prose": 3})
    state = loader.state_dict()
loader.tracker = None
resumed = make(mixture=Mixture({"code": 2, "prose": 1}))
resumed.load_state_dict(state)
assert [b.tolist() for b in resumed] == [b.tolist() for b in loader]
run = open_run(sys.argv[1])
assert run.verify().holds and len(run.explain(3).shares) == 2
assert run.decisions()["kind"].count("validated") == 3 and "reweight" in run.decisions()["kind"]
assert loader.plan.simulate(10).delivered
try:
    make(mixture={"code": 2, "prose": 1}).rescore([1.0])
except Exception as error:
    assert "no curriculum" in str(error)
print("done")
"""


def test_the_core_loads_records_and_answers_where_no_kit_can_be_imported(tmp_path):
    """Chunks of planned sizes, weights that change, a ledger, a resume, questions: none of it opens a kit."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_KITS, str(tmp_path / "run")], capture_output=True, text=True, timeout=600
    )

    assert done.stdout.strip() == "done", done.stderr
