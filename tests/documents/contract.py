"""What the documents promise to be there: names, where they are imported from, and their arguments in order."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import lading


def promised(name: str, stage: str) -> Any:
    """Return what a name stands for; it must be the same from ``lading`` and from its stage."""
    found = getattr(lading, name)
    assert found is getattr(importlib.import_module(f"lading.{stage}"), name)
    return found


def check_arguments(called: Any, written: str) -> None:
    """Compare arguments by place, and the defaults that are promised; more may follow.

    Args:
        called: A class or function.
        written: Its arguments as the contract writes them, such as ``dataset, seed=42``.
    """
    theirs = inspect.signature(eval(f"lambda {written}: None")).parameters.values()
    ours = [
        argument
        for argument in inspect.signature(called).parameters.values()
        if argument.kind is not inspect.Parameter.VAR_KEYWORD
    ]

    assert [argument.name for argument in ours[: len(theirs)]] == [argument.name for argument in theirs]
    for mine, wanted in zip(ours, theirs, strict=False):
        assert mine.kind is wanted.kind, f"{mine.name} is {mine.kind.description}"
        if wanted.default is not inspect.Parameter.empty:
            assert mine.default == wanted.default and type(mine.default) is type(wanted.default), mine.name
