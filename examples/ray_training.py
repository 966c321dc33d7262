"""Train with Ray Train: killed on two workers, back on one, and the books hold.

python examples/ray_training.py FOLDER
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("RAY_AUTH_MODE", "disabled")

import numpy as np
import ray.train
import torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

from lading import Columns, Ledger, Loader, open_run
from lading.train.ray import prepare


def loop(config: dict) -> None:
    """What each worker does: one pass, from a checkpoint or from the beginning."""
    x = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    points = {"points": Columns(x=x, y=x.sum(1))}
    model = prepare_model(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with Ledger(config["run"]) as ledger:  # a loop that an exception ends has failed
        loader = prepare(Loader(points, global_batch_size=8, seed=3, tracker=ledger))
        if config["checkpoint"]:
            saved = torch.load(Path(config["checkpoint"]) / "state.pt", weights_only=True)
            loader.load_state_dict(saved["loader"])  # on any number of workers
            model.load_state_dict(saved["model"])
        for batch, bill in loader.with_bills():
            loss = (model(batch["x"])[:, 0] - batch["y"]).square().mean()
            optimizer.zero_grad(), loss.backward(), optimizer.step()
            ledger.commit(bill, loss=loss)
            if bill.step == config["killed_at"] and bill.world.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if bill.step % 3 == 2:  # the state on every rank
                report(bill.step, {"loader": loader.state_dict(), "model": model.state_dict()})


def report(step: int, state: dict) -> None:
    """Report to Ray; rank 0 brings the checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        state["model"] = {name.removeprefix("module."): value for name, value in state["model"].items()}
        torch.save(state, Path(folder) / "state.pt")
        is_first = ray.train.get_context().get_world_rank() == 0
        ray.train.report({"step": step}, checkpoint=Checkpoint.from_directory(folder) if is_first else None)


def fit(folder: Path, name: str, workers: int, killed_at: int = -1, checkpoint: str = "") -> None:
    """Run the loop on some workers."""
    config = {"run": str(folder / "run"), "killed_at": killed_at, "checkpoint": checkpoint}
    scaling = ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.5})
    run = RunConfig(storage_path=str(folder), name=name, failure_config=FailureConfig(max_failures=0))
    TorchTrainer(loop, train_loop_config=config, scaling_config=scaling, run_config=run).fit()


def main(folder: Path) -> None:
    """Crash on two workers, come back on one, and ask whether the books hold."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        fit(folder, "first", workers=2, killed_at=7)
    except Exception as error:
        print("the first attempt died:", type(error).__name__)
    newest = max(path for path in (folder / "first").glob("checkpoint_*") if path.is_dir())
    fit(folder, "second", workers=1, checkpoint=str(newest))
    print(open_run(folder / "run").verify())


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
