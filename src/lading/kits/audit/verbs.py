"""``lading audit MODULE:FUNCTION``: watch a short run of a loader and say what is wrong with it.

lading audit train:make_loader                  the loader that make_loader() returns
lading audit train:make_loader --world-size 4   made once for each of 4 ranks, as torchrun would
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer
from rich.text import Text

from lading.cli.output import Json, answer
from lading.errors import ConfigError
from lading.runtime.imports import imported
from lading.runtime.processes import environment


def audit(
    loader: Annotated[
        str, typer.Argument(help="Where the loader is made: module:function.", metavar="MODULE:FUNCTION")
    ],
    epochs: Annotated[int, typer.Option(help="Epochs to watch.")] = 2,
    world_size: Annotated[int, typer.Option(help="Make the loader once for each of so many ranks.")] = 1,
    set_epoch: Annotated[bool, typer.Option("--set-epoch", help="The training loop calls set_epoch.")] = False,
    limit_batches: Annotated[int | None, typer.Option(help="Batches the training loop takes of an epoch.")] = None,
    as_json: Json = False,
) -> None:
    """Watch a short run of a loader and say what is wrong with it. Exit code 1: something is.

    Example: lading audit train:make_loader --world-size 4
    """
    from lading.kits.audit import audit as watch  # torch is optional and slow to import

    make = imported(loader, "LOADER", example="train:make_loader", from_here=True)
    if world_size < 1:
        raise ConfigError(f"--world-size is {world_size}: expected at least 1.")
    loaders = [_made(make, rank, world_size) for rank in range(world_size)]
    findings = watch(
        loaders if world_size > 1 else loaders[0], epochs, set_epoch=set_epoch, limit_batches=limit_batches
    )
    value = {"loader": loader, "epochs": epochs, "findings": [f.to_dict() for f in findings]}
    text = "\n\n".join(map(str, findings)) or f"nothing wrong in {epochs} epochs"
    answer(value, lambda: Text(text), as_json=as_json, holds=all(f.level == "note" for f in findings))


def _made(make: Any, rank: int, world_size: int) -> Any:
    if not callable(make):
        return make  # the loader itself
    wanted = inspect.signature(make).parameters
    given = {k: v for k, v in {"rank": rank, "world_size": world_size}.items() if k in wanted}
    told = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)}  # as torchrun would
    with environment(**(told if world_size > 1 else {})):
        return make(**given)
