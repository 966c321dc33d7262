"""The example for Ray, and in each of its workers, first, what Ray does to loaders: ``ray_rows.py OUT``."""

from __future__ import annotations

import importlib.util
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
from ray.train.torch import prepare_data_loader
from torch.utils.data import DataLoader, TensorDataset

from lading import Columns, Ledger, Loader, track
from lading.errors import LadingError

EXAMPLE = Path(__file__).parents[3] / "examples" / "ray_training.py"
OUT = Path(sys.argv[1])

LADING = {
    "ray": {},
    "ray-undistributed": {"add_dist_sampler": False},
    "ray-unmoved": {"move_to_device": False},
}


def ours(folder: Path, options: dict) -> dict:
    """Return what a Lading loader delivers that Ray prepared, and where it said it was after each batch."""
    with Ledger(folder) as ledger:
        loader = Loader({"data": Columns(x=np.arange(100))}, batch_size=8, seed=5, tracker=ledger)
        seen, steps = [], []
        for batch in prepare_data_loader(loader, **options):
            bill = loader.last_bill
            ledger.commit(bill)
            seen += batch["x"][~torch.from_numpy(bill.is_padding)].tolist()
            steps.append([bill.step, loader.state_dict()["step"]])
    return {"seen": seen, "steps": steps}


def tracked(folder: Path) -> dict:
    """Return what a plain DataLoader delivers that Ray prepared and track watches."""
    plain = DataLoader(TensorDataset(torch.arange(100)), batch_size=8, shuffle=True)
    loader = track(prepare_data_loader(plain, move_to_device=False), run=folder)
    seen = [int(x) for (batch,) in loader for x in batch]
    loader.close()
    return {"seen": seen}


def tracked_too_early() -> dict:
    """Return how Ray's preparing of a tracked loader is refused."""
    plain = DataLoader(TensorDataset(torch.arange(100)), batch_size=8)
    try:
        return {"seen": [int(x) for (batch,) in prepare_data_loader(track(plain)) for x in batch]}
    except LadingError as error:
        return {"refused": str(error)}


def rows(config: dict) -> None:
    """Run every row on every worker, and write down what it delivered."""
    context = ray.train.get_context()
    out, size = Path(config["run"]).parent, context.get_world_size()
    found = {name: ours(out / f"{name}-{size}", options) for name, options in LADING.items()}
    found |= {"tracked": tracked(out / f"tracked-{size}"), "tracked-too-early": tracked_too_early()}
    (out / f"rows-{size}.{context.get_world_rank()}.json").write_text(json.dumps(found))


def ray_data() -> None:
    """Track the batches of a Ray dataset, by the ids that its rows carry."""
    loader = track(
        ray.data.range(20, override_num_blocks=1).iter_torch_batches(batch_size=8), run=OUT / "ray-data", ids="id"
    )
    seen = [int(x) for batch in loader for x in batch["id"]]
    loader.close()
    (OUT / "ray-data.json").write_text(json.dumps(seen))


def main() -> None:
    """Run the example with the rows in front of its loop."""
    spec = importlib.util.spec_from_file_location("ray_training", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    sys.modules["ray_training"] = example
    spec.loader.exec_module(example)
    ray.cloudpickle.register_pickle_by_value(example)  # workers do not find it by its name
    train = example.loop

    def loop(config: dict) -> None:
        rows(config)
        train(config)

    example.loop = loop
    example.main(OUT)
    ray_data()


if __name__ == "__main__":
    main()
