"""What may be done to loaders in a Ray Train worker: ``ray_rows.py OUT`` before the example's loop, on a cluster.

``ray_rows.py OUT --alone`` runs the rows in this process, as one worker without a cluster.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import itertools
import json
import os
import sys
from pathlib import Path

os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# 15 by default: on a busy machine workers would hardly start.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] = "0.5"  # a killed worker is noticed sooner

import numpy as np
import ray
import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader
from torch.utils.data import DataLoader, TensorDataset

from lading import ChunkedDataLoader, Columns, Ledger, Loader, RepeatingLoader, track
from lading.errors import LadingError
from lading.train.ray import prepare
from lading.train.torch import train

EXAMPLE = Path(__file__).parents[3] / "examples" / "ray_training.py"
OUT = Path(sys.argv[1])
SOURCES = {"data": Columns(x=np.arange(100))}


def parts(loader):
    """Return a plain DataLoader of a loader's parts."""
    return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler)


def chunked(loader):
    """Return a chunked loader, prepared, whose only chunk is the whole pass."""
    return prepare(ChunkedDataLoader(SOURCES, 8, chunk_size=100, tracker=loader.tracker))


# What is done to a Lading loader.
RIGHT = {
    "prepared": prepare,
    "copied": lambda loader: prepare(copy.copy(loader)),
    "chunked": chunked,
    "repeated": lambda loader: itertools.islice(RepeatingLoader(prepare(loader)), len(loader)),
    "with-bills": lambda loader: (batch for batch, _ in loader.with_bills()),
}
WRONG = {
    "itself": lambda loader: loader,
    "parts": parts,
    "ray": prepare_data_loader,
    "ray-undistributed": lambda loader: prepare_data_loader(loader, add_dist_sampler=False),
    "ray-unmoved": lambda loader: prepare_data_loader(loader, move_to_device=False),
    "ray-chunked": lambda loader: prepare_data_loader(ChunkedDataLoader(SOURCES, 8, chunk_size=3)),
    "ray-parts": lambda loader: prepare_data_loader(parts(loader), add_dist_sampler=False),
    "no-loader": lambda loader: prepare(parts(loader)),
}
# What is done to a DataLoader of the user's.
TRACKED_RIGHT = {
    "tracked": lambda plain, run: prepare(track(prepare_data_loader(plain, move_to_device=False), run=run)),
}
TRACKED_WRONG = {
    "tracked-itself": lambda plain, run: track(prepare_data_loader(plain, move_to_device=False), run=run),
    "tracked-too-early": lambda plain, run: prepare_data_loader(track(plain, run=run)),
    "tracked-read-ahead": lambda plain, run: prepare(track(prepare_data_loader(plain), run=run)),
}


def failing(config: dict) -> None:
    """End by an exception in the middle of a pass."""
    with Ledger(OUT / "failed") as ledger:
        for _, bill in prepare(Loader(SOURCES, 8, tracker=ledger)).with_bills():
            if bill.step == 3:
                raise RuntimeError("this step fails on purpose")
            ledger.commit(bill)


def ours(folder: Path, change) -> dict:
    """Return what a Lading loader delivers, and where it said it was after each batch."""
    with Ledger(folder) as ledger:
        loader = Loader(SOURCES, batch_size=8, seed=5, tracker=ledger)
        made, seen, steps = change(loader), [], []
        loader = made if isinstance(made, Loader | ChunkedDataLoader) else loader
        for batch in made:
            bill = loader.last_bill
            ledger.commit(bill)
            seen += batch["x"][~torch.from_numpy(bill.is_padding)].tolist()
            steps.append([bill.step, loader.state_dict()["step"]])
    return {"seen": seen, "steps": steps}


def tracked(folder: Path, change) -> dict:
    """Return what a plain DataLoader delivers that is tracked."""
    loader = change(DataLoader(TensorDataset(torch.arange(100)), batch_size=8, shuffle=True), folder)
    seen = [int(x) for (batch,) in loader for x in batch]
    loader.close()
    return {"seen": seen}


def trained(folder: Path) -> dict:
    """Return what our own loop trains on: nobody prepared its loader."""
    seen, model = [], torch.nn.Linear(1, 1)

    def losses_of(net, batch):
        seen.extend(batch["idx"].tolist())
        return net(batch["x"].float()[:, None])[:, 0]

    loader = Loader(SOURCES, batch_size=10, seed=5)
    train(model, torch.optim.SGD(model.parameters(), lr=0.0), loader, losses_of, folder, updates=len(loader))
    return {"seen": seen}


def refused(row, *arguments) -> dict:
    """Return what a row delivers, or how it is refused."""
    try:
        return row(*arguments)
    except LadingError as error:
        return {"refused": str(error)}


def rows(config: dict) -> None:
    """Run every row on every worker, and write down what it delivered."""
    context = ray.train.get_context()
    out, size = Path(config["run"]).parent, context.get_world_size()
    found = {name: ours(out / f"{name}-{size}", change) for name, change in RIGHT.items()}
    found |= {name: refused(ours, out / f"{name}-{size}", change) for name, change in WRONG.items()}
    found |= {name: tracked(out / f"{name}-{size}", change) for name, change in TRACKED_RIGHT.items()}
    found |= {name: refused(tracked, out / f"{name}-{size}", change) for name, change in TRACKED_WRONG.items()}
    found |= {"trained": trained(out / f"trained-{size}")}
    (out / f"rows-{size}.{context.get_world_rank()}.json").write_text(json.dumps(found))


def ray_data() -> None:
    """Track the batches of a Ray dataset, by the ids that its rows carry."""
    loader = track(
        ray.data.range(20, override_num_blocks=1).iter_torch_batches(batch_size=8), run=OUT / "ray-data", ids="id"
    )
    seen = [int(x) for batch in loader for x in batch["id"]]
    loader.close()
    (OUT / "ray-data.json").write_text(json.dumps(seen))


def outside() -> None:
    """Write down how preparing is refused where no worker runs."""
    (OUT / "outside.json").write_text(json.dumps(refused(prepare, Loader(SOURCES, batch_size=8))))


def main() -> None:
    """Run the example with the rows in front of its loop."""
    outside()
    if "--alone" in sys.argv:
        config = {"run": str(OUT / "run")}
        TorchTrainer(rows, train_loop_config=config, scaling_config=ScalingConfig(num_workers=0)).fit()
        with contextlib.suppress(Exception):
            TorchTrainer(failing, train_loop_config=config, scaling_config=ScalingConfig(num_workers=0)).fit()
        return
    spec = importlib.util.spec_from_file_location("ray_training", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    sys.modules["ray_training"] = example
    spec.loader.exec_module(example)
    ray.cloudpickle.register_pickle_by_value(example)  # workers do not find it by its name
    loop = example.loop

    def rows_and_loop(config: dict) -> None:
        rows(config)
        loop(config)

    example.loop = rows_and_loop
    example.main(OUT)
    ray_data()


if __name__ == "__main__":
    main()
