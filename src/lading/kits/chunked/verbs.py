"""``lading train CONFIG.yaml``: train what a configuration describes, and leave a run that can be asked."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Annotated

import typer
import yaml
from rich.text import Text

from lading.cli.output import Json, answer
from lading.errors import ConfigError, missing_extra
from lading.kits.chunked.config import described_schema, read_config

Config = Annotated[str | None, typer.Argument(help="YAML file of the run.", metavar="CONFIG", show_default=False)]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", help="Change a value: train.train_chunk_size=500.", metavar="KEY=VALUE")
]
Resume = Annotated[bool, typer.Option("--resume", help="Resume from the run directory's last checkpoint.")]
Checkpoint = Annotated[str | None, typer.Option("--checkpoint", help="Resume from this checkpoint.", metavar="FILE")]
PrintConfig = Annotated[bool, typer.Option("--print-config", help="Show the configuration as it would be used.")]


Schema = Annotated[bool, typer.Option("--schema", help="Show every key that a file may have, and what it takes.")]


def train(
    config: Config = None,
    assignments: Assignments = None,
    resume: Resume = False,
    checkpoint: Checkpoint = None,
    print_config: PrintConfig = False,
    schema: Schema = False,
    as_json: Json = False,
) -> None:
    """Train what a configuration describes.

    Example: lading train train.yaml --set seed=3, or lading train --schema
    """
    if schema:
        known = described_schema()
        print(json.dumps(known, indent=1) if as_json else yaml.safe_dump(known, sort_keys=False, width=120), end="")
        return
    if config is None:
        raise ConfigError("which configuration? Expected CONFIG, a YAML file; --schema shows what it may hold.")
    read = read_config(config, assignments or ())
    if print_config:
        shown = read.as_dict()
        print(json.dumps(shown, indent=1) if as_json else yaml.safe_dump(shown, sort_keys=False), end="")
        return
    _find_classes_beside(config)
    try:
        from lading.kits.chunked.lightning.run import run  # here: Lightning is optional and slow to import
    except ImportError as error:
        raise missing_extra("lightning", "lightning", "lading train") from error
    outcome = run(read, resume=resume, checkpoint=checkpoint)
    if os.environ.get("LOCAL_RANK", "0") == "0":
        answer(asdict(outcome), lambda: _told(outcome), as_json=as_json)


def _find_classes_beside(config: str) -> None:
    """Let class paths name modules in the working directory and beside the configuration."""
    for folder in (os.getcwd(), os.path.dirname(os.path.abspath(config))):
        if folder not in sys.path:
            sys.path.append(folder)


def _told(outcome) -> Text:  # type: ignore[no-untyped-def]
    from lading.kits.chunked.mixin import progress_line  # here: it opens torch, which --print-config does not need

    lines = [f"{outcome.updates} updates in {outcome.epochs} epochs of the trainer"]
    if outcome.data:
        lines.append(f"data: {progress_line(outcome.data)}")
    if outcome.metrics:
        lines.append("metrics: " + ", ".join(f"{name} {value:.4g}" for name, value in outcome.metrics.items()))
    if outcome.run_dir:
        lines.append(f"run: {outcome.run_dir}   (lading show {outcome.run_dir})")
    return Text("\n".join(lines))
