"""The processes of a run, however they were started.

    deepspeed script.py     RANK, WORLD_SIZE, ... are in the environment
    torchrun script.py      so they are
    python script.py        they are not: one process, alone

Afterwards there is a process group, and Lading's ``World`` speaks of it.
"""

from __future__ import annotations

import os
import socket

import deepspeed
import torch

from lading.errors import WorldError
from lading.identity import World


def join_processes() -> World:
    """Join the process group, making it if need be, and return who we are in it."""
    if not torch.distributed.is_initialized() and "RANK" not in os.environ:
        # DeepSpeed looks these up itself, and would otherwise ask MPI.
        alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
        os.environ.update({**alone, "MASTER_PORT": str(_free_port())})
    deepspeed.init_distributed(auto_mpi_discovery=False, verbose=False)
    return World.current()


def check_agreement(number: int, what: str, device: torch.device) -> None:
    """Raise on every process if they do not all bring the same number."""
    both = torch.tensor([number, -number], dtype=torch.int64, device=device)
    torch.distributed.all_reduce(both, torch.distributed.ReduceOp.MAX)
    greatest, least = int(both[0]), -int(both[1])
    if greatest != least:
        raise WorldError(
            f"the processes disagree on {what}: {least} here, {greatest} there. Do all machines see the same "
            "output_dir?"
        )


def barrier() -> None:
    """Wait for all processes."""
    torch.distributed.barrier()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
