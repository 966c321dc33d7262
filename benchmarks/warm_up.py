"""Compile what is compiled at first use, so that tests and measurements do not wait for it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

DEEPSPEED = """
import torch, deepspeed
model = torch.nn.Linear(2, 2)
config = {"train_batch_size": 1, "optimizer": {"type": "Adam", "params": {"torch_adam": True}}}
deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
"""


def main() -> None:
    """Run Lading's kernels once, and DeepSpeed where it is installed."""
    import numpy as np

    from lading import NumpyLoader, Plan, pack

    Plan.make({"a": 100, "b": 50}, batch_size=8).bill(0).digest  # noqa: B018
    next(iter(NumpyLoader(np.zeros(8), 4)))
    for algorithm in ("first_fit", "best_fit", "concat_then_split"):
        pack([[1, 2], [3]], row_length=4, algorithm=algorithm)
    if importlib.util.find_spec("deepspeed"):
        single = {"DS_ACCELERATOR": "cpu", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
        group = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29561"}
        result = subprocess.run(
            [sys.executable, "-c", DEEPSPEED], env={**os.environ, **single, **group}, capture_output=True, text=True
        )
        if result.returncode:
            print("DeepSpeed did not start; its tests will say why:\n" + result.stderr[-800:])


if __name__ == "__main__":
    main()
