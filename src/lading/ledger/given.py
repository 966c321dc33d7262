"""What callers give, refused where it is given: options, numbers, losses of rows, bills."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lading.errors import ConfigError, LedgerError
from lading.identity import Bill
from lading.ledger.description import RECORDS
from lading.ledger.launch import Launch
from lading.ledger.rows import MOST_OPEN
from lading.runtime.arrays import framework
from lading.runtime.fields import whole


def check_choices(record: str | None, on_error: str) -> None:
    """Refuse options of a ledger that are none."""
    if record is not None and record not in RECORDS:
        raise ConfigError(f"record is {record!r}: expected one of {', '.join(map(repr, RECORDS))}.")
    if on_error not in ("raise", "warn"):
        raise ConfigError(f"on_error is {on_error!r}: expected 'raise' or 'warn'.")


def checked_number(name: str, value: Any) -> Any:
    """Return a number as it is now, as a float; one on a device as a tensor that nobody changes; refuse the rest."""
    if value is None or type(value) is float:
        return value
    try:
        if getattr(value, "is_cpu", False) is True or isinstance(value, np.ndarray):
            return float(value.item())  # no device is waited for
        if isinstance(value, int | float | np.number | np.bool_):
            return float(value)
        is_single = hasattr(value, "__float__") and math.prod(getattr(value, "shape", ())) == 1
        if is_single and not framework(value):
            return float(value)  # whatever it is, it may be another number soon
    except (OverflowError, TypeError, ValueError, RuntimeError):
        is_single = False
    if not is_single:
        shown = f"{type(value).__name__}{list(value.shape) if hasattr(value, 'shape') else ''}"
        raise LedgerError(
            f"{name} of a commit is {shown}: expected a number, or a tensor of one number. Pass each metric by its own "
            "name: ledger.commit(bill, loss=loss, lr=lr)."
        )
    return unchanged(value)


def unchanged(tensor: Any) -> Any:
    """Return a tensor that stays as it is, whatever is done to the given one, and that keeps no graph alive.

    The copy is made on the tensor's own device, in the order of its stream: nothing waits. JAX's arrays never change.
    """
    return tensor.detach().clone() if hasattr(tensor, "detach") else tensor


def checked_update(update: Any) -> int | None:
    """Return the number of an update; refuse what is none."""
    if update is None:
        return None
    number = whole(update)
    if number is None or not 0 <= number < 1 << 63:
        raise LedgerError(
            f"update of a commit is {update!r}: expected the number of the optimizer update, from 0. "
            "Leave it out if there is none."
        )
    return number


def _row_losses(bill: Bill, losses: Any) -> Any:
    """Return the losses of a batch's rows: numbers as an array, a tensor as a copy (it is read in the background).

    Expected is a loss for each row of the batch, or for each that is no padding.
    """
    try:
        if not hasattr(losses, "detach"):
            losses = np.array(losses, dtype=np.float32)
        shape = tuple(losses.shape)
    except (TypeError, ValueError) as error:
        raise LedgerError(
            f"row_losses of step {bill.step} cannot be read as numbers ({error}): expected a number for each of the "
            f"{len(bill)} rows of the batch, NaN where it is unknown."
        ) from error
    if shape not in ((len(bill),), (bill.num_samples,)):
        real = f" (or {bill.num_samples}, padding left out)" if bill.num_samples != len(bill) else ""
        raise LedgerError(
            f"row_losses of step {bill.step} have the shape {list(shape)}: expected {len(bill)} numbers{real}, one for "
            "each row of this rank's batch. Pass losses with reduction='none', one number a row; with several bills, "
            "a list of them, one for each bill."
        )
    return unchanged(losses)


def checked_bills(bills: Any) -> list[Bill]:
    """Return several bills; refuse what is none."""
    several = list(bills) if isinstance(bills, Iterable) else [bills]
    for bill in several:
        if not isinstance(bill, Bill):
            raise LedgerError(
                f"the ledger was given {type(bill).__name__} for a bill: expected a Bill, or a list of them. "
                "Commit the bills that loader.with_bills() yields."
            )
    return several


def check_open(bills: Sequence[Bill], delivered: Mapping[int, Bill], fate: str, launch: Launch | None) -> None:
    """Refuse bills of steps that wait for no fate, or twice the same, or of other samples than were delivered."""
    if len(bills) == 1 and delivered.get(bills[0].step) is bills[0]:
        return  # as a rule
    steps = [bill.step for bill in bills]
    if not delivered.keys() >= (once := set(steps)) or len(once) < len(steps):
        unknown = [step for step in steps if step not in delivered]
        step = unknown[0] if unknown else max(steps, key=steps.count)
        attempt = None if launch is None else launch.attempt
        raise LedgerError(
            f"step {step} cannot become {fate}: its fate was recorded before in attempt {attempt}, or it is not among "
            f"the last {MOST_OPEN} delivered. Commit or skip each batch once, and soon."
        )
    for bill in bills:
        given = delivered[bill.step]
        if bill is not given and bill.digest != given.digest:
            raise LedgerError(
                f"step {bill.step} cannot become {fate}: it was delivered as batch {given.batch_id}, {len(given)} "
                f"samples, and this is batch {bill.batch_id}, {len(bill)} samples. Expected the bill of the loader "
                "that this ledger tracks, of this rank. Another loader needs a ledger and a folder of its own."
            )


def checked_losses(bills: Bill | list[Bill], losses: Any) -> tuple[Any, ...]:
    """Return the losses of the rows of each bill, None where they are unknown; refuse what does not fit the bills."""
    if isinstance(bills, Bill):
        return (_row_losses(bills, losses),)
    if not hasattr(losses, "__len__") or len(losses) != len(bills):
        found = len(losses) if hasattr(losses, "__len__") else type(losses).__name__
        raise LedgerError(
            f"row_losses of {len(bills)} bills are {found}: expected a list with the losses of each bill's rows, or "
            "None for a bill whose losses are unknown."
        )
    return tuple(None if one is None else _row_losses(b, one) for b, one in zip(bills, losses, strict=True))
