"""Compile what is compiled at first use, so that tests and measurements do not wait for it.

torch marks a folder in which it compiles by a file called ``lock``, and waits for ever for one that a killed compiler
left. Its owner keeps it open, so one that no process has open is removed here; compilers that the dead owner started
work on in that folder, and are ended first.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

MOST_SECONDS = 900
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
        compile_deepspeed()


def compile_deepspeed() -> None:
    """Start DeepSpeed once, in a folder of this environment's own, without the locks of the dead."""
    extensions = Path(os.environ.setdefault("TORCH_EXTENSIONS_DIR", f"{sys.prefix}/torch_extensions"))
    for lock in abandoned_locks(extensions):
        end_orphans(lock.parent)
        print(f"a compiler that was killed left {lock}: removed")
        lock.unlink(missing_ok=True)
    single = {"DS_ACCELERATOR": "cpu", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    group = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29561"}
    environment = {**os.environ, **single, **group}
    command = [sys.executable, "-c", DEEPSPEED]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        sys.exit(
            f"DeepSpeed did not start within {MOST_SECONDS} s. It waits for a compiler, or for the lock of one: see "
            f"`find {extensions} -name lock`, end what holds it or remove it, and run `make setup` again."
        )
    if done.returncode:
        print("DeepSpeed did not start; its tests will say why:\n" + done.stderr[-800:])


def abandoned_locks(extensions: Path) -> list[Path]:
    """Return the locks of torch's compilers below a folder that no process has open."""
    locks = {path.resolve(): path for path in extensions.glob("*/lock")}
    for handle in Path("/proc").glob("[0-9]*/fd/*") if locks else ():
        try:
            locks.pop(handle.readlink(), None)
        except OSError:  # closed meanwhile, or another user's
            continue
    return list(locks.values())


def end_orphans(folder: Path) -> None:
    """End the processes that work in a folder: they would write what the next compiler writes."""
    for place in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if place.readlink() == folder.resolve():
                os.kill(int(place.parts[2]), signal.SIGTERM)
        except OSError:  # ended meanwhile, or another user's
            continue


if __name__ == "__main__":
    main()
