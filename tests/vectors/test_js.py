"""The client in JavaScript: the same vectors, the same history, and whatever was altered is found."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.vectors.golden import GOLDEN, compacted

from lading import Ledger, Loader, open_run
from lading.ledger.compact import compact
from lading.ledger.seal import seal

ROOT = Path(__file__).parents[2]
MODULES = Path(sys.prefix) / "js" / "node_modules"  # where `make setup` installs what package-lock.json names


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """Return what runs a script of the client; ``clients`` and ``tests/vectors`` lie where node finds the modules."""
    program = shutil.which("node")
    if program is None or not MODULES.exists():
        pytest.skip(f"needs {'node' if program is None else 'npm packages: run make setup where npm is installed'}")
    folder = tmp_path_factory.mktemp("node")
    shutil.copytree(ROOT / "clients", folder / "clients", ignore=shutil.ignore_patterns("node_modules"))
    shutil.copytree(ROOT / "tests" / "vectors", folder / "tests" / "vectors")
    (folder / "node_modules").symlink_to(MODULES)

    def run(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [program, folder / script, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    run.vectors = folder / "tests" / "vectors"
    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with weights that changed, samples that were blocked, odd metrics, a skipped step and a resume."""
    path = tmp_path_factory.mktemp("run") / "run"
    data = {"größe": np.arange(100), "b": np.arange(41)}
    state = None
    for steps in (60, 15):
        with Ledger(path) as ledger:
            weights = {"größe": np.linspace(0, 1, 100)}
            loader = Loader(data, batch_size=2, seed=3, tracker=ledger, weights=[1, 2], sample_weights=weights)
            if state is not None:
                loader.load_state_dict(state)
            for number, (_, bill) in zip(range(steps), loader.with_bills(), strict=False):
                if number == 5:
                    ledger.skip(bill, "größe")
                else:
                    loss = float("nan") if number == 4 else 0.5
                    ledger.commit(bill, loss=loss, update=number, **{"lr": 0.1, "10": 2.0, "9": float("nan")})
                if steps == 60 and number == 3:
                    loader.reweight([9, 1])
                if steps == 60 and number == 12:
                    loader.block("b", [1, 2, 3])
                if number == 50:
                    state = loader.state_dict()
    compact(path)
    return path


def test_client_agrees_on_every_vector(node):
    """Python equals JavaScript."""
    done = node("tests/vectors/vectors.js", node.vectors)

    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= 200


def test_client_notices_a_vector_that_differs(node, tmp_path):
    """The comparison can fail."""
    text = (node.vectors / "permutations.json").read_text()
    (tmp_path / "permutations.json").write_text(text.replace('"elements": ["0", "1"', '"elements": ["1", "1"', 1))

    assert node("tests/vectors/vectors.js", tmp_path).returncode == 1


def test_client_is_small():
    """At most 400 lines, as decided."""
    files = [file for file in (ROOT / "clients" / "js").iterdir() if file.suffix == ".js"]

    assert sum(len(file.read_text().splitlines()) for file in files) <= 400


@pytest.mark.parametrize("golden", [None, "planned", "observed"])
def test_client_lists_the_history_that_we_list(node, trained, tmp_path, golden):
    """Steps, fates, samples and digests; head and seal."""
    path = trained if golden is None else compacted(golden, tmp_path)
    done = node("clients/js/lading.js", path)
    ours = open_run(path).sql("SELECT step, attempt, fate, samples, digest FROM history ORDER BY attempt, step").arrow

    assert done.returncode == 0, done.stderr
    lines = ["\t".join([*map(str, list(row.values())[:4]), f"{row['digest']:016x}"]) for row in ours.to_pylist()]
    assert done.stdout.splitlines() == lines and len(lines) >= 5
    assert seal(path).seal in done.stderr and open_run(path).verify().head[1] in done.stderr


def test_client_says_which_rows_it_does_not_read(node):
    """Two ranks of the golden run were killed: their rows are in tails."""
    done = node("clients/js/lading.js", GOLDEN / "planned")

    assert done.returncode == 0 and "attempt and rank 1 1 did not end" in done.stderr and "12 steps" in done.stderr


@pytest.mark.parametrize(
    "name",
    ["run.json", "log/000001.json", "begun/00000.json", "part-", "events-", "manifest.jsonl", ".weights", "head.json"],
)
def test_client_finds_a_changed_file(node, trained, tmp_path, name):
    """One byte in the middle of a file: it does not hold, or it cannot be read."""
    path = shutil.copytree(trained, tmp_path / "run")
    file = next(f for f in sorted(path.rglob("*")) if f.is_file() and name in str(f))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)

    assert node("clients/js/lading.js", path).returncode == 1


def test_client_compares_steps_with_their_bills(node, trained, tmp_path):
    """A plan with another seed, made to fit everywhere but in the rows: the steps are named."""
    script = """
import { Run } from 'RUN.js';
const run = await new Run(process.argv[2]).read();
for (const launch of run.launches) launch.planned.plan.seed += 1n;
const steps = [...run.history()];
console.log(steps.length, run.problems.length);
"""
    file = node.vectors / "other_seed.mjs"
    file.write_text(script.replace("RUN.js", "../../clients/js/run.js"))
    steps, problems = map(int, node("tests/vectors/other_seed.mjs", trained).stdout.split())

    assert problems > steps // 2 > 10
