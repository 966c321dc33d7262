"""Law: forget and replay equals never, bit for bit: weights, optimizer, random state; with real frameworks."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.launching import torchrun

from lading import JaxLoader, open_run
from lading.errors import ResumeError
from lading.ledger import Ledger
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


@pytest.mark.parametrize("by", ["document", "row"])
@pytest.mark.parametrize("case", script.CASES)
def test_torch_loop(tmp_path, case, by):
    """Packing, weights that follow losses, a curriculum, sample weights; accumulation and dropout in each."""
    train = lambda out, resume=None, **never: script.train(tmp_path, tmp_path / out, STEPS, case, resume, never, -1)  # noqa: E731
    with_it = train("a")
    found, never = asked(tmp_path / "a", by)

    with pytest.raises(ResumeError, match="tainted"):
        train("a", tmp_path / "a" / f"checkpoint-{STEPS - 4}")
    again, control = train("a", clean_of(found)), train("b", **never)

    assert again == control != with_it
    assert open_run(tmp_path / "a" / "run").verify().holds


@pytest.mark.launch
def test_torch_loop_on_two_ranks_killed_during_the_replay(tmp_path):
    """A kill -9 of both ranks; the replay is resumed from what it saved itself."""
    for name in ("web", "code"):
        script.corpus(tmp_path, name, 1 if name == "web" else 2)
    where = [tmp_path, tmp_path / "a", STEPS, "policy"]
    torchrun(SCRIPT, 2, *where)
    found, never = asked(tmp_path / "a")
    start = found.clean["step"]

    torchrun(SCRIPT, 2, *where, "--resume", clean_of(found), "--die-at", start + 6, check=False)
    torchrun(SCRIPT, 2, *where, "--resume", tmp_path / "a" / f"checkpoint-{start + 4}")
    torchrun(SCRIPT, 2, tmp_path, tmp_path / "b", STEPS, "policy", "--never", json.dumps(never))

    hashes = [[(tmp_path / out / f"hash-{rank}").read_text() for rank in (0, 1)] for out in "ab"]
    assert hashes[0] == hashes[1]


def test_one_process_killed_during_the_replay(tmp_path):
    """The same with kill -9 of one process, which needs no ranks."""

    def run(*words: Any) -> None:
        subprocess.run([sys.executable, SCRIPT, tmp_path, *map(str, words)], check="--die-at" not in words)

    run(tmp_path / "a", STEPS, "packing")
    found, never = asked(tmp_path / "a")
    start = found.clean["step"]
    run(tmp_path / "a", STEPS, "packing", "--resume", clean_of(found), "--die-at", start + 5)
    run(tmp_path / "a", STEPS, "packing", "--resume", tmp_path / "a" / f"checkpoint-{start + 4}")
    run(tmp_path / "b", STEPS, "packing", "--never", json.dumps(never))

    assert (tmp_path / "a" / "hash-0").read_text() == (tmp_path / "b" / "hash-0").read_text()


def test_jax(tmp_path):
    """Weights and a momentum, updated by JAX; the loader is JAX's."""
    jax = pytest.importorskip("jax")
    numpy = jax.numpy

    def loss(weights: Any, batch: Any) -> Any:
        logits = weights["out"].T @ weights["in"][batch["inputs"]].swapaxes(1, 2)
        nll = -jax.nn.log_softmax(logits, axis=1)
        picked = numpy.take_along_axis(nll, batch["targets"][:, None], 1)[:, 0]
        counts = batch["targets_segmentation"] != 0
        return (picked * counts).sum() / counts.sum()

    update = jax.jit(jax.value_and_grad(loss))

    def train(out: Path, resume: Path | None = None, **never: Any) -> bytes:
        keys = jax.random.split(jax.random.key(0), 2)
        weights = {
            name: jax.random.normal(key, (257, 8)).T if name == "out" else jax.random.normal(key, (257, 8))
            for name, key in zip(("in", "out"), keys, strict=True)
        }
        momentum = jax.tree.map(numpy.zeros_like, weights)
        loader = JaxLoader({"web": script.corpus(tmp_path, "web", 1)}, global_batch_size=4, seed=3, **never)
        if resume is not None:
            saved = np.load(resume / "weights.npz")
            weights, momentum = ({k: numpy.asarray(saved[f"{p}-{k}"]) for k in weights} for p in "wm")
            loader.load_state_dict(json.loads((resume / "loader.json").read_text()))
        loader.tracker = ledger = Ledger(out / "run", loader.plan)
        while loader.engine.step < STEPS:
            for batch, bill in loader.with_bills():
                value, slopes = update(weights, {k: batch[k] for k in ("inputs", "targets", "targets_segmentation")})
                momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, slopes)
                weights = jax.tree.map(lambda w, m: w - 0.1 * m, weights, momentum)
                ledger.commit(bill, update=bill.step, loss=float(value))
                if (bill.step + 1) % 4 == 0:
                    folder = out / f"checkpoint-{bill.step + 1}"
                    folder.mkdir(exist_ok=True)
                    kept = {
                        f"{p}-{k}": np.asarray(v) for p, t in (("w", weights), ("m", momentum)) for k, v in t.items()
                    }
                    np.savez(folder / "weights.npz", **kept)
                    (folder / "loader.json").write_text(json.dumps(loader.state_dict()))
                    ledger.checkpoint(folder, loader.state_dict())
                if bill.step + 1 == STEPS:
                    break
        ledger.close()
        return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((weights, momentum)))

    with_it = train(tmp_path / "a")
    found, never = asked(tmp_path / "a")
    with pytest.raises(ResumeError, match="tainted"):
        train(tmp_path / "a", tmp_path / "a" / f"checkpoint-{STEPS - 4}")

    again, control = train(tmp_path / "a", clean_of(found)), train(tmp_path / "b", **never)

    assert again == control != with_it
